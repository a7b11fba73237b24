"""Verdicts of an audit on open claims: whether each still stands; and the release of claims with
all that they hold. Pure; a claim is kept unless its records prove that it is over.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent.model.claim import Claim, Migration, MigrationStatus, MigrationType
from agent.model.devices import DeviceRecord
from agent.model.instance import Instance
from agent.model.names import ProviderUuid
from agent.model.node_records import NodeRecords, RecordChanges
from agent.tracker.stored_state import StoredState

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
    records: NodeRecords, verdicts: Mapping[str, ClaimVerdict]
) -> Iterator[tuple[str, ClaimVerdict]]:
    """Yield the verdicts on the source's halves of moves within the node whose other half stays:
    they are released, because a guest is counted once.
    """
    arrived = {
        claim.migration
        for claim in records.claims
        if claim.half == "new" and verdicts[claim.id].kind in ("only", "arrived")
    }
    for claim in records.claims:
        if claim.half == "old" and claim.migration in arrived:
            yield claim.id, ClaimVerdict("release", "the other half of its move has arrived here")


def lone_device_verdicts(
    records: NodeRecords, verdicts: Mapping[str, ClaimVerdict]
) -> Iterator[tuple[str, ClaimVerdict]]:
    """Yield the verdicts on devices of guests that have no other claim on the node any more: they
    are released. None while a claim is unreadable, because it may be such a guest's.
    """
    if records.unreadable("claim"):
        return
    staying = {
        claim.instance
        for claim in records.claims
        if claim.purpose != "devices" and verdicts[claim.id].kind != "release"
    }
    for claim in records.claims:
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
