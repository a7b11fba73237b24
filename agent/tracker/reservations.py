"""Reservations of devices: which part of each card is withheld from the scheduler, by the device
records and by ``reserved`` in Placement. Pure.

Placement decides, because operators and the tools that clean devices set ``reserved`` there. Its
value only counts if the provider had the recorded value before: a provider that was created anew or
restored gets the recorded value again.
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
"""What Placement has reserved of each card. None: the reserved amount cannot be attributed to
devices. Cards that Placement does not have are missing.
"""


def noted(devices: Mapping[str, DeviceRecord], seen: Seen) -> RecordChanges:
    """Return the changes that bring the device records up to what Placement has reserved."""
    unclear = {address for address, found in seen.items() if found is None}
    after = [
        (one, _noted(one, seen.get(address)))
        for address, one in _heads(devices).items()
        if address not in unclear
    ]
    return RecordChanges(devices=tuple(now for before, now in after if now != before))


def cleaned(devices: Mapping[str, DeviceRecord], address: str) -> RecordChanges:
    """Return the change that records that the device was cleaned and frees the reserved part of its
    card; empty if there is nothing to do.

    :raises UnknownDevice: there is no device with that address.
    :raises WrongState: a guest has the device.
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
    """Return how much is to be reserved of each card whose record differs from what Placement has,
    or withholds devices.
    """
    return {
        address: Withheld(None if one.used else one.reserved, due=one.reservation_due)
        for address, one in _heads(devices).items()
        if one.withheld or one.reservation_due
    }


def _heads(devices: Mapping[str, DeviceRecord]) -> Mapping[PciAddress, DeviceRecord]:
    """Return for each card the row that records what is reserved of it: the card's own, or the
    first of its functions if the host does not show the card.
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
    """Return the row after Placement was read. ``seen`` None: Placement does not have the card."""
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
        # ``reserved`` was lowered: the device is clean, unless a guest has it.
        return (
            replace(row, reservation_due=True)
            if row.holder is not None
            else replace(as_seen, used=False)
        )
    if row.one_time_use and not row.used and 0 < seen.total <= seen.reserved:
        # Reserved by an operator, or by an agent that has lost its store since: nobody has cleaned
        # the device.
        return replace(as_seen, used=True)
    return as_seen if seen.reserved != row.reserved or seen.generation < row.reserved_at else row


def device_uses(state: NodeState) -> DeviceUses:
    """Return the devices in use and the consumers that are settled, busy or known."""
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
