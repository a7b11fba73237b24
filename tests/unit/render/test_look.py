import io

import pytest

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
