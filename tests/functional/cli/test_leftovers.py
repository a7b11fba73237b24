"""What an audit tells of consumers that no record knows, and the command that it names."""

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.placement import clock
from tests.functional.cli.setups import on
from tests.support.consumer_book import Book
from tests.support.http_placement import HttpPlacement
from tests.support.placement import OtherClient
from tests.support.shell import Shell
from tests.support.system import AgentHere
from tests.support.tracking import guest

PURGE = {"compute": {"purge_unknown_allocations": True, "purge_unknown_allocations_grace": 0}}
REFRESH = 600
"""The default of [placement] consumers_refresh."""


@dataclass(frozen=True)
class Audited:
    """A host with the driver fake whose audits are runs of ``--once`` at times that are set."""

    agent: AgentHere
    other: OtherClient
    monkeypatch: pytest.MonkeyPatch
    begun: float = field(default_factory=clock.now)

    def once(self) -> Any:
        (node,) = self.agent.run("--once", "--format", "json").json["nodes"]
        return node

    def told(self, consumer: str) -> list[Any]:
        return [one for one in self.once()["drift"] if one.get("consumer") == consumer]

    def carry_out(self, consumer: str, later: float) -> None:
        (drift,) = self.told(consumer)
        (command,) = set(re.findall(r"agent (allocation remove-tree \S+ [^\s;]+)", drift["remedy"]))
        # Repeated it is no error, also once the consumer has nothing anywhere.
        assert [self.agent.run(*command.split()).code for _ in range(2)] == [0, 0]
        # What is given back moves no generation, and is seen when the holders are read again.
        self.monkeypatch.setattr(clock, "now", lambda: self.begun + later)
        assert self.told(consumer) == []


