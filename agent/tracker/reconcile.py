"""Reconciliation of one node's records with each other and with the host: claims that are over are
released, records that lag behind are updated, doubtful ones are reported as drift. Pure.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agent.model.devices import DeviceRecord, UnitRecord
from agent.model.facts import Domain, Topology
from agent.model.finding import Drift
from agent.model.instance import Amounts, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Claim, Migration, NodeRecords, RecordChanges
from agent.tracker import domains
from agent.tracker.domains import Owners
from agent.tracker.node_state import unit_key
from agent.tracker.stored_state import StoredState
from agent.tracker.verdicts import (
    ARRIVED,
    ClaimVerdict,
    end_moves,
    free_device,
    judge_claim,
    left_half_verdicts,
    lone_device_verdicts,
    release_claims,
)

Row = TypeVar("Row", DeviceRecord, UnitRecord)


def _on_present_cells(records: NodeRecords) -> NodeRecords:
    """Return the records with all claims and devices on cell 0, which is all of a host whose NUMA
    nodes share CPUs: records of earlier times have the nodes.
    """
    claims = (
        replace(claim, cells=tuple(replace(placed, host_cell=0) for placed in claim.cells))
        for claim in records.claims
    )
    devices = (
        device if device.numa_node is None else replace(device, numa_node=0)
        for device in records.devices
    )
    return replace(records, claims=tuple(claims), devices=tuple(devices))


def sync_devices(
    rows: Iterable[DeviceRecord],
    before: Iterable[DeviceRecord],
    shown: Iterable[DeviceRecord] | None,
    holders: Collection[str],
    unreadable: Collection[str],
) -> RecordChanges:
    """Return the changes that bring the device rows in line with the host. ``before``: the rows as
    they are stored. ``shown``: the devices of the host, None if it did not report any. ``holders``:
    the claims that may hold devices. ``unreadable``: the keys of rows that are left alone and not
    created a second time.
    """
    kept = [_without_ghost(row, holders, free_device) for row in rows]
    if shown is not None:
        held = {row.address: row for row in kept if row.holder is not None}
        # For its holder, a device that is not offered any more is gone, and so is one whose address
        # another has.
        shown = [
            device
            for device in shown
            if f"{device.node}/{device.address}" not in unreadable
            and (
                (row := held.get(device.address)) is None
                or (device.serves == "guests" and device.is_like(row))
            )
        ]
    changed, dropped = _compare_rows(
        kept,
        {row.address: row for row in before},
        shown,
        lambda device: device.address,
        _describe_device,
        lambda device: device.withheld,
    )
    return RecordChanges(devices=tuple(changed), dropped_devices=tuple(dropped))


def sync_units(
    rows: Iterable[UnitRecord],
    shown: Iterable[UnitRecord] | None,
    holders: Collection[str],
    unreadable: Collection[str],
) -> RecordChanges:
    """Return the changes that bring the unit rows in line with the host, like
    :func:`sync_devices`.
    """
    kept = [_without_ghost(row, holders, lambda unit: replace(unit, holder=None)) for row in rows]
    if shown is not None:
        shown = [one for one in shown if "/".join((one.node, *unit_key(one))) not in unreadable]
    changed, dropped = _compare_rows(
        kept, {unit_key(row): row for row in rows}, shown, unit_key, _describe_unit
    )
    return RecordChanges(units=tuple(changed), dropped_units=tuple(dropped))


def _without_ghost(row: Row, holders: Collection[str], free: Callable[[Row], Row]) -> Row:
    """Return the row, freed if its holder is no open claim."""
    return free(row) if row.holder is not None and row.holder not in holders else row


def _compare_rows(
    rows: Iterable[Row],
    before: Mapping[Hashable, Row],
    shown: Iterable[Row] | None,
    key: Callable[[Row], Hashable],
    describe: Callable[[Row, Row], Row],
    stays: Callable[[Row], bool] = lambda _row: False,
) -> tuple[list[Row], list[Row]]:
    """Return the rows to write and those to drop. ``stays``: whether a row without a holder is kept
    although the host does not show it.
    """
    found: dict[Hashable, Row] | None = None if shown is None else {key(row): row for row in shown}
    known: set[Hashable] = set()
    after: list[Row] = []
    dropped: list[Row] = []
    for row in rows:
        known.add(key(row))
        here = None if found is None else found.get(key(row))
        present = row.present if found is None else here is not None
        if not present and row.holder is None and not stays(row):
            dropped.append(before[key(row)])
            continue
        now = describe(row, here) if here is not None else row
        after.append(replace(now, present=present))
    changed = [row for row in after if row != before[key(row)]]
    new = [] if found is None else [row for place, row in found.items() if place not in known]
    return changed + new, dropped


def _describe_unit(old: UnitRecord, new: UnitRecord) -> UnitRecord:
    return replace(old, metadata=new.metadata) if old.holder is None else old


def _describe_device(old: DeviceRecord, new: DeviceRecord) -> DeviceRecord:
    """Return the old row with the description of the new one.

    A device with a holder keeps its description, but gets the mark that it has to be cleaned
    afterwards; a free one is described as the host shows it now.
    """
    if old.holder is not None:
        named = replace(old, one_time_use=new.one_time_use)
        return named.marked_used() if new.one_time_use and not old.used else named
    return replace(
        old,
        vendor_id=new.vendor_id,
        product_id=new.product_id,
        type=new.type,
        parent=new.parent,
        numa_node=new.numa_node,
        tags=new.tags,
        serves=new.serves,
        one_time_use=new.one_time_use,
    )


# Statuses of a move that has begun; one that is only requested may be about another claim than the
# present one.
BEGUN = ("pre-migrating", "preparing", "migrating", "running", "post-migrating")


@dataclass(frozen=True, slots=True)
class ObservedHost:
    """What the host showed; None where it did not report."""

    taken_at: float = 0.0
    """Seconds since the epoch."""
    devices: tuple[DeviceRecord, ...] | None = None
    units: tuple[UnitRecord, ...] | None = None
    domains: tuple[Domain, ...] | None = None
    owners: Owners = field(default_factory=dict)
    """The records of those domains that have no records on this node, and of the guests of the
    node's migrations.
    """
    numa: Topology | None = None


@dataclass(frozen=True, slots=True)
class ReconcileRules:
    """The operator's options for the reconciliation."""

    stranded_after: float = 3600.0
    """Seconds after which a move without progress is reported."""
    count_orphans: bool = False
    """Whether guests without records are counted."""
    keep_ended: float = 90 * 86400.0
    """Seconds for which records of ended instances, moves and claims are kept."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of a reconciliation."""

    changes: RecordChanges
    """The changes to write."""
    drift: tuple[Drift, ...]
    """The drift to report."""
    orphans: Mapping[ConsumerUuid, Amounts]
    """The amounts of guests without records, if these are counted."""


