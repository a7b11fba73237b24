"""Plays systemd for the daemon: starts it, hears what it notifies, sends it signals."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tests.support.system import AgentCommand

Found = TypeVar("Found")

PATIENCE = 60.0
"""Seconds to wait for what should happen at once, on a machine that is very busy."""

STOP = 30.0
"""Seconds within which a service has to end after SIGTERM, on such a machine; whatever it might wait for takes longer."""


@dataclass(frozen=True)
class Message:
    """One notification: when it came, by the monotonic clock, and its assignments."""

    at: float
    says: Mapping[str, str]


class Service:
    """The daemon of ``command`` as a unit of Type=notify; ``watchdog`` is its WatchdogSec, 0 for
    none.
    """

    def __init__(self, command: AgentCommand, watchdog: float = 0) -> None:
        self.command = command
        self.log_file = command.folder / "agent.log"
        self._name = f"compute-node-agent-{uuid.uuid4()}"
        self._environment = {
            "NOTIFY_SOCKET": f"@{self._name}",
            "WATCHDOG_USEC": str(int(watchdog * 1_000_000)),
        }
        self._messages: list[Message] = []
        self._process: subprocess.Popen[str] | None = None

    @contextlib.contextmanager
    def running(self, **environment: str) -> Iterator["Service"]:
        """Started; killed at the end if it still runs."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.bind(f"\0{self._name}")
            listener = threading.Thread(target=self._listen, args=[channel], daemon=True)
            listener.start()
            try:
                with self.command.started(
                    env={**self._environment, **environment}
                ) as self._process:
                    yield self
            finally:
                # A service that is gone says nothing more, so this ends the listener; after a
                # failure too, because one that is left behind reads from whatever socket gets the
                # number of its own.
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                    end.sendto(b"", f"\0{self._name}")
                listener.join()

    def _listen(self, channel: socket.socket) -> None:
        while text := channel.recv(65536).decode():
            assignments = dict(line.split("=", 1) for line in text.split("\n"))
            self._messages.append(Message(time.monotonic(), assignments))

    @property
    def process(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "the service is not running"
        return self._process

    # --- what it says -----------------------------------------------------------------------------

    def said(self, *names: str, since: float = 0.0) -> list[Message]:
        """The messages that assign one of ``names``, or all messages."""
        return [
            one
            for one in self._messages
            if one.at >= since and (not names or set(names) & one.says.keys())
        ]

    @property
    def status(self) -> str:
        """The latest status line."""
        return next(
            (one.says["STATUS"] for one in reversed(self._messages) if "STATUS" in one.says), ""
        )

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def logged(self, text: str) -> str:
        """All that it has logged, once ``text`` is among it: a line is written after the message or
        the answer that it belongs to.
        """
        return until(lambda: log if text in (log := self.log) else "", lambda: self)

    def wait_for(self, name: str, value: str = "", since: float = 0.0) -> Message:
        """The first message since then that assigns ``name``, with ``value`` in it."""

        def found() -> Message | None:
            return next(
                (one for one in self.said(name, since=since) if value in one.says[name]), None
            )

        message = until(found, lambda: f"{name} with {value!r}: {self}")
        assert message is not None
        return message

    def __str__(self) -> str:
        state = "runs" if self.process.poll() is None else f"ended with {self.process.returncode}"
        return "\n".join(
            [
                f"the service {state}; it said",
                *(str(dict(one.says)) for one in self._messages),
                "and logged",
                self.log,
            ]
        )

    # --- what is done to it -----------------------------------------------------------------------

    def reload(self) -> float:
        """SIGHUP. Returns when that was, by the monotonic clock."""
        now = time.monotonic()
        self.process.send_signal(signal.SIGHUP)
        return now

    def stop(self) -> tuple[int, float]:
        """SIGTERM: the exit code, and how many seconds it took."""
        now = time.monotonic()
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        return code, time.monotonic() - now

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


def until(
    look: Callable[[], Found],
    describe: Callable[[], object] = lambda: "it did not happen",
    seconds: float = PATIENCE,
) -> Found:
    """What ``look`` returns, as soon as that is true."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, describe()
        time.sleep(0.02)
    return found


# ---
# An event in the place of the one that a shutdown sets, for tests of how long is waited.


class Waits(threading.Event):
    """Notes how long it was waited for, in seconds, and does not wait. ``during`` is called at each
    wait.
    """

    def __init__(self, during: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        self._during = during

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        self._during()
        return self.is_set()
