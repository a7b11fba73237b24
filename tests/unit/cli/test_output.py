import errno
import io
import os
import sys

import pytest

from agent.cli.output import write, write_problems
from agent.errors import OutputFailed
from agent.model.finding import Problem


class Pipe(io.TextIOWrapper):
    """A stream on a real descriptor whose writes fail."""

    def __init__(self, error: OSError):
        self.end = os.open(os.devnull, os.O_WRONLY)
        super().__init__(io.FileIO(self.end, "w"), encoding="utf-8")
        self.error = error

    def write(self, text):
        raise self.error


def test_what_the_encoding_lacks_is_escaped(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    write("nöde \udcff\n")
    assert raw.getvalue() == b"n\\xf6de \\udcff\n"


def test_half_characters_do_not_stop_utf8(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    write("nöde \udcff\n")
    assert raw.getvalue() == "nöde \\udcff\n".encode()


def test_a_full_disk_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Pipe(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OutputFailed, match="No space left on device"):
        write("text\n")


def test_errors_that_cannot_be_told_do_not_raise(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Pipe(OSError(errno.ENOSPC, "No space left on device")))
    write_problems([Problem("x", "y", "z")])
