"""Records the I/O of a function: what Python reports to its audit hooks in the function's thread.

I/O that a C library does by itself is not seen. Imports are not recorded, because a function that
imports a module at its first call does no I/O later.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

READS = frozenset({"open", "os.listdir", "os.scandir", "glob.glob"})
"""Events of files that may be read only."""
CHANGES = frozenset(
    {
        "os.chmod",
        "os.chown",
        "os.link",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.symlink",
        "os.truncate",
    }
)
"""Events of files that are changed."""
TRAFFIC = frozenset(
    {
        "os.posix_spawn",
        "os.system",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.sendmsg",
        "socket.sendto",
        "sqlite3.connect",
        "subprocess.Popen",
    }
)
"""Events of connections and of other programs."""
_WRITING = frozenset("wax+")
_IMPORTED = (".py", ".pyc", ".so")
_SHOWN = 160


class _Records(threading.local):
    """The events of this thread while a function is watched; None otherwise."""

    events: list[tuple[str, str, bool]] | None = None


_records = _Records()
_installed = threading.Event()
_lock = threading.Lock()


def watch_io(
    function: Callable[..., T], *args: object
) -> tuple[T, Sequence[tuple[str, str, bool]]]:
    """Return what ``function(*args)`` returns, and its I/O in this thread: the name of each event,
    a text that shows it, and whether it writes, connects or starts a program.
    """
    _install()
    found = _records.events = []
    try:
        return function(*args), found
    finally:
        _records.events = None


def _install() -> None:
    # A hook cannot be removed again, so that a process has one.
    with _lock:
        if not _installed.is_set():
            sys.addaudithook(_record)
            _installed.set()


def _record(event: str, args: tuple[Any, ...]) -> None:
    found = _records.events
    if found is None or event not in READS | CHANGES | TRAFFIC:
        return
    subject = args[1] if event == "socket.connect" else args[0] if args else ""
    if event == "open" and str(subject).endswith(_IMPORTED):
        return
    mode = args[1] if event == "open" and len(args) > 1 else ""
    writes = event not in READS or not _WRITING.isdisjoint(str(mode or ""))
    found.append((event, f"{event} {subject!r}"[:_SHOWN], writes))
