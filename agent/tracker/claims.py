"""Claims of new guests and of single devices. Pure: planned from a node's state and the stored
records of the target.
"""

from collections.abc import Iterable
from dataclasses import replace

from agent.model.devices import DeviceRecord, DeviceRequest, DeviceState
from agent.model.facts import Domain
from agent.model.instance import BUILT, Instance, PciPolicy
from agent.model.names import printable
from agent.model.node_records import Claim, RecordChanges
from agent.tracker.errors import (
    ClaimIdTaken,
    ClaimReleased,
    InstanceClaimed,
    InstanceElsewhere,
    InvalidTrackerRequest,
    NodeDegraded,
    NodeUnavailable,
    UnknownClaim,
    UnknownInstance,
    WrongState,
)
from agent.tracker.node_state import NodeState
from agent.tracker.reserving import (
    Reservation,
    choose_devices,
    guest_topology,
    reserve,
)
from agent.tracker.stored_state import (
    DeviceClaim,
    InstanceClaim,
    MoveClaim,
    PlannedChange,
    StoredState,
    digest,
)
from agent.tracker.verdicts import give_back, release_claims


def claim_instance(
    state: NodeState, stored: StoredState, request: InstanceClaim, now: float
) -> PlannedChange:
    """Claim resources for a new guest, which belongs to this node from then on.

    :raises TrackerError: the claim is denied.
    """
    if (before := repeated_claim(stored, request)) is not None:
        return PlannedChange(before)
    check_ready(state)
    check_not_elsewhere(request.instance, state)
    instance = _with_record(request.instance, stored.instance)
    if not stored.has_left:
        check_not_elsewhere(instance, state)
    if stored.claims:
        raise InstanceClaimed(
            f"instance {instance.uuid} has claim {stored.claims[0].id} already",
            "abort that first, or use its id",
            claim=stored.claims[0].id,
        )
    reserved = reserve(state, request, instance, instance.flavor)
    node = state.node
    claim = Claim(
        id=request.id,
        purpose="instance",
        instance=instance.uuid,
        node=node.uuid,
        amounts=reserved.amounts,
        cells=reserved.cells,
        mdevs=reserved.mdevs,
        flavor_id=instance.flavor.id,
        digest=digest(request),
        created_at=now,
        updated_at=now,
    )
    owned = replace(
        instance,
        host=node.host,
        node=node.uuid,
        launched_on=node.host,
        created_at=instance.created_at or now,
        updated_at=now,
    )
    return PlannedChange(
        claim,
        RecordChanges(instances=(owned,), claims=(claim,))
        + hold_reservation(claim, reserved, "allocated"),
    )


def abort_claim(stored: StoredState, now: float, shown: Iterable[Domain] = ()) -> PlannedChange:
    """Give back the claim of a guest or of devices; harmless when repeated. ``shown``: the guests
    that the hypervisor shows on the claim's node.

    :raises UnknownClaim: there never was one.
    :raises WrongState: the claim is part of a move; or its guest was built and is not known to be
        gone, or runs.
    """
    claim = existing_claim(stored)
    if not claim.open:
        return PlannedChange(claim)
    if claim.migration is not None:
        raise WrongState(
            f"claim {claim.id} is part of migration {claim.migration}",
            "abort, confirm or revert that",
        )
    instance = stored.instance
    if (
        claim.purpose != "devices"
        and instance is not None
        and instance.node == claim.node
        and (claim.state == "consumed" or instance.vm_state in BUILT)
    ):
        what = (
            f"instance {instance.uuid} was built ({instance.vm_state}) on the resources of claim "
            f"{claim.id}"
        )
        raise WrongState(
            what, "once it is gone from its host, update its record: deleted, or shelved_offloaded"
        )
    if claim.purpose != "devices" and any(
        guest.uuid == claim.instance and guest.state != "stopped" for guest in shown
    ):
        what = f"instance {claim.instance} runs on the hypervisor with claim {claim.id}"
        raise WrongState(
            what,
            (
                "to keep the guest, update its record to active; once the guest is gone, request "
                "an audit and abort again"
            ),
        )
    changes = give_back([claim], stored, now)
    if claim.purpose != "devices" and instance is not None and instance.node == claim.node:
        changes += RecordChanges(
            instances=(replace(instance, host=None, node=None, updated_at=now),)
        )
    return PlannedChange(changes.claims[0], changes)


def claim_devices(
    state: NodeState, stored: StoredState, request: DeviceClaim, now: float
) -> PlannedChange:
    """Claim devices for a guest that is on this node, or on its way to it.

    :raises TrackerError: the claim is denied.
    """
    if (before := repeated_claim(stored, request)) is not None:
        return PlannedChange(before)
    check_ready(state)
    if stored.instance is None:
        raise UnknownInstance(
            f"no record of instance {request.instance}", "claim its resources first"
        )
    if all(claim.node != state.node.uuid for claim in stored.claims):
        raise InstanceElsewhere(
            f"instance {request.instance} has no claim on node {printable(state.node.name)}",
            "claim its resources first",
        )
    devices = choose_devices(
        state,
        request.devices,
        *_near(
            stored.instance, [claim for claim in stored.claims if claim.node == state.node.uuid]
        ),
    )
    claim = Claim(
        id=request.id,
        purpose="devices",
        instance=request.instance,
        node=state.node.uuid,
        digest=digest(request),
        created_at=now,
        updated_at=now,
    )
    return PlannedChange(
        claim,
        RecordChanges(claims=(claim,), devices=tuple(take_devices(devices, claim, "claimed"))),
    )


