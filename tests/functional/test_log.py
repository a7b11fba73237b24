"""The daemon's log when nobody takes it, and the mode of its file."""

import fcntl
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest

from agent.api.client import ApiClient
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import PATIENCE, STOP, Service, until
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentCommand
from tests.support.tracking import F1, uuid_of

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000d001"
HOST = f"uuid: {ROOT}\ncpu: {{online: 0-7}}\nmemory_mib: 6553600\ndisk_gib: 50000\n"
CLAIMS = 60

Kind = TypeVar("Kind", bound=AgentCommand)


def command(
    folder: Path, placement: HttpPlacement, kind: type[Kind] = AgentCommand, **default: Any
) -> Kind:
    (folder / "host.yaml").write_text(HOST)
    return kind(
        folder,
        {
            "DEFAULT": {
                "compute_driver": "fake.file",
                "host": "node-a",
                "debug": True,
                "cpu_allocation_ratio": 100,
                **default,
            },
            "fake": {"host_file": folder / "host.yaml"},
            "placement": placement.credentials(),
        },
    )


def claim(client: ApiClient, number: int) -> None:
    body = {
        "id": uuid_of(f"claim-{number}"),
        "node": ROOT,
        "instance": instance_body(f"guest-{number}"),
        "flavor": flavor_body(F1),
    }
    assert client.create_claim(body)


SYSLOG = """
[loggers]
keys = root
[handlers]
keys = syslog
[formatters]
keys =
[logger_root]
level = DEBUG
handlers = syslog
[handler_syslog]
class = handlers.SysLogHandler
args = ({socket!r},)
"""


@pytest.mark.long
def test_a_syslog_that_nobody_reads_holds_neither_a_claim_a_reload_nor_the_end(
    tmp_path: Path, http_placement: HttpPlacement
) -> None:
    path, config = tmp_path / "syslog", tmp_path / "logging.conf"
    config.write_text(SYSLOG.format(socket=str(path)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unread:
        unread.bind(str(path))
        with Service(
            command(tmp_path, http_placement, log_config_append=config)
        ).running() as service:
            service.wait_for("READY", "1")
            client = ApiClient(service.command.socket, timeout=PATIENCE)
            claim(client, 0)
            asked_at = time.monotonic()
            service.reload()
            service.wait_for("READY", "1", since=asked_at)
            claim(client, 1)
            code, seconds = service.stop()
            assert (code, seconds < STOP) == (0, True), f"{code} after {seconds} s"


class WithJournal(AgentCommand):
    """The agent with the files of ``run`` as /run, where journald has its socket."""

    run_folder: Path

    def _start(self, arguments: list[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
        script = 'mount --bind "$0" /run && exec "$@"'
        return subprocess.Popen(
            [
                *("unshare", "--mount", "sh", "-c", script, str(self.run_folder)),
                *(sys.executable, "-m", "agent", *arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment,
        )


def test_a_journald_that_hangs_holds_neither_a_claim_nor_the_end(
    tmp_path: Path, http_placement: HttpPlacement
) -> None:
    agent = command(tmp_path, http_placement, use_journal=True, use_stderr=False, kind=WithJournal)
    with (
        TemporaryDirectory(dir="/tmp") as run,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald,
    ):
        agent.run_folder = Path(run)
        (agent.run_folder / "systemd" / "journal").mkdir(parents=True)
        journald.bind(f"{run}/systemd/journal/socket")
        with Service(agent).running() as service:
            line = journald.recv(1 << 18)
            assert line.startswith(b"MESSAGE\n")
            assert b"SYSLOG_IDENTIFIER\n" in line
            # Nobody reads on.
            service.wait_for("READY", "1")
            client = ApiClient(service.command.socket, timeout=PATIENCE)
            for number in range(3):
                claim(client, number)
            code, seconds = service.stop()
            assert (code, seconds < STOP) == (0, True), f"{code} after {seconds} s"


@pytest.mark.parametrize("where", ["a pipe", "a file"])
def test_a_log_that_nobody_reads_holds_neither_a_claim_nor_the_end(
    tmp_path: Path, http_placement: HttpPlacement, where: str
) -> None:
    """The journal's end of stderr is a pipe too; a named pipe stands for a file on a disk that
    hangs.
    """
    file = tmp_path / "hanging.log"
    os.mkfifo(file)
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    log = {} if where == "a pipe" else {"log_file": file}
    with Service(command(tmp_path, http_placement, **log)).running() as service:
        stderr = service.process.stderr
        assert stderr is not None
        taken = stderr.fileno() if where == "a pipe" else reader
        fcntl.fcntl(taken, fcntl.F_SETPIPE_SZ, 4096)
        service.wait_for("READY", "1")
        client = ApiClient(service.command.socket, timeout=PATIENCE)
        for number in range(CLAIMS):
            claim(client, number)
        code, seconds = service.stop()
        assert (code, seconds < STOP) == (0, True), f"{code} after {seconds} s"
    os.close(reader)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_log_file_is_for_its_group_whatever_the_umask_also_after_a_rotation(
    tmp_path: Path, http_placement: HttpPlacement, umask: int
) -> None:
    file = tmp_path / "agent.log"
    before = os.umask(umask)
    try:
        with Service(command(tmp_path, http_placement, log_file=file, watch_log_file=True)).running(
            PYTHONUNBUFFERED="1"
        ) as service:
            service.wait_for("READY", "1")
            assert stat.S_IMODE(file.stat().st_mode) == 0o640
            file.rename(tmp_path / "agent.log.1")
            service.reload()
            until(file.exists)
            assert stat.S_IMODE(file.stat().st_mode) == 0o640
            assert service.stop()[0] == 0
    finally:
        os.umask(before)
