"""Guests that are pinned, float or are both when the layout of their host changes: guests that the
records have, and guests that only the hypervisor shows.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.model.facts import Cell, CpuFacts, Domain, HostFacts, Topology
from agent.model.instance import Flavor, GuestCell, PlacedCell
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.report import NodeReport
from agent.numa.host_policy import HostPolicy
from agent.placement import clock
from agent.store.records import Records
from agent.store.store import open_store
from agent.tracker.stored_state import InstanceClaim, InstanceUpdate
from agent.tree.policy import Policy
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver
from tests.support.placement import PlacementServer
from tests.support.tracking import Host, guest, instance, uuid_of

ALL = frozenset(range(8))
CELLS = Topology((Cell(0, frozenset(range(4)), 8192), Cell(1, frozenset(range(4, 8)), 8192)))
PINNED = {"hw:cpu_policy": "dedicated"}
A, B, C = guest("A"), guest("B"), guest("C")
NUMA0, NUMA1 = f"{NAME}_NUMA0", f"{NAME}_NUMA1"
FLAT = Policy(layout="flat")

Held = dict[str, dict[str, dict[str, int]]]


def placed(cell: int, *pins: int) -> PlacedCell:
    """A guest cell that is pinned to these CPUs."""
    return PlacedCell(
        GuestCell(frozenset(), frozenset(range(len(pins))), 512 * len(pins)),
        cell,
        None,
        dict(enumerate(pins)),
    )


class Site:
    """A host of 8 CPUs in 2 cells."""

    def __init__(self, placement: PlacementServer, folder: Path) -> None:
        self.placement, self.folder = placement, folder
        self.domains: tuple[Domain, ...] | None = None
        self.agent: AgentUnderTest | None = None

    def facts(self, name: str) -> HostFacts:
        return HostFacts(
            name,
            time.time(),
            "QEMU",
            cpu=CpuFacts(ALL),
            memory_mib=16384,
            disk_gib=100,
            numa=CELLS,
            domains=self.domains,
        )

    def start(self, policy: Policy) -> NodeReport:
        """The first pass of a new process."""
        self.stop()
        driver = ScriptedDriver()
        driver.facts_of = self.facts
        self.agent = AgentUnderTest(self.placement, self.folder, driver, policy=policy)
        return self.agent.cycle(start=True)

    def stop(self) -> None:
        if self.agent is not None:
            self.agent.stop()

    def claim(self, name: str, vcpus: int, **extra_specs: str) -> tuple[PlacedCell, ...]:
        """A guest on record; where it is."""
        assert self.agent is not None
        specs = {key.replace("_", ":", 1): value for key, value in extra_specs.items()}
        wanted = instance(name, Flavor(name, name, vcpus, 512 * vcpus, extra_specs=specs))
        tracker = self.agent.tracking.tracker
        claim = tracker.claim(
            InstanceClaim(id=uuid_of(f"claim-{name}"), node=ProviderUuid(ROOT), instance=wanted)
        ).claim
        tracker.update(guest(name), InstanceUpdate(vm_state="active"))
        return claim.cells

    def send_away(self, name: str) -> str:
        """Have the guest migrate to another host; what holds for it here."""
        self.stop()
        with open_store(self.folder) as store:
            away = Host(
                "node-b", Records(store), clock.now, replace(self.facts("node-b"), domains=None)
            )  # type: ignore[arg-type]
            away.audit(start=True)
            away.move(name, "live-migration")
        return Host.move_id(name)

    def runs(self, **guests: tuple[int, tuple[PlacedCell, ...]]) -> None:
        """The hypervisor shows guests, by CPUs and cells, and nothing else does."""
        self.domains = tuple(
            Domain(ConsumerUuid(guest(name)), name, 512 * vcpus, vcpus, cells=cells)
            for name, (vcpus, cells) in guests.items()
        )

    def allocate(self, **vcpus: int) -> None:
        """CPUs of the root."""
        for name, amount in vcpus.items():
            self.placement.other.claim({ROOT: {"VCPU": amount}}, guest(name))

    @property
    def held(self) -> Held:
        dump = self.placement.dump()
        names = {uuid: one["name"] for uuid, one in dump["providers"].items()}
        return {
            who: {names[uuid]: amounts for uuid, amounts in one["allocations"].items()}
            for who, one in dump["consumers"].items()
            if one["allocations"]
        }


@pytest.fixture
def site(placement: PlacementServer, tmp_path: Path) -> Iterator[Site]:
    made = Site(placement, tmp_path / "state")
    made.start(FLAT)
    yield made
    made.stop()


def by_records(site: Site) -> tuple[str, int]:
    """A is pinned to 2 CPUs, B to 4 and migrates away, C floats. Returns what holds for B, and a
    CPU that nobody is pinned to.
    """
    cells = [
        *site.claim("A", 2, hw_cpu_policy="dedicated"),
        *site.claim("B", 4, hw_cpu_policy="dedicated"),
    ]
    site.claim("C", 1)
    migration = site.send_away("B")
    site.placement.other.claim({ROOT: {"VCPU": 4}}, migration)
    site.allocate(A=2, C=1)
    return migration, min(ALL - {cpu for one in cells for cpu in one.pinned_cpus})


def by_domains(site: Site) -> tuple[str, int]:
    """The same, of guests that nobody told of."""
    site.runs(A=(2, (placed(0, 0, 1),)), B=(4, (placed(1, 4, 5, 6, 7),)), C=(1, ()))
    site.allocate(A=2, B=4, C=1)
    return B, 2


told = pytest.mark.parametrize("told", [by_records, by_domains])
Told = Callable[[Site], tuple[str, int]]


@told
def test_pinned_guests_get_dedicated_cpus_those_that_leave_too_and_one_that_floats_keeps_its_own(
    told: Told, site: Site
) -> None:
    leaving, shared = told(site)
    report = site.start(replace(FLAT, host=HostPolicy(frozenset({shared}), ALL - {shared})))
    assert (report.state, report.errors) == ("changed", ())
    assert site.held == {
        A: {NAME: {"PCPU": 2}},
        leaving: {NAME: {"PCPU": 4}},
        C: {NAME: {"VCPU": 1}},
    }


@told
def test_without_shared_cpus_one_that_floats_is_in_the_way(told: Told, site: Site) -> None:
    told(site)
    before = site.placement.dump()
    report = site.start(replace(FLAT, host=HostPolicy(None, ALL)))
    (error,) = report.errors
    assert (report.state, C in error.message) == ("refused", True)
    assert error.remedy.startswith("set cpu_shared_set, or move")
    assert site.placement.dump() == before


SETS = HostPolicy(frozenset({0, 4}), ALL - {0, 4})


def two_cells_by_records(site: Site) -> None:
    """A is pinned to two CPUs of each cell; B floats."""
    site.start(replace(FLAT, host=SETS))
    site.claim("A", 4, hw_cpu_policy="dedicated", hw_numa_nodes="2")
    site.claim("B", 2)


def two_cells_by_domains(site: Site) -> None:
    """The same, of guests that nobody told of."""
    site.start(replace(FLAT, host=SETS))
    site.runs(A=(4, (placed(0, 1, 2), placed(1, 5, 6))), B=(2, ()))


@pytest.fixture(params=[two_cells_by_records, two_cells_by_domains])
def two_cells(site: Site, request: pytest.FixtureRequest) -> Site:
    request.param(site)
    site.placement.other.claim({ROOT: {"PCPU": 4, "MEMORY_MB": 2048}}, A)
    site.placement.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 1024}}, B)
    return site


NESTED = Policy(SETS, layout="nested")


def test_mixed_what_is_pinned_goes_to_its_cells_and_what_floats_stays(two_cells: Site) -> None:
    report = two_cells.start(NESTED)
    assert (report.state, report.errors) == ("changed", ())
    assert two_cells.held == {
        A: {NAME: {"MEMORY_MB": 2048}, NUMA0: {"PCPU": 2}, NUMA1: {"PCPU": 2}},
        B: {NAME: {"VCPU": 2, "MEMORY_MB": 1024}},
    }


@pytest.mark.parametrize("before", ["flat", "mixed"])
def test_strict_a_guest_that_floats_is_named_and_the_start_refused(
    before: str, two_cells: Site
) -> None:
    if before == "mixed":
        two_cells.start(NESTED)
    state = two_cells.placement.dump()
    report = two_cells.start(replace(NESTED, strict=True))
    (error,) = report.errors
    assert (report.state, error.code) == ("refused", "reshape.failed")
    assert B in error.message and A not in error.message
    assert two_cells.placement.dump() == state


def test_strict_once_a_guest_that_floats_is_gone_the_others_move(two_cells: Site) -> None:
    two_cells.placement.other.release(B)
    if two_cells.domains is None:
        assert two_cells.agent is not None
        two_cells.agent.tracking.tracker.update(B, InstanceUpdate(deleted=True))
    else:
        two_cells.domains = two_cells.domains[:1]
    report = two_cells.start(replace(NESTED, strict=True))
    assert (report.state, report.errors) == ("changed", ())
    assert two_cells.held == {
        A: {NUMA0: {"PCPU": 2, "MEMORY_MB": 1024}, NUMA1: {"PCPU": 2, "MEMORY_MB": 1024}}
    }
