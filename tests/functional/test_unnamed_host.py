"""A first boot: the machine is called localhost, until DHCP or cloud-init gives it a name."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.setups import on, towards
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import Service, until
from tests.support.system import AgentCommand

TINY = {"cpu": {"online": "0-3"}, "memory_mib": 4096, "disk_gib": 100}


class Machine(AgentCommand):
    """A machine without ``[DEFAULT] host``, and the name that it has."""

    name = "localhost"

    def _start(self, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        plain = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        named = ["sh", "-ec", 'hostname "$0"; exec "$@"', self.name]
        return subprocess.Popen(
            ["unshare", "--uts", *plain, *named, sys.executable, "-m", "agent", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment,
        )


def names(placement: HttpPlacement) -> set[str]:
    return {one["name"] for one in placement.dump()["providers"].values()}


def without_host(placement: HttpPlacement, folder: Path, name: str) -> Machine:
    machine = Machine(folder)
    machine.name = name
    config = on(placement, "fake.small", {"DEFAULT": {"log_file": folder / "agent.log"}})
    del config["DEFAULT"]["host"]
    machine.configure(config)
    return machine


@pytest.mark.parametrize("name", ["localhost.localdomain", "192.0.2.7"])
def test_a_machine_without_a_name_is_not_published_unless_host_says_so(
    http_placement: HttpPlacement, tmp_path: Path, name: str
) -> None:
    machine = without_host(http_placement, tmp_path / "agent", name)
    refused = machine.run("--once")
    assert (refused.code, "or set [DEFAULT] host" in refused.stderr) == (1, True), refused
    assert (http_placement.requests, machine.store.exists()) == ([], False)
    assert machine.run("--once", "--host", name).code == 0
    assert names(http_placement) == {name}


def test_a_service_that_is_started_again_publishes_the_name_that_the_machine_got_meanwhile(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    machine = without_host(http_placement, tmp_path / "agent", "localhost")
    with machine.started() as process:
        # So that systemd starts it again.
        assert process.wait(60) == 1
    assert "the agent cannot start: [DEFAULT] host is not set" in Service(machine).log
    machine.name = "compute1.example.com"
    with Service(machine).running() as service:
        service.wait_for("READY", "1")
        assert names(http_placement) == {"compute1.example.com"}
        assert service.stop()[0] == 0


def test_an_embedded_placement_takes_any_name(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    machine = without_host(http_placement, tmp_path / "agent", "localhost")
    machine.configure({"DEFAULT": {"compute_driver": "fake.small"}})
    (node,) = machine.run("--once", "--format", "json").json["nodes"]
    assert (node["name"], node["state"]) == ("localhost", "changed")


def test_a_name_that_the_driver_does_not_know_yet_is_told_until_it_does(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentCommand(tmp_path / "agent")
    file = agent.folder / "host.yaml"
    config: dict[str, dict[str, Any]] = {
        "DEFAULT": {
            "compute_driver": "fake.file",
            "host": "compute1",
            "state_path": "/nonexistent",
            "update_resources_interval": 1,
            "log_file": agent.folder / "agent.log",
        },
        "fake": {"host_file": file},
        **towards(http_placement),
    }
    agent.configure(config)
    file.write_text(json.dumps({**TINY, "name": "localhost.localdomain"}))
    with Service(agent).running() as service:
        until(lambda: "set [DEFAULT] host = localhost.localdomain" in service.log, lambda: service)
        assert names(http_placement) == set()
        file.write_text(json.dumps({**TINY, "name": "compute1"}))
        until(lambda: names(http_placement) == {"compute1"}, lambda: service)
        assert service.stop()[0] == 0
    # The other remedy.
    file.write_text(json.dumps({**TINY, "name": "localhost"}))
    config["DEFAULT"]["host"] = "localhost"
    agent.configure(config)
    assert agent.run("identity", "rename").code == 0
    assert names(http_placement) == {"localhost"}
