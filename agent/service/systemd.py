"""The service manager: its signals are taken by asking for them, so that no handler interrupts
other code; systemd is notified of the service's state: ready, its status, alive, reloading,
stopping.
"""

import math
import os
import signal
import socket
import time
from collections.abc import Mapping
from threading import get_ident
from types import TracebackType
from typing import Self

from oslo_log import log as logging

from agent.model.names import printable

LOG = logging.getLogger(__name__)

# Seconds that a full queue at systemd's end may hold up the daemon's loop at most.
SEND_TIMEOUT = 1.0
# Watchdog messages per WatchdogSec at most: more are of no use to systemd, and thousands of nodes
# would send thousands.
ENOUGH = 10


class Notifier:
    """Sends the messages of sd_notify(3). Does nothing when no service manager asked for them, and
    never raises.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._address = _socket_address(environ.get("NOTIFY_SOCKET", ""))
        self._failing, self._fed = False, -math.inf
        self.watchdog_interval = watchdog_interval(environ)
        """Seconds in which :meth:`watchdog` must be called at least once (twice, to be safe); None:
        no watchdog.
        """

    def ready(self, status: str = "") -> None:
        """Notify systemd that the service has started, or has finished a reload."""
        self._send("READY=1", *_status(status))

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._send(*_status(text))

    def watchdog(self) -> None:
        """Notify systemd that the service is alive. To be called at each progress: no more
        messages than needed are sent.
        """
        now = time.monotonic()
        if (
            self.watchdog_interval is not None
            and now - self._fed >= self.watchdog_interval / ENOUGH
        ):
            self._fed = now
            self._send("WATCHDOG=1")

    def reloading(self, status: str = "") -> None:
        """Notify systemd that a reload begins; :meth:`ready` ends it."""
        # Because systemd takes the begin of the reload from the message, not from its arrival.
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now}", *_status(status))

    def stopping(self, status: str = "") -> None:
        """Notify systemd that the service is shutting down."""
        self._send("STOPPING=1", *_status(status))

    def _send(self, *assignments: str) -> None:
        if self._address is None or not assignments:
            return
        try:
            # One socket a message, because systemd creates its own anew when it is re-executed.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(SEND_TIMEOUT)
                channel.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            # Logged once an outage, because the watchdog would repeat it for ever.
            if not self._failing:
                LOG.warning(
                    "systemd cannot be notified of %s: NOTIFY_SOCKET: %s", assignments[0], error
                )
            self._failing = True
        else:
            self._failing = False


def watchdog_interval(environ: Mapping[str, str]) -> float | None:
    """Return the seconds of systemd's WatchdogSec; None when it is off or meant for another
    process.
    """
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environ.get("WATCHDOG_USEC", "0")
    # isdecimal alone accepts the digits of every script, which is harmless: int() reads them too.
    if not text.isdecimal():
        LOG.warning(
            "WATCHDOG_USEC=%s is not a number of microseconds; the watchdog is not fed",
            printable(text),
        )
        return None
    return int(text) / 1_000_000 or None


def _socket_address(name: str) -> str | None:
    """Return the address as the kernel spells it: the ``@`` of an abstract socket is a null byte
    there.
    """
    if not name:
        return None
    if name.startswith("@"):
        return "\0" + name[1:]
    if name.startswith("/"):
        return name
    LOG.warning(
        "NOTIFY_SOCKET=%s is neither a path nor an abstract socket; systemd gets no messages",
        printable(name),
    )
    return None


def _status(text: str) -> list[str]:
    # Escaped, because a newline in a node's name would begin an assignment of its own.
    return [f"STATUS={printable(text)}"] if text else []


STOP = frozenset({signal.SIGTERM, signal.SIGINT})
RELOAD = frozenset({signal.SIGHUP})
# Sent by the process to itself; harmless from any other sender.
WAKE = frozenset({signal.SIGUSR1})
# The longest single wait of sigtimedwait, in seconds.
LONGEST_WAIT = 3600.0


class Signals:
    """Context in which SIGTERM, SIGINT, SIGHUP and SIGUSR1 wait to be taken by the thread that
    entered it.

    Threads started inside the context leave the signals to that thread. ``stop`` and ``reload`` are
    set when such a signal was taken; the loop resets ``reload`` before it reloads.
    """

    def __init__(self) -> None:
        self.stop = self.reload = False
        self._before: set[signal.Signals | int] = set()
        self._listener: int | None = None

    def take(self, seconds: float = 0) -> None:
        """Take the signals that have come; if there are none, wait for one up to ``seconds``."""
        found = signal.sigtimedwait(STOP | RELOAD | WAKE, min(max(seconds, 0), LONGEST_WAIT))
        while found is not None:
            self.stop |= found.si_signo in STOP
            self.reload |= found.si_signo in RELOAD
            found = signal.sigtimedwait(STOP | RELOAD | WAKE, 0)

    def wake(self) -> None:
        """End the current wait of :meth:`take`, or the next one. From any thread; does nothing
        outside the context.
        """
        if self._listener is not None:
            signal.pthread_kill(self._listener, signal.SIGUSR1)

    def __enter__(self) -> Self:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP | RELOAD | WAKE)
        self._listener = get_ident()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener = None
        # Take what is left, because a second SIGTERM would otherwise kill the process at its very
        # end.
        self.take()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
