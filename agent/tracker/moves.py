"""Moves that are under way: a resize, cold or live migration or evacuation arrives, is confirmed,
reverted or aborted. Pure; :mod:`agent.tracker.move_claims` begins them.

While a move goes on, the instance has two claims: the half ``old`` at the source and the half
``new`` at the destination. When one of them is given back, the other becomes the only claim; the
previous state is kept nowhere else.

Where the two hosts have stores of their own, each store has its host's half. The source then has a
departure too: a claim on the source's node with the move's id and no amounts, by which the further
steps of the move are found.
"""

from collections.abc import Iterable
from dataclasses import replace

from agent.model.instance import Instance
from agent.model.node_records import (
    GIVEN_UP,
    Claim,
    Half,
    Migration,
    MigrationStatus,
    RecordChanges,
)
from agent.tracker.claims import existing_claim
from agent.tracker.errors import UnknownClaim, WrongState
from agent.tracker.stored_state import PlannedChange, StoredState, is_departure
from agent.tracker.verdicts import ARRIVED, STAYS, WAITING, give_back

# Statuses of a move that has not arrived, in their order; "migrating" of a cold migration and
# "running" of a live one are the same step.
UNDER_WAY: tuple[MigrationStatus, ...] = (
    "queued",
    "accepted",
    "pre-migrating",
    "preparing",
    "migrating",
    "running",
    "post-migrating",
)

# Seconds after which a report of an unchanged status is recorded, because it shows progress.
HEARD_AGAIN = 60.0


def finish(stored: StoredState, now: float) -> PlannedChange:
    """Record that the guest runs at the destination, to which it belongs from then on. A move that
    needs no confirmation gives the source back.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it was aborted.
    """
    claim, migration = _move_records(stored)
    leaves = is_departure(claim, migration)
    # An agent that was down gets the reports of all steps in their order, even if the guest has
    # moved on, or back, since.
    if (
        claim.state == "consumed"
        or migration.status in (*STAYS, "reverted")
        or (leaves and migration.status in WAITING)
    ):
        return PlannedChange(claim)
    if migration.ended or not (claim.open or leaves):
        raise WrongState(
            f"move {claim.id} was given up: migration {migration.uuid} is {migration.status}",
            "claim it again",
        )
    arrived = claim if leaves else replace(claim, state="consumed", updated_at=now)
    changes = RecordChanges()
    if migration.type in ARRIVED:
        arrived = claim if leaves else replace(arrived, half="only", migration=None)
        changes = give_back(_halves(stored, migration, "old"), stored, now)
    instance = _moved_instance(stored)
    flavor = (
        instance.new_flavor
        if migration.type == "resize" and instance.new_flavor is not None
        else instance.flavor
    )
    owned = replace(
        instance,
        host=migration.dest_compute,
        node=migration.dest_node,
        flavor=flavor,
        updated_at=now,
    )
    ended = replace(migration, status=ARRIVED.get(migration.type, "finished"), updated_at=now)
    if leaves:
        # Its task state is reported to the agent of the destination from now on.
        return PlannedChange(
            claim,
            changes
            + RecordChanges(instances=(replace(owned, task_state=None),), migrations=(ended,)),
        )
    return PlannedChange(
        arrived,
        changes
        + RecordChanges(instances=(owned,), migrations=(ended,), claims=(arrived,))
        + _attach_devices(stored, claim, now),
    )


def confirm(stored: StoredState, now: float) -> PlannedChange:
    """Record that the move stays: the source gives its half back.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it has not arrived.
    """
    claim, migration = _move_records(stored)
    if migration.status == "confirmed":
        return PlannedChange(claim)
    _check_status(migration, "finished", "confirming")
    instance = replace(_moved_instance(stored), old_flavor=None, new_flavor=None, updated_at=now)
    changes = give_back(_halves(stored, migration, "old"), stored, now)
    ended = replace(migration, status="confirmed", updated_at=now)
    changes += RecordChanges(instances=(instance,), migrations=(ended,))
    if is_departure(claim, migration):
        return PlannedChange(claim, changes)
    kept = replace(claim, half="only", migration=None, updated_at=now)
    return PlannedChange(kept, changes + RecordChanges(claims=(kept,)))


def revert(stored: StoredState, now: float) -> PlannedChange:
    """Record that the guest goes back: the destination gives its half back, and the guest belongs
    to the source again.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it has not arrived, or the instance is not about to go back.
    """
    claim, migration = _move_records(stored)
    if migration.status == "reverted":
        return PlannedChange(claim)
    _check_status(migration, "finished", "reverting")
    instance = _moved_instance(stored)
    if instance.task_state != "resize_reverting" and not is_departure(claim, migration):
        raise WrongState(
            f"instance {instance.uuid} has task state {instance.task_state or 'none'}",
            "set it to resize_reverting before the revert",
        )
    changes = give_back([claim], stored, now)
    back = replace(
        instance,
        host=migration.source_compute,
        node=migration.source_node,
        flavor=instance.old_flavor or instance.flavor,
        old_flavor=None,
        new_flavor=None,
        updated_at=now,
    )
    ended = replace(migration, status="reverted", updated_at=now)
    only = RecordChanges(
        instances=(back,), migrations=(ended,), claims=_old_half_alone(stored, migration, now)
    )
    return PlannedChange(changes.claims[0] if claim.open else claim, changes + only)


