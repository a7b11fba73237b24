"""Puts the engine in place of nova's report in a process of nova's own tests, as the command
``agent-nova-compute`` does in its own. Many hosts of a test have one ``state_path`` and live in one
process: each keeps its mirror in memory.
"""

from nova.compute import resource_tracker

from agent.nova.tracker import ResourceTracker
from agent.placement.server import NoStorage

ResourceTracker.storage = staticmethod(lambda _host: NoStorage())
resource_tracker.ResourceTracker = ResourceTracker
