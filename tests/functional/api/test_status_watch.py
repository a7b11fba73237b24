"""``agent status --watch`` in front of the local API, on a terminal and without one."""

import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from tests.support.child import CHECKOUT
from tests.support.service_manager import until
from tests.support.system import AgentCommand
from tests.unit.render.reports import node, report

AGENT = (sys.executable, "-m", "agent")
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
ALTERNATE, NORMAL = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def command(api, tmp_path):
    path = tmp_path / "link.sock"
    path.symlink_to(api.path)
    default = {"compute_driver": "fake", "host": "node-a", "state_path": tmp_path}
    return AgentCommand(tmp_path, {"DEFAULT": default, "api": {"socket": path}})


@pytest.fixture
def terminal(command):
    """The command on a terminal; read() returns what it has written so far."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [*AGENT, "--config-file", command.config_file, "status", "--watch", "0.2"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=command.folder,
        env={**kept, "PYTHONPATH": str(CHECKOUT), "TERM": "xterm-256color"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(slave)
    process.written = b""

    def read():
        try:
            while some := os.read(master, 65536):
                process.written += some
        except OSError:
            pass
        return process.written

    process.read = read
    yield process
    process.kill()
    process.wait()
    os.close(master)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_on_a_terminal_it_shows_the_nodes_as_they_change_until_a_signal_ends_it(
    api, terminal, sent, code
):
    until(lambda: b"foreign-provider" in terminal.read())
    # Hostile names stay text.
    changed = node(name="[red]evil[/red]\x1b[2J:smile:", state="in-sync", drift=())
    api.service.take_report(report(nodes=(changed,)), whole=True)
    until(lambda: b"[red]evil[/red]\\x1b[2J:smile:" in terminal.read())
    terminal.send_signal(sent)

    def is_over():
        terminal.read()
        return terminal.poll() is not None

    until(is_over)
    assert terminal.returncode == code
    assert terminal.read().count(ALTERNATE) == terminal.read().count(NORMAL) == 1


def test_without_a_terminal_it_writes_lines_also_while_the_agent_restarts(api, command, tmp_path):
    with command.started("status", "--watch", "0.2") as process:
        assert re.match(rf"{MOMENT} .*ready", process.stdout.readline())
        until(lambda: " node-1 degraded: " in process.stdout.readline())
        (tmp_path / "link.sock").unlink()
        until(lambda: "what the store knows" in process.stdout.readline())
        (tmp_path / "link.sock").symlink_to(api.path)
        until(lambda: " node-1 degraded: " in process.stdout.readline())
        process.stdout.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize("words", [("x",), ("0",), ("nan",), ("2", "--format", "json")])
def test_what_cannot_be_watched_is_an_error(command, words):
    done = command.run("status", "--watch", *words)
    assert done.code == 1
    assert "--watch" in done.stderr + done.stdout
