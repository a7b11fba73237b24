"""The beginning of a move: the claim at the destination, and the notice to the source. Pure.

What the caller says of the instance and its migration has to agree with the records. Where the two
hosts have stores of their own, the caller says what only the other host has on record.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import Claim, Migration, RecordChanges
from agent.tracker.claims import (
    check_ready,
    claim_made_by,
    existing_claim,
    hold_reservation,
    repeated_claim,
)
from agent.tracker.errors import (
    InstanceClaimed,
    InstanceDiffers,
    InvalidTrackerRequest,
    NodeHeldElsewhere,
    ResourcesUnavailable,
    WrongState,
)
from agent.tracker.moves import UNDER_WAY
from agent.tracker.node_state import NodeState
from agent.tracker.reserving import Reservation, guest_topology, reserve
from agent.tracker.stored_state import (
    RECORDED_FLAVOR,
    MoveClaim,
    PlannedChange,
    StoredState,
    digest,
)

STATES = frozenset({"vm_state", "task_state"})
# Page requests for which each host chooses the size itself.
HOST_DECIDES = ("large", "any")


def claim_move(
    state: NodeState, stored: StoredState, request: MoveClaim, now: float
) -> PlannedChange:
    """Claim resources at the destination. If they are denied nothing is written, so that no record
    mentions the move.

    :raises TrackerError: the claim is denied.
    """
    if (before := repeated_claim(stored, request)) is not None:
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
    instance = _moving_instance(stored, request)
    source = _source_claim(node.uuid, node.host, stored, request, instance)
    migration = _migration_record(stored, request, instance, now)
    migration = replace(
        migration, dest_compute=node.host, dest_node=node.uuid, dest_host=node.host_ip
    )
    flavor = request.flavor if request.flavor is not None else instance.flavor
    reserved = reserve(state, request, instance, flavor)
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
    kept = hold_reservation(
        claim, reserved, "claimed" if request.type == "live-migration" else "allocated"
    )
    changes = _moving_changes(stored, request, instance, source, migration, now)
    return PlannedChange(
        claim, changes + RecordChanges(migrations=(migration,), claims=(claim,)) + kept
    )


def repeat(stored: StoredState, request: MoveClaim, host: str) -> PlannedChange:
    """Answer a request for a move that is on record already.

    If ``host`` is the source, the answer is the claim whatever became of the move, because the
    source promises nothing by it.

    :raises ClaimIdTaken: another request has the id.
    :raises ClaimReleased: the claim was given back, and ``host`` is the destination's host.
    :raises UnknownClaim: there is no such claim any more.
    """
    if stored.migration is None or stored.migration.dest_compute == host:
        repeated_claim(stored, request)
    else:
        claim_made_by(stored, request)
    return PlannedChange(existing_claim(stored))


def leave(state: NodeState, stored: StoredState, request: MoveClaim, now: float) -> PlannedChange:
    """Turn the guest's claim on this node into the old half of a move to a host with a store of its
    own.

    :raises TrackerError: the instance cannot be moved so.
    """
    # The states are not compared, because a source that was down has missed the changes of them.
    instance = _with_given_states(
        _moving_instance(stored, replace(request, given_fields=request.given_fields - STATES)),
        request,
    )
    if request.host is None:
        raise InvalidTrackerRequest(
            f"node {request.node} is not managed here",
            "ask the agent of its host; or say its host, if that has a store of its own",
        )
    source = _source_claim(state.node.uuid, None, stored, request, instance)
    migration = _migration_record(stored, request, instance, now)
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
    changes = _moving_changes(stored, request, instance, source, migration, now)
    return PlannedChange(
        departure, changes + RecordChanges(migrations=(migration,), claims=(departure,))
    )


def _moving_instance(stored: StoredState, request: MoveClaim) -> Instance:
    """Return the instance as it is on record; as the caller describes it if there is no record, or
    if the record only says that it is on a host with a store of its own.

    :raises InvalidTrackerRequest: the caller leaves fields to the records that they do not have.
    :raises InstanceDiffers: the request contradicts the record.
    """
    kept, given = stored.instance, request.instance
    is_here = kept is not None and not (
        stored.has_left and not kept.deleted and given.host in stored.strange_hosts
    )
    _check_agrees(kept if is_here else None, stored, request)
    if kept is not None and is_here:
        return kept
    if given.flavor == RECORDED_FLAVOR:
        raise InvalidTrackerRequest(
            f"the records do not say what instance {given.uuid} has now",
            "say its host, node and flavor",
        )
    if kept is None:
        return given
    return replace(
        given, launched_on=kept.launched_on, created_at=kept.created_at, version=kept.version
    )


def _with_given_states(instance: Instance, request: MoveClaim) -> Instance:
    """Return the instance in the states that the caller gave, because the caller decides them."""
    states = {name: getattr(request.instance, name) for name in STATES & request.given_fields}
    return (
        replace(instance, **states)
        if any(getattr(instance, name) != value for name, value in states.items())
        else instance
    )


def _check_agrees(kept: Instance | None, stored: StoredState, request: MoveClaim) -> None:
    """Check that the request's instance and migration agree with the records. ``kept``: the record
    of the instance, None if it does not count.

    :raises InstanceDiffers: they do not.
    """
    differences = (
        list(_differences(kept, request.instance, sorted(request.given_fields)))
        if kept is not None
        else []
    )
    if kept is not None and request.page_size_kib is not None:
        there = _claim_on(kept.node, stored)
        if there is not None and _page_size(there) != request.page_size_kib:
            differences.append(
                f"its page size in KiB is {_page_size(there)}, not {request.page_size_kib}"
            )
    if (made := request.migration) is not None:
        begun = stored.migration
        if begun is None and kept is not None:
            begun = replace(made, source_compute=kept.host, source_node=kept.node)
        if begun is not None and begun.instance == made.instance:
            names = {
                *request.given_migration_fields,
                *(
                    name
                    for name in ("source_compute", "source_node")
                    if getattr(made, name) is not None
                ),
            }
            differences += (
                f"its migration's {difference}"
                for difference in _differences(begun, made, sorted(names))
            )
    if differences:
        raise InstanceDiffers(request.instance.uuid, differences)


def _differences(kept: object, given: object, names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each field of ``names`` that differs, and for each field of a flavor."""
    for name in names:
        on_record, said = getattr(kept, name), getattr(given, name)
        if isinstance(on_record, Flavor) and isinstance(said, Flavor):
            yield from (
                f"its flavor's {difference}"
                for difference in _differences(
                    on_record, said, [field.name for field in fields(Flavor)]
                )
            )
        elif on_record != said:
            yield f"{name} is {printable(str(on_record))}, not {printable(str(said))}"


