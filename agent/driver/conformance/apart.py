"""Runs the conformance suite in a process of its own, so that a driver which ends, stops or changes
its process fails checks and not the command.
"""

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NoReturn

from agent.driver.conformance.check import Breach, CheckedPromise, Conformance
from agent.driver.conformance.life import CONSTRUCTOR, PROCESS_END
from agent.driver.conformance.suite import ALL_CHECKS, check_conformance
from agent.driver.conformance.trial import describe_exception
from agent.driver.conformance.trial_settings import CONSTRUCTED, Progress, TrialSettings
from agent.errors import AgentBug, AgentError, ConfigError, ConfigErrors, DriverError
from agent.model.names import printable

EXAMINATION = 60.0
"""Seconds in which the suite examines an answer."""
GRACE = 5.0
"""Seconds beyond the deadline of a call until the process is ended, because the suite could not
abandon the call: the driver holds the interpreter.
"""
MOST_MEMORY = 2 << 30
"""Bytes that the process may take, so that an answer without end does not take all of the host."""
_PR_SET_PDEATHSIG = 1
_HIGH = 300
"""The least number of the file of the messages, so that a driver that closes all files and opens
others does not get messages into its own.
"""
_CUT_OFF = 113
"""The exit code of a process that cannot send messages any more."""


def check_apart(settings: TrialSettings) -> Conformance:
    """Check as :func:`check_conformance` does, in a process of its own.

    What the driver does to the process is a breach of one of the promises ``constructor``,
    ``process-end`` and ``process-state``; what was not checked before the process ended is
    ``unchecked``.

    :raises AgentError: the driver says that it cannot be started, or no process could be started.
    :raises ConfigError: a chosen node does not exist.
    """
    for stream in (sys.stdout, sys.stderr):
        # What they hold would be written by both processes.
        with suppress(OSError, ValueError):
            stream.flush()
    parent = os.getpid()
    try:
        reading, writing = os.pipe()
        child = os.fork()
    except OSError as error:
        raise DriverError(
            f"driver {printable(settings.called)}: no process could be started for it: "
            f"{error.strerror}",
            "raise the number of processes and of open files that the user may have",
        ) from error
    if child == 0:
        _run(settings, writing, parent)
    os.close(writing)
    watched = _WatchedProcess(child, reading)
    try:
        watched.follow()
    finally:
        watched.close()
    return watched.conformance(settings.called)


# --- the process of the suite ---------------------------------------------------------------------


def _run(settings: TrialSettings, writing: int, parent: int) -> NoReturn:
    """Run the suite, tell the parent of it, and end the process."""
    messages = _Messages(fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, _HIGH))
    os.close(writing)
    try:
        _leave(parent)
        found = check_conformance(replace(settings, progress=messages))
        messages.send(
            kind="done", listed=found.listed, checked=[*found.checked], notes=[*found.notes]
        )
    except AgentError as error:
        parts = error.errors if isinstance(error, ConfigErrors) else (error,)
        messages.send(
            kind="errors", errors=[[part.code, part.message, part.remedy] for part in parts]
        )
    except Exception as error:  # noqa: BLE001 - told to the parent, which has the log
        bug = AgentBug.of(error)
        messages.send(kind="errors", errors=[[bug.code, bug.message, bug.remedy]])
    except BaseException as error:  # noqa: BLE001 - a driver can raise it in the main thread
        messages.send(
            kind="breach", detail=f"in the main thread: {describe_exception(error)}", over=True
        )
    finally:
        # Without what Python does at its end: it would wait for the driver's threads.
        os._exit(0)


def _leave(parent: int) -> None:
    """Leave the terminal and the process group of the parent, and end with it."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # The command raises an exception at them.
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(MOST_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


class _Messages(Progress):
    """Tells the parent what the suite does, in lines of JSON."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._process = pipe, os.getpid()
        self._lock = threading.Lock()
        self._numbers = count()

    def send(self, **message: Any) -> None:
        """Send one message."""
        text = json.dumps(message).encode() + b"\n"
        with self._lock:
            try:
                while text:
                    text = text[os.write(self._pipe, text) :]
            except OSError:
                os._exit(_CUT_OFF)

    @contextmanager
    def during(self, what: str, seconds: float) -> Iterator[None]:
        number = next(self._numbers)
        self.send(kind="begun", number=number, what=what, seconds=seconds)
        try:
            yield
        finally:
            self.send(kind="ended", number=number)

    def returned(self, what: str) -> None:
        if os.getpid() != self._process:
            # Without the lock, which another thread of the first process may have held.
            detail = f"os.fork() in {what}: a copy of the agent came back from it"
            text = json.dumps({"kind": "breach", "detail": detail, "over": False})
            with suppress(OSError):
                os.write(self._pipe, text.encode() + b"\n")
            os._exit(0)

    def judged(
        self, check: str, state: str, breaches: Sequence[tuple[str, str]], note: str
    ) -> None:
        self.send(kind="promise", check=check, state=state, breaches=[*breaches], note=note)


# --- the parent -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Begun:
    """Something that the suite has begun, and until when it has to end."""

    what: str
    seconds: float
    until: float


