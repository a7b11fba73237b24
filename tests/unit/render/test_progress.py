import io
import logging

from agent.cli.commands.audit import node_progress


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
