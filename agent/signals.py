"""The signals a service obeys, as something to ask about: no handler runs in the middle of anything else."""

import signal
from types import TracebackType
from typing import Self

STOP = frozenset({signal.SIGTERM, signal.SIGINT})
RELOAD = frozenset({signal.SIGHUP})
# As long as sigtimedwait is ever asked to wait, in seconds.
LONGEST_WAIT = 3600.0


class Signals:
    """Inside its context SIGTERM, SIGINT and SIGHUP only wait to be taken, by the thread that entered it.

    Threads that it starts from there on leave the signals to it. ``stop`` and ``reload`` say what has come; whoever
    obeys a reload sets it back.
    """

    def __init__(self) -> None:
        self.stop = self.reload = False
        self._before: set[signal.Signals | int] = set()

    def take(self, seconds: float = 0) -> None:
        """Take what has come; if that is nothing, wait for it for so many seconds."""
        found = signal.sigtimedwait(STOP | RELOAD, min(max(seconds, 0), LONGEST_WAIT))
        while found is not None:
            self.stop |= found.si_signo in STOP
            self.reload |= found.si_signo in RELOAD
            found = signal.sigtimedwait(STOP | RELOAD, 0)

    def __enter__(self) -> Self:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP | RELOAD)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Because a second SIGTERM would else kill the process at its very end.
        self.take()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
