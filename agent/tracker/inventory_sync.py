"""Brings the rows of devices and units in line with what the host shows. Pure; what is held is never dropped."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from agent.model.unit_record import UnitRecord
from agent.model.record_changes import RecordChanges
from agent.model.device_record import DeviceRecord
from agent.tracker.node_state import unit_key
from agent.tracker.releasing import freed

Row = TypeVar("Row", DeviceRecord, UnitRecord)


def synced_devices(rows: Iterable[DeviceRecord], shown: Iterable[DeviceRecord] | None, holders: Collection[str]) -> RecordChanges:
    """``shown``: the devices of the host, None if it did not say. ``holders``: the claims that may hold any."""
    kept = [_without_ghost(one, holders, freed) for one in rows]
    if shown is not None:
        held = {one.address for one in kept if one.holder is not None}
        # To a holder, a device that is not offered any more is gone.
        shown = [one for one in shown if one.serves == "guests" or one.address not in held]
    changed, dropped = _compared(kept, {one.address: one for one in rows}, shown, lambda one: one.address, _described_device, lambda one: one.withheld)
    return RecordChanges(devices=tuple(changed), dropped_devices=tuple(dropped))


def synced_units(rows: Iterable[UnitRecord], shown: Iterable[UnitRecord] | None, holders: Collection[str]) -> RecordChanges:
    """The same for units."""
    kept = [_without_ghost(one, holders, lambda unit: replace(unit, holder=None)) for one in rows]
    changed, dropped = _compared(kept, {unit_key(one): one for one in rows}, shown, unit_key, _described_unit)
    return RecordChanges(units=tuple(changed), dropped_units=tuple(dropped))


def _without_ghost(row: Row, holders: Collection[str], free: Callable[[Row], Row]) -> Row:
    """A row whose holder is no open claim is free."""
    return free(row) if row.holder is not None and row.holder not in holders else row


def _compared(
    rows: Iterable[Row], before: Mapping[Hashable, Row], shown: Iterable[Row] | None, key: Callable[[Row], Hashable], described: Callable[[Row, Row], Row],
    stays: Callable[[Row], bool] = lambda _row: False,
) -> tuple[list[Row], list[Row]]:
    """The rows to write and those to drop. ``stays``: whether a row that nobody holds is kept although the host does not show it."""
    found: dict[Hashable, Row] | None = None if shown is None else {key(one): one for one in shown}
    known: set[Hashable] = set()
    after: list[Row] = []
    dropped: list[Row] = []
    for row in rows:
        known.add(key(row))
        here = None if found is None else found.get(key(row))
        present = row.present if found is None else here is not None
        if not present and row.holder is None and not stays(row):
            dropped.append(before[key(row)])
            continue
        now = described(row, here) if here is not None else row
        after.append(replace(now, present=present))
    changed = [one for one in after if one != before[key(one)]]
    new = [] if found is None else [one for place, one in found.items() if place not in known]
    return changed + new, dropped


def _described_unit(old: UnitRecord, new: UnitRecord) -> UnitRecord:
    return replace(old, metadata=new.metadata) if old.holder is None else old


def _described_device(old: DeviceRecord, new: DeviceRecord) -> DeviceRecord:
    """What a holder has stays as it was given, but that it has to be cleaned afterwards; a free one is described as the host shows it now."""
    if old.holder is not None:
        named = replace(old, one_time_use=new.one_time_use)
        return named.marked_used() if new.one_time_use and not old.used else named
    return replace(
        old, vendor_id=new.vendor_id, product_id=new.product_id, type=new.type, parent=new.parent, numa_node=new.numa_node, tags=new.tags,
        serves=new.serves, one_time_use=new.one_time_use,
    )  # fmt: skip
