"""``agent watch`` in front of the local API, on a terminal and without one."""

import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager
from fcntl import ioctl

import pytest

from tests.support.child import CHECKOUT
from tests.support.service_manager import until
from tests.support.system import AgentCommand
from tests.unit.render.reports import node, report

ALTERNATE, NORMAL = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def command(api, tmp_path):
    return AgentCommand(
        tmp_path,
        {
            "DEFAULT": {"compute_driver": "fake", "host": "node-a", "state_path": tmp_path},
            "api": {"socket": api.path},
        },
    )


class Terminal:
    """``agent watch`` on a terminal of 30 lines and 140 columns."""

    def __init__(self, command, *arguments):
        self._master, self.slave = pty.openpty()
        ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 140, 0, 0))
        self.settings = termios.tcgetattr(self.slave)
        os.set_blocking(self._master, False)
        self.written = b""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
        }
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "agent",
                "--config-file",
                command.config_file,
                "watch",
                *arguments,
            ],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=command.folder,
            env={**environment, "PYTHONPATH": str(CHECKOUT), "TERM": "xterm-256color"},
            # What is started in the background of a shell inherits that the signal is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def read(self):
        """What was written so far."""
        try:
            while some := os.read(self._master, 65536):
                self.written += some
        except OSError:
            pass
        return self.written

    def wait_for(self, text):
        until(lambda: text in self.read(), lambda: self.written.decode(errors="replace"))

    def resize(self, lines, columns):
        ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def press(self, key):
        os.write(self._master, key)

    def end(self):
        """The exit code; the terminal is as it was."""

        def is_over():
            self.read()
            return self.process.poll() is not None

        until(is_over, lambda: self.written.decode(errors="replace"))
        self.read()
        assert termios.tcgetattr(self.slave) == self.settings
        assert self.written.count(ALTERNATE) == self.written.count(NORMAL) == 1
        return self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self.slave)


@contextmanager
def on_terminal(command, *arguments):
    terminal = Terminal(command, *arguments)
    try:
        yield terminal
    finally:
        terminal.close()


def test_it_shows_the_nodes_as_they_change_and_quits_with_q(api, command):
    with on_terminal(command, "--interval", "0.2") as terminal:
        terminal.wait_for(b"node-1")
        assert b"degraded" in terminal.read()
        assert b"drift: 1 foreign-provider, 1 orphaned-allocation" in terminal.read()
        api.service.take_report(report(nodes=(node(state="in-sync", drift=()),)), whole=True)
        terminal.wait_for(b"1 in-sync")
        terminal.press(b"x")
        terminal.press(b"q")
        assert terminal.end() == 0


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(command, sent, code):
    with on_terminal(command) as terminal:
        terminal.wait_for(b"node-1")
        terminal.process.send_signal(sent)
        assert terminal.end() == code


def test_it_goes_on_on_a_terminal_of_any_size(command):
    with on_terminal(command, "--interval", "0.2") as terminal:
        terminal.wait_for(b"node-1")
        for lines, columns in ((1, 1), (3, 20), (0, 0), (200, 500), (9, 40)):
            terminal.resize(lines, columns)
            shown = len(terminal.read())
            until(lambda shown=shown: len(terminal.read()) > shown)
            assert terminal.process.poll() is None
        terminal.press(b"q")
        assert terminal.end() == 0


def test_it_waits_for_an_agent_that_restarts(api, command, tmp_path):
    socket = tmp_path / "link.sock"
    socket.symlink_to(api.path)
    command.configure(
        {
            "DEFAULT": {"compute_driver": "fake", "host": "node-a", "state_path": tmp_path},
            "api": {"socket": socket},
        }
    )
    with on_terminal(command, "--interval", "0.2") as terminal:
        terminal.wait_for(b"node-1")
        socket.unlink()
        terminal.wait_for(b"the agent does not answer: ")
        # What was seen last stays.
        assert terminal.read().rpartition(b"does not answer")[2].count(b"node-1") >= 1
        socket.symlink_to(api.path)
        seen = len(terminal.read())
        until(lambda: b"not answer" not in terminal.read()[seen:] and len(terminal.read()) > seen)
        terminal.press(b"q")
        assert terminal.end() == 0


def test_without_a_terminal_it_waits_for_an_agent_that_restarts(api, command, tmp_path):
    socket = tmp_path / "link.sock"
    socket.symlink_to(api.path)
    with command.started("watch", "--interval", "0.2", "--api-socket", str(socket)) as process:
        process.stdout.readline()
        socket.unlink()
        until(lambda: "no agent listens there" in process.stdout.readline())
        socket.symlink_to(api.path)
        until(lambda: " node-1 degraded: " in process.stdout.readline())
        process.stdout.close()
        assert process.wait(60) == 0


def test_it_ends_with_its_terminal(command):
    terminal = Terminal(command, "--interval", "0.2")
    try:
        terminal.wait_for(b"node-1")
        os.close(terminal.slave)
        os.close(terminal._master)
        until(lambda: terminal.process.poll() is not None)
    finally:
        terminal.process.kill()
        terminal.process.wait()


def test_hostile_names_stay_text(api, command):
    named = node(name="[red]evil[/red]\x1b[2J:smile:")
    api.service.take_report(report(nodes=(named,)), whole=True)
    with on_terminal(command) as terminal:
        terminal.wait_for(b"[red]evil[/red]\\x1b[2J:smile:")
        terminal.press(b"q")
        assert terminal.end() == 0


def test_without_a_terminal_it_writes_lines_until_nobody_reads_them(command):
    with command.started("watch", "--interval", "0.2") as process:
        lines = [process.stdout.readline() for _ in range(4)]
        process.stdout.close()
        assert process.wait(60) == 0
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    for daemon, of_node in (lines[:2], lines[2:]):
        assert re.fullmatch(rf"{moment} .*; Placement: not asked yet\n", daemon)
        assert re.fullmatch(rf"{moment} node-1 degraded: audited \d+ s ago, used .*\n", of_node)


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "soon", "1e9", ""])
def test_an_interval_that_is_none_is_refused(command, interval):
    done = command.run("watch", f"--interval={interval}")
    assert done.code == 1
    assert f"--interval {interval}: not a number of seconds" in done.stderr
    assert "give 0.2 to 3600" in done.stderr


def test_without_a_daemon_it_says_so(tmp_path):
    alone = AgentCommand(tmp_path, {"DEFAULT": {"compute_driver": "fake", "host": "node-a"}})
    done = alone.run("watch")
    assert done.code == 1
    assert "no agent listens there" in done.stderr


def test_a_document_of_it_is_wrong_usage(command):
    done = command.run("watch", "--format", "json")
    assert done.code == 64