class _WatchedProcess:
    """The process of the suite, and what it has told so far."""

    def __init__(self, pid: int, pipe: int) -> None:
        self._pid, self._pipe = pid, pipe
        self._unread = b""
        self._promises: dict[str, CheckedPromise] = {}
        self._breaches: list[str] = []
        self._errors: Sequence[Sequence[str]] = ()
        self._under_way: dict[int, _Begun] = {}
        self._last = ""
        # When the last message came.
        self._moved = time.monotonic()
        self._done: Mapping[str, Any] | None = None
        self._over = False

    def follow(self) -> None:
        """Read the messages until the process has told its end, has ended, or is late."""
        ended = os.pidfd_open(self._pid)
        try:
            while not self._over:
                readable = select.select([self._pipe, ended], [], [], self._left())[0]
                if not readable:
                    self._breaches.append(self._late_text())
                    return
                if self._pipe in readable and self._read():
                    continue
                if not self._over:
                    self._breaches.append(self._end_text(ended))
                return
            self._hear_copies()
        finally:
            os.close(ended)

    def _hear_copies(self) -> None:
        """Read what copies of the process still tell, which a driver has forked. They have the pipe
        until they end.
        """
        until = time.monotonic() + GRACE
        while select.select([self._pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            if not self._read():
                return

    def close(self) -> None:
        """End what is left of the process and of the programs that it started."""
        os.close(self._pipe)
        with suppress(ProcessLookupError):
            # Not its group alone, because it may not have one of its own yet.
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def conformance(self, called: str) -> Conformance:
        """Return what came of the checks.

        :raises AgentError: the process could not check anything.
        """
        if self._errors:
            raise _error_of(self._errors)
        blamed = CONSTRUCTOR if self._last == CONSTRUCTED and self._done is None else PROCESS_END
        if self._breaches:
            breaches = [Breach("", text) for text in dict.fromkeys(self._breaches)]
            self._promises[blamed.name] = CheckedPromise(blamed, "broken", breaches)
        note = f"see the check {blamed.name}: the process ended before"
        done = self._done or {}
        return Conformance(
            called,
            [
                self._promises.get(check.name) or CheckedPromise(check, "unchecked", note=note)
                for check in ALL_CHECKS
            ],
            done.get("listed", 0),
            done.get("checked", ()),
            done.get("notes", ()),
        )

    def _left(self) -> float:
        """Return the seconds until the process is late."""
        waits = [begun.until for begun in self._under_way.values()]
        return max(0.0, max(waits, default=self._moved + EXAMINATION) - time.monotonic())

    def _read(self) -> bool:
        """Read what the pipe has. Return False at its end."""
        found = os.read(self._pipe, 1 << 16)
        *lines, self._unread = (self._unread + found).split(b"\n")
        for line in lines:
            # A driver may write into any file that is open.
            with suppress(ValueError, KeyError, TypeError):
                self._take(json.loads(line))
        self._moved = time.monotonic()
        return bool(found)

    def _take(self, message: Mapping[str, Any]) -> None:
        kind = message["kind"]
        if kind == "begun":
            seconds = float(message["seconds"])
            until = time.monotonic() + seconds + GRACE
            self._under_way[message["number"]] = _Begun(message["what"], seconds, until)
            self._last = message["what"]
        elif kind == "ended":
            self._under_way.pop(message["number"], None)
        elif kind == "promise":
            check = next(check for check in ALL_CHECKS if check.name == message["check"])
            self._promises[check.name] = CheckedPromise(
                check,
                message["state"],
                [Breach(node, detail) for node, detail in message["breaches"]],
                message["note"],
            )
        elif kind == "breach":
            self._breaches.append(message["detail"])
            self._over |= message["over"]
        else:
            self._over = True
            if kind == "errors":
                self._errors = message["errors"]
            else:
                self._done = message

    def _late_text(self) -> str:
        if not self._under_way:
            return (
                f"what {self._last} answered could not be examined within {EXAMINATION:g} s: it has"
                " no end, or asking it hangs; the process was ended"
            )
        begun = [*self._under_way.values()][-1]
        return f"{begun.what} did not end within {begun.seconds:g} s, and the process was ended"

    def _end_text(self, ended: int) -> str:
        """Return how the process ended, whose messages have ended."""
        about = f"{'in' if self._under_way else 'after'} {self._last}"
        closed = f"all files of the process were closed {about}"
        if not select.select([ended], [], [], GRACE)[0]:
            return closed
        found = os.waitid(os.P_PIDFD, ended, os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code == os.CLD_EXITED:
            code = found.si_status if found else 0
            return (
                closed if code == _CUT_OFF else f"the process ended with exit code {code} {about}"
            )
        return f"the process was ended by {signal.Signals(found.si_status).name} {about}"


def _error_of(parts: Sequence[Sequence[str]]) -> AgentError:
    """Return the error that the process of the suite ended with."""
    if len(parts) > 1:
        return ConfigErrors([ConfigError(message, remedy) for _code, message, remedy in parts])
    ((code, message, remedy),) = parts
    error = (
        ConfigError(message, remedy) if code == ConfigError.code else AgentError(message, remedy)
    )
    error.code = code
    return error
