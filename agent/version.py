"""The version of the installed agent."""

from functools import cache
from importlib.metadata import version

DISTRIBUTION = "compute-node-agent"
UNKNOWN = "unknown"


@cache
def agent_version() -> str:
    """Return the version in the package's metadata, as it was when it was first asked for;
    ``UNKNOWN`` if they cannot be read or have none.
    """
    # Reports of every other error name the version too: missing, unreadable or broken metadata must
    # not hide that error.
    try:
        return version(DISTRIBUTION) or UNKNOWN
    except (ImportError, LookupError, OSError, TypeError, ValueError):
        return UNKNOWN
