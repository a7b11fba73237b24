"""The signals a service obeys, as something to ask about: no handler runs in the middle of anything
else.
"""

import signal
from threading import get_ident
from types import TracebackType
from typing import Self

STOP = frozenset({signal.SIGTERM, signal.SIGINT})
RELOAD = frozenset({signal.SIGHUP})
# Sent by the process to itself; from anybody else it does no harm.
WAKE = frozenset({signal.SIGUSR1})
# As long as sigtimedwait is ever asked to wait, in seconds.
LONGEST_WAIT = 3600.0


class Signals:
    """Inside its context SIGTERM, SIGINT, SIGHUP and SIGUSR1 only wait to be taken, by the thread
    that entered it.

    Threads that it starts from there on leave the signals to it. ``stop`` and ``reload`` say what
    has come; whoever obeys a reload sets it back.
    """

    def __init__(self) -> None:
        self.stop = self.reload = False
        self._before: set[signal.Signals | int] = set()
        self._listener: int | None = None

    def take(self, seconds: float = 0) -> None:
        """Take what has come; if that is nothing, wait for it for so many seconds."""
        found = signal.sigtimedwait(STOP | RELOAD | WAKE, min(max(seconds, 0), LONGEST_WAIT))
        while found is not None:
            self.stop |= found.si_signo in STOP
            self.reload |= found.si_signo in RELOAD
            found = signal.sigtimedwait(STOP | RELOAD | WAKE, 0)

    def wake(self) -> None:
        """End a wait of :meth:`take`, or the next one. From any thread; nobody waits outside the
        context.
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
        # Because a second SIGTERM would else kill the process at its very end.
        self.take()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