def _source_claim(
    dest: ProviderUuid,
    host: str | None,
    stored: StoredState,
    request: MoveClaim,
    instance: Instance,
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
    moving = [claim for claim in stored.claims if claim.migration is not None]
    if moving:
        what = f"instance {instance.uuid} is being moved by migration {moving[0].migration}"
        raise InstanceClaimed(what, "confirm, revert or abort that first", claim=moving[0].id)
    there = instance.host == host and instance.node in (None, dest)
    if there and request.type in ("live-migration", "evacuation"):
        raise InvalidTrackerRequest(
            f"instance {instance.uuid} is on node {dest} already", "another destination"
        )
    return _claim_on(instance.node, stored)


def _claim_on(node: ProviderUuid | None, stored: StoredState) -> Claim | None:
    """Return the guest's own claim on the node; None if it has none."""
    return next(
        (claim for claim in stored.claims if claim.purpose != "devices" and claim.node == node),
        None,
    )


def _moving_changes(
    stored: StoredState,
    request: MoveClaim,
    instance: Instance,
    source: Claim | None,
    migration: Migration,
    now: float,
) -> RecordChanges:
    """Return the changes that bring the instance and its claim at the source into the state of a
    move under way.
    """
    source_claims = (
        ()
        if source is None
        else (replace(source, half="old", migration=migration.uuid, updated_at=now),)
    )
    moving = replace(instance, created_at=instance.created_at or now, updated_at=now)
    if request.flavor is not None:
        moving = replace(moving, old_flavor=instance.flavor, new_flavor=request.flavor)
    is_new = instance is not stored.instance
    return RecordChanges(
        instances=(moving,) if request.type == "resize" or is_new else (), claims=source_claims
    )


def _migration_record(
    stored: StoredState, request: MoveClaim, instance: Instance, now: float
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
        created_at=now,
    )
    found = stored.migration or request.migration or made
    if found.instance != instance.uuid or found.type != request.type:
        raise InvalidTrackerRequest(
            f"migration {found.uuid} is a {found.type} of instance {found.instance}",
            "name the migration of this move",
        )
    if found.status not in UNDER_WAY:
        raise WrongState(f"migration {found.uuid} is {found.status}", "create a new one")
    return replace(
        found,
        status=found.status if request.type == "live-migration" else "pre-migrating",
        source_compute=found.source_compute or instance.host,
        source_node=found.source_node or instance.node,
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
    """Return the size in KiB of the pages of the claim's cells; None if it has no cells."""
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
