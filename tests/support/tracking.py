"""Hosts whose trackers share one store, with the nodes and flavors that the scenarios of resource
tracking speak of.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
from sqlalchemy import select

from agent.api.node_documents import JsonObject, stats
from agent.errors import AgentError, RecordConflict
from agent.model.devices import AssignableUnit, DeviceRecord, DeviceRequest
from agent.model.facts import Cell, CpuFacts, Domain, HostFacts, Topology
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Claim, Migration, MigrationType
from agent.model.provider_tree import ProviderTree
from agent.numa.host_policy import HostPolicy
from agent.store.record_table import METADATA
from agent.store.records import Records
from agent.store.store import Store
from agent.tracker import moves
from agent.tracker.consumer_records import ConsumerRecords
from agent.tracker.node_entry import ListedNodes, NodeEntry, NodeLeases
from agent.tracker.node_record import Agent
from agent.tracker.node_state import NodeView
from agent.tracker.reconcile import ReconcileRules
from agent.tracker.stored_state import (
    ClaimLimits,
    InstanceClaim,
    InstanceUpdate,
    MoveClaim,
    PlannedChange,
)
from agent.tracker.tracker import Tracker
from agent.tracker.usage_step import UsageSettings, UsageStep
from agent.tree.policy import Policy

DEDICATED = {"hw:cpu_policy": "dedicated"}
F1 = Flavor("f1", "F1", 1, 2048, root_gb=20)
F2 = Flavor("f2", "F2", 2, 4096, root_gb=40, ephemeral_gb=10, swap_mb=512)
F3 = Flavor("f3", "F3", 4, 8192, root_gb=80, swap_mb=1024)
FN = Flavor("fn", "FN", 2, 4096, root_gb=10, extra_specs=DEDICATED)
FN4 = Flavor("fn4", "FN4", 4, 8192, root_gb=10, extra_specs=DEDICATED)
FI = Flavor(
    "fi", "FI", 1, 2048, root_gb=10, extra_specs={**DEDICATED, "hw:cpu_thread_policy": "isolate"}
)
FG = Flavor("fg", "FG", 2, 4096, root_gb=20)
FM = Flavor("fm", "FM", 1, 2048, root_gb=10)
PMEM = "CUSTOM_PMEM_NAMESPACE_4GB"

PLAIN_RESERVED = Policy(reserved_cpus=1, reserved_memory_mib=512, reserved_disk_mib=2048)
NUMA_RESERVED = Policy(reserved_cpus=0, reserved_memory_mib=512, reserved_disk_mib=0)


def uuid_of(name: str) -> str:
    """The uuid that ``name`` stands for."""
    return str(uuid5(NAMESPACE_DNS, name))


def guest(name: str) -> ConsumerUuid:
    """The uuid of the instance, or of another consumer, that is called ``name``."""
    return ConsumerUuid(uuid_of(name))


def instance(name: str, flavor: Flavor, **fields: Any) -> Instance:
    """An instance as a caller describes it."""
    return Instance(uuid=guest(name), project_id="project", user_id="user", flavor=flavor, **fields)


def numa_cells(
    siblings: Iterable[Iterable[int]] = ((4, 5), (6, 7), (12, 13), (14, 15)),
) -> Topology:
    """Two cells of 8 CPUs and 16 GiB."""
    groups = [frozenset(one) for one in siblings]

    def cell(number: int) -> Cell:
        cpus = frozenset(range(8 * number, 8 * number + 8))
        return Cell(number, cpus, 16384, siblings=tuple(one for one in groups if one <= cpus))

    return Topology((cell(0), cell(1)))


class Time:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@dataclass
class Host:
    """One host with its agent's tracker; ``restart`` is a new process on the same records."""

    name: str
    records: Records
    time: Time
    facts: HostFacts
    policy: Policy = PLAIN_RESERVED
    cells: HostPolicy = field(default_factory=HostPolicy)
    devices: tuple[DeviceRecord, ...] | None = None
    rules: ReconcileRules = field(default_factory=ReconcileRules)
    lease_seconds: float = 300.0
    changed: list[ProviderUuid] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node = ProviderUuid(uuid_of(self.name))
        self.restart()

    def restart(self) -> None:
        """Forget all that is only in memory."""
        slots: dict[ProviderUuid, NodeEntry] = {}
        listed = ListedNodes()
        agent = Agent(self.name, "192.0.2.1", self.lease_seconds)
        settings = UsageSettings(
            agent,
            replace(self.policy, host=self.cells),
            self.rules,
            lambda _node, _known: self.devices,
        )
        self.usage_step = UsageStep(self.records, slots, listed, settings, self.time)
        self.node_leases = NodeLeases(self.records, slots, agent, self.time)
        self.tracker = Tracker(
            self.records, slots, listed, self.time, self.changed.append, self.name
        )
        self.consumer_records = ConsumerRecords(self.records, self.name)

    def beside(self, name: str) -> "Host":
        """Another node of this host's agent, audited; what only one process has in memory both
        share.
        """
        other = copy(self)
        other.node, other.facts = ProviderUuid(uuid_of(name)), replace(self.facts, name=name)
        other.audit(start=True)
        return other

    def audit(self, *, start: bool = False, **facts: Any) -> NodeView:
        """Audit the node, on facts taken now; ``facts`` replaces some of them for good."""
        self.facts = replace(self.facts, taken_at=self.time(), **facts)
        # As a pass does first, so that every test sees what follows from a node without changes too.
        self.usage_step.read_versions([self.node])
        found = self.usage_step.audit(self.node, self.facts, ProviderTree(), start=start)
        try:
            self.usage_step.add_new_node(self.node)
        except RecordConflict:
            # As in the next attempt of a pass.
            return self.usage_step.audit(self.node, self.facts, ProviderTree(), start=start)
        return found

    # --- operations -------------------------------------------------------------------------------

    def claim(
        self,
        name: str,
        flavor: Flavor,
        *,
        id: str | None = None,
        allocations: Mapping[str, Any] | None = None,
        devices: tuple[DeviceRequest, ...] = (),
        limits: ClaimLimits | None = None,
        **fields: Any,
    ) -> PlannedChange:
        """Claim room for the instance called ``name``; the claim is called as the instance unless
        ``id`` says otherwise.
        """
        return self.tracker.claim(
            InstanceClaim(
                id=uuid_of(id or f"claim-{name}"),
                node=self.node,
                instance=instance(name, flavor, **fields),
                limits=limits or ClaimLimits(),
                allocations=allocations or {},
                devices=devices,
            )
        )

    def abort(self, name: str) -> PlannedChange:
        """Abort the claim that :meth:`claim` made for ``name``."""
        return self.tracker.abort(uuid_of(f"claim-{name}"))

    def move(
        self,
        name: str,
        kind: MigrationType,
        flavor: Flavor | None = None,
        *,
        id: str | None = None,
        migration: Migration | None = None,
        known: Instance | None = None,
        **fields: Any,
    ) -> PlannedChange:
        """Claim room for a move of ``name`` to here; the move is called ``move-<name>`` unless
        ``id`` says otherwise.
        """
        found = known or self.instance(name)
        assert found is not None
        return self.tracker.claim_move(
            MoveClaim(
                id=self.move_id(name, id),
                type=kind,
                node=self.node,
                instance=replace(found, version=0),
                flavor=flavor,
                migration=migration,
                **fields,
            )
        )

    @staticmethod
    def move_id(name: str, id: str | None = None) -> str:
        """The id of the move of ``name``."""
        return uuid_of(id or f"move-{name}")

    def update(self, name: str, **states: Any) -> Instance:
        """Tell the tracker of an instance's new state."""
        return self.tracker.update(guest(name), InstanceUpdate(**states))

    # --- what there is ----------------------------------------------------------------------------

    @property
    def usage(self) -> str:
        """Memory/CPUs/disk in MiB that are used of the node, as memory has it; and checked against
        the records.
        """
        state = self.tracker.view(self.node)
        settled(self)
        return f"{state.used.memory_mb}/{state.used.vcpus}/{state.used.disk_mb}"

    def pinned(self, cell: int) -> set[int]:
        """The host CPUs of a cell that are pinned to."""
        return set(next(one for one in self.tracker.view(self.node).cells if one.id == cell).pinned)

    def instance(self, name: str) -> Instance | None:
        """The record of an instance."""
        with self.records.reading() as reading:
            return reading.instance(guest(name))

    def migration(self, name: str) -> Migration:
        """The record of the move of ``name``."""
        with self.records.reading() as reading:
            found = reading.migration(ConsumerUuid(self.move_id(name)))
        assert found is not None
        return found

    def claims(self, name: str) -> tuple[Claim, ...]:
        """The open claims of an instance, on all nodes."""
        with self.records.reading() as reading:
            return reading.claims_of(guest(name))


