"""The agent as processes: the daemon, one that stands by, and the command line."""

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.functional.ironic.ironic import Ironic
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import Service, until
from tests.support.system import AgentCommand, AgentHere

pytestmark = pytest.mark.long

GOLD = "CUSTOM_BAREMETAL_GOLD"


def config(
    folder: Path, host: str, ironic: Ironic, placement: HttpPlacement, **more: Any
) -> dict[str, dict[str, Any]]:
    return {
        "DEFAULT": {
            "compute_driver": "ironic.IronicDriver",
            "host": host,
            "update_resources_interval": 1,
            "log_file": folder / host / "agent.log",
        },
        "store": {"connection": f"sqlite:///{folder}/shared.sqlite"},
        "ironic": ironic.credentials(),
        "placement": {**placement.credentials(), "max_in_flight": 1},
        **more,
    }


def test_the_agent_of_a_nova_conf_manages_the_nodes_and_another_one_waits_for_its_end(
    ironic: Ironic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    nodes = {ironic.available() for _ in range(2)}
    one, other = (
        AgentCommand(tmp_path / host, config(tmp_path, host, ironic, http_placement))
        for host in ("metal-1", "metal-2")
    )
    with Service(one).running() as active:
        assert active.wait_for("READY", "1").says["STATUS"] == "ready: 2 changed"
        with Service(other).running() as standby:
            assert (
                standby.wait_for("READY", "1").says["STATUS"]
                == "standing by: host metal-1 manages all nodes of ironic"
            )
            node = min(nodes)
            ironic.maintenance(node, on=True)
            until(lambda: http_placement.other.inventory(node)[GOLD]["reserved"] == 1)
            assert "metal-2" not in active.log
            assert active.stop()[0] == 0
            until(lambda: standby.status.startswith("ready: 2"), lambda: f"{standby}")
            ironic.maintenance(node, on=False)
            until(lambda: http_placement.other.inventory(node)[GOLD]["reserved"] == 0)
            assert standby.stop()[0] == 0
    assert set(http_placement.dump()["providers"]) == nodes


def test_once_without_the_lease_refuses_and_says_who_has_it(
    ironic: Ironic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    ironic.available()
    one = AgentCommand(tmp_path / "metal-1", config(tmp_path, "metal-1", ironic, http_placement))
    other = AgentHere(tmp_path / "metal-2", config(tmp_path, "metal-2", ironic, http_placement))
    with Service(one).running() as active:
        active.wait_for("READY", "1")
        before = http_placement.dump()
        for words in (("--once",), ("--once", "--dry-run")):
            result = other.run(*words, "--format", "json")
            assert (result.code, result.json["nodes"]) == (1, [])
            (error,) = result.json["errors"]
            assert (error["code"], error["message"]) == (
                "agent.standing-by",
                "standing by: host metal-1 manages all nodes of ironic",
            )
        assert http_placement.dump() == before
        assert active.stop()[0] == 0
    assert other.run("--once").code == 0


def test_an_agent_that_only_observes_keeps_no_other_from_managing_the_nodes(
    ironic: Ironic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    nodes = {ironic.available() for _ in range(2)}
    own = config(tmp_path, "metal-1", ironic, http_placement)
    own["DEFAULT"]["mode"] = "observe"
    observer = AgentHere(tmp_path / "metal-1", own)
    other = AgentCommand(tmp_path / "metal-2", config(tmp_path, "metal-2", ironic, http_placement))
    with Service(observer).running() as observing:
        observing.wait_for("READY", "1")
        assert http_placement.dump()["providers"] == {}
        with Service(other).running() as managing:
            assert managing.wait_for("READY", "1").says["STATUS"] == "ready: 2 changed"
            until(lambda: observing.status.startswith("ready: 2 in-sync"), lambda: f"{observing}")
            result = observer.run("--once", "--observe", "--format", "json")
            assert (result.code, result.json["errors"]) == (0, [])
            assert {one["uuid"] for one in result.json["nodes"]} == nodes
            assert managing.stop()[0] == 0
        assert observing.stop()[0] == 0


def test_a_configuration_is_checked_without_asking_anybody(
    ironic: Ironic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    settings = config(tmp_path, "metal-1", ironic, http_placement)
    agent = AgentHere(tmp_path / "metal-1", settings)
    assert agent.run("config", "check").code == 0
    for wrong, told in (
        ({"auth_type": "password"}, "[ironic]"),
        ({"auth_type": ""}, "no credentials in section [ironic]"),
        ({"auth_type": "wishes"}, "[ironic] auth_type = wishes: no such authentication plugin"),
        ({"conductor_group": "rack a"}, "[ironic] conductor_group = rack a"),
        ({"shard": "s/1"}, "[ironic] shard = s/1"),
    ):
        agent.configure({**settings, "ironic": {**settings["ironic"], **wrong}})
        result = agent.run("config", "check")
        assert result.code == 1, (wrong, result)
        assert told in result.stdout + result.stderr, (wrong, result)


def test_a_reload_gives_no_lease_away_and_the_end_gives_all(
    ironic: Ironic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    node = ironic.available()
    one = AgentCommand(tmp_path / "metal-1", config(tmp_path, "metal-1", ironic, http_placement))
    with Service(one).running() as active, ExitStack() as stack:
        active.wait_for("READY", "1")
        outside = stack.enter_context(
            closing(sqlite3.connect(tmp_path / "shared.sqlite", isolation_level=None, timeout=60))
        )
        outside.execute("CREATE TABLE shortened (node TEXT)")
        outside.execute(
            "CREATE TRIGGER shortening AFTER UPDATE ON lease WHEN NEW.expires_at < OLD.expires_at "
            "OR NEW.host <> OLD.host BEGIN INSERT INTO shortened VALUES (NEW.node); END"
        )
        leased = {uuid for (uuid,) in outside.execute("SELECT node FROM lease")}
        assert (len(leased), node in leased) == (2, True)

        def shortened() -> set[str]:
            return {uuid for (uuid,) in outside.execute("SELECT node FROM shortened")}

        for _ in range(2):
            asked = active.reload()
            active.wait_for("READY", "1", since=asked)
            active.wait_for("STATUS", "ready: 1 ", since=asked)
            assert shortened() == set()
        assert active.stop()[0] == 0
        assert shortened() == leased


def test_a_reload_that_makes_another_host_of_the_agent_gives_its_leases_away(
    ironic: Ironic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    node = ironic.available()
    settings = config(tmp_path, "metal-1", ironic, http_placement)
    one = AgentCommand(tmp_path / "metal-1", settings)
    with Service(one).running() as active:
        active.wait_for("READY", "1")
        settings["DEFAULT"]["host"] = "metal-3"
        one.configure(settings)
        asked = active.reload()
        active.wait_for("STATUS", "ready: 1 changed", since=asked)
        assert "CUSTOM_COMPUTE_NODE_AGENT_METAL_3" in http_placement.other.traits(node)
        assert active.stop()[0] == 0
