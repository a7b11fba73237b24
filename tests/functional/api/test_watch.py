"""``agent watch`` in front of the local API, on a terminal and without one."""

import os
import pty
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
from contextlib import closing, suppress
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.support.child import CHECKOUT
from tests.support.service_manager import PATIENCE, until
from tests.support.system import AgentCommand
from tests.unit.render.reports import node, report

MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
PROMPT = b"shell waits> "
HOME = b"\x1b[H"
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


def command_line(command, *arguments):
    agent = [sys.executable, "-m", "agent", "--config-file", str(command.config_file)]
    return [*agent, "watch", *arguments]


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
        self.process = self.start(
            command_line(command, *arguments),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=command.folder,
            env={**environment, "PYTHONPATH": str(CHECKOUT), "TERM": "xterm-256color"},
        )

    def start(self, line, **given):
        # What is started in the background of a shell inherits that signals are ignored.
        return subprocess.Popen(line, **{"preexec_fn": self._heed_signals, **given})

    @staticmethod
    def _heed_signals():
        for sent in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP):
            signal.signal(sent, signal.SIG_DFL)

    def read(self):
        """What was written so far."""
        try:
            while some := os.read(self._master, 65536):
                self.written += some
        except OSError:
            pass
        return self.written

    def wait_for_count(self, text, count):
        until(
            lambda: self.read().count(text) >= count, lambda: self.written.decode(errors="replace")
        )

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


def on_terminal(command, *arguments):
    return closing(Terminal(command, *arguments))


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


def test_a_key_counts_that_was_pressed_before_the_display_came(command):
    with on_terminal(command, "--interval", "3600") as terminal:
        terminal.press(b"q")
        assert terminal.end() == 0


@pytest.mark.parametrize(
    "sent",
    [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT],
    ids=lambda sent: sent.name,
)
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(command, sent):
    with on_terminal(command) as terminal:
        terminal.wait_for(b"node-1")
        terminal.process.send_signal(sent)
        assert terminal.end() == 128 + sent


def test_a_new_size_shows_at_once(command):
    with on_terminal(command, "--interval", "3600") as terminal:
        terminal.wait_for(b"node-1")
        terminal.resize(9, 60)
        until(lambda: terminal.read().count(b"node-1") > 2)
        terminal.press(b"q")
        assert terminal.end() == 0


@pytest.mark.long
def test_a_service_that_hangs_keeps_no_key_from_quitting(api, command, tmp_path):
    path = tmp_path / "link.sock"
    path.symlink_to(api.path)
    command.configure(
        {
            "DEFAULT": {"compute_driver": "fake", "host": "node-a", "state_path": tmp_path},
            "api": {"socket": path},
        }
    )
    with (
        socket.socket(socket.AF_UNIX) as silent,
        on_terminal(command, "--interval", "0.2") as terminal,
    ):
        terminal.wait_for(b"node-1")
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        (tmp_path / "next.sock").symlink_to(tmp_path / "silent.sock")
        (tmp_path / "next.sock").rename(path)
        terminal.wait_for(b"the agent does not answer: asked ")
        terminal.press(b"q")
        assert terminal.end() == 0
        # The client's own limit did not end the wait.
        assert b"did not come" not in terminal.written


class Shell(Terminal):
    """A shell with job control on such a terminal. What it runs gets the terminal's keys."""

    def start(self, line, **given):
        self.line = shlex.join(line)
        return super().start(
            ["bash", "--norc", "--noprofile", "--noediting", "-i"],
            **{**given, "env": {**given["env"], "PS1": PROMPT.decode()}},
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )

    def type(self, line):
        until(lambda: self.read().endswith(PROMPT), lambda: self.written.decode(errors="replace"))
        self.press(f"{line}\n".encode())

    def children(self):
        """The processes of the shell, by their state."""
        found = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                number, _, rest = status.read_text().partition(" (")
                state, parent = rest.rpartition(") ")[2].split()[:2]
                if int(parent) == self.process.pid:
                    found[int(number)] = state
        return found


@pytest.mark.long
@pytest.mark.parametrize("stopped_by", ["key", "signal"])
def test_it_gives_the_terminal_back_while_it_is_stopped(command, stopped_by):
    with closing(Shell(command, "--interval", "3600")) as shell:
        shell.type(shell.line)
        shell.wait_for(b"q quits")
        (watch,) = shell.children()
        for round_ in (1, 2):
            shell.wait_for_count(ALTERNATE, round_)
            if stopped_by == "key":
                shell.press(b"\x1a")
            else:
                os.kill(watch, signal.SIGTSTP)
            until(lambda: shell.children() == {watch: "T"})
            shell.wait_for_count(NORMAL, round_)
            shell.type("fg")
        shell.wait_for_count(ALTERNATE, 3)
        shell.press(b"q")
        until(lambda: not shell.children())
        shell.type("echo $((40 + 2)); stty -a")
        shell.wait_for(b"42")
        shell.wait_for(b" icanon ")
        assert shell.written.count(NORMAL) == shell.written.count(ALTERNATE) == 3


def test_after_a_stop_in_the_background_it_shows_itself_again(command):
    with closing(Shell(command, "--interval", "3600")) as shell:
        shell.type(shell.line)
        shell.wait_for(b"q quits")
        (watch,) = shell.children()
        # No signal that a process could notice.
        os.kill(watch, signal.SIGSTOP)
        until(lambda: shell.children() == {watch: "T"})
        # In the background it has to stop again before it writes.
        shell.type("bg; wait %1")
        until(lambda: shell.children() == {watch: "T"})
        assert shell.written.count(ALTERNATE) == 1
        shell.type("fg")
        shell.wait_for_count(ALTERNATE, 2)
        shell.press(b"q")
        until(lambda: not shell.children())
        # The second SIGCONT may show it once more.
        until(lambda: shell.read().count(NORMAL) == shell.written.count(ALTERNATE))


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
        until(lambda: b"not answer" not in terminal.read().rpartition(HOME)[2])
        terminal.press(b"q")
        assert terminal.end() == 0


def test_without_a_terminal_it_waits_for_an_agent_that_restarts(api, command, tmp_path):
    socket = tmp_path / "link.sock"
    socket.symlink_to(api.path)
    with command.started("watch", "--interval", "0.2", "--api-socket", str(socket)) as process:
        process.stdout.readline()
        socket.unlink()
        until(lambda: re.match(rf"{MOMENT} .*no agent listens there", process.stdout.readline()))
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
    for daemon, of_node in (lines[:2], lines[2:]):
        assert re.fullmatch(rf"{MOMENT} .*; Placement: not asked yet\n", daemon)
        assert re.fullmatch(rf"{MOMENT} node-1 degraded: audited \d+ s ago, used .*\n", of_node)


@pytest.mark.long
@pytest.mark.parametrize(
    ("closed", "code", "told"),
    [(1, 1, "stdout is closed"), (0, 0, ""), (2, 0, "")],
    ids=["stdout", "stdin", "stderr"],
)
def test_streams_may_be_closed_but_where_it_writes(command, closed, code, told):
    line = shlex.join(command_line(command, "--interval", "0.2"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line} {closed}>&- | head -n 1"],
        cwd=command.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert ("node-1" in done.stdout) == (code == 0)


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
