"""The socket's file: its rights, and that no agent takes another one's."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent.api.client import ApiClient, ApiUnreachable
from agent.api.local_api import LocalApi
from agent.api.problem import SocketUnusable
from agent.api.service import Service
from agent.api.socket_file import SocketFile
from agent.cli.command import Options, Override, Source
from agent.cli.configuration import load
from tests.support.local_api import api_here


def left_behind(path):
    """A socket whose listener is gone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(path))
        gone.listen()


def test_it_is_for_owner_and_group_only_from_its_first_moment(tmp_path):
    with api_here(tmp_path) as api:
        found = api.path.stat()
        assert (stat.S_ISSOCK(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o660)
        assert (found.st_uid, found.st_gid) == (os.geteuid(), os.getegid())
    assert not api.path.exists()
    assert {one.name for one in tmp_path.iterdir()} == {"agent.sock.lock", "agent-health.sock.lock"}


def test_who_is_told_to_end_while_he_opens_it_leaves_nothing_that_listens(tmp_path):
    path = tmp_path / "agent.sock"
    options = Options(
        sources=(Source(Path(os.devnull)),), overrides=(Override("api", "socket", str(path)),)
    )
    api = LocalApi(load(options), Service(lambda: None))
    # As SIGTERM does it while the group of the socket is looked up.
    api.stop()
    api.start()
    api.wait()
    assert [listener.serving.is_alive() for listener in api.listeners] == [False, False]
    assert {one.name for one in tmp_path.iterdir()} == {"agent.sock.lock", "agent-health.sock.lock"}


def test_an_agents_umask_makes_no_difference(tmp_path):
    before = os.umask(0o077)
    try:
        with api_here(tmp_path) as api:
            assert stat.S_IMODE(api.path.stat().st_mode) == 0o660
    finally:
        os.umask(before)


def test_another_programs_socket_is_left_alone(tmp_path):
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(SocketUnusable, match="another agent listens there"):
            SocketFile(path, None)
        assert path.exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("mine"),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("nowhere"),
    ],
)
def test_what_is_no_socket_is_left_alone(tmp_path, make):
    path = tmp_path / "agent.sock"
    make(path)
    before = path.lstat()
    with pytest.raises(SocketUnusable, match="something else than a socket"):
        SocketFile(path, None)
    assert path.lstat() == before
    assert {one.name for one in tmp_path.iterdir()} <= {"agent.sock", "agent.sock.lock"}


def test_a_path_where_nothing_can_be_made_says_so():
    with pytest.raises(SocketUnusable, match=r"\[api\] socket = /proc/x/agent\.sock: "):
        SocketFile(Path("/proc/x/agent.sock"), None)


def test_one_that_was_replaced_meanwhile_is_not_removed(tmp_path):
    path = tmp_path / "agent.sock"
    mine = SocketFile(path, None)
    path.unlink()
    left_behind(path)
    mine.remove()
    mine.listening.close()
    assert path.exists()


def test_a_path_that_is_too_long_for_the_kernel_works_all_the_same(tmp_path):
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    with api_here(folder) as api:
        assert ApiClient(api.path).health() == "starting"
    assert not api.path.exists()
    with pytest.raises(ApiUnreachable, match="no agent listens there"):
        ApiClient(api.path).health()


def test_of_two_that_start_at_once_on_a_socket_left_behind_one_wins(tmp_path):
    path = tmp_path / "agent.sock"
    script = (
        "import sys, pathlib, agent.api.socket_file as s\nsys.stdin.readline()\n"
        "try:\n    held = s.SocketFile(pathlib.Path(sys.argv[1]), None)\nexcept "
        "s.SocketUnusable:\n    print('lost')\nelse:\n    print('won')\n"
        "sys.stdout.flush()\nsys.stdin.readline()\n"
    )
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    left_behind(path)
    for starter in starters:
        starter.stdin.write("\n")
        starter.stdin.flush()
    outcomes = [starter.stdout.readline().strip() for starter in starters]
    assert sorted(outcomes) == ["lost"] * 5 + ["won"]
    winner = starters[outcomes.index("won")]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.connect(str(path))
    winner.send_signal(signal.SIGKILL)
    for starter in starters:
        starter.communicate()
    assert path.exists(), "a killed one removes nothing"
    found = SocketFile(path, None)
    found.remove()
    found.listening.close()
