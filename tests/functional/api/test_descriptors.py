"""A daemon that has no descriptors left, seen from its socket."""

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

from agent.api.client import ApiClient
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import PATIENCE, Service, until
from tests.support.system import AgentCommand

CONNECTIONS = 300


def test_without_descriptors_the_daemon_says_so_once_and_the_eldest_idle_connections_give_way(
    tmp_path: Path, http_placement: HttpPlacement
) -> None:
    command = AgentCommand(
        tmp_path,
        {
            "DEFAULT": {
                "compute_driver": "fake",
                "host": "node-a",
                "log_file": tmp_path / "agent.log",
            },
            "placement": http_placement.credentials(),
        },
    )
    with Service(command).running() as service:
        service.wait_for("READY", "1")
        client = ApiClient(command.socket, timeout=PATIENCE)
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (64, 64))
        before = len(service.log.splitlines())
        with ExitStack() as held:
            for _ in range(CONNECTIONS):
                held.enter_context(_connected(command.socket))
            until(lambda: "no connection can be accepted" in service.log, lambda: f"{service}")
            assert client.readiness()
        assert len(service.log.splitlines()) - before < 20
        assert service.log.count("no connection can be accepted") <= 2
        assert service.stop()[0] == 0


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(path))
    return connection
