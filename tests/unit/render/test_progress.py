import io
import logging

from agent.render.progress import node_progress


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_without_a_terminal_progress_goes_to_the_log_a_tenth_at_a_time(caplog):
    caplog.set_level(logging.INFO)
    stream = io.StringIO()
    with node_progress(100, stream) as finished:
        for number in range(100):
            finished(f"node-{number}")
    assert stream.getvalue() == ""
    assert len(caplog.messages) == 10
    assert caplog.messages[-1] == "100 of 100 nodes audited, last node-99"


def test_on_a_terminal_progress_is_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with node_progress(3, stream) as finished:
        for name in ("a", "b\x07", "[red]c"):
            finished(name)
    assert "3/3" in stream.getvalue()
    assert "[red]c" in stream.getvalue()
    assert "\x07" not in stream.getvalue()


def test_one_node_needs_no_bar():
    stream = Terminal()
    with node_progress(1, stream) as finished:
        finished("only")
    assert stream.getvalue() == ""
