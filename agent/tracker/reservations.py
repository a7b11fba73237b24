"""What of each card is kept from the scheduler: the records beside what Placement has reserved.
Pure.

Placement's word counts, because operators and those who clean devices say theirs there. But it can
only be taken for theirs in the provider that has had what the records say: one that was made anew,
or restored, is told again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from agent.model.devices import DeviceRecord, PciAddress
from agent.model.names import ConsumerUuid, printable
from agent.model.node_records import RecordChanges
from agent.tracker.errors import UnknownDevice, WrongState
from agent.tracker.node_state import NodeState
from agent.tree.device_uses import DeviceUse, DeviceUses, ReservedOfCard, Withheld

Seen = Mapping[PciAddress, ReservedOfCard | None]
"""What Placement has of the cards; None: nobody can tell what of it is about devices. Those that it
does not have are missing.
"""


def noted(devices: Mapping[str, DeviceRecord], seen: Seen) -> RecordChanges:
    """The rows that are to say what Placement has reserved."""
    unclear = {address for address, found in seen.items() if found is None}
    after = [
        (one, _noted(one, seen.get(address)))
        for address, one in _heads(devices).items()
        if address not in unclear
    ]
    return RecordChanges(devices=tuple(now for before, now in after if now != before))


def cleaned(devices: Mapping[str, DeviceRecord], address: str) -> RecordChanges:
    """Somebody has cleaned the device, and what is reserved of its card is to be given free;
    nothing, if neither is to be done.

    :raises UnknownDevice: there is none of that address.
    :raises WrongState: a guest has it.
    """
    row = devices.get(address)
    if row is None:
        raise UnknownDevice(
            f"no device {printable(address)} on record", "see GET /v1/devices for their addresses"
        )
    if row.holder is not None:
        raise WrongState(
            f"device {address} is in use, by claim {row.holder}", "clean it once its guest is gone"
        )
    return (
        RecordChanges(devices=(replace(row, used=False, reserved=0, reservation_due=True),))
        if row.withheld
        else RecordChanges()
    )


def withheld(devices: Mapping[str, DeviceRecord]) -> Mapping[PciAddress, Withheld]:
    """Of the cards of which there is more to say than what Placement has: how much is to be
    reserved.
    """
    return {
        address: Withheld(None if one.used else one.reserved, due=one.reservation_due)
        for address, one in _heads(devices).items()
        if one.withheld or one.reservation_due
    }


def _heads(devices: Mapping[str, DeviceRecord]) -> Mapping[PciAddress, DeviceRecord]:
    """Of each card the row that says what is reserved of it: the card's own, or the first of its
    functions if the host does not show it.
    """
    heads: dict[str, DeviceRecord] = {}
    for one in _in_order(devices):
        last = heads.get(one.card)
        if (
            last is None
            or one.address == one.card
            or (one.withheld and not last.withheld and last.address != one.card)
        ):
            heads[one.card] = one
    return {PciAddress.parse(card): one for card, one in heads.items()}


def _in_order(devices: Mapping[str, DeviceRecord]) -> Iterator[DeviceRecord]:
    return (devices[address] for address in sorted(devices))


def _noted(row: DeviceRecord, seen: ReservedOfCard | None) -> DeviceRecord:
    """``seen`` None: Placement does not have the card."""
    if seen is None:
        return replace(row, reservation_due=row.withheld)
    has_all = seen.reserved >= (seen.total if row.used else row.reserved)
    as_seen = replace(
        row, reserved=seen.reserved, reserved_at=seen.generation, reservation_due=False
    )
    if row.reservation_due:
        is_there = has_all if row.withheld else seen.reserved == 0
        return as_seen if is_there else row
    if seen.generation < row.reserved_at and not has_all:
        return replace(row, reservation_due=True)
    if row.used and not has_all:
        # Somebody lowered it: the device is clean, unless a guest has it.
        return (
            replace(row, reservation_due=True)
            if row.holder is not None
            else replace(as_seen, used=False)
        )
    if row.one_time_use and not row.used and 0 < seen.total <= seen.reserved:
        # Whoever reserved it, and an agent that has lost its store did: nobody has cleaned it.
        return replace(as_seen, used=True)
    return as_seen if seen.reserved != row.reserved or seen.generation < row.reserved_at else row


def device_uses(state: NodeState) -> DeviceUses:
    """The devices in use."""
    moving = {
        one.instance
        for one in state.claims.values()
        if one.half != "only" or one.state != "consumed"
    }
    settled = {one.instance for one in state.claims.values()} - moving
    held = [
        (one, state.claims[one.holder].instance)
        for one in state.devices.values()
        if one.holder is not None and one.holder in state.claims
    ]
    busy = {one.uuid for one in state.instances.values() if one.task_state is not None} | {
        one.instance for one in state.migrations.values() if not one.ended
    }
    known = frozenset(
        {*(one.instance for one in state.claims.values()), *state.instances, *state.migrations}
    )
    return DeviceUses(
        tuple(_use(device, owner) for device, owner in held),
        frozenset(settled),
        frozenset(busy),
        withheld(state.devices),
        known,
    )


def _use(device: DeviceRecord, owner: ConsumerUuid) -> DeviceUse:
    return DeviceUse(
        PciAddress.parse(device.address),
        PciAddress.parse(device.card),
        owner,
        device.numa_node,
        bool(device.tags.get("physical_network")),
    )
