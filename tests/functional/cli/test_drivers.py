"""Scenarios of the drivers, from the command line or the configuration to what is in Placement."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from agent.conf import options
from agent.driver.interface import HostContext
from agent.errors import NotReady
from agent.numa.host_policy import HostPolicy
from agent.tree.policy import Policy
from drivers.fake import catalogue
from drivers.fake.catalogue import LARGE_HOST, NUMA_HOST, ChaosDriver, FakeDriver
from tests.functional.cli.setups import from_file, merged, on
from tests.support.agent import IDENTITY, AgentUnderTest, total
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config
from tests.support.placement import PlacementServer
from tests.support.recorded_sysfs import RecordedSysfs
from tests.support.system import AgentHere, Result

HOST_L: dict[str, Any] = {
    "disk_gib": 439,
    "memory_mib": 31913,
    "cells": [
        {"id": 0, "cpus": "0-3", "memory_mib": 15956},
        {"id": 1, "cpus": "4-7", "memory_mib": 15957},
    ],
}
"""A host with two NUMA cells."""

Inventories = dict[str, dict[str, Any]]


class HostL:
    """The host L on a Placement, by ``fake.file`` or by ``host`` over a recording of it."""

    def __init__(self, agent: AgentHere, base: Config, placement: HttpPlacement) -> None:
        self.agent, self._base, self.placement = agent, base, placement

    def run(self, config: Config | None = None) -> Result:
        self.agent.configure(merged(self._base, config or {}))
        return self.agent.run("--once", "--format", "json")

    def inventories(self, config: Config | None = None) -> Inventories:
        """What is in Placement after a run: by provider, by class."""
        result = self.run(config)
        assert result.code == 0, result
        return inventories(self.placement)

    def refused(self, config: Config) -> str:
        """The one message of a run that fails, and by which nothing was written."""
        before = self.placement.dump()
        result = self.run(config)
        assert result.code == 1, result
        assert self.placement.dump() == before
        (node,) = result.json["nodes"]
        (error,) = node["errors"]
        assert (node["state"], error["code"]) == ("failed", "config.invalid")
        assert error["remedy"]
        return str(error["message"])


def inventories(placement: HttpPlacement | PlacementServer) -> Inventories:
    return {one["name"]: one["inventories"] for one in placement.dump()["providers"].values()}


def totals(found: Inventories) -> dict[str, dict[str, int]]:
    return {
        name: {resource: record["total"] for resource, record in records.items()}
        for name, records in found.items()
    }


@pytest.fixture(params=["fake.file", "host"])
def host_l(request: pytest.FixtureRequest, http_placement: HttpPlacement, tmp_path: Path) -> HostL:
    agent = from_file(http_placement, tmp_path / "agent", HOST_L)
    if request.param == "fake.file":
        return HostL(
            agent,
            on(http_placement, "fake.file", {"fake": {"host_file": agent.folder / "host.yaml"}}),
            http_placement,
        )
    sysfs = RecordedSysfs(tmp_path / "sys")
    for cpu in range(8):
        sysfs.cpu(cpu, package=cpu // 4)
    sysfs.cpus_online("0-7")
    for cell in (0, 1):
        sysfs.cell(cell, range(4 * cell, 4 * cell + 4), (15956 + cell) * 1024, (10, 20))
    sysfs.cells_online("0-1")
    return HostL(
        agent,
        on(
            http_placement,
            "host",
            {"host": {"sysfs_root": sysfs.root}, "DEFAULT": {"instances_path": tmp_path}},
        ),
        http_placement,
    )


def test_d1_without_cpu_sets_all_cpus_are_shared(host_l: HostL) -> None:
    found = host_l.inventories()
    assert found["node-a"]["VCPU"] == total(8, allocation_ratio=4.0)
    assert found["node-a"]["MEMORY_MB"] == total(31913, reserved=512)
    assert (
        found["node-a"]["DISK_GB"]["reserved"],
        found["node-a"]["DISK_GB"]["allocation_ratio"],
    ) == (0, 1.0)
    assert (found["node-a_NUMA0"], found["node-a_NUMA1"]) == ({}, {})


def test_d2_shared_and_dedicated_cpus(host_l: HostL) -> None:
    found = host_l.inventories({"compute": {"cpu_shared_set": "0-1", "cpu_dedicated_set": "2-7"}})
    assert found["node-a"]["VCPU"] == total(2, allocation_ratio=4.0)
    assert (found["node-a_NUMA0"], found["node-a_NUMA1"]) == (
        {"PCPU": total(2)},
        {"PCPU": total(4)},
    )
    assert "PCPU" not in found["node-a"]


def test_d2_in_the_flat_layout_the_root_has_them_all(host_l: HostL) -> None:
    found = host_l.inventories(
        {"compute": {"cpu_shared_set": "0-1", "cpu_dedicated_set": "2-7", "tree_layout": "flat"}}
    )
    assert list(found) == ["node-a"]
    assert (found["node-a"]["VCPU"]["total"], found["node-a"]["PCPU"]) == (2, total(6))


def test_d3_only_dedicated_cpus(host_l: HostL) -> None:
    found = totals(host_l.inventories({"compute": {"cpu_dedicated_set": "0-7"}}))
    assert "VCPU" not in found["node-a"]
    assert (found["node-a_NUMA0"], found["node-a_NUMA1"]) == ({"PCPU": 4}, {"PCPU": 4})


def test_d5_reserved_amounts_are_rounded_up(host_l: HostL) -> None:
    found = host_l.inventories(
        {
            "DEFAULT": {
                "reserved_host_disk_mb": 1025,
                "reserved_host_cpus": 1,
                "reserved_host_memory_mb": 0,
            }
        }
    )
    assert {name: record["reserved"] for name, record in found["node-a"].items()} == {
        "DISK_GB": 2,
        "VCPU": 1,
        "MEMORY_MB": 0,
    }


def test_d6_ratios_of_the_operator_are_kept_and_those_of_the_configuration_win(
    host_l: HostL,
) -> None:
    def ratio(config: Config | None = None) -> float:
        return float(host_l.inventories(config)["node-a"]["VCPU"]["allocation_ratio"])

    assert ratio() == 4.0
    (root,) = [
        uuid
        for uuid, one in host_l.placement.dump()["providers"].items()
        if one["name"] == "node-a"
    ]
    present = host_l.placement.other.inventory(root)
    host_l.placement.other.set_inventory(
        root, present | {"VCPU": present["VCPU"] | {"allocation_ratio": 8.0}}
    )
    assert ratio() == 8.0
    assert ratio({"DEFAULT": {"initial_cpu_allocation_ratio": 3.0}}) == 8.0
    assert ratio({"DEFAULT": {"cpu_allocation_ratio": 2.0}}) == 2.0
    # Zero is nova's way to say that it is not set.
    assert ratio({"DEFAULT": {"cpu_allocation_ratio": 0.0}}) == 2.0


def test_a_host_with_other_initial_ratios(host_l: HostL) -> None:
    initial = {
        "initial_cpu_allocation_ratio": 16.0,
        "initial_ram_allocation_ratio": 1.5,
        "initial_disk_allocation_ratio": 2.0,
    }
    found = host_l.inventories({"DEFAULT": initial})["node-a"]
    assert {name: record["allocation_ratio"] for name, record in found.items()} == {
        "VCPU": 16.0,
        "MEMORY_MB": 1.5,
        "DISK_GB": 2.0,
    }


# --- 37 and the other fakes -----------------------------------------------------------------------


def test_d37_medium_nested_twice_sends_nothing_the_second_time(
    http_placement: HttpPlacement, agent: AgentHere
) -> None:
    agent.configure(on(http_placement, "fake.medium_nested"))
    assert agent.run("--once").code == 0
    assert totals(inventories(http_placement)) == {
        "node-a": {"VCPU": 10, "MEMORY_MB": 8192, "DISK_GB": 1028},
        "node-a-child": {"CUSTOM_MAGIC": 10},
    }
    assert inventories(http_placement)["node-a-child"]["CUSTOM_MAGIC"]["max_unit"] == 10
    before = http_placement.dump()
    http_placement.clear()
    second = agent.run("--once", "--format", "json")
    assert second.json["nodes"][0]["state"] == "in-sync"
    assert http_placement.writes() == []
    assert http_placement.count() == 1
    assert http_placement.dump() == before


# --- layouts --------------------------------------------------------------------------------------

SETS = {"cpu_shared_set": "0-7", "cpu_dedicated_set": "8-63"}


def test_fake_numa_nested_and_flat(http_placement: HttpPlacement, agent: AgentHere) -> None:
    nested = {f"node-a_NUMA{cell}": {"PCPU": 8 if cell == 0 else 16} for cell in range(4)}
    plain = {"MEMORY_MB": 262144, "DISK_GB": 4096, "VCPU": 8}
    for layout, expected in [
        ("nested", {"node-a": plain, **nested}),
        ("flat", {"node-a": {**plain, "PCPU": 56}}),
        ("nested", {"node-a": plain, **nested}),
    ]:
        agent.configure(
            on(http_placement, "fake.numa", {"compute": {**SETS, "tree_layout": layout}})
        )
        assert agent.run("--once").code == 0
        assert totals(inventories(http_placement)) == expected
        assert agent.run("--once", "--format", "json").json["nodes"][0]["operations"] == []
    cells = {
        one["name"]: one["traits"]
        for one in http_placement.dump()["providers"].values()
        if one["parent"]
    }
    assert cells == {name: ["HW_NUMA_ROOT"] for name in nested}


def flat_root(placement: HttpPlacement, agent: AgentHere) -> str:
    """A root as nova leaves it, known to the agent by nova's file."""
    root = placement.other.create_provider("node-a")
    placement.other.set_inventory(
        root,
        {"VCPU": {"total": 64, "allocation_ratio": 16.0}, "MEMORY_MB": 262144, "DISK_GB": 4096},
    )
    (agent.folder / "nova").mkdir()
    (agent.folder / "nova" / "compute_id").write_text(f"{root}\n")
    return root