def reconcile(
    stored: NodeRecords, shown: ObservedHost, rules: ReconcileRules, now: float
) -> Reconciliation:
    """Compare a node's records, as they are ``stored``, with each other and with the host."""
    shares_cpus = shown.numa is not None and bool(shown.numa.shared_by)
    records = _on_present_cells(stored) if shares_cpus else stored
    instances = {instance.uuid: instance for instance in records.instances}
    migrations = {migration.uuid: migration for migration in records.migrations}
    verdicts = {
        claim.id: judge_claim(
            claim,
            instances.get(claim.instance),
            migrations.get(claim.migration) if claim.migration else None,
            records.node.uuid,
            rules.stranded_after - (now - _last_heard(claim, instances, migrations)),
        )
        for claim in records.claims
    }
    unreadable = records.unreadable("claim")
    verdicts |= dict(left_half_verdicts(records.claims, verdicts))
    verdicts |= dict(lone_device_verdicts(records.claims, unreadable, verdicts))
    changes = _carry_out(records.claims, verdicts, instances, migrations, now)
    written = {claim.id for claim in changes.claims}
    moved = [
        claim
        for claim, before in zip(records.claims, stored.claims, strict=True)
        if claim != before and claim.id not in written
    ]
    gone = {claim.id for claim in changes.claims if not claim.open}
    # What an unreadable claim holds still belongs to its guest.
    holders = {claim.id for claim in records.claims if claim.id not in gone} | unreadable
    deserted = [
        migration
        for migration in records.migrations
        if not migration.ended
        and (owner := shown.owners.get(migration.instance)) is not None
        and owner.removed
    ]
    for move in deserted:
        del migrations[move.uuid]
    drift = [
        *_doubtful_claims(records.claims, verdicts),
        *_stranded_builds(
            records.claims, instances, shown.domains or (), now - rules.stranded_after
        ),
    ]
    known = domains.known_guests(records.claims, records.instances, records.migrations)
    # Those of this host's other nodes are counted there.
    uncounted = [
        guest
        for guest in shown.domains or ()
        if guest.uuid not in known
        and not domains.is_on_other_node(
            shown.owners.get(guest.uuid), records.node.host, records.node.uuid
        )
    ]
    if shown.domains is not None:
        drift += [
            *domains.unexpected_guests(uncounted, shown.owners, shown.taken_at),
            *domains.missing_guests(records.claims, instances, shown.domains, shown.taken_at),
            *domains.unreadable_origins(shown.domains),
        ]
    return Reconciliation(
        changes
        + RecordChanges(claims=tuple(moved))
        + end_moves(deserted, now)
        + _fail_competing_moves(records.claims, migrations, records.node.uuid, now)
        + sync_devices(
            records.devices,
            stored.devices,
            shown.devices,
            holders,
            records.unreadable("device"),
        )
        + sync_units(records.units, shown.units, holders, records.unreadable("unit")),
        tuple(drift),
        # The disk is unknown.
        {guest.uuid: Amounts(guest.memory_mib, guest.vcpus or 0) for guest in uncounted}
        if rules.count_orphans
        else {},
    )


