"""The version of the installed agent, and how what its extras need is installed beside it."""

import shlex
import sys
from functools import cache
from importlib.metadata import requires, version

DISTRIBUTION = "compute-node-agent"
UNKNOWN = "unknown"
# Reports of every other error name the version and extras too: missing, unreadable or broken
# metadata must not hide that error.
_NO_METADATA = (ImportError, LookupError, OSError, TypeError, ValueError)


@cache
def agent_version() -> str:
    """Return the version in the package's metadata, as it was when it was first asked for;
    ``UNKNOWN`` if they cannot be read or have none.
    """
    try:
        return version(DISTRIBUTION) or UNKNOWN
    except _NO_METADATA:
        return UNKNOWN


def pip_install(extra: str) -> str:
    """Return the command that installs what an extra of this package needs, for the Python that
    runs. The package itself is not named, because it may be installed from a checkout.
    """
    try:
        needed = requires(DISTRIBUTION) or ()
    except _NO_METADATA:
        needed = ()
    found = [one.partition(";")[0] for one in needed if one.endswith(f'extra == "{extra}"')]
    packages = found or [f"{DISTRIBUTION}[{extra}]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])