def test_an_existing_flat_root_stays_flat_with_a_hint(
    http_placement: HttpPlacement, agent: AgentHere
) -> None:
    root = flat_root(http_placement, agent)
    config = on(http_placement, "fake.numa", {"DEFAULT": {"state_path": agent.folder / "nova"}})
    agent.configure(config)
    shown = agent.run("--once")
    assert shown.code == 0
    assert list(http_placement.dump()["providers"]) == [root]
    assert inventories(http_placement)["node-a"]["VCPU"] == total(64, allocation_ratio=16.0)
    assert "4 NUMA cells" in shown.stdout
    assert "[compute] tree_layout = nested" in shown.stdout
    # The option stands in the commands that the run prints.
    flat = agent.run("--once", "--compute-tree_layout", "flat").stdout
    assert "[compute] tree_layout" not in flat
    nested = agent.run("--once", "--compute-tree_layout", "nested")
    assert nested.code == 0
    assert "[compute] tree_layout" not in nested.stdout
    assert len(http_placement.dump()["providers"]) == 5
    # From now on it is a nested one.
    assert agent.run("--once", "--format", "json").json["nodes"][0]["operations"] == []


# --- 38 -------------------------------------------------------------------------------------------


class WatchedNodes(FakeDriver):
    """Has the nodes that the test sets, notes what it is asked, and answers as the test says."""

    names: Sequence[str] = ()

    def __init__(self, placement: PlacementServer) -> None:
        super().__init__(_options(), LARGE_HOST)
        self.start(HostContext("host-1", IDENTITY, Path("/nonexistent")))
        self._placement = placement
        self.asked: list[tuple[str, int]] = []
        self.says: bool | Exception | None = None

    def node_names(self) -> Sequence[str]:
        return self.names

    def is_node_deleted(self, name: str) -> bool:
        """The name is kept with how many requests to delete anything came before."""
        self.asked.append((name, self._placement.count("DELETE")))
        if isinstance(self.says, Exception):
            raise self.says
        return super().is_node_deleted(name) if self.says is None else self.says


