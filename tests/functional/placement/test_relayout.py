"""Another layout of an existing tree: dedicated CPUs move in one step, or not at all."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agent.model.facts import Cell, CpuFacts, HostFacts, Topology
from agent.numa.host_policy import HostPolicy
from agent.tree.policy import Policy
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest
from tests.support.placement import PlacementServer

CELLS = Topology((Cell(0, frozenset({0, 1, 2, 3}), 4096), Cell(1, frozenset({4, 5, 6, 7}), 4096)))
PCPU = {"flat": {NAME: 4, f"{NAME}_NUMA0": 0}, "nested": {NAME: 0, f"{NAME}_NUMA0": 2}}


@pytest.fixture
def laid_out(host: Host) -> Any:
    """Makes the agent of one and the same host, of one layout or the other."""

    def agent(layout: Any, disk_gib: int = 0) -> AgentUnderTest:
        policy = Policy(HostPolicy(frozenset({0, 1}), frozenset({2, 3, 4, 5})), layout=layout)
        made = host(policy=policy)
        cpu = CpuFacts(frozenset(range(8)))
        made.driver.facts_of = lambda name: HostFacts(
            name, time.time(), "QEMU", cpu=cpu, memory_mib=8192, disk_gib=disk_gib, numa=CELLS
        )
        return made

    return agent


def dedicated(placement: PlacementServer) -> dict[str, int]:
    """PCPU of the root and the first cell."""
    found = {one["name"]: one["inventories"] for one in placement.dump()["providers"].values()}
    return {name: found.get(name, {}).get("PCPU", {}).get("total", 0) for name in PCPU["flat"]}


def test_dedicated_cpus_of_a_guest_of_which_nobody_knows_the_cells_are_not_offered_a_second_time(
    laid_out: Any, placement: PlacementServer
) -> None:
    laid_out("flat").once()
    placement.other.claim({ROOT: {"PCPU": 2}})
    before = placement.dump()
    report = laid_out("nested").once()
    assert report.state == "refused"
    assert [error.code for error in report.errors] == ["reshape.failed"]
    assert placement.dump() == before
    assert laid_out("flat").once().state == "in-sync"


MODES: dict[str, dict[str, Any]] = {
    "flat": {"layout": "flat"},
    "nested": {"layout": "nested"},
    "strict": {"layout": "nested", "strict": True},
}


@pytest.fixture
def in_mode(host: Host) -> Any:
    """Makes the agent of one and the same host, in one mode or another, whose driver cannot tell
    ``unknown``.
    """

    def agent(mode: str, **unknown: Any) -> AgentUnderTest:
        policy = Policy(HostPolicy(frozenset({0, 1}), frozenset({2, 3, 4, 5})), **MODES[mode])
        made = host(policy=policy)
        tells(made, **unknown)
        return made

    return agent


def tells(agent: AgentUnderTest, **unknown: Any) -> None:
    """From now on the driver tells all but ``unknown``: the sections, with what it says instead."""
    fields = {"cpu": "cpu", "memory": "memory_mib", "numa": "numa"}
    facts: dict[str, Any] = {
        "cpu": CpuFacts(frozenset(range(8))),
        "memory_mib": 8192,
        "numa": CELLS,
    }
    facts |= {fields[section]: value for section, value in unknown.items()}
    facts["incomplete"] = dict.fromkeys(unknown, "no answer")
    agent.driver.facts_of = lambda name: HostFacts(name, time.time(), "QEMU", disk_gib=100, **facts)


def free(placement: PlacementServer) -> Counter[str]:
    """What guests can have of the whole tree, by class."""
    found = Counter[str]()
    for one in placement.dump()["providers"].values():
        for name, record in one["inventories"].items():
            found[name] += record["total"] - record["reserved"]
    return found


def totals(placement: PlacementServer) -> dict[str, dict[str, int]]:
    """The totals, by provider and class."""
    return {
        one["name"]: {name: record["total"] for name, record in one["inventories"].items()}
        for one in placement.dump()["providers"].values()
    }


@pytest.mark.parametrize(
    ("one", "other", "unknown"),
    [
        ("flat", "nested", {"numa": None}),
        ("flat", "nested", {"numa": Topology(())}),
        ("flat", "nested", {"numa": Topology(CELLS.cells[1:])}),
        ("flat", "nested", {"cpu": None}),
        ("flat", "strict", {"numa": None}),
        ("flat", "strict", {"cpu": None}),
        ("nested", "flat", {"cpu": None}),
        ("nested", "strict", {"numa": None}),
        ("nested", "strict", {"numa": Topology(CELLS.cells[1:])}),
        ("nested", "strict", {"cpu": None}),
        ("strict", "flat", {"cpu": None}),
        ("strict", "flat", {"memory": None}),
        ("strict", "flat", {"numa": None, "memory": None}),
        ("strict", "nested", {"memory": None}),
        ("strict", "nested", {"numa": None}),
        ("strict", "nested", {"cpu": None}),
    ],
)
def test_another_layout_takes_nothing_away_and_counts_nothing_twice_before_the_facts_are_complete(
    one: str, other: str, unknown: dict[str, Any], in_mode: Any, placement: PlacementServer
) -> None:
    in_mode(other).once()
    wanted = totals(placement)
    in_mode(one).once()
    before = free(placement)
    agent = in_mode(other, **unknown)
    for _ in range(2):
        report = agent.cycle(start=True)
        assert (report.state, free(placement)) == ("degraded", before)
    assert [one.kind for one in report.drift] == []
    tells(agent)
    assert (agent.cycle(start=True).errors, totals(placement)) == ((), wanted)
    assert agent.cycle(start=True).state == "in-sync"


@pytest.mark.parametrize("numa", [None, Topology(()), Topology(CELLS.cells[1:])])
def test_dedicated_cpus_in_use_go_on_being_offered_while_the_cells_of_a_new_layout_are_unknown(
    numa: Topology | None, in_mode: Any, placement: PlacementServer
) -> None:
    in_mode("flat").once()
    placement.other.claim({ROOT: {"PCPU": 2}})
    agent = in_mode("nested", numa=numa)
    assert agent.cycle(start=True).state == "degraded"
    assert placement.other.can_claim({ROOT: {"PCPU": 2}}, "9d1c7a30-5a1e-4c38-8a52-000000000001")


@pytest.fixture
def evacuate(placement: PlacementServer) -> Callable[[dict[str, int]], str]:
    """Has a guest come here from a host with shared storage, which is dead: it still holds all that
    it had there.
    """
    other = placement.other
    dead, storage = other.create_provider("dead-host"), other.create_provider("storage-of-others")
    other.set_inventory(dead, {"VCPU": 8, "MEMORY_MB": 8192})
    other.set_inventory(storage, {"DISK_GB": 1000})
    other.set_traits(storage, ["MISC_SHARES_VIA_AGGREGATE"])
    return lambda here: other.claim({dead: {"VCPU": 2}, storage: {"DISK_GB": 20}, ROOT: here})


@pytest.mark.parametrize(
    ("one", "here", "other"),
    [
        (("flat", 100), {"MEMORY_MB": 512, "DISK_GB": 20}, ("nested", 100)),
        (("flat", 0), {"MEMORY_MB": 512}, ("flat", 100)),
    ],
    ids=["beside another move", "where the disk is new"],
)
def test_disk_of_an_evacuated_guest_is_not_moved_here_from_another_hosts_storage(
    one: Any,
    here: dict[str, int],
    other: Any,
    laid_out: Any,
    placement: PlacementServer,
    evacuate: Callable[[dict[str, int]], str],
) -> None:
    laid_out(*one).once()
    guest = evacuate(here)
    before = placement.dump()["consumers"][guest]["allocations"]
    report = laid_out(*other).once()
    assert (report.state, report.errors) == ("changed", ())
    assert placement.dump()["consumers"][guest]["allocations"] == before


def test_disk_that_is_gone_beside_another_move_stays_held_where_it_is_used(
    laid_out: Any, placement: PlacementServer
) -> None:
    laid_out("flat", 100).once()
    consumer = placement.other.claim({ROOT: {"DISK_GB": 20}})
    report = laid_out("nested").once()
    assert (report.state, report.errors) == ("changed", ())
    assert [one.kind for one in report.drift] == ["held-device", "orphaned-allocation"]
    assert placement.dump()["consumers"][consumer]["allocations"] == {ROOT: {"DISK_GB": 20}}
    assert dedicated(placement) == PCPU["nested"]
