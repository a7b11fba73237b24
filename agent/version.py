"""The version of the installed agent."""

from importlib.metadata import version

DISTRIBUTION = "compute-node-agent"
UNKNOWN = "unknown"


def agent_version() -> str:
    """Return the version that the package's metadata names, ``UNKNOWN`` where they cannot be read
    or name none.
    """
    # Because a report of any other error names the version too: metadata that are gone, closed or
    # broken must not hide that error.
    try:
        return version(DISTRIBUTION) or UNKNOWN
    except (ImportError, LookupError, OSError, TypeError, ValueError):
        return UNKNOWN