def _near(instance: Instance, claims: Iterable[Claim]) -> tuple[frozenset[int], PciPolicy | None]:
    """Return the cells that the guest has on the node, or will have once it has arrived, and the
    policy that says how near to them its devices have to be.
    """
    rooms = sorted(
        (claim for claim in claims if claim.purpose != "devices"),
        key=lambda claim: claim.half == "new",
    )
    flavor = (
        instance.new_flavor
        if rooms and rooms[-1].half == "new" and instance.new_flavor is not None
        else instance.flavor
    )
    try:
        guest = guest_topology(flavor, instance.image_properties)
    except InvalidTrackerRequest:
        # The flavor has changed since the guest was built, and the guest goes on running.
        guest = None
    return frozenset(
        cell.host_cell for claim in rooms[-1:] for cell in claim.cells
    ), guest.pci_policy if guest is not None else None


def allocate_devices(stored: StoredState, now: float) -> PlannedChange:
    """Record that the claimed devices are in use.

    :raises UnknownClaim: there is no such claim.
    :raises WrongState: it was released.
    """
    claim = existing_claim(stored)
    if not claim.open:
        raise WrongState(f"claim {claim.id} was released", "claim the devices again")
    waiting = [
        device
        for device in stored.devices
        if device.holder == claim.id and device.state == "claimed"
    ]
    if not waiting:
        return PlannedChange(claim)
    used = replace(
        claim, state="consumed" if claim.purpose == "devices" else claim.state, updated_at=now
    )
    return PlannedChange(
        used,
        RecordChanges(
            claims=(used,), devices=tuple(replace(device, state="allocated") for device in waiting)
        ),
    )


def free_devices_of(
    state: NodeState, stored: StoredState, only: DeviceState | None, now: float
) -> RecordChanges:
    """Free the devices that the guest has on this node beside those of its own claim; with
    ``only``, those claims of which all devices are in that state.
    """
    kinds: dict[str, set[str]] = {}
    for device in stored.devices:
        if device.holder is not None:
            kinds.setdefault(device.holder, set()).add(device.state)
    ended = [
        claim
        for claim in stored.claims
        if claim.purpose == "devices"
        and claim.node == state.node.uuid
        and (only is None or kinds.get(claim.id) == {only})
    ]
    return release_claims(ended, stored, now)


# --- what claims and moves share ------------------------------------------------------------------


def check_ready(state: NodeState) -> None:
    """Check that new claims can be made on the node.

    :raises TrackerError: they cannot.
    """
    name = printable(state.node.name)
    if not state.host.available or state.node.deleted:
        raise NodeUnavailable(
            f"the driver does not offer node {name} now", "try again when it does, or another host"
        )
    if state.uncounted:
        state.check_cells_known()
    if state.problems:
        raise NodeDegraded(
            f"node {name} is degraded: {'; '.join(state.problems)}",
            "correct or remove the records named; see them: agent status",
        )


def repeated_claim(
    stored: StoredState, request: InstanceClaim | MoveClaim | DeviceClaim
) -> Claim | None:
    """Return the open claim that an earlier, equal request made; None if there is none.

    :raises ClaimIdTaken: another request made the claim with this id.
    :raises ClaimReleased: the claim was given back since.
    """
    claim = claim_made_by(stored, request)
    if claim is not None and not claim.open:
        raise ClaimReleased(f"claim {request.id} was given back", "use a new id for a new claim")
    return claim


def claim_made_by(
    stored: StoredState, request: InstanceClaim | MoveClaim | DeviceClaim
) -> Claim | None:
    """Return the claim that an earlier, equal request made, open or released; None if there is
    none.

    :raises ClaimIdTaken: another request made the claim with this id.
    """
    if stored.claim is not None and stored.claim.digest != digest(request):
        raise ClaimIdTaken(
            f"claim {request.id} exists, with another request", "use a new id for a new claim"
        )
    return stored.claim


def existing_claim(stored: StoredState) -> Claim:
    """Return the claim with the operation's id.

    :raises UnknownClaim: there is none.
    """
    if stored.claim is None:
        raise UnknownClaim("no claim has that id", "see those on record: agent claims")
    return stored.claim


def check_not_elsewhere(instance: Instance, state: NodeState) -> None:
    """Check that the instance belongs to no other node.

    :raises InstanceElsewhere: it does.
    """
    node = state.node
    if instance.host is not None and (
        instance.host != node.host or instance.node not in (None, node.uuid)
    ):
        where = (
            f"{printable(instance.host)}, node {instance.node}"
            if instance.node
            else printable(instance.host)
        )
        raise InstanceElsewhere(
            f"instance {instance.uuid} belongs to host {where}",
            "claim a move of it, or correct its record",
            host=instance.host,
        )


def hold_reservation(claim: Claim, reserved: Reservation, state: DeviceState) -> RecordChanges:
    """Return the devices and units of the reservation, held by the claim."""
    return RecordChanges(
        devices=tuple(take_devices(reserved.devices, claim, state)),
        units=tuple(replace(unit, holder=claim.id) for unit in reserved.units),
    )


def take_devices(
    devices: Iterable[tuple[DeviceRecord, DeviceRequest]], claim: Claim, state: DeviceState
) -> Iterable[DeviceRecord]:
    """Return the devices as the claim holds them."""
    return (device.held_by(claim.id, state, request.id) for device, request in devices)


def _with_record(given: Instance, kept: Instance | None) -> Instance:
    """Return the instance as the caller describes it, with the owner and the other fields that only
    the record has.

    :raises WrongState: the instance is deleted.
    """
    if kept is None:
        return given
    if kept.deleted:
        raise WrongState(f"instance {kept.uuid} is deleted", "use another uuid")
    return replace(
        given,
        host=kept.host,
        node=kept.node,
        created_at=kept.created_at,
        version=kept.version,
    )