def _last_heard(
    claim: Claim,
    instances: Mapping[ConsumerUuid, Instance],
    migrations: Mapping[ConsumerUuid, Migration],
) -> float:
    """Return when the claim, its guest or its move was last updated."""
    about = (
        instances.get(claim.instance),
        migrations.get(claim.migration) if claim.migration else None,
    )
    return max(
        claim.updated_at, *(record.updated_at for record in about if record is not None), 0.0
    )


def _carry_out(
    claims: Iterable[Claim],
    verdicts: dict[str, ClaimVerdict],
    instances: Mapping[ConsumerUuid, Instance],
    migrations: dict[ConsumerUuid, Migration],
    now: float,
) -> RecordChanges:
    """Return the changes that carry out the verdicts. Devices and units are freed later by
    comparing holders, so that each row is written once.
    """
    changes = release_claims(
        [claim for claim in claims if verdicts[claim.id].kind == "release"],
        StoredState(),
        now,
    )
    for claim in claims:
        found = verdicts[claim.id].kind
        if found in ("only", "arrived"):
            state = claim.state if claim.half == "old" else "consumed"
            changes += RecordChanges(
                claims=(replace(claim, half="only", migration=None, state=state, updated_at=now),)
            )
            # It is the only claim again.
            guest = instances.get(claim.instance)
            if guest is not None and guest.node == claim.node and guest.new_flavor is not None:
                cleared = replace(guest, old_flavor=None, new_flavor=None, updated_at=now)
                changes += RecordChanges(instances=(cleared,))
        migration = migrations.get(claim.migration) if claim.migration else None
        if migration is not None and found == "arrived":
            changes += RecordChanges(
                migrations=(replace(migration, status=ARRIVED[migration.type], updated_at=now),)
            )
    return changes


def _fail_competing_moves(
    claims: Iterable[Claim],
    migrations: Mapping[ConsumerUuid, Migration],
    node: ProviderUuid,
    now: float,
) -> RecordChanges:
    """Return the changes that set to error the moves to ``node`` that have begun although the
    instance's claims belong to another move.

    Only the destination does so; of two moves the one that changed the instance's record first
    wins, because the record is guarded by its version.
    """
    moving = {claim.instance: claim.migration for claim in claims if claim.migration is not None}
    wrong = [
        migration
        for migration in migrations.values()
        if migration.dest_node == node
        and migration.status in BEGUN
        and moving.get(migration.instance, migration.uuid) != migration.uuid
    ]
    return RecordChanges(
        migrations=tuple(replace(migration, status="error", updated_at=now) for migration in wrong)
    )


def _stranded_builds(
    claims: Iterable[Claim],
    instances: Mapping[ConsumerUuid, Instance],
    domains: Iterable[Domain],
    before: float,
) -> Iterator[Drift]:
    """Yield a drift for each claim of a new guest that was last updated ``before`` and whose guest
    has not come: the build failed, or its end was not reported.
    """
    made = {instance.uuid for instance in instances.values() if not instance.removed}
    running = {domain.uuid for domain in domains}
    for claim in claims:
        waiting = (
            claim.purpose == "instance"
            and claim.state == "held"
            and claim.half == "only"
            and claim.updated_at <= before
        )
        if waiting and claim.instance in made and claim.instance not in running:
            what = (
                f"claim {claim.id}: instance {claim.instance} has not started since its resources "
                "were claimed"
            )
            yield Drift(
                "stranded-claim",
                "warning",
                what,
                f"if it is not being built any more: agent claim abort {claim.id}",
                consumer=claim.instance,
            )


def _doubtful_claims(claims: Sequence[Claim], verdicts: dict[str, ClaimVerdict]) -> Iterator[Drift]:
    """Yield a drift for each claim whose move or instance nothing is heard of."""
    for claim in claims:
        found = verdicts[claim.id]
        if found.kind in ("stranded", "unknown"):
            # At the source only the migration's uuid is known, by which the move is found.
            move = claim.id if claim.half == "new" else claim.migration
            stranded = (
                "it may still arrive, so its resources are kept; if the move was given up: agent "
                f"migrate abort {move}"
            )
            remedy = (
                stranded
                if found.kind == "stranded"
                else f"if the guest is gone: agent claim abort {claim.id}"
            )
            yield Drift(
                "stranded-claim",
                "warning",
                f"claim {claim.id}: {found.reason}",
                remedy,
                consumer=claim.instance,
            )
