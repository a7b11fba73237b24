"""A daemon that has no descriptors left, seen from its socket."""

import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from agent.api.client import ApiClient
from agent.api.socket_file import health_socket
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import PATIENCE, Service, until
from tests.support.system import AgentCommand

CONNECTIONS = 300


def test_without_descriptors_the_eldest_idle_connections_give_way(
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
            assert client.readiness()
        assert len(service.log.splitlines()) - before < 20
        assert service.stop()[0] == 0


def test_where_others_take_all_descriptors_the_daemon_says_so_does_not_spin_and_goes_on_later(
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
        process = psutil.Process(service.process.pid)
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        # As if the others were open: what the process has open already stays.
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with _connected(command.socket), _connected(health_socket(command.socket)):
            until(lambda: "no connection can be accepted" in service.log, lambda: f"{service}")
            used = process.cpu_times().user
            time.sleep(2)
            assert process.cpu_times().user - used < 0.5
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        for path in (command.socket, health_socket(command.socket)):
            assert ApiClient(path, timeout=PATIENCE).readiness()
        # One for each socket.
        assert service.log.count("no connection can be accepted") <= 2
        assert service.stop()[0] == 0


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(path))
    return connection