def _options(**overrides: Any) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in overrides.items():
        conf.set_override(name, value, "fake")
    return conf


@pytest.fixture
def two_nodes(placement: PlacementServer, tmp_path: Path) -> tuple[AgentUnderTest, WatchedNodes]:
    """An agent that has just synchronised the nodes ``one`` and ``two``."""
    driver = WatchedNodes(placement)
    driver.names = ["one", "two"]
    agent = AgentUnderTest(placement, tmp_path / "state", driver)
    assert {node.state for node in agent.period(start=True).nodes} == {"changed"}
    assert driver.asked == []
    placement.clear()
    return agent, driver


def names(placement: PlacementServer) -> set[str]:
    return set(inventories(placement))


@pytest.mark.parametrize("process", ["the same", "a new one"])
def test_d38_a_node_that_is_deleted_is_asked_for_before_its_provider_goes(
    two_nodes: tuple[AgentUnderTest, WatchedNodes], placement: PlacementServer, process: str
) -> None:
    agent, driver = two_nodes
    driver.names = ["one"]
    report = agent.period() if process == "the same" else agent.report()
    assert driver.asked == [("two", 0)]
    assert {node.name: node.state for node in report.nodes} == {"one": "in-sync", "two": "changed"}
    assert (names(placement), placement.count("DELETE")) == ({"one"}, 1)
    report = agent.report()
    assert ([node.name for node in report.nodes], len(driver.asked)) == (["one"], 1)