def step(tracker: Tracker, word: str, move: str) -> PlannedChange:
    """Carry out a step of a move: finish, confirm, revert or abort it."""
    return tracker.change(move, getattr(moves, word))


def stats_of(view: NodeView) -> JsonObject:
    """The node's statistics as the API shows them."""
    return stats(view.state.instances.values(), view.state.node.failed_builds)


def settled(host: Host) -> None:
    """What always holds: usage is what is reserved and the open claims' sum; what is held is held
    by one open claim.
    """
    with host.records.reading() as reading:
        records = reading.load(host.node)
    assert records is not None
    state = host.tracker.view(host.node)
    assert sum((one.amounts for one in records.claims), start=state.host.reserved) == state.used
    open_ones = {one.id for one in records.claims}
    assert all(one.open for one in records.claims)
    held = [*records.devices, *records.units]
    assert {one.holder for one in held if one.holder is not None} <= open_ones
    assert all((one.holder is None) == (one.state == "available") for one in records.devices)
    assert dict(state.claims) == {one.id: one for one in records.claims}
    assert dict(state.devices) == {one.address: one for one in records.devices}
    assert {key: one.holder for key, one in state.units.items()} == {
        (one.provider, one.resource_class, one.identifier): one.holder for one in records.units
    }
    assert state.instances.keys() == {one.uuid for one in records.instances}
    pins = [
        cpu
        for one in records.claims
        if one.id not in state.uncounted
        for placed in one.cells
        for cpu in placed.pinned_cpus
    ]
    assert len(pins) == len(set(pins))
    assert set(pins) == {cpu for cell in state.cells for cpu in cell.pinned}


