"""State of one node: its records, their sums, and the records that cannot be counted. Frozen."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Self, TypeVar

from agent.model.devices import DeviceRecord, UnitRecord
from agent.model.finding import Drift
from agent.model.instance import NOTHING, Amounts, Instance
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import Claim, ComputeNode, Migration, NodeRecords, RecordChanges
from agent.model.report import Usage
from agent.numa.host import CellUsageError, HostCell, count_guests, is_displaced
from agent.tracker.errors import NodeNotReady
from agent.tracker.node_record import HostCapacity

Versioned = TypeVar("Versioned", ComputeNode, Instance, Migration, Claim, DeviceRecord, UnitRecord)
Consumer = TypeVar("Consumer", Instance, Migration)
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", Claim, DeviceRecord, UnitRecord)
UnitKey = tuple[ProviderUuid, str, str]
"""Provider, resource class and identifier of a unit."""


Sums = tuple[Amounts, tuple[HostCell, ...], Mapping[str, str], frozenset[str]]
"""What is used, the cells, the claims that the cells cannot count, with the reason, and the
displaced ones.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """The records of a node on the capacity of its host, with their sums."""

    node: ComputeNode
    host: HostCapacity
    claims: Mapping[str, Claim]
    """The open claims, by id."""
    instances: Mapping[ConsumerUuid, Instance]
    migrations: Mapping[ConsumerUuid, Migration]
    devices: Mapping[str, DeviceRecord]
    units: Mapping[UnitKey, UnitRecord]
    used: Amounts
    """The sum of the claims and of the host's own share."""
    cells: tuple[HostCell, ...]
    """The NUMA cells of the host, with the pins, pages and memory of the claims."""
    uncounted: Mapping[str, str] = field(default_factory=dict)
    """The claims whose pins contradict other claims, by id, with the reason. Their amounts are
    counted in ``used``, but they are not counted in ``cells``.
    """
    displaced: frozenset[str] = frozenset()
    """The claims whose guests are on cells that the host does not have any more, or has with other
    CPUs. Their amounts are counted in ``used``, but they are not counted in ``cells``, so that no
    claim gets cells before they are recorded anew.
    """
    damaged: tuple[str, ...] = ()
    """A line for each record that cannot be understood."""

    @classmethod
    def of(cls, records: NodeRecords, host: HostCapacity) -> Self:
        """Return the state of the records on the host. A damaged record never hides the others."""
        host = host.without_orphans([claim.instance for claim in records.claims])
        used, cells, uncounted, displaced = _sums(records.claims, host)
        return cls(
            node=records.node,
            host=host,
            claims={claim.id: claim for claim in records.claims},
            instances={instance.uuid: instance for instance in records.instances},
            migrations={migration.uuid: migration for migration in records.migrations},
            devices={device.address: device for device in records.devices},
            units={unit_key(unit): unit for unit in records.units},
            used=used,
            cells=cells,
            uncounted=uncounted,
            displaced=displaced,
            damaged=tuple(
                f"{record.table} {printable(record.key)}: {printable(record.why)}"
                for record in records.damaged
            ),
        )

    @property
    def records(self) -> NodeRecords:
        """The records, without those that are damaged."""
        return NodeRecords(
            self.node,
            tuple(sorted(self.claims.values(), key=attrgetter("created_at", "id"))),
            tuple(sorted(self.instances.values(), key=attrgetter("created_at", "uuid"))),
            tuple(sorted(self.migrations.values(), key=attrgetter("created_at", "uuid"))),
            tuple(device for _, device in sorted(self.devices.items())),
            tuple(unit for _, unit in sorted(self.units.items())),
        )

    def on(self, host: HostCapacity) -> Self:
        """Return the state of the same records on other facts of the host."""
        host = host.without_orphans([claim.instance for claim in self.claims.values()])
        used, cells, uncounted, displaced = _sums(self.claims.values(), host)
        return replace(
            self, host=host, used=used, cells=cells, uncounted=uncounted, displaced=displaced
        )

    def after(self, changes: RecordChanges, subject: Instance | None = None) -> Self:
        """Return the state once ``changes`` are written, with the record versions that the store
        has then.

        ``subject``: the instance that the changes are about; the node need not know it yet.
        """
        uuid = self.node.uuid
        node = next((node for node in changes.nodes if node.uuid == uuid), None)
        if node is None and uuid in changes.touched:
            node = replace(self.node, dirty=True)
        changed = [claim for claim in changes.claims if claim.node == uuid]
        host = self.host.without_orphans([claim.instance for claim in changed if claim.open])
        claims = _changed(
            self.claims,
            {claim.id: claim for claim in changed if claim.open},
            [claim.id for claim in changed],
        )
        used, cells, uncounted, displaced = self._sums_after(changed, claims, host)
        # The claims as they were and as they are.
        before = [self.claims[claim.id] for claim in changed if claim.id in self.claims]
        concerned = {
            name for claim in (*changed, *before) for name in (claim.instance, claim.migration)
        }
        known = {
            **({subject.uuid: subject} if subject else {}),
            **{instance.uuid: _with_next_version(instance) for instance in changes.instances},
        }
        moves = {migration.uuid: _with_next_version(migration) for migration in changes.migrations}

        # By the rule of :class:`~agent.model.node_records.NodeRecords`.
        def is_claimed(name: ConsumerUuid) -> bool:
            return any(name in (claim.instance, claim.migration) for claim in claims.values())

        def has_instance(one: Instance) -> bool:
            return (one.node == uuid and not one.deleted) or is_claimed(one.uuid)

        def has_migration(one: Migration) -> bool:
            ends = one.source_node, one.dest_node
            return (not one.ended and uuid in ends) or is_claimed(one.uuid)

        return replace(
            self,
            node=self.node if node is None else replace(node, version=node.version + 1),
            host=host,
            claims=claims,
            used=used,
            cells=cells,
            uncounted=uncounted,
            displaced=displaced,
            instances=_judged_again(self.instances, known, concerned, has_instance),
            migrations=_judged_again(self.migrations, moves, concerned, has_migration),
            devices=_changed(
                self.devices,
                {device.address: device for device in changes.devices if device.node == uuid},
                [device.address for device in changes.dropped_devices if device.node == uuid],
            ),
            units=_changed(
                self.units,
                {unit_key(unit): unit for unit in changes.units if unit.node == uuid},
                [unit_key(unit) for unit in changes.dropped_units if unit.node == uuid],
            ),
        )

    @property
    def offered_devices(self) -> Mapping[str, DeviceRecord]:
        """The devices, without those that most likely are a recorded guest's at another address."""
        if not (moved := self.host.moved_devices):
            return self.devices
        return {
            address: replace(device, present=False) if address in moved else device
            for address, device in self.devices.items()
        }

    def check_cells_known(self) -> None:
        """Check that the driver has reported the host's cells.

        :raises NodeNotReady: it has not since the agent started.
        """
        if not self.host.cells_known:
            name = printable(self.node.name)
            raise NodeNotReady(
                f"the driver could not report CPUs and cells of node {name} yet",
                "wait for an audit with complete facts; see what is missing: agent status",
            )

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the records that make the free capacity uncertain, a line each."""
        if not self.host.cells_known:
            # It is not the records' fault that guests are on cells which nobody has reported.
            return self.damaged
        return (
            *self.damaged,
            *(f"claim {claim}: {why}" for claim, why in sorted(self.uncounted.items())),
        )

    @property
    def usage(self) -> Usage:
        """Return the sums for the report."""
        tracked = {
            claim.instance
            for claim in self.claims.values()
            if claim.half != "new" and claim.purpose != "devices"
        }
        moves = {claim.migration for claim in self.claims.values() if claim.migration is not None}
        return Usage(
            self.used.vcpus,
            self.used.memory_mb,
            self.used.disk_mb,
            len(tracked),
            len(self.claims),
            len(moves),
        )

    @property
    def mediated(self) -> frozenset[str]:
        """The devices of which guests have mediated devices, or are promised some."""
        promised = (share.parent for claim in self.claims.values() for share in claim.mdevs)
        return self.host.mediated | {parent for parent in promised if parent is not None}

    def claims_of(self, instance: ConsumerUuid) -> list[Claim]:
        """Return the instance's open claims on this node."""
        return [claim for claim in self.claims.values() if claim.instance == instance]

    def _sums_after(
        self, changed: Iterable[Claim], claims: Mapping[str, Claim], host: HostCapacity
    ) -> Sums:
        """Return the sums after these claims were opened, changed or released. ``claims``: those
        that are open then.
        """
        cells = {cell.id: cell for cell in self.cells}
        used = self.used - self.host.reserved + host.reserved
        for claim in changed:
            before = self.claims.get(claim.id)
            used = used - (before.amounts if before is not None else NOTHING)
            used = used + (claim.amounts if claim.open else NOTHING)
            if self.uncounted or self.displaced or not _recount(cells, before, claim):
                return _sums(claims.values(), host)
        return used, tuple(cells.values()), self.uncounted, self.displaced