def test_d38_a_node_that_only_went_elsewhere_keeps_its_provider(
    two_nodes: tuple[AgentUnderTest, WatchedNodes], placement: PlacementServer
) -> None:
    agent, driver = two_nodes
    driver.names = ["one"]
    driver.says = False
    before = placement.dump()
    assert [node.state for node in agent.period().nodes] == ["in-sync"]
    assert driver.asked == [("two", 0)]
    assert placement.dump() == before
    driver.says = NotReady("the backend is away", "wait")
    report = agent.period()
    assert [error.code for error in report.errors] == ["driver.not-ready"]
    assert placement.dump() == before
    driver.says = None
    agent.period()
    assert names(placement) == {"one"}


def test_d38_a_deleted_node_that_is_still_used_is_kept_for_its_consumer(
    two_nodes: tuple[AgentUnderTest, WatchedNodes], placement: PlacementServer
) -> None:
    agent, driver = two_nodes
    (two,) = [uuid for uuid, one in placement.dump()["providers"].items() if one["name"] == "two"]
    consumer = placement.other.claim({two: {"VCPU": 3}})
    before = placement.dump()["consumers"]
    driver.names = ["one"]
    (gone,) = [node for node in agent.period().nodes if node.name == "two"]
    assert (gone.state, [one.kind for one in gone.drift]) == ("changed", ["held-device"])
    assert placement.dump()["consumers"] == before
    assert (
        placement.other.inventory(two)["VCPU"]["reserved"]
        == placement.other.inventory(two)["VCPU"]["total"]
    )
    placement.other.release(consumer)
    agent.period()
    assert names(placement) == {"one"}


# --- 40 -------------------------------------------------------------------------------------------

RUNS = 1000


def chaotic(placement: PlacementServer, folder: Path, driver: Any) -> AgentUnderTest:
    driver.start(HostContext("node-a", IDENTITY, folder))
    return AgentUnderTest(
        placement,
        folder,
        driver,
        policy=Policy(HostPolicy(frozenset(range(8)), frozenset(range(8, 64)))),
    )


@pytest.mark.long
def test_d40_after_1000_disturbed_runs_the_tree_is_that_of_an_undisturbed_one(
    placement: PlacementServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "MAX_DELAY", 0.001)
    quiet = PlacementServer()
    assert {
        node.state
        for node in chaotic(quiet, tmp_path / "quiet", NUMA_HOST(_options())).report().nodes
    } == {"changed"}
    undisturbed = quiet.dump()
    quiet.close()

    driver = ChaosDriver(_options(chaos_seed=7))
    agent = chaotic(placement, tmp_path / "chaos", driver)
    states: Counter[str] = Counter()
    for run in range(RUNS):
        # Now and then the process is a new one; a mirror and a journal in the store are all that is
        # left.
        report = agent.report() if run % 50 == 0 else agent.period()
        (state,) = [str(node.state) for node in report.nodes] or ["no nodes"]
        states[state] += 1
        if state == "changed":
            assert placement.dump() == undisturbed
        else:
            assert placement.writes() == []
        placement.clear()
    assert placement.dump() == undisturbed
    assert driver.disturbed.keys() == {"delay", "not-ready", "partial"}
    assert driver.disturbed.total() > RUNS / 4
    assert states.keys() == {"changed", "in-sync", "degraded", "failed", "no nodes"}, states
    assert states["changed"] == 1