@pytest.fixture
def host(http_placement: HttpPlacement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audited:
    agent = AgentHere(tmp_path / "agent")
    agent.configure(on(http_placement))
    return Audited(agent, http_placement.other, monkeypatch)


def test_the_command_that_the_drift_of_an_unknown_consumer_names_ends_it(
    http_placement: HttpPlacement, host: Audited
) -> None:
    agent, other = host.agent, host.other
    root = host.once()["uuid"]
    Book(agent.store, root, "node-a").instance(guest("elsewhere"), host="b", node=None)
    elsewhere = other.create_provider("node-b")
    other.set_inventory(elsewhere, {"VCPU": 4})
    held = {uuid: {"VCPU": 1} for uuid in (root, elsewhere)}
    leftover, volume = (
        other.claim(held, guest(kind), kind=kind) for kind in ("INSTANCE", "VOLUME")
    )
    host.carry_out(leftover, REFRESH + 60)
    agent.configure(on(http_placement, "fake.numa", PURGE))
    (drift,) = host.told(volume)
    assert "of type VOLUME" in drift["detail"]
    host.carry_out(volume, 2 * (REFRESH + 60))
    for consumer in (leftover, volume):
        assert other.allocations(consumer)["allocations"].keys() == {elsewhere}


@pytest.mark.parametrize("place", ["root", "child"])
def test_a_leftover_on_a_host_without_records_is_told_with_the_command_that_ends_it(
    http_placement: HttpPlacement, host: Audited, place: str
) -> None:
    nested = {"compute": {"cpu_dedicated_set": "2-3", "tree_layout": "nested"}}
    host.agent.configure(on(http_placement, "fake.numa", nested))
    node = host.once()
    held = next(
        row
        for row in node["tree"]
        if row["inventories"] and (row["uuid"] == node["uuid"]) == (place == "root")
    )
    name, record = next(iter(held["inventories"].items()))
    amount = record["total"] - record["reserved"]
    leftover = host.other.claim({held["uuid"]: {name: amount}})

    (drift,) = host.told(leftover)
    assert (drift["kind"], f"{name} {amount}" in drift["detail"]) == ("orphaned-allocation", True)
    printed = host.agent.run("--once").stdout
    look = f"allocation show {leftover}"
    assert f"agent --config-file {host.agent.config_file} {look}\n" in printed
    assert name in host.agent.run(*look.split()).stdout
    host.carry_out(leftover, REFRESH + 60)


@pytest.mark.parametrize("lost", ["the store", "the records"])
def test_a_leftover_is_told_by_the_audit_that_takes_the_tree_over(
    http_placement: HttpPlacement, host: Audited, lost: str
) -> None:
    nested = {"compute": {"cpu_dedicated_set": "2-3", "tree_layout": "nested"}}
    host.agent.configure(on(http_placement, "fake.numa", nested))
    node = host.once()
    root = node["uuid"]
    (cell,) = [row for row in node["tree"] if "PCPU" in (row["inventories"] or {})]
    leftover = host.other.claim({root: {"MEMORY_MB": 1024}, cell["uuid"]: {"PCPU": 1}})
    on_cell = host.other.claim({cell["uuid"]: {"PCPU": 1}})
    if lost == "the store":
        shutil.rmtree(host.agent.store)
        assert host.agent.run("identity", "set", root).code == 0
    else:
        # It names the audits that tell, because no daemon runs yet.
        named = re.findall(
            r"^  agent .*?(--once.*)$", host.agent.run("db", "set-aside").stdout, re.M
        )
        assert named == ["--once --adopt", "--once --dry-run"]
    (taken,) = host.agent.run("--once", "--adopt", "--format", "json").json["nodes"]
    (looked,) = host.agent.run("--once", "--dry-run", "--format", "json").json["nodes"]
    assert looked["drift"] == taken["drift"]
    for told in (taken, host.once(), host.once()):
        assert {one["consumer"]: one["kind"] for one in told["drift"]} == dict.fromkeys(
            (leftover, on_cell), "orphaned-allocation"
        )
        (of_both,) = (one for one in told["drift"] if one["consumer"] == leftover)
        assert all(amount in of_both["detail"] for amount in ("MEMORY_MB 1024", "PCPU 1"))
    host.carry_out(leftover, REFRESH + 60)


def test_a_class_of_somebody_else_that_is_used_is_told_and_its_commands_end_it(
    http_placement: HttpPlacement, host: Audited
) -> None:
    host.agent.configure(on(http_placement, "fake.numa"))
    root, other = host.once()["uuid"], host.other
    other.set_inventory(root, {**other.inventory(root), "CUSTOM_LICENCE": 4})
    assert host.once()["drift"] == []
    user = other.claim({root: {"CUSTOM_LICENCE": 3}})

    drift = next(one for one in host.once()["drift"] if one["kind"] == "foreign-provider")
    assert "CUSTOM_LICENCE was put there by somebody else" in drift["detail"]
    assert user in drift["detail"]
    given, removed = (
        drift["remedy"].removeprefix("leave it if it is meant so; else: ").split(" && ")
    )
    assert host.agent.run(*given.removeprefix("agent ").split()).code == 0
    assert removed == (
        "openstack --os-placement-api-version 1.28 resource provider inventory delete "
        f"{root} --resource-class CUSTOM_LICENCE"
    )
    # What the client does: tests/functional/nova/test_remedies.py runs the real one.
    other.call("DELETE", f"/resource_providers/{root}/inventories/CUSTOM_LICENCE")
    assert host.once()["drift"] == []


def test_a_leftover_that_keeps_another_layout_away_is_ended_as_the_remedy_says(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent")
    host = {"cpu_dedicated_set": "0-3,8-11"}
    agent.configure(on(http_placement, "fake.numa", {"compute": {**host, "tree_layout": "flat"}}))
    root = agent.run("--once", "--format", "json").json["nodes"][0]["uuid"]
    http_placement.other.claim({root: {"PCPU": 1}}, leftover := guest("leftover"))
    agent.configure(on(http_placement, "fake.numa", {"compute": {**host, "tree_layout": "nested"}}))
    refused = agent.run("--once")
    assert (refused.code, "reshape.failed" in refused.stdout) == (1, True), refused
    (command,) = [
        line.strip()
        for line in refused.stdout.splitlines()
        if leftover in line and "remove-tree" in line
    ]
    Shell(tmp_path / "programs", agent).run(command)
    assert agent.run("--once").code == 0
