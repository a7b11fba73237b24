"""Release of claims with all that they hold. Pure; a released claim releases nothing more."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.model.claim import Claim
from agent.model.devices import DeviceRecord
from agent.model.node_records import RecordChanges
from agent.tracker.stored_state import StoredState


def released(claims: Iterable[Claim], known: StoredState, now: float) -> RecordChanges:
    """Return the changes that release the claims and free their devices and units.

    Devices and units that are gone from the host are dropped instead, unless a card is still
    withheld.
    """
    ended = [one for one in claims if one.open]
    ids = {one.id for one in ended}
    devices = [one for one in known.devices if one.holder in ids]
    units = [one for one in known.units if one.holder in ids]
    return RecordChanges(
        claims=tuple(
            replace(one, state="released", cells=(), mdevs=(), updated_at=now) for one in ended
        ),
        devices=tuple(freed(one) for one in devices if one.present or one.withheld),
        units=tuple(replace(one, holder=None) for one in units if one.present),
        dropped_devices=tuple(one for one in devices if not (one.present or one.withheld)),
        dropped_units=tuple(one for one in units if not one.present),
    )


def given_back(claims: Sequence[Claim], known: StoredState, now: float) -> RecordChanges:
    """Return the changes that release the claims and, on nodes where the guest keeps no other
    claim, the devices that it got afterwards.
    """
    ids = {one.id for one in claims}
    staying = {one.node for one in known.claims if one.purpose != "devices" and one.id not in ids}
    lone = [
        one
        for one in known.claims
        if one.purpose == "devices" and one.node not in staying and one.id not in ids
    ]
    return released([*claims, *lone], known, now)


def freed(device: DeviceRecord) -> DeviceRecord:
    """Return the device without a holder. A device that has to be cleaned stays marked."""
    return replace(device, state="available", holder=None, request=None)
