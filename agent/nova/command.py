"""The command ``agent-nova-compute``: nova-compute with the agent's report to Placement."""

import sys
from pathlib import Path

MANAGER = "agent.nova.manager.ComputeManager"


def main() -> None:
    """Run nova-compute with its own command line and configuration."""
    # By the program's name, oslo.config finds nova-compute's own files and oslo.log names its file.
    sys.argv[0] = str(Path(sys.argv[0]).with_name("nova-compute"))
    # The first import of nova, because it chooses between eventlet and threads for the process.
    from nova.cmd import compute

    compute.service.SERVICE_MANAGERS["nova-compute"] = MANAGER
    compute.main()
