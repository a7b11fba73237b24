import io
import logging

import pytest

from agent.cli.commands.audit import node_progress
from agent.render.look import look_of


class Stream(io.StringIO):
    def __init__(self, terminal: bool, encoding: str = "utf-8"):
        super().__init__()
        self.terminal = terminal
        self.coding = encoding

    @property
    def encoding(self):
        return self.coding

    def isatty(self):
        return self.terminal


def test_force_color_does_not_make_a_pipe_a_terminal():
    assert not look_of(Stream(False), {"FORCE_COLOR": "1"}).colour


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"NO_COLOR": ""}, {"TERM": "dumb"}])
def test_no_colour_where_it_is_not_wanted(environ):
    assert not look_of(Stream(True), environ).colour


@pytest.mark.parametrize(
    ("encoding", "unicode"),
    [("utf-8", True), ("ascii", False), ("latin-1", False), ("no-such", False)],
)
def test_characters_follow_the_encoding(encoding, unicode):
    assert look_of(Stream(False, encoding), {}).unicode is unicode


# --- more ---


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_without_a_terminal_progress_goes_to_the_log_a_tenth_at_a_time(caplog):
    caplog.set_level(logging.INFO)
    stream = io.StringIO()
    with node_progress(stream) as begin:
        finished = begin(100)
        for number in range(100):
            finished(f"node-{number}")
    assert stream.getvalue() == ""
    assert len(caplog.messages) == 10
    assert caplog.messages[-1] == "100 of 100 nodes audited, last node-99"


def test_on_a_terminal_progress_is_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with node_progress(stream) as begin:
        finished = begin(5)
        for name in ("a", "b\x07", "c", "d", "[red]e"):
            finished(name)
    assert "5/5" in stream.getvalue()
    assert "[red]e" in stream.getvalue()
    assert "\x07" not in stream.getvalue()