def _changed(
    records: Mapping[Key, Value], changes: Mapping[Key, Value], dropped: Iterable[Key]
) -> Mapping[Key, Value]:
    """Return the records after ``changes``, each with its next version, without the dropped ones;
    the same mapping if nothing changed.
    """
    gone = frozenset(dropped)
    if not (changes or gone):
        return records
    left = {**records}
    for key in gone:
        left.pop(key, None)
    return {**left, **{key: _with_next_version(record) for key, record in changes.items()}}


def _judged_again(
    consumers: Mapping[ConsumerUuid, Consumer],
    known: Mapping[ConsumerUuid, Consumer],
    concerned: Collection[ConsumerUuid | None],
    belongs: Callable[[Consumer], bool],
) -> Mapping[ConsumerUuid, Consumer]:
    """Return the consumers with those that are ``known`` now, after those and the ``concerned``
    ones were judged anew. The claims of all others are as before, so that they are not looked at,
    and a claim costs the same however many instances there are.
    """
    judged = {
        uuid: consumers[uuid] for uuid in concerned if uuid is not None and uuid in consumers
    } | {**known}
    if not judged:
        return consumers
    found = {**consumers}
    for uuid, consumer in judged.items():
        if belongs(consumer):
            found[uuid] = consumer
        else:
            found.pop(uuid, None)
    return found


