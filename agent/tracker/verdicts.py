"""What an audit finds of each open claim: whether it still stands. Pure; what is not proven over is
kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agent.model.claim import Claim
from agent.model.instance import Instance
from agent.model.migration import Migration, MigrationStatus, MigrationType
from agent.model.names import ProviderUuid

What = Literal["keep", "release", "only", "arrived", "stranded", "unknown"]
STAYS = ("confirmed", "completed", "done")
# Of a move that has arrived and may still go either way.
WAITING: tuple[MigrationStatus, ...] = ("finished", "confirming", "reverting")
# How a move ends that waits for no confirmation.
ARRIVED: Mapping[MigrationType, MigrationStatus] = {
    "evacuation": "done",
    "live-migration": "completed",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """``only``: no move goes on any more and this half stays. ``arrived``: so it is, and the record
    of the move lags behind.

    ``stranded``: of a move that nobody goes on with, which may yet arrive: it counts; ``unknown``:
    no record of its instance, which may be on its way.
    """

    what: What
    why: str = ""


KEEP = Verdict("keep")


def verdict(
    claim: Claim,
    instance: Instance | None,
    migration: Migration | None,
    node: ProviderUuid,
    left: float,
) -> Verdict:
    """The verdict on one open claim of ``node``; ``left``: for how many seconds more nothing need
    be heard of its move before that is told.
    """
    if instance is None:
        return Verdict("unknown", "no record of its instance")
    if instance.removed:
        return Verdict(
            "release", f"its instance is {'deleted' if instance.deleted else instance.vm_state}"
        )
    if claim.half == "only":
        return _alone(claim, instance, node)
    if migration is None:
        return KEEP
    if migration.ended:
        return _after(claim, migration, instance, node)
    return _before(claim, migration, instance, node, left)


def _alone(claim: Claim, instance: Instance, node: ProviderUuid) -> Verdict:
    """Of no move."""
    # A guest that is on its way may have devices already: whether anything else of it is here
    # decides.
    if claim.purpose == "devices" or instance.node in (None, node):
        return KEEP
    return Verdict("release", f"its instance is on node {instance.node}")


def _before(
    claim: Claim, migration: Migration, instance: Instance, node: ProviderUuid, left: float
) -> Verdict:
    """The move goes on, or it failed and nobody knows where that left it."""
    doing = (
        f"is {instance.task_state or instance.vm_state}, but nobody tells of progress"
        if instance.moving
        else "is not being moved"
    )
    resting = Verdict(
        "stranded", f"migration {migration.uuid} is {migration.status}, but its instance {doing}"
    )
    # A task state alone is no progress: whoever was to end it may be gone.
    rests = migration.status not in WAITING and left <= 0
    if claim.half == "old":
        stays = instance.node == node and not migration.same_node
        if stays and migration.status == "error":
            return Verdict("only", "its migration failed and the instance is still here")
        return resting if stays and rests else KEEP
    if migration.type in ARRIVED and instance.node == node:
        return Verdict("arrived", "its instance is here already")
    return resting if rests and claim.state == "held" else KEEP


def _after(claim: Claim, migration: Migration, instance: Instance, node: ProviderUuid) -> Verdict:
    """The move is over: one half stays, that where the instance is. How the move ended decides only
    where its place does not.
    """
    if migration.same_node or instance.node is None:
        stays = claim.half == ("new" if migration.status in STAYS else "old") and instance.node in (
            None,
            node,
        )
    else:
        stays = instance.node == node
    return Verdict("only" if stays else "release", f"its migration is {migration.status}")
