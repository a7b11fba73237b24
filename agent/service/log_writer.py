"""Writes the log in a thread of its own, so that a log that nobody takes (a journal that hangs, a
full pipe, a disk) holds neither a claim nor the end of the daemon.
"""

import copy
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

# Lines that wait to be written; further ones are dropped and counted.
MOST_WAITING = 10_000
# Seconds that the end of the daemon waits for lines to be written.
END_SECONDS = 2.0

LOG = logging.getLogger(__name__)


class LogWriter:
    """The queue of lines and the thread that writes them."""

    def __init__(self) -> None:
        # Functions, because the end of the daemon waits for its own place in the queue.
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._dropped = 0
        self._counting = threading.Lock()
        self._thread: threading.Thread | None = None

    def take_over(self) -> None:
        """Put the queue before the handlers of every logger; again after each set-up of the log."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="log", daemon=True)
            self._thread.start()
        for logger in (logging.getLogger(), *logging.root.manager.loggerDict.values()):
            if not isinstance(logger, logging.Logger):
                continue
            new = tuple(one for one in logger.handlers if not isinstance(one, _Queued))
            if new:
                kept = [one for one in logger.handlers if one not in new]
                logger.handlers = [*kept, _Queued(self, new)]

    def add(self, handlers: Sequence[logging.Handler], record: logging.LogRecord) -> None:
        """Queue a line, or drop and count it if too many wait."""
        if self._work.qsize() < MOST_WAITING:
            self._work.put(partial(_handle, handlers, record))
        else:
            with self._counting:
                self._dropped += 1

    def finish(self) -> bool:
        """Return whether all lines that are in the queue now are written in ``END_SECONDS``."""
        if self._thread is None:
            return True
        written = threading.Event()
        self._work.put(written.set)
        return written.wait(END_SECONDS)

    def _write(self) -> None:
        while True:
            work = self._work.get()
            # A handler reports its own errors; whatever it raises must not end the log.
            with suppress(Exception):
                work()
            if self._dropped and self._work.qsize() <= MOST_WAITING // 2:
                with self._counting:
                    dropped, self._dropped = self._dropped, 0
                LOG.warning("%d lines of the log were dropped, because nobody took them", dropped)


class _Queued(logging.Handler):
    """Stands before the handlers of a logger."""

    def __init__(self, writer: LogWriter, handlers: Sequence[logging.Handler]) -> None:
        super().__init__(min(handler.level for handler in handlers))
        self._writer, self._handlers = writer, handlers

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line. It is put together here, because its arguments may change until it is
        written.
        """
        line = copy.copy(record)
        line.msg, line.args = record.getMessage(), None
        self._writer.add(self._handlers, line)


def _handle(handlers: Sequence[logging.Handler], record: logging.LogRecord) -> None:
    for handler in handlers:
        if record.levelno >= handler.level:
            handler.handle(record)


WRITER = LogWriter()
"""One for the process, as its loggers are."""