def mediated_parts(
    devices: Mapping[str, DeviceRecord], device: DeviceRecord, mediated: Collection[str]
) -> frozenset[str]:
    """Return which of ``mediated`` the device, its PF and its VFs are."""
    return frozenset(
        parent
        for parent in mediated
        if parent in (device.address, device.parent)
        or (parent in devices and devices[parent].parent == device.address)
    )


def unit_key(unit: UnitRecord) -> UnitKey:
    """Return the key that identifies a unit of a node."""
    return unit.provider, unit.resource_class, unit.identifier


def _recount(cells: dict[int, HostCell], before: Claim | None, now: Claim) -> bool:
    """Move the pins, pages and memory of a claim from ``before`` to ``now``.

    Returns False if that is impossible, so that all claims have to be counted again.
    """
    try:
        for placed in before.cells if before is not None else ():
            cells[placed.host_cell] = cells[placed.host_cell].without_guest(placed)
        for placed in now.cells if now.open else ():
            cells[placed.host_cell] = cells[placed.host_cell].with_guest(placed)
    except (CellUsageError, KeyError):
        return False
    return True


def _sums(claims: Iterable[Claim], host: HostCapacity) -> Sums:
    """Return the sums of the claims in the order of their creation."""
    used, cells, uncounted, displaced = host.reserved, host.cells, {}, set()
    for claim in sorted(claims, key=attrgetter("created_at", "id")):
        used += claim.amounts
        if claim.cells and host.cells_known and is_displaced(cells, claim.cells):
            displaced.add(claim.id)
            continue
        try:
            cells = count_guests(cells, claim.cells) if claim.cells else cells
        except CellUsageError as error:
            uncounted[claim.id] = f"instance {claim.instance}: {error.message}"
    return used, cells, uncounted, frozenset(displaced)


def _with_next_version(record: Versioned) -> Versioned:
    return replace(record, version=record.version + 1)


@dataclass(frozen=True, slots=True)
class NodeView:
    """What an audit's usage step found on a node."""

    usage: Usage
    state: NodeState
    """All records, as they are once the changes of the audit are written."""
    created: bool = False
    """Whether the audit created the node's own record."""
    drift: tuple[Drift, ...] = ()
    version: int = 0
    """The version of the node's record, by which a later change is noticed."""
    taken: bool = False
    """Whether no host, or another host, had the lease on the node before."""
