"""Claims of moves: resize, cold and live migration, evacuation. Pure.

While a move goes on, the instance has two claims: the half ``old`` at the source and the half
``new`` at the destination. When one of them is given back, the other becomes the only claim; the
previous state is kept nowhere else.

Where the two hosts have stores of their own, each store has its host's half. The source then has a
departure too: a claim on the source's node with the move's id and no amounts, by which the further
steps of the move are found.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

from agent.model.claim import Claim, Half
from agent.model.flavor import Flavor
from agent.model.instance import Instance
from agent.model.migration import GIVEN_UP, Migration, MigrationStatus
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import RecordChanges
from agent.tracker.claims import check_ready, existing, holding, made_by, repeated
from agent.tracker.errors import (
    InstanceClaimed,
    InstanceDiffers,
    InvalidTrackerRequest,
    NodeHeldElsewhere,
    ResourcesUnavailable,
    UnknownClaim,
    WrongState,
)
from agent.tracker.node_state import NodeState
from agent.tracker.planning import AT_ONCE, ClaimPlanner
from agent.tracker.releasing import given_back
from agent.tracker.requests import UNTOLD, MoveClaim, digest
from agent.tracker.reserving import GuestRequest, Reservation, guest_topology
from agent.tracker.stored_state import PlannedChange, StoredState, is_departure
from agent.tracker.verdicts import ARRIVED, STAYS, WAITING

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
STATES = frozenset({"vm_state", "task_state"})
# Page requests for which each host chooses the size itself.
HOST_DECIDES = ("large", "any")


def claim_move(
    state: NodeState,
    known: StoredState,
    request: MoveClaim,
    now: float,
    planning: ClaimPlanner = AT_ONCE,
) -> PlannedChange:
    """Claim resources at the destination. If they are denied nothing is written, so that no record
    mentions the move.

    :raises TrackerError: the claim is denied.
    """
    if (before := repeated(known, request)) is not None:
        return PlannedChange(before)
    check_ready(state)
    node = state.node
    if request.host not in (None, node.host):
        raise NodeHeldElsewhere(
            (
                f"node {node.uuid} is managed by host {printable(node.host)}, not "
                f"{printable(request.host or '')}"
            ),
            "name its host, or none",
        )
    instance = _moving(known, request)
    source = _source(node.uuid, node.host, known, request, instance)
    migration = _migration(known, request, instance, source, now)
    migration = replace(
        migration, dest_compute=node.host, dest_node=node.uuid, dest_host=node.host_ip
    )
    flavor = request.flavor if request.flavor is not None else instance.flavor
    wanted = GuestRequest(
        request.id,
        flavor,
        instance.image_properties,
        instance.volume_backed,
        request.limits,
        request.allocations,
        request.devices,
        request.networks,
    )
    reserved = planning.reserve(state, wanted)
    if request.type == "live-migration":
        _check_same_pages(_pages_at_source(source, request, flavor, instance), reserved)
    claim = Claim(
        id=request.id,
        purpose="move",
        instance=instance.uuid,
        node=state.node.uuid,
        half="new",
        amounts=reserved.amounts,
        cells=reserved.cells,
        mdevs=reserved.mdevs,
        flavor_id=flavor.id,
        migration=migration.uuid,
        origin=migration.uuid,
        digest=digest(request),
        created_at=now,
        updated_at=now,
    )
    # A live migration attaches its devices when the guest arrives.
    kept = holding(claim, reserved, "claimed" if request.type == "live-migration" else "allocated")
    changes = _under_way(known, request, instance, source, migration, now)
    return PlannedChange(
        claim, changes + RecordChanges(migrations=(migration,), claims=(claim,)) + kept
    )


def repeat(known: StoredState, request: MoveClaim, host: str) -> PlannedChange:
    """Answer a request for a move that is on record already.

    If ``host`` is the source, the answer is the claim whatever became of the move, because the
    source promises nothing by it.

    :raises ClaimIdTaken: another request has the id.
    :raises ClaimReleased: the claim was given back, and ``host`` is the destination's host.
    :raises UnknownClaim: there is no such claim any more.
    """
    if known.migration is None or known.migration.dest_compute == host:
        repeated(known, request)
    else:
        made_by(known, request)
    return PlannedChange(existing(known))


def leave(state: NodeState, known: StoredState, request: MoveClaim, now: float) -> PlannedChange:
    """Turn the guest's claim on this node into the old half of a move to a host with a store of its
    own.

    :raises TrackerError: the instance cannot be moved so.
    """
    # The states are not compared, because a source that was down has missed the changes of them.
    instance = _in_states(_moving(known, replace(request, told=request.told - STATES)), request)
    if request.host is None:
        raise InvalidTrackerRequest(
            f"node {request.node} is not managed here",
            "ask the agent of its host; or say its host, if that has a store of its own",
        )
    source = _source(state.node.uuid, None, known, request, instance)
    migration = _migration(known, request, instance, source, now)
    migration = replace(migration, dest_compute=request.host, dest_node=request.node)
    departure = Claim(
        id=request.id,
        purpose="move",
        instance=instance.uuid,
        node=state.node.uuid,
        half="new",
        state="released",
        flavor_id=migration.new_flavor_id,
        origin=migration.uuid,
        digest=digest(request),
        created_at=now,
        updated_at=now,
    )
    changes = _under_way(known, request, instance, source, migration, now)
    return PlannedChange(
        departure, changes + RecordChanges(migrations=(migration,), claims=(departure,))
    )


def finish(known: StoredState, now: float) -> PlannedChange:
    """Record that the guest runs at the destination, to which it belongs from then on. A move that
    needs no confirmation gives the source back.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it was aborted.
    """
    claim, migration = _move(known)
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
        changes = given_back(_halves(known, migration, "old"), known, now)
    instance = _instance(known)
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
        + _attached(known, claim, now),
    )


def confirm(known: StoredState, now: float) -> PlannedChange:
    """Record that the move stays: the source gives its half back.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it has not arrived.
    """
    claim, migration = _move(known)
    if migration.status == "confirmed":
        return PlannedChange(claim)
    _check_status(migration, "finished", "confirming")
    instance = replace(_instance(known), old_flavor=None, new_flavor=None, updated_at=now)
    changes = given_back(_halves(known, migration, "old"), known, now)
    ended = replace(migration, status="confirmed", updated_at=now)
    changes += RecordChanges(instances=(instance,), migrations=(ended,))
    if is_departure(claim, migration):
        return PlannedChange(claim, changes)
    kept = replace(claim, half="only", migration=None, updated_at=now)
    return PlannedChange(kept, changes + RecordChanges(claims=(kept,)))


def revert(known: StoredState, now: float) -> PlannedChange:
    """Record that the guest goes back: the destination gives its half back, and the guest belongs
    to the source again.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it has not arrived, or the instance is not about to go back.
    """
    claim, migration = _move(known)
    if migration.status == "reverted":
        return PlannedChange(claim)
    _check_status(migration, "finished", "reverting")
    instance = _instance(known)
    if instance.task_state != "resize_reverting" and not is_departure(claim, migration):
        raise WrongState(
            f"instance {instance.uuid} has task state {instance.task_state or 'none'}",
            "set it to resize_reverting before the revert",
        )
    changes = given_back([claim], known, now)
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
        instances=(back,), migrations=(ended,), claims=_only(known, migration, now)
    )
    return PlannedChange(changes.claims[0] if claim.open else claim, changes + only)


def abort(known: StoredState, now: float) -> PlannedChange:
    """Give the move up before it has arrived: the destination gives its half back, and the
    migration's record ends at once.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it has arrived.
    """
    claim, migration = _move(known)
    left = is_departure(claim, migration) and migration.status in STAYS
    # If the half was dropped before, the rest of the move still has to be ended.
    if not claim.open and not migration.in_progress and not left:
        return PlannedChange(claim)
    if claim.state == "consumed" or migration.status in WAITING or left:
        raise WrongState(
            f"move {claim.id} has arrived: migration {migration.uuid} is {migration.status}",
            "confirm or revert it",
        )
    changes = given_back([claim], known, now) + RecordChanges(claims=_only(known, migration, now))
    if migration.in_progress:
        changes += RecordChanges(
            migrations=(replace(migration, status=GIVEN_UP[migration.type], updated_at=now),)
        )
    if known.instance is not None and known.instance.new_flavor is not None:
        changes += RecordChanges(
            instances=(replace(known.instance, old_flavor=None, new_flavor=None, updated_at=now),)
        )
    return PlannedChange(changes.claims[0] if claim.open else claim, changes)


def progress(known: StoredState, status: MigrationStatus, now: float) -> PlannedChange:
    """Record that the move has reached ``status``, or is still there. Gives nothing back.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: it is over, or past that status.
    """
    claim, migration = _move(known)
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


def drop(known: StoredState, migration: ConsumerUuid, half: Half, now: float) -> RecordChanges:
    """Give one half of a move back, and nothing else; harmless when repeated."""
    return given_back(
        [one for one in known.claims if one.migration == migration and one.half == half], known, now
    )


def drop_half(known: StoredState, half: Half, now: float) -> PlannedChange:
    """Give one half of a move back, found by the move's id, unless the guest is at that end.

    :raises UnknownClaim: there is no such move.
    :raises WrongState: the guest is at that end of the move.
    """
    claim, migration = _move(known)
    halves = _halves(known, migration, half)
    if halves and _is_at(half, halves, known, claim, migration):
        what = (
            f"move {claim.id}: its guest is at the {'destination' if half == 'new' else 'source'}, "
            f"migration {migration.uuid} is {migration.status}"
        )
        raise WrongState(what, "abort, revert or confirm the move")
    changes = drop(known, migration.uuid, half, now)
    if changes and half == "old" and migration.status == "finished":
        # Because the guest has no resources at the source to go back to.
        changes += RecordChanges(
            migrations=(replace(migration, status="confirming", updated_at=now),)
        )
    return PlannedChange(
        next((one for one in changes.claims if one.id == claim.id), claim), changes
    )


# --- parts ----------------------------------------------------------------------------------------


def _moving(known: StoredState, request: MoveClaim) -> Instance:
    """Return the instance as it is on record; as the caller describes it if there is no record, or
    if the record only says that it is on a host with a store of its own.

    :raises InvalidTrackerRequest: the caller leaves fields to the records that they do not have.
    :raises InstanceDiffers: the request contradicts the record.
    """
    kept, given = known.instance, request.instance
    is_here = kept is not None and not (
        known.has_left and not kept.deleted and given.host in known.strange_hosts
    )
    _check_agrees(kept if is_here else None, known, request)
    if kept is not None and is_here:
        return kept
    if given.flavor == UNTOLD:
        raise InvalidTrackerRequest(
            f"the records do not say what instance {given.uuid} has now",
            "say its host, node and flavor",
        )
    if kept is None:
        return given
    return replace(
        given, launched_on=kept.launched_on, created_at=kept.created_at, version=kept.version
    )


def _in_states(instance: Instance, request: MoveClaim) -> Instance:
    """Return the instance in the states that the caller gave, because the caller decides them."""
    told = {name: getattr(request.instance, name) for name in STATES & request.told}
    return (
        replace(instance, **told)
        if any(getattr(instance, name) != value for name, value in told.items())
        else instance
    )


def _check_agrees(kept: Instance | None, known: StoredState, request: MoveClaim) -> None:
    """Check that the request's instance and migration agree with the records. ``kept``: the record
    of the instance, None if it does not count.

    :raises InstanceDiffers: they do not.
    """
    differences = (
        list(_differences(kept, request.instance, sorted(request.told))) if kept is not None else []
    )
    if kept is not None and request.page_size_kib is not None:
        there = next(
            (one for one in known.claims if one.purpose != "devices" and one.node == kept.node),
            None,
        )
        if there is not None and _page_size(there) != request.page_size_kib:
            differences.append(
                f"its page size in KiB is {_page_size(there)}, not {request.page_size_kib}"
            )
    if (made := request.migration) is not None:
        begun = known.migration
        if begun is None and kept is not None:
            begun = replace(made, source_compute=kept.host, source_node=kept.node)
        if begun is not None and begun.instance == made.instance:
            said = {
                *request.told_migration,
                *(
                    one
                    for one in ("source_compute", "source_node")
                    if getattr(made, one) is not None
                ),
            }
            differences += (
                f"its migration's {one}" for one in _differences(begun, made, sorted(said))
            )
    if differences:
        raise InstanceDiffers(request.instance.uuid, differences)


def _differences(kept: object, given: object, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        on_record, said = getattr(kept, name), getattr(given, name)
        if isinstance(on_record, Flavor) and isinstance(said, Flavor):
            yield from (
                f"its flavor's {one}"
                for one in _differences(on_record, said, [one.name for one in fields(Flavor)])
            )
        elif on_record != said:
            yield f"{name} is {printable(str(on_record))}, not {printable(str(said))}"


def _source(
    dest: ProviderUuid, host: str | None, known: StoredState, request: MoveClaim, instance: Instance
) -> Claim | None:
    """Return the claim at the source, which becomes the old half; None if the source keeps its
    records in another store.

    ``dest``: the destination; ``host``: its host, None if that keeps its records in another store.

    :raises TrackerError: the instance cannot be moved so.
    """
    if instance.removed or instance.host is None:
        raise WrongState(
            f"instance {instance.uuid} is {'deleted' if instance.removed else 'on no host'}",
            "only a guest that is on a host can be moved",
        )
    if (request.type == "resize") != (request.flavor is not None):
        raise InvalidTrackerRequest(
            (
                f"a move of type {request.type} "
                f"{'needs' if request.type == 'resize' else 'has no'} flavor"
            ),
            "give one for a resize only",
        )
    moving = [one for one in known.claims if one.migration is not None]
    if moving:
        what = f"instance {instance.uuid} is being moved by migration {moving[0].migration}"
        raise InstanceClaimed(what, "confirm, revert or abort that first", claim=moving[0].id)
    there = instance.host == host and instance.node in (None, dest)
    if there and request.type in ("live-migration", "evacuation"):
        raise InvalidTrackerRequest(
            f"instance {instance.uuid} is on node {dest} already", "another destination"
        )
    return next(
        (one for one in known.claims if one.purpose != "devices" and one.node == instance.node),
        None,
    )


def _under_way(
    known: StoredState,
    request: MoveClaim,
    instance: Instance,
    source: Claim | None,
    migration: Migration,
    now: float,
) -> RecordChanges:
    """Return the changes that bring the instance and its claim at the source into the state of a
    move under way.
    """
    left = (
        ()
        if source is None
        else (replace(source, half="old", migration=migration.uuid, updated_at=now),)
    )
    moving = replace(instance, created_at=instance.created_at or now, updated_at=now)
    if request.flavor is not None:
        moving = replace(moving, old_flavor=instance.flavor, new_flavor=request.flavor)
    is_new = instance is not known.instance
    return RecordChanges(
        instances=(moving,) if request.type == "resize" or is_new else (), claims=left
    )


def _migration(
    known: StoredState, request: MoveClaim, instance: Instance, source: Claim | None, now: float
) -> Migration:
    """Return the record of the move, as far as it is about the instance.

    :raises TrackerError: the caller's record is about another instance or type, or the move is
        over.
    """
    made = Migration(
        uuid=ConsumerUuid(request.id),
        instance=instance.uuid,
        type=request.type,
        status="accepted",
        source_compute=instance.host,
        source_node=instance.node,
        old_flavor_id=instance.flavor.id,
        created_at=now,
    )
    found = known.migration or request.migration or made
    if found.instance != instance.uuid or found.type != request.type:
        raise InvalidTrackerRequest(
            f"migration {found.uuid} is a {found.type} of instance {found.instance}",
            "name the migration of this move",
        )
    if found.status not in UNDER_WAY:
        raise WrongState(f"migration {found.uuid} is {found.status}", "make a new one")
    return replace(
        found,
        status=found.status if request.type == "live-migration" else "pre-migrating",
        source_compute=found.source_compute or instance.host,
        source_node=found.source_node or instance.node or (source.node if source else None),
        old_flavor_id=instance.flavor.id,
        new_flavor_id=(request.flavor or instance.flavor).id,
        updated_at=now,
    )


def _pages_at_source(
    source: Claim | None, request: MoveClaim, flavor: Flavor, instance: Instance
) -> int | None:
    """Return the size in KiB of the pages that the guest runs on; None if it has no cells, or its
    flavor names no size that a host could choose.

    :raises InvalidTrackerRequest: the source keeps its records in another store, and the request
        does not give the size.
    """
    if source is not None:
        return _page_size(source)
    if request.page_size_kib is not None:
        return request.page_size_kib
    guest = guest_topology(flavor, instance.image_properties)
    if guest is not None and guest.pages in HOST_DECIDES:
        what = (
            f"instance {instance.uuid} runs on pages whose size its host chose, and no record "
            "here says which"
        )
        raise InvalidTrackerRequest(
            what, "say page_size_kib, as the cells of its claim at the source show it"
        )
    return None


def _page_size(claim: Claim) -> int | None:
    return claim.cells[0].page_size_kib if claim.cells else None


def _check_same_pages(old: int | None, reserved: Reservation) -> None:
    """Check that a running guest keeps the size of its pages. ``old``: its size in KiB, None if any
    host gives the same.

    :raises ResourcesUnavailable: it would get another size.
    """
    new = reserved.cells[0].page_size_kib if reserved.cells else None
    if old is not None and old != new:
        here = f"here it would get {new} KiB" if new is not None else "here it would have no cells"
        raise ResourcesUnavailable(
            [f"page size differs: the guest runs on pages of {old} KiB, {here}"]
        )


def _move(known: StoredState) -> tuple[Claim, Migration]:
    claim = existing(known)
    if claim.purpose != "move" or known.migration is None:
        raise UnknownClaim(f"claim {claim.id} is no move", "see agent migrations")
    return claim, known.migration


def _instance(known: StoredState) -> Instance:
    if known.instance is None:
        raise UnknownClaim("the record of the moved instance is gone", "see agent migrations")
    return known.instance


def _is_at(
    half: Half, halves: Iterable[Claim], known: StoredState, claim: Claim, migration: Migration
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
    stayed = known.instance is not None and any(known.instance.node == one.node for one in halves)
    return goes_back or (not arrived and (migration.in_progress or stayed))


def _check_status(migration: Migration, *allowed: MigrationStatus) -> None:
    if migration.status not in allowed:
        raise WrongState(
            f"migration {migration.uuid} is {migration.status}",
            f"it has to be {' or '.join(allowed)}",
        )


def _halves(known: StoredState, migration: Migration, half: Half) -> list[Claim]:
    return [one for one in known.claims if one.migration == migration.uuid and one.half == half]


def _attached(known: StoredState, claim: Claim, now: float) -> RecordChanges:
    """Return the changes that mark as in use the devices that the guest got at the destination
    while it was on its way.
    """
    here = {one.id: one for one in known.claims if one.node == claim.node}
    devices = [one for one in known.devices if one.holder in here and one.state == "claimed"]
    used = [one for one in here.values() if one.purpose == "devices" and one.state == "held"]
    return RecordChanges(
        claims=tuple(replace(one, state="consumed", updated_at=now) for one in used),
        devices=tuple(replace(one, state="allocated") for one in devices),
    )


def _only(known: StoredState, migration: Migration, now: float) -> tuple[Claim, ...]:
    """Return the old half as the only claim again."""

    def alone() -> Iterator[Claim]:
        for one in _halves(known, migration, "old"):
            yield replace(one, half="only", migration=None, updated_at=now)

    return tuple(alone())