class World:
    """A store with hosts. ``time`` is everybody's."""

    def __init__(self, store: Store) -> None:
        self.store, self.records, self.time = store, Records(store), Time()

    def plain(self, name: str, **fields: Any) -> Host:
        """A host without cells: 65536 MiB, 32 CPUs, 1000 GiB; 512 MiB, one CPU and 2048 MiB of disk
        are reserved.
        """
        facts = HostFacts(
            name,
            self.time(),
            "test",
            cpu=CpuFacts(frozenset(range(32))),
            memory_mib=65536,
            disk_gib=1000,
        )
        return self._audited(Host(name, self.records, self.time, facts, **fields))

    def numa(self, name: str = "HN", topology: Topology | None = None, **fields: Any) -> Host:
        """A host of two cells: CPUs 0-3 and 8-11 are shared, 4-7 and 12-15 dedicated; 512 MiB are
        reserved.
        """
        facts = HostFacts(
            name,
            self.time(),
            "test",
            cpu=CpuFacts(frozenset(range(16))),
            memory_mib=32768,
            disk_gib=500,
            numa=topology or numa_cells(),
        )
        sets = HostPolicy(
            frozenset({*range(4), *range(8, 12)}), frozenset({*range(4, 8), *range(12, 16)})
        )
        return self._audited(
            Host(name, self.records, self.time, facts, policy=NUMA_RESERVED, cells=sets, **fields)
        )

    def pmem(
        self, name: str = "HM", units: tuple[str, ...] = ("ns_0", "ns_1"), **fields: Any
    ) -> Host:
        """A plain host with persistent-memory namespaces."""
        host = self.plain(name, **fields)
        host.audit(units=tuple(AssignableUnit(PMEM, one) for one in units))
        return host

    @staticmethod
    def _audited(host: Host) -> Host:
        host.audit(start=True)
        return host


def twin(world: World, host: Host, name: str) -> Host:
    """Another host with the identity of ``host``, as if its folder had been copied. Not audited
    yet.
    """
    found = Host(name, world.records, world.time, replace(host.facts, name=name))
    found.node = host.node
    return found


def device(
    host: Host, address: str, kind: str = "type-PCI", parent: str | None = None, **fields: Any
) -> DeviceRecord:
    """A device of a host, as its driver shows it."""
    return DeviceRecord(
        node=host.node,
        address=address,
        vendor_id="8086",
        product_id="1563",
        type=kind,
        parent=parent,
        **fields,
    )  # type: ignore[arg-type]


def pmem_of(host: Host, count: int = 1) -> Mapping[str, Any]:
    """What the scheduler allocates to a guest with so many namespaces."""
    return {host.node: {PMEM: count, "VCPU": 1, "MEMORY_MB": 2048}}


def domain(name: str, memory_mib: int, vcpus: int | None = None, **fields: Any) -> Domain:
    """A guest that the hypervisor shows."""
    return Domain(guest(name), name, memory_mib, vcpus, **fields)


def race(*actions: Callable[[], object]) -> list[object]:
    """Do all at the same moment, each in a thread; what they return or raise, in their order."""
    barrier, results = threading.Barrier(len(actions)), [None] * len(actions)

    def run(place: int, action: Callable[[], object]) -> None:
        barrier.wait()
        try:
            results[place] = action()
        except Exception as error:  # noqa: BLE001 - it is what the action gave
            results[place] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(results)


# ---
# Refusals that leave no trace: the whole database is compared before and after.


def rows(world: World) -> Mapping[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with world.store.reading() as connection:
        return {
            table.name: [
                tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))
            ]
            for table in METADATA.sorted_tables
        }


@contextmanager
def refused(world: World, code: str) -> Iterator[pytest.ExceptionInfo[AgentError]]:
    """What is done here is refused with ``code``, and nothing is written; the error is told with a
    remedy.
    """
    before = rows(world)
    with pytest.raises(AgentError) as caught:
        yield caught
    assert caught.value.code == code, caught.value
    assert caught.value.message
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    assert rows(world) == before
