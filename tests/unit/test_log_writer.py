import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from agent.service import log_writer
from agent.service.log_writer import LogWriter


class Held(logging.Handler):
    """A place that takes lines only while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.lines = threading.Event(), list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.open.wait()
        self.lines.append(record.getMessage())


@pytest.fixture
def log_to(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Held], LogWriter]]:
    """Lets all loggers write to one place, by a writer whose queue is short."""
    monkeypatch.setattr(log_writer, "MOST_WAITING", 10)
    monkeypatch.setattr(log_writer, "END_SECONDS", 0.2)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    places: list[Held] = []

    def begin(place: Held) -> LogWriter:
        places.append(place)
        # Here, because pytest adds handlers of its own after the fixtures.
        monkeypatch.setattr(root, "handlers", [place])
        writer = LogWriter()
        writer.take_over()
        return writer

    yield begin
    for place in places:
        place.open.set()
    root.setLevel(level)


def test_lines_that_nobody_takes_are_dropped_and_their_number_is_told_once(
    log_to: Callable[[Held], LogWriter],
) -> None:
    held, log = Held(), logging.getLogger("anything")
    writer = log_to(held)
    held.open.set()
    log.info("the first")
    assert writer.finish()
    held.open.clear()
    for number in range(100):
        log.info("line %d", number)
    assert not writer.finish()
    held.open.set()
    # What is told of them is queued behind what was waiting.
    assert writer.finish()
    assert writer.finish()
    kept = [line for line in held.lines if line.startswith("line ")]
    assert kept == [f"line {number}" for number in range(len(kept))]
    told = [line for line in held.lines if "dropped" in line]
    assert told == [f"{100 - len(kept)} lines of the log were dropped, because nobody took them"]
    assert len(kept) in (10, 11)


def test_a_line_is_as_it_was_when_it_was_logged(log_to: Callable[[Held], LogWriter]) -> None:
    held, values = Held(), ["before"]
    writer = log_to(held)
    # As after a reload.
    writer.take_over()
    logging.getLogger("anything").info("%s", values)
    values[0] = "after"
    held.open.set()
    assert writer.finish()
    assert held.lines == ["['before']"]
