"""The command ``agent-nova-compute``: nova-compute with the agent's report to Placement."""

MANAGER = "agent.nova.manager.ComputeManager"


def main() -> None:
    """Run nova-compute with its own command line and configuration."""
    # Before anything else of nova, because it patches the interpreter.
    from nova import service
    from nova.cmd import compute

    service.SERVICE_MANAGERS["nova-compute"] = MANAGER
    compute.main()
