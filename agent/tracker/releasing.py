"""Release of claims with all that they hold. Pure; a released claim releases nothing more."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.model.claim import Claim
from agent.model.devices import DeviceRecord
from agent.model.node_records import RecordChanges
from agent.tracker.stored_state import StoredState


def release_claims(claims: Iterable[Claim], stored: StoredState, now: float) -> RecordChanges:
    """Return the changes that release the claims and free their devices and units.

    Devices and units that are gone from the host are dropped instead, unless a card is still
    withheld.
    """
    ended = [claim for claim in claims if claim.open]
    ids = {claim.id for claim in ended}
    devices = [device for device in stored.devices if device.holder in ids]
    units = [unit for unit in stored.units if unit.holder in ids]
    return RecordChanges(
        claims=tuple(
            replace(claim, state="released", cells=(), mdevs=(), updated_at=now) for claim in ended
        ),
        devices=tuple(
            free_device(device) for device in devices if device.present or device.withheld
        ),
        units=tuple(replace(unit, holder=None) for unit in units if unit.present),
        dropped_devices=tuple(
            device for device in devices if not (device.present or device.withheld)
        ),
        dropped_units=tuple(unit for unit in units if not unit.present),
    )


def give_back(claims: Sequence[Claim], stored: StoredState, now: float) -> RecordChanges:
    """Return the changes that release the claims and, on nodes where the guest keeps no other
    claim, the devices that it got afterwards.
    """
    ids = {claim.id for claim in claims}
    staying = {
        claim.node for claim in stored.claims if claim.purpose != "devices" and claim.id not in ids
    }
    lone = [
        claim
        for claim in stored.claims
        if claim.purpose == "devices" and claim.node not in staying and claim.id not in ids
    ]
    return release_claims([*claims, *lone], stored, now)


def free_device(device: DeviceRecord) -> DeviceRecord:
    """Return the device without a holder. A device that has to be cleaned stays marked."""
    return replace(device, state="available", holder=None, request=None)
