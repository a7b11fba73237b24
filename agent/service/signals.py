"""Signals of the service, taken by asking for them: no handler interrupts other code."""

import signal
from threading import get_ident
from types import TracebackType
from typing import Self

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
