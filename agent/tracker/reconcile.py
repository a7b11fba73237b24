"""The audit of one node's records: what is over is given back, what lags behind is caught up, what is doubtful is told. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.model.amounts import Amounts
from agent.model.assigned_unit import UnitRow
from agent.model.changes import Changes
from agent.model.claim import Claim
from agent.model.domain import Domain
from agent.model.held_device import DeviceRow
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid
from agent.model.node_records import NodeRecords
from agent.model.report import Drift
from agent.tracker import domains
from agent.tracker.domains import Owners
from agent.tracker.inventory_sync import synced_devices, synced_units
from agent.tracker.known import Known
from agent.tracker.node_state import unit_key
from agent.tracker.releasing import released
from agent.tracker.verdicts import ARRIVED, Verdict, verdict

# Of a move that has begun; one that is only asked for may well be about another claim than the present one.
BEGUN = ("pre-migrating", "preparing", "migrating", "running", "post-migrating")


@dataclass(frozen=True, slots=True)
class Shown:
    """What the host showed at ``taken_at``, seconds since the epoch; None where it did not say.

    ``owners``: what the records say of the domains that have nothing on this node.
    """

    taken_at: float = 0.0
    devices: tuple[DeviceRow, ...] | None = None
    units: tuple[UnitRow, ...] | None = None
    domains: tuple[Domain, ...] | None = None
    owners: Owners = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rules:
    """``stranded_after``: seconds that a move may rest. ``count_orphans``: whether guests without records count.
    ``keep_ended``: seconds for which records are kept of what has ended.
    """

    stranded_after: float = 3600.0
    count_orphans: bool = False
    keep_ended: float = 90 * 86400.0


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What is to be written, what to be told, what guests without records take if that counts, and the claims found stranded."""

    changes: Changes
    drift: tuple[Drift, ...]
    orphans: Mapping[ConsumerUuid, Amounts]
    stranded: frozenset[str]


def reconciled(records: NodeRecords, shown: Shown, rules: Rules, told: Collection[str], now: float) -> Reconciled:
    """Compare a node's records with themselves and with the host. ``told``: the claims found stranded before, which end now."""
    instances = {one.uuid: one for one in records.instances}
    migrations = {one.uuid: one for one in records.migrations}
    verdicts = {
        one.id: verdict(
            one, instances.get(one.instance), migrations.get(one.migration) if one.migration else None, records.node.uuid,
            rules.stranded_after - (now - one.updated_at),
        ) for one in records.claims
    }  # fmt: skip
    stranded = frozenset(claim for claim, one in verdicts.items() if one.what == "stranded")
    ending = stranded & frozenset(told)
    verdicts |= dict(_lone_devices(records, verdicts, ending))
    changes = _carried_out(records, verdicts, ending, migrations, now)
    gone = {one.id for one in changes.claims if not one.open}
    # What a claim holds that makes no sense is its guest's still.
    holders = {one.id for one in records.claims if one.id not in gone} | records.unreadable("claim")
    drift = [*_told([one for one in records.claims if one.id not in ending], verdicts)]
    uncounted = domains.orphans(records, shown.domains or (), shown.owners)
    if shown.domains is not None:
        drift += [*domains.strange(uncounted, shown.owners), *domains.missing(records, shown.domains, shown.taken_at)]
    return Reconciled(
        changes + _competing(records, migrations, now) + _in_line(records, shown, holders),
        tuple(drift), domains.amounts(uncounted) if rules.count_orphans else {}, stranded,
    )  # fmt: skip


def _lone_devices(records: NodeRecords, verdicts: dict[str, Verdict], ending: frozenset[str]) -> Iterator[tuple[str, Verdict]]:
    """Devices of a guest that has nothing else here any more go with it; while a claim makes no sense nobody knows that."""
    if records.unreadable("claim"):
        return
    staying = {one.instance for one in records.claims if one.purpose != "devices" and verdicts[one.id].what != "release" and one.id not in ending}
    for one in records.claims:
        if one.purpose == "devices" and one.instance not in staying:
            yield one.id, Verdict("release", "its instance is not on this node")


def _carried_out(
    records: NodeRecords, verdicts: dict[str, Verdict], ending: frozenset[str], migrations: dict[ConsumerUuid, Migration], now: float
) -> Changes:
    """The verdicts as changes. Devices and units are set free by comparing holders, so that each row is written once."""
    over = [one for one in records.claims if verdicts[one.id].what == "release" or one.id in ending]
    ended = {one.migration for one in over if one.id in ending}
    changes = released(over, Known(), now)
    for claim in records.claims:
        found = verdicts[claim.id].what
        back = claim.half == "old" and claim.migration in ended
        if found in ("only", "arrived") or back:
            state = claim.state if claim.half == "old" else "consumed"
            changes += Changes(claims=(replace(claim, half="only", migration=None, state=state, updated_at=now),))
            changes += _settled(records, claim, now)
        migration = migrations.get(claim.migration) if claim.migration else None
        if migration is not None and found == "arrived":
            changes += Changes(migrations=(replace(migration, status=ARRIVED[migration.type], updated_at=now),))
        elif migration is not None and claim.id in ending and migration.in_progress:
            changes += Changes(migrations=(replace(migration, status="error", updated_at=now),))
    return changes


def _settled(records: NodeRecords, claim: Claim, now: float) -> Changes:
    """The instance of a claim that is the only one again becomes nothing else, and goes back to nothing else."""
    mine = [one for one in records.instances if one.uuid == claim.instance and one.node == records.node.uuid and one.new_flavor is not None]
    return Changes(instances=tuple(replace(one, old_flavor=None, new_flavor=None, updated_at=now) for one in mine))


def _in_line(records: NodeRecords, shown: Shown, holders: Collection[str]) -> Changes:
    """Devices and units as the host shows them. A row that makes no sense is left alone, and is not made a second time."""
    unreadable = records.unreadable("device"), records.unreadable("unit")
    devices, units = shown.devices, shown.units
    if devices is not None and unreadable[0]:
        devices = tuple(one for one in devices if f"{one.node}/{one.address}" not in unreadable[0])
    if units is not None and unreadable[1]:
        units = tuple(one for one in units if "/".join((one.node, *unit_key(one))) not in unreadable[1])
    return synced_devices(records.devices, devices, holders) + synced_units(records.units, units, holders)


def _competing(records: NodeRecords, migrations: dict[ConsumerUuid, Migration], now: float) -> Changes:
    """Moves to this node that have begun although the instance is in another one, as its claims say: they are in error.

    Only the destination says so; who was faster with the record wins, because it is guarded by its version.
    """
    moving = {one.instance: one.migration for one in records.claims if one.migration is not None}
    wrong = [
        one for one in migrations.values()
        if one.dest_node == records.node.uuid and one.status in BEGUN and moving.get(one.instance, one.uuid) != one.uuid
    ]  # fmt: skip
    return Changes(migrations=tuple(replace(one, status="error", updated_at=now) for one in wrong))


def _told(claims: Sequence[Claim], verdicts: dict[str, Verdict]) -> Iterator[Drift]:
    for claim in claims:
        found = verdicts[claim.id]
        if found.what in ("stranded", "unknown"):
            abort = f"if the guest is gone: agent claim abort {claim.id}"
            remedy = "the next audit releases it, unless the move goes on" if found.what == "stranded" else abort
            yield Drift("stranded-claim", "warning", f"claim {claim.id}: {found.why}", remedy, consumer=claim.instance)
