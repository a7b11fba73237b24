"""Puts the engine in place of nova's report in a process of nova's own tests, as the command
``agent-nova-compute`` does in its own. Many hosts of a test have one ``state_path`` and live in one
process: each keeps its mirror in memory.
"""

from nova import service
from nova.compute import resource_tracker

from agent.nova.command import MANAGER
from agent.nova.manager import ResourceTracker
from agent.placement.server import OptionalStorage

ResourceTracker.storage = staticmethod(lambda _host: OptionalStorage())
service.SERVICE_MANAGERS["nova-compute"] = MANAGER
# Some tests make a tracker by themselves.
resource_tracker.ResourceTracker = ResourceTracker
