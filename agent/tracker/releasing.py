"""How a claim is given back, with everything that it holds. Pure; a released claim releases nothing
more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.model.claim import Claim
from agent.model.devices import DeviceRecord
from agent.model.node_records import RecordChanges
from agent.tracker.stored_state import StoredState


def released(claims: Iterable[Claim], known: StoredState, now: float) -> RecordChanges:
    """The claims released, their devices and units free. What is gone from the host is dropped
    instead, unless a card is to be kept from others.
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
    """The claims released. Where nothing else of the guest stays, the devices that it got there
    afterwards go with it.
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
    """The device without a holder. Whether it has to be cleaned stays."""
    return replace(device, state="available", holder=None, request=None)
