"""The command ``agent-nova-compute``: nova-compute with the agent's report to Placement."""

import functools
import sys
from pathlib import Path

NAME = "nova-compute"
MANAGER = "agent.nova.manager.ComputeManager"


def main() -> None:
    """Run nova-compute with its own command line and configuration."""
    # By the program's name, oslo.config finds nova-compute's own files.
    sys.argv[0] = str(Path(sys.argv[0]).with_name(NAME))
    # The first import of nova, because it chooses between eventlet and threads for the process.
    from nova.cmd import compute
    from oslo_log import handlers

    compute.service.SERVICE_MANAGERS[NAME] = MANAGER
    # oslo.log names its file, and itself in syslog and the journal, by the outermost file,
    # and oslo.reports its file: this command's, where log rotation looks for nova's.
    handlers._get_binary_name = lambda: NAME
    report = compute.gmr.TextGuruMeditation
    report.setup_autorun = functools.partial(report.setup_autorun, service_name=NAME)
    compute.main()
