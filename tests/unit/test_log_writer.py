import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.service import log_writer
from agent.service.log_writer import LogWriter


class Held(logging.Handler):
    """A place that takes lines only while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.lines = threading.Event(), list[str]()
        self.taking = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.taking.set()
        self.open.wait()
        self.lines.append(record.getMessage())


@contextmanager
def log_to(
    place: Held, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[logging.Logger, LogWriter]]:
    """A logger that writes to one place, by a writer whose queue is short."""
    log = logging.getLogger("anything")
    with monkeypatch.context() as patch:
        patch.setattr(log_writer, "MOST_WAITING", 10)
        patch.setattr(log_writer, "END_SECONDS", 60)
        # Neither these lines nor those of other tests' threads go elsewhere.
        patch.setattr(logging.getLogger(), "handlers", [])
        for one in (log, log_writer.LOG):
            patch.setattr(one, "handlers", [place])
            patch.setattr(one, "propagate", False)
            patch.setattr(one, "level", logging.INFO)
            one.manager._clear_cache()
        writer = LogWriter()
        writer.take_over()
        try:
            yield log, writer
        finally:
            place.open.set()
            writer.finish()
    log.manager._clear_cache()


def test_lines_that_nobody_takes_are_dropped_and_their_number_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held()
    with log_to(held, monkeypatch) as (log, writer):
        held.open.set()
        log.info("the first")
        assert writer.finish()
        held.open.clear()
        held.taking.clear()
        log.info("line 0")
        # From here on nobody takes a line from the queue.
        assert held.taking.wait(60)
        for number in range(1, 100):
            log.info("line %d", number)
        with monkeypatch.context() as patch:
            patch.setattr(log_writer, "END_SECONDS", 0.1)
            assert not writer.finish()
        held.open.set()
        # What is told of them is queued behind what was waiting.
        assert writer.finish()
        assert writer.finish()
    kept = [line for line in held.lines if line.startswith("line ")]
    assert kept == [f"line {number}" for number in range(len(kept))]
    told = [line for line in held.lines if "dropped" in line]
    assert told == [f"{100 - len(kept)} lines of the log were dropped, because nobody took them"]
    # The one that was being written, and those that waited.
    assert len(kept) == 1 + 10


def test_a_line_is_as_it_was_when_it_was_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    held, values = Held(), ["before"]
    with log_to(held, monkeypatch) as (log, writer):
        # As after a reload.
        writer.take_over()
        log.info("%s", values)
        values[0] = "after"
        held.open.set()
        assert writer.finish()
    assert held.lines == ["['before']"]
