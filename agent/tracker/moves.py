"""Claims of moves, planned purely: resize, cold and live migration, evacuation.

While a move goes on, the instance has two claims: the half ``old`` at the source, ``new`` at the destination. The one
that is given back leaves the other as the only one; there is no second account of what was before.
"""

from collections.abc import Iterator
from dataclasses import replace

from agent.model.changes import Changes
from agent.model.claim import Claim, Half
from agent.model.instance import Instance
from agent.model.migration import Migration, MigrationStatus, MigrationType
from agent.model.names import ConsumerUuid
from agent.tracker.claims import check_ready, existing, holding, repeated
from agent.tracker.errors import InstanceClaimed, InvalidRequest, ResourcesUnavailable, UnknownClaim, UnknownInstance, WrongState
from agent.tracker.known import Known, Planned
from agent.tracker.node_state import NodeState
from agent.tracker.releasing import given_back
from agent.tracker.requests import UNTOLD, MoveClaim, digest
from agent.tracker.reserving import Reserved, Wanted, reserve
from agent.tracker.verdicts import ARRIVED

# How a move that is given up ends.
GIVEN_UP: dict[MigrationType, MigrationStatus] = {"resize": "error", "migration": "error", "live-migration": "cancelled", "evacuation": "failed"}
# Of a move that has arrived and may still go either way.
WAITING: tuple[MigrationStatus, ...] = ("finished", "confirming", "reverting")


def claim_move(state: NodeState, known: Known, request: MoveClaim, now: float) -> Planned:
    """Room at the destination. Nothing is written if there is none, so that no record says otherwise.

    :raises TrackerError: the reason why not.
    """
    if (before := repeated(known, request)) is not None:
        return Planned(before)
    check_ready(state)
    instance = _moving(known, request)
    source = _source(state, known, request, instance)
    migration = _migration(state, known, request, instance, source, now)
    flavor = request.flavor if request.flavor is not None else instance.flavor
    wanted = Wanted(request.id, flavor, instance.image_properties, instance.volume_backed, request.limits, request.allocations, request.devices)
    reserved = reserve(state, wanted)
    if request.type == "live-migration":
        _check_same_pages(source, reserved)
    claim = Claim(
        id=request.id, purpose="move", instance=instance.uuid, node=state.node.uuid, half="new", amounts=reserved.amounts, cells=reserved.cells,
        flavor_id=flavor.id, migration=migration.uuid, origin=migration.uuid, digest=digest(request), created_at=now, updated_at=now,
    )  # fmt: skip
    left = () if source is None else (replace(source, half="old", migration=migration.uuid, updated_at=now),)
    moving = replace(instance, old_flavor=instance.flavor, new_flavor=flavor, created_at=instance.created_at or now, updated_at=now)
    instances = (moving,) if request.type == "resize" or known.instance is None else ()
    # A live migration attaches its devices when the guest arrives.
    kept = holding(claim, reserved, "claimed" if request.type == "live-migration" else "allocated")
    return Planned(claim, Changes(instances=instances, migrations=(migration,), claims=(*left, claim)) + kept)


def finish(known: Known, now: float) -> Planned:
    """The guest runs at the destination, which owns it from now on. What waits for no confirmation gives the source back.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it was given up.
    """
    claim, migration = _move(known)
    if claim.state == "consumed":
        return Planned(claim)
    if not claim.open or migration.ended:
        raise WrongState(f"move {claim.id} was given up: migration {migration.uuid} is {migration.status}", "claim it again")
    arrived = replace(claim, state="consumed", updated_at=now)
    changes = Changes()
    if migration.type in ARRIVED:
        arrived = replace(arrived, half="only", migration=None)
        changes = given_back(_halves(known, migration, "old"), known, now)
    instance = _instance(known)
    flavor = instance.new_flavor if migration.type == "resize" and instance.new_flavor is not None else instance.flavor
    owned = replace(instance, host=migration.dest_compute, node=claim.node, flavor=flavor, updated_at=now)
    ended = replace(migration, status=ARRIVED.get(migration.type, "finished"), updated_at=now)
    return Planned(arrived, changes + Changes(instances=(owned,), migrations=(ended,), claims=(arrived,)) + _attached(known, claim, now))