def abort(stored: StoredState, now: float) -> PlannedChange:
    """Give the move up before it has arrived: the destination gives its half back, and the
    migration's record ends at once.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it has arrived.
    """
    claim, migration = _move_records(stored)
    left = is_departure(claim, migration) and migration.status in STAYS
    # If the half was dropped before, the rest of the move still has to be ended.
    if not claim.open and not migration.in_progress and not left:
        return PlannedChange(claim)
    if claim.state == "consumed" or migration.status in WAITING or left:
        raise WrongState(
            f"move {claim.id} has arrived: migration {migration.uuid} is {migration.status}",
            "confirm or revert it",
        )
    changes = give_back([claim], stored, now) + RecordChanges(
        claims=_old_half_alone(stored, migration, now)
    )
    if migration.in_progress:
        changes += RecordChanges(
            migrations=(replace(migration, status=GIVEN_UP[migration.type], updated_at=now),)
        )
    if stored.instance is not None and stored.instance.new_flavor is not None:
        changes += RecordChanges(
            instances=(replace(stored.instance, old_flavor=None, new_flavor=None, updated_at=now),)
        )
    return PlannedChange(changes.claims[0] if claim.open else claim, changes)


def progress(stored: StoredState, now: float, status: MigrationStatus) -> PlannedChange:
    """Record that the move has reached ``status``, or is still there. Gives nothing back.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it is over, or past that status.
    """
    claim, migration = _move_records(stored)
    if migration.status == status and (
        status not in UNDER_WAY or now - migration.updated_at < HEARD_AGAIN
    ):
        return PlannedChange(claim)
    waits = migration.status == "finished" and status in WAITING
    if not waits and (
        migration.status not in UNDER_WAY
        or status not in UNDER_WAY
        or UNDER_WAY.index(status) < UNDER_WAY.index(migration.status)
    ):
        raise WrongState(
            f"migration {migration.uuid} is {migration.status}, and cannot become {status}",
            "report what comes after that",
        )
    return PlannedChange(
        claim, RecordChanges(migrations=(replace(migration, status=status, updated_at=now),))
    )


def drop_half(stored: StoredState, now: float, half: Half) -> PlannedChange:
    """Give one half of a move back, found by the move's id, unless the guest is at that end.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: the guest is at that end of the move.
    """
    claim, migration = _move_records(stored)
    halves = _halves(stored, migration, half)
    if halves and _is_at(half, halves, stored, claim, migration):
        what = (
            f"move {claim.id}: its guest is at the {'destination' if half == 'new' else 'source'}, "
            f"migration {migration.uuid} is {migration.status}"
        )
        raise WrongState(what, "abort, revert or confirm the move")
    changes = give_back(halves, stored, now)
    if changes and half == "old" and migration.status == "finished":
        # Because the guest has no resources at the source to go back to.
        changes += RecordChanges(
            migrations=(replace(migration, status="confirming", updated_at=now),)
        )
    return PlannedChange(
        next((changed for changed in changes.claims if changed.id == claim.id), claim), changes
    )


def _move_records(stored: StoredState) -> tuple[Claim, Migration]:
    """Return the claim with the move's id and the migration.

    :raises UnknownClaim: there is no such move.
    """
    claim = existing_claim(stored)
    if claim.purpose != "move" or stored.migration is None:
        raise UnknownClaim(f"claim {claim.id} is no move", "see those that are: agent migrations")
    return claim, stored.migration


def _moved_instance(stored: StoredState) -> Instance:
    if stored.instance is None:
        raise UnknownClaim(
            "the record of the moved instance is gone", "see those that are: agent migrations"
        )
    return stored.instance


def _is_at(
    half: Half, halves: Iterable[Claim], stored: StoredState, claim: Claim, migration: Migration
) -> bool:
    """Return whether the guest is, or may be, at that half of its move, or is about to go back
    there.
    """
    goes_back, arrived = (
        migration.status == "reverting",
        claim.state == "consumed" or migration.status in WAITING,
    )
    if half == "new":
        return arrived and not goes_back
    # A move that was given up has left the guest where its record says.
    stayed = stored.instance is not None and any(
        stored.instance.node == half_claim.node for half_claim in halves
    )
    return goes_back or (not arrived and (migration.in_progress or stayed))


def _check_status(migration: Migration, *allowed: MigrationStatus) -> None:
    if migration.status not in allowed:
        raise WrongState(
            f"migration {migration.uuid} is {migration.status}",
            f"it has to be {' or '.join(allowed)}",
        )


def _halves(stored: StoredState, migration: Migration, half: Half) -> list[Claim]:
    return [
        claim for claim in stored.claims if claim.migration == migration.uuid and claim.half == half
    ]


def _attach_devices(stored: StoredState, claim: Claim, now: float) -> RecordChanges:
    """Return the changes that mark as in use the devices that the guest got at the destination
    while it was on its way.
    """
    here = {held.id: held for held in stored.claims if held.node == claim.node}
    devices = [
        device for device in stored.devices if device.holder in here and device.state == "claimed"
    ]
    used = [held for held in here.values() if held.purpose == "devices" and held.state == "held"]
    return RecordChanges(
        claims=tuple(replace(held, state="consumed", updated_at=now) for held in used),
        devices=tuple(replace(device, state="allocated") for device in devices),
    )


def _old_half_alone(stored: StoredState, migration: Migration, now: float) -> tuple[Claim, ...]:
    """Return the old half as the only claim again."""
    return tuple(
        replace(claim, half="only", migration=None, updated_at=now)
        for claim in _halves(stored, migration, "old")
    )
