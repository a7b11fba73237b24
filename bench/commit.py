"""The commit of the code that a bench measures."""

import subprocess

from tests.support.child import CHECKOUT


def code_commit() -> str:
    """Return the commit of the code that is measured, and whether files differ from it."""
    files = ("agent", "drivers", "bench", "tests/support")
    try:
        commit = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--", *files)
    except (OSError, subprocess.CalledProcessError):
        return "unknown, because this is no clone"
    return f"{commit} with changes of its own" if changed else commit


def _git(*arguments: str) -> str:
    command = ("git", "-C", str(CHECKOUT), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