def confirm(known: Known, now: float) -> Planned:
    """The move stays: the source gives its half back.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it has not arrived.
    """
    claim, migration = _move(known)
    if migration.status == "confirmed":
        return Planned(claim)
    _check_status(migration, "finished", "confirming")
    kept = replace(claim, half="only", migration=None, updated_at=now)
    instance = replace(_instance(known), old_flavor=None, new_flavor=None, updated_at=now)
    changes = given_back(_halves(known, migration, "old"), known, now)
    ended = replace(migration, status="confirmed", updated_at=now)
    return Planned(kept, changes + Changes(instances=(instance,), migrations=(ended,), claims=(kept,)))


def revert(known: Known, now: float) -> Planned:
    """The guest goes back: the destination gives its half back, the source owns it again.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it has not arrived, or the instance is not about to go back.
    """
    claim, migration = _move(known)
    if migration.status == "reverted":
        return Planned(claim)
    _check_status(migration, "finished", "reverting")
    instance = _instance(known)
    if instance.task_state != "resize_reverting":
        raise WrongState(f"instance {instance.uuid} has task state {instance.task_state or 'none'}", "set it to resize_reverting before the revert")
    changes = given_back([claim], known, now)
    back = replace(
        instance, host=migration.source_compute, node=migration.source_node, flavor=instance.old_flavor or instance.flavor,
        old_flavor=None, new_flavor=None, updated_at=now,
    )  # fmt: skip
    ended = replace(migration, status="reverted", updated_at=now)
    only = Changes(instances=(back,), migrations=(ended,), claims=_only(known, migration, now))
    return Planned(changes.claims[0] if claim.open else claim, changes + only)


def abort(known: Known, now: float) -> Planned:
    """The move is given up before it has arrived: the destination gives its half back, and the record says so at once.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it has arrived.
    """
    claim, migration = _move(known)
    # A half that was dropped before leaves the rest of the move to be ended.
    if not claim.open and not migration.in_progress:
        return Planned(claim)
    if claim.state == "consumed" or migration.status in WAITING:
        raise WrongState(f"move {claim.id} has arrived: migration {migration.uuid} is {migration.status}", "confirm or revert it")
    changes = given_back([claim], known, now) + Changes(claims=_only(known, migration, now))
    if migration.in_progress:
        changes += Changes(migrations=(replace(migration, status=GIVEN_UP[migration.type], updated_at=now),))
    if known.instance is not None and known.instance.new_flavor is not None:
        changes += Changes(instances=(replace(known.instance, old_flavor=None, new_flavor=None, updated_at=now),))
    return Planned(changes.claims[0] if claim.open else claim, changes)


def drop(known: Known, migration: ConsumerUuid, half: Half, now: float) -> Changes:
    """Give one half of a move back, and nothing else. Nothing if it was given back before."""
    return given_back([one for one in known.claims if one.migration == migration and one.half == half], known, now)


# --- parts ----------------------------------------------------------------------------------------------------------


def _moving(known: Known, request: MoveClaim) -> Instance:
    """The instance as it is kept, or where no record knows it as the caller describes it.

    :raises UnknownInstance: the caller leaves its flavor to the records.
    """
    if known.instance is None and request.instance.flavor == UNTOLD:
        raise UnknownInstance(f"no record of instance {request.instance.uuid}", "give its flavor and its host")
    return known.instance or request.instance


