"""Whether claims still stand: the verdicts of an audit, and what is told of their instance; and the
release of claims with all that they hold. Pure; a claim is kept unless its records prove that it is
over.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent.model.devices import DeviceRecord
from agent.model.instance import Instance
from agent.model.names import ProviderUuid, printable
from agent.model.node_records import Claim, Migration, MigrationStatus, MigrationType, RecordChanges
from agent.numa.host_policy import RebuildRefused, check_rebuild
from agent.tracker.errors import (
    GuestsUnknown,
    InstanceElsewhere,
    StaleVersion,
    UnknownInstance,
    WrongState,
    WrongTopology,
)
from agent.tracker.node_state import NodeState
from agent.tracker.reserving import guest_topology
from agent.tracker.stored_state import InstanceUpdate, StoredState, Unset

VerdictKind = Literal["keep", "release", "only", "arrived", "stranded", "unknown"]
STAYS = ("confirmed", "completed", "done")
# Statuses of a move that has arrived and can still be confirmed or reverted.
WAITING: tuple[MigrationStatus, ...] = ("finished", "confirming", "reverting")
# The status with which a move ends that needs no confirmation.
ARRIVED: Mapping[MigrationType, MigrationStatus] = {
    "evacuation": "done",
    "live-migration": "completed",
}


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """What becomes of a claim, and the reason."""

    kind: VerdictKind
    """``only``: no move is under way any more and this half stays. ``arrived``: the same, and the
    migration's record has to be brought up to date. ``stranded``: nothing is heard of the move,
    which may yet arrive, so that the claim counts. ``unknown``: the claim's instance has no record;
    it may be on its way.
    """
    reason: str = ""


KEEP = ClaimVerdict("keep")


def judge_claim(
    claim: Claim,
    instance: Instance | None,
    migration: Migration | None,
    node: ProviderUuid,
    left: float,
) -> ClaimVerdict:
    """Return the verdict on one open claim of ``node``. ``left``: the seconds that remain until a
    move that nothing is heard of is reported.
    """
    if instance is None:
        return ClaimVerdict("unknown", "no record of its instance")
    if instance.removed:
        return ClaimVerdict(
            "release", f"its instance is {'deleted' if instance.deleted else instance.vm_state}"
        )
    if claim.half == "only":
        return _judge_only_claim(claim, instance, node)
    if migration is None:
        return KEEP
    if migration.ended:
        return _judge_ended_half(claim, migration, instance, node)
    return _judge_moving_half(claim, migration, instance, node, left)


def _judge_only_claim(claim: Claim, instance: Instance, node: ProviderUuid) -> ClaimVerdict:
    """Return the verdict on a claim that is no half of a move."""
    # A guest that is on its way may have devices here already: they depend on the guest's other
    # claims on this node.
    if claim.purpose == "devices" or instance.node in (None, node):
        return KEEP
    return ClaimVerdict("release", f"its instance is on node {instance.node}")


def _judge_moving_half(
    claim: Claim, migration: Migration, instance: Instance, node: ProviderUuid, left: float
) -> ClaimVerdict:
    """Return the verdict on a half of a move that goes on, or that failed at an unknown place."""
    doing = (
        f"is {instance.task_state or instance.vm_state}, but no progress is reported"
        if instance.moving
        else "is not being moved"
    )
    resting = ClaimVerdict(
        "stranded", f"migration {migration.uuid} is {migration.status}, but its instance {doing}"
    )
    # A task state alone is no progress: the process that would reset it may be gone.
    rests = migration.status not in WAITING and left <= 0
    if claim.half == "old":
        stays = instance.node == node and not migration.same_node
        if stays and migration.status == "error":
            return ClaimVerdict("only", "its migration failed and the instance is still here")
        return resting if stays and rests else KEEP
    if migration.type in ARRIVED and instance.node == node:
        return ClaimVerdict("arrived", "its instance is here already")
    return resting if rests and claim.state == "held" else KEEP


def _judge_ended_half(
    claim: Claim, migration: Migration, instance: Instance, node: ProviderUuid
) -> ClaimVerdict:
    """Return the verdict on a half of a move that has ended: the half where the instance is stays.
    How the move ended decides only where the instance's node does not.
    """
    if migration.same_node or instance.node is None:
        stays = claim.half == ("new" if migration.status in STAYS else "old") and instance.node in (
            None,
            node,
        )
    else:
        stays = instance.node == node
    return ClaimVerdict("only" if stays else "release", f"its migration is {migration.status}")


def left_half_verdicts(
    claims: Collection[Claim], verdicts: Mapping[str, ClaimVerdict]
) -> Iterator[tuple[str, ClaimVerdict]]:
    """Yield the verdicts on the source's halves of moves within the node whose other half stays:
    they are released, because a guest is counted once.
    """
    arrived = {
        claim.migration
        for claim in claims
        if claim.half == "new" and verdicts[claim.id].kind in ("only", "arrived")
    }
    for claim in claims:
        if claim.half == "old" and claim.migration in arrived:
            yield claim.id, ClaimVerdict("release", "the other half of its move has arrived here")


def lone_device_verdicts(
    claims: Collection[Claim], unreadable: Collection[str], verdicts: Mapping[str, ClaimVerdict]
) -> Iterator[tuple[str, ClaimVerdict]]:
    """Yield the verdicts on devices of guests that have no other claim on the node any more: they
    are released. None while there are ``unreadable`` claims, because one may be such a guest's.
    """
    if unreadable:
        return
    staying = {
        claim.instance
        for claim in claims
        if claim.purpose != "devices" and verdicts[claim.id].kind != "release"
    }
    for claim in claims:
        if claim.purpose == "devices" and claim.instance not in staying:
            yield claim.id, ClaimVerdict("release", "its instance is not on this node")


def release_claims(claims: Iterable[Claim], stored: StoredState, now: float) -> RecordChanges:
    """Return the changes that release the claims and free their devices and units.

    Devices and units that are gone from the host are dropped instead, unless a card is still
    withheld.
    """
    ended = [claim for claim in claims if claim.open]
    ids = {claim.id for claim in ended}
    devices = [device for device in stored.devices if device.holder in ids]
    units = [unit for unit in stored.units if unit.holder in ids]
    return RecordChanges(
        claims=tuple(
            replace(claim, state="released", cells=(), mdevs=(), updated_at=now) for claim in ended
        ),
        devices=tuple(
            free_device(device) for device in devices if device.present or device.withheld
        ),
        units=tuple(replace(unit, holder=None) for unit in units if unit.present),
        dropped_devices=tuple(
            device for device in devices if not (device.present or device.withheld)
        ),
        dropped_units=tuple(unit for unit in units if not unit.present),
    )


def give_back(claims: Sequence[Claim], stored: StoredState, now: float) -> RecordChanges:
    """Return the changes that release the claims and, on nodes where the guest keeps no other
    claim, the devices that it got afterwards.
    """
    ids = {claim.id for claim in claims}
    staying = {
        claim.node for claim in stored.claims if claim.purpose != "devices" and claim.id not in ids
    }
    lone = [
        claim
        for claim in stored.claims
        if claim.purpose == "devices" and claim.node not in staying and claim.id not in ids
    ]
    return release_claims([*claims, *lone], stored, now)


def free_device(device: DeviceRecord) -> DeviceRecord:
    """Return the device without a holder. A device that has to be cleaned stays marked."""
    return replace(device, state="available", holder=None, request=None)


# --- what is told of an instance ------------------------------------------------------------------


def update_instance(
    state: NodeState,
    stored: StoredState,
    update: InstanceUpdate,
    now: float,
    moves: Iterable[Migration] = (),
) -> RecordChanges:
    """Return the changes that update an instance of this node, or one that has no host and no
    claims.

    An instance that is deleted or shelved gives all its resources back, and its ``moves`` end.

    :raises TrackerError: the instance is another node's, or was changed since the caller read it.
    """
    instance = stored.instance
    if instance is None:
        raise UnknownInstance("no record of that instance", "see those on record: agent claims")
    # Checked first, so that a caller that repeats a request after a lost answer reads the record
    # again, although the instance may have left this node.
    if update.version is not None and update.version != instance.version:
        raise StaleVersion(
            f"instance {instance.uuid} has version {instance.version}, not {update.version}",
            "read the record again and repeat the decision",
        )
    node = state.node
    has_owner = instance.host is not None or stored.claims
    if (
        has_owner
        and instance.node != node.uuid
        and all(claim.node != node.uuid for claim in stored.claims)
    ):
        where = printable(instance.host) if instance.host else "no host"
        raise InstanceElsewhere(
            f"instance {instance.uuid} is on {where}, not on node {printable(node.name)}",
            "ask the agent of its host",
        )
    updated = _apply_update(instance, update)
    if updated.image_properties != instance.image_properties:
        _check_rebuild(state, stored, instance, updated)
    changes = RecordChanges()
    if updated.removed:
        changes = release_claims(stored.claims, stored, now) + end_moves(moves, now)
        updated = replace(updated, old_flavor=None, new_flavor=None)
        if not updated.deleted and updated.vm_state == "shelved_offloaded":
            updated = replace(updated, host=None, node=None)
    elif updated.vm_state == "active":
        arrived = [
            claim
            for claim in stored.claims
            if claim.state == "held" and claim.purpose == "instance"
        ]
        changes = RecordChanges(
            claims=tuple(replace(claim, state="consumed", updated_at=now) for claim in arrived)
        )
    if updated == instance and not changes:
        return changes
    return changes + RecordChanges(instances=(replace(updated, updated_at=now),))


def forget_guest(
    state: NodeState, stored: StoredState, now: float, moves: Iterable[Migration] = ()
) -> RecordChanges:
    """Return the changes that end the record of a guest of this node that is gone.

    The state in the record does not matter. The record keeps no host, so that in Placement only the
    allocations in this tree are removed: the agent does not know of any others.

    :raises TrackerError: the instance is another node's, it moves, or the hypervisor shows the
        guest or may still have it.
    """
    instance, node = stored.instance, state.node
    if instance is None:
        raise UnknownInstance(
            "no record of that instance", "see guests: agent guests list; see records: agent claims"
        )
    if instance.deleted and not stored.claims:
        return RecordChanges()
    elsewhere = [claim.node for claim in stored.claims if claim.node != node.uuid]
    if instance.node not in (None, node.uuid) or (elsewhere and not instance.removed):
        where = f"host {printable(instance.host)}" if instance.host else "another node"
        raise InstanceElsewhere(
            f"instance {instance.uuid} is on {where}, not on node {printable(node.name)} alone",
            "ask the agent of its host",
        )
    if any(move.in_progress for move in moves):
        raise WrongState(
            f"instance {instance.uuid} moves",
            "end its move first: agent migrate confirm, revert or abort",
        )
    if state.host.guests_incomplete:
        what = (
            f"not all guests of node {printable(node.name)} are known: "
            f"{printable(state.host.guests_incomplete)}"
        )
        raise GuestsUnknown(
            what,
            "forget the guest once the hypervisor shows all guests; see what is missing: "
            "agent status",
        )
    if any(guest.uuid == instance.uuid for guest in state.host.guests or ()):
        raise WrongState(
            f"the hypervisor of node {printable(node.name)} shows instance {instance.uuid}",
            "remove it from the hypervisor first",
        )
    gone = replace(
        instance,
        deleted=True,
        host=None,
        node=None,
        task_state=None,
        old_flavor=None,
        new_flavor=None,
        updated_at=now,
    )
    return (
        release_claims(stored.claims, stored, now)
        + end_moves(moves, now)
        + RecordChanges(instances=(gone,))
    )


def _apply_update(instance: Instance, update: InstanceUpdate) -> Instance:
    names = ("vm_state", "task_state", "deleted", "hidden", "image_properties")
    return replace(
        instance,
        **{name: value for name in names if not isinstance(value := getattr(update, name), Unset)},
    )


def _check_rebuild(state: NodeState, stored: StoredState, old: Instance, rebuilt: Instance) -> None:
    """Check that the new image asks for the cells that the guest has, because a rebuild in place
    takes no claim.

    :raises TrackerError: it asks for other cells.
    """
    guest = guest_topology(rebuilt.flavor, rebuilt.image_properties)
    if guest == guest_topology(old.flavor, old.image_properties):
        return
    placed = [
        cell
        for claim in stored.claims
        if claim.node == state.node.uuid and claim.purpose != "devices"
        for cell in claim.cells
    ]
    try:
        if guest is not None and placed:
            check_rebuild(state.cells, placed, guest)
        elif guest is not None or placed:
            raise RebuildRefused(
                "only one of the old guest and the rebuilt one has cells of its own",
                "use an image that asks for the same topology",
            )
    except RebuildRefused as refusal:
        raise WrongTopology(
            f"instance {rebuilt.uuid}: {refusal.message}", refusal.remedy
        ) from refusal


def end_moves(moves: Iterable[Migration], now: float) -> RecordChanges:
    """Return the changes that end the moves of a guest that is gone, failed ones included: no guest
    is left whose place could still be found out.
    """
    return RecordChanges(
        migrations=tuple(
            replace(move, status=move.without_guest, updated_at=now)
            for move in moves
            if not move.ended
        )
    )
