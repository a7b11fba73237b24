"""The command ``agent-nova-compute``: nova-compute with the agent's report to Placement."""

MANAGER = "agent.nova.manager.ComputeManager"


def main() -> None:
    """Run nova-compute with its own command line and configuration."""
    # The first import of nova, because it chooses between eventlet and threads for the process.
    from nova.cmd import compute

    compute.service.SERVICE_MANAGERS["nova-compute"] = MANAGER
    compute.main()
