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
from agent.tree.reported_cards import DeviceUse, DeviceUses, ReservedOfCard, Withheld

Seen = Mapping[PciAddress, ReservedOfCard | None]
"""What Placement has reserved of each card. None: the reserved amount cannot be attributed to
devices. Cards that Placement does not have are missing.
"""


def note_reserved_amounts(devices: Mapping[str, DeviceRecord], seen: Seen) -> RecordChanges:
    """Return the changes that bring the device records up to what Placement has reserved."""
    unclear = {address for address, found in seen.items() if found is None}
    after = [
        (device, _noted(device, seen.get(address)))
        for address, device in _heads(devices).items()
        if address not in unclear
    ]
    return RecordChanges(devices=tuple(now for before, now in after if now != before))


def clean_device(devices: Mapping[str, DeviceRecord], address: str) -> RecordChanges:
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


def withheld_of_cards(devices: Mapping[str, DeviceRecord]) -> Mapping[PciAddress, Withheld]:
    """Return how much is to be reserved of each card whose record differs from what Placement has,
    or withholds devices.
    """
    return {
        address: Withheld(None if device.used else device.reserved, due=device.reservation_due)
        for address, device in _heads(devices).items()
        if device.withheld or device.reservation_due
    }


def _heads(devices: Mapping[str, DeviceRecord]) -> Mapping[PciAddress, DeviceRecord]:
    """Return for each card the row that records what is reserved of it: the card's own, or the
    first of its functions if the host does not show the card.
    """
    heads: dict[str, DeviceRecord] = {}
    for device in _in_order(devices):
        last = heads.get(device.card)
        if (
            last is None
            or device.address == device.card
            or (device.withheld and not last.withheld and last.address != device.card)
        ):
            heads[device.card] = device
    return {PciAddress.parse(card): row for card, row in heads.items()}


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
        claim.instance
        for claim in state.claims.values()
        if claim.half != "only" or claim.state != "consumed"
    }
    settled = {claim.instance for claim in state.claims.values()} - moving
    held = [
        (device, state.claims[device.holder].instance)
        for device in state.devices.values()
        if device.holder is not None and device.holder in state.claims
    ]
    busy = {
        instance.uuid for instance in state.instances.values() if instance.task_state is not None
    } | {migration.instance for migration in state.migrations.values() if not migration.ended}
    known = frozenset(
        {*(claim.instance for claim in state.claims.values()), *state.instances, *state.migrations}
    )
    return DeviceUses(
        tuple(_use(device, owner) for device, owner in held),
        frozenset(settled),
        frozenset(busy),
        withheld_of_cards(state.devices),
        known,
    )


def _use(device: DeviceRecord, owner: ConsumerUuid) -> DeviceUse:
    return DeviceUse(
        PciAddress.parse(device.address),
        PciAddress.parse(device.card),
        owner,
        device.numa_node,
        bool(device.tags.get("physical_network")),
        (device.vendor_id, device.product_id),
    )