def _source(state: NodeState, known: Known, request: MoveClaim, instance: Instance) -> Claim | None:
    """The claim at the source, which becomes the old half; None if the source keeps other records.

    :raises TrackerError: the instance cannot be moved so.
    """
    if instance.removed or instance.host is None:
        raise WrongState(f"instance {instance.uuid} is {'deleted' if instance.removed else 'on no host'}", "only a guest that is on a host can be moved")
    if (request.type == "resize") != (request.flavor is not None):
        raise InvalidRequest(f"a move of type {request.type} {'needs' if request.type == 'resize' else 'has no'} flavor", "give one for a resize only")
    moving = [one for one in known.claims if one.migration is not None]
    if moving:
        what = f"instance {instance.uuid} is being moved by migration {moving[0].migration}"
        raise InstanceClaimed(what, "confirm, revert or abort that first", claim=moving[0].id)
    here = instance.host == state.node.host and instance.node in (None, state.node.uuid)
    if here and request.type in ("live-migration", "evacuation"):
        raise InvalidRequest(f"instance {instance.uuid} is on node {state.node.uuid} already", "another destination")
    return next((one for one in known.claims if one.purpose != "devices" and one.node == instance.node), None)


def _migration(state: NodeState, known: Known, request: MoveClaim, instance: Instance, source: Claim | None, now: float) -> Migration:
    """The record of the move, with this node as its destination.

    :raises TrackerError: the caller's record is about something else, or over.
    """
    made = Migration(
        uuid=ConsumerUuid(request.id), instance=instance.uuid, type=request.type, status="accepted", source_compute=instance.host,
        source_node=instance.node, old_flavor_id=instance.flavor.id, created_at=now,
    )  # fmt: skip
    found = known.migration or request.migration or made
    if found.instance != instance.uuid or found.type != request.type:
        raise InvalidRequest(f"migration {found.uuid} is a {found.type} of instance {found.instance}", "name the migration of this move")
    if found.ended or found.status == "error":
        raise WrongState(f"migration {found.uuid} is {found.status}", "make a new one")
    node = state.node
    return replace(
        found, status=found.status if request.type == "live-migration" else "pre-migrating",
        source_compute=found.source_compute or instance.host, source_node=found.source_node or instance.node or (source.node if source else None),
        dest_compute=node.host, dest_node=node.uuid, dest_host=node.host_ip, old_flavor_id=instance.flavor.id,
        new_flavor_id=(request.flavor or instance.flavor).id, updated_at=now,
    )  # fmt: skip


def _check_same_pages(source: Claim | None, reserved: Reserved) -> None:
    """A running guest cannot change the size of its pages.

    :raises ResourcesUnavailable: it would.
    """
    if source is None or not source.cells or not reserved.cells:
        return
    old, new = source.cells[0].page_size_kib, reserved.cells[0].page_size_kib
    if old != new:
        raise ResourcesUnavailable([f"page size differs: the guest runs on pages of {old} KiB, here it would get {new} KiB"])


def _move(known: Known) -> tuple[Claim, Migration]:
    claim = existing(known)
    if claim.purpose != "move" or known.migration is None:
        raise UnknownClaim(f"claim {claim.id} is no move", "see agent migrations")
    return claim, known.migration


def _instance(known: Known) -> Instance:
    if known.instance is None:
        raise UnknownClaim("the record of the moved instance is gone", "see agent migrations")
    return known.instance


def _check_status(migration: Migration, *allowed: MigrationStatus) -> None:
    if migration.status not in allowed:
        raise WrongState(f"migration {migration.uuid} is {migration.status}", f"it has to be {' or '.join(allowed)}")


def _halves(known: Known, migration: Migration, half: Half) -> list[Claim]:
    return [one for one in known.claims if one.migration == migration.uuid and one.half == half]


def _attached(known: Known, claim: Claim, now: float) -> Changes:
    """What the guest got at the destination while it was on its way is in use now."""
    here = {one.id: one for one in known.claims if one.node == claim.node}
    devices = [one for one in known.devices if one.holder in here and one.state == "claimed"]
    used = [one for one in here.values() if one.purpose == "devices" and one.state == "held"]
    return Changes(
        claims=tuple(replace(one, state="consumed", updated_at=now) for one in used), devices=tuple(replace(one, state="allocated") for one in devices)
    )


def _only(known: Known, migration: Migration, now: float) -> tuple[Claim, ...]:
    """The old half as the only claim again."""

    def alone() -> Iterator[Claim]:
        for one in _halves(known, migration, "old"):
            yield replace(one, half="only", migration=None, updated_at=now)

    return tuple(alone())
