"""The version of the installed agent."""

from importlib.metadata import version

DISTRIBUTION = "compute-node-agent"


def agent_version() -> str:
    """As its package says."""
    return version(DISTRIBUTION)
