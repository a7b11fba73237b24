"""The Python that has nova: that of the variable, or that of tox -e nova, which is made if it is
missing.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.child import CHECKOUT

VARIABLE = "NOVA_PYTHON"
MADE = CHECKOUT / ".tox" / "nova" / "bin" / "python"


def has_nova(python: str | Path) -> bool:
    """Whether this Python can import nova."""
    command = [str(python), "-c", "import nova"]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def find_nova_python() -> str:
    """Return the path of a Python that has nova.

    :raises SystemExit: there is none, and none can be made.
    """
    if (named := os.environ.get(VARIABLE)) is not None:
        if not has_nova(named):
            raise SystemExit(f"{VARIABLE} = {named}: it cannot import nova")
        return named
    if not has_nova(MADE):
        print("making the environment of nova, once", file=sys.stderr, flush=True)
        subprocess.run(
            [sys.executable, "-m", "tox", "-q", "-e", "nova", "--notest"],
            check=False,
            cwd=CHECKOUT,
            stdout=sys.stderr,
        )
    if not has_nova(MADE):
        raise SystemExit(f"tox -e nova --notest made no Python with nova; or set {VARIABLE}")
    return str(MADE)
