"""Notices what a driver changes of the process that it runs in, which belongs to the agent."""

import builtins
import locale
import logging
import os
import queue
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

_MODULES: tuple[ModuleType, ...] = (
    builtins,
    os,
    queue,
    select,
    signal,
    socket,
    subprocess,
    threading,
    time,
)
"""Their public names must stay what they are; a driver that replaces them (as eventlet's
``monkey_patch`` does) changes them for the whole agent.
"""
_STREAMS = ("stdin", "stdout", "stderr")
_HOOKS = ("excepthook", "unraisablehook", "displayhook")
_LIMITS = {name: number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}


class ProcessWatch:
    """Compares the state of the process with what it was before."""

    def __init__(self) -> None:
        self._before = _state()
        self._threads = {thread.ident for thread in threading.enumerate()}

    def changes(self) -> Iterator[str]:
        """Yield a text for each change since the last call."""
        before, self._before = self._before, _state()
        for name in sorted(before.keys() | self._before.keys()):
            was, now = before.get(name), self._before.get(name)
            # Compared by identity where it is no plain value, because == of a driver's object may
            # say anything.
            if was is not now and not (_is_plain(was) and _is_plain(now) and was == now):
                yield _change_text(name, was, now)

    def threads_left(self) -> Iterator[str]:
        """Yield a text for each new thread that keeps the process from ending."""
        for thread in threading.enumerate():
            if thread.ident not in self._threads and not thread.daemon:
                yield f"the thread {thread.name!r} runs on, and keeps the process from ending"


def _state() -> Mapping[str, object]:
    """Return what a driver could change, each under the name that a message has for it."""
    status = Path("/proc/self/status").read_text(errors="replace")
    root = logging.getLogger()
    return {
        "the working directory": _working_directory(),
        "the umask": next(
            (line.split()[1] for line in status.splitlines() if line.startswith("Umask:")), None
        ),
        "the user": (*os.getresuid(), *os.getresgid()),
        "the recursion limit": sys.getrecursionlimit(),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the time zone": time.tzname,
        "the default timeout of sockets": socket.getdefaulttimeout(),
        "an alarm": signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0),
        "the level of the root logger": root.level,
        "the handlers of the root logger": tuple(map(id, root.handlers)),
        "the level up to which logging is disabled": root.manager.disable,
        **{f"the handler of {number.name}": _handler(number) for number in signal.Signals},
        **{f"the limit {name}": resource.getrlimit(number) for name, number in _LIMITS.items()},
        **{f"the environment variable {name}": _Hidden(text) for name, text in os.environ.items()},
        **{f"sys.{name}": getattr(sys, name, None) for name in (*_STREAMS, *_HOOKS)},
        **{
            f"{module.__name__}.{name}": value
            for module in _MODULES
            for name, value in vars(module).items()
            if not name.startswith("_") and name != "environ"
        },
    }


def _handler(number: signal.Signals) -> object:
    found = signal.getsignal(number)
    return found.name if isinstance(found, signal.Handlers) else found


class _Hidden(str):
    """A value that no message shows, because it may be a secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(not shown)"


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "deleted"


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | tuple)


def _change_text(name: str, was: object, now: object) -> str:
    if was is None:
        return f"{name} was set"
    if now is None:
        return f"{name} was taken away"
    if _is_plain(was) and _is_plain(now) and not isinstance(now, _Hidden):
        return f"{name} was changed from {str(was)[:100]} to {str(now)[:100]}"
    return f"{name} was replaced"
