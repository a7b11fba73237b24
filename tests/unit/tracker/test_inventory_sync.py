"""Rows of devices and units beside what the host shows: what comes, goes, changes, and stays
because somebody has it.
"""

from dataclasses import replace

import pytest

from agent.model.devices import DeviceRecord
from agent.model.host_units import UnitRecord
from agent.model.names import ProviderUuid
from agent.model.node_records import RecordChanges
from agent.tracker.reconcile import sync_devices, sync_units
from tests.unit.store.record_samples import device, unit
from tests.unit.tracker.samples import HERE

HOLDERS = {"claim"}
FREE = device(HERE, version=3)
HELD = replace(FREE, state="allocated", holder="claim", request="port")
GHOST = replace(HELD, holder="nobody")
GONE = replace(HELD, present=False)
MOVED = device(HERE, numa_node=1, tags={"physical_network": "net1"})
"""The same device as the host shows it after its slot or the operator's tags have changed."""
UNOFFERED = device(HERE, serves="nobody")


@pytest.mark.parametrize(
    ("row", "shown", "written", "dropped"),
    [
        # new, the same, gone
        (None, [MOVED], [MOVED], []),
        (FREE, [device(HERE)], [], []),
        (FREE, [], [], [FREE]),
        # a free one is described anew, a held one stays as it was given
        (FREE, [MOVED], [replace(FREE, numa_node=1, tags={"physical_network": "net1"})], []),
        (HELD, [MOVED], [], []),
        # a held one that is gone is only marked, and no more once it is back
        (HELD, [], [GONE], []),
        (GONE, [], [], []),
        (GONE, [device(HERE)], [HELD], []),
        # not offered any more, but on the card of one that is: to a holder that is as good as gone
        (None, [UNOFFERED], [UNOFFERED], []),
        (FREE, [UNOFFERED], [replace(FREE, serves="nobody")], []),
        (replace(FREE, serves="nobody"), [device(HERE)], [FREE], []),
        (replace(FREE, serves="nobody"), [], [], [replace(FREE, serves="nobody")]),
        (HELD, [UNOFFERED], [GONE], []),
        (GONE, [UNOFFERED], [], []),
        (GHOST, [UNOFFERED], [replace(FREE, serves="nobody")], []),
        # held by nobody who is there: free, or dropped if it is gone too
        (GHOST, [device(HERE)], [FREE], []),
        (GHOST, [MOVED], [replace(FREE, numa_node=1, tags={"physical_network": "net1"})], []),
        (GHOST, [], [], [GHOST]),
        # the host does not say: only ghosts go
        (None, None, [], []),
        (FREE, None, [], []),
        (HELD, None, [], []),
        (GONE, None, [], []),
        (GHOST, None, [FREE], []),
        (replace(GHOST, present=False), None, [], [replace(GHOST, present=False)]),
    ],
)
def test_a_device(
    row: DeviceRecord | None,
    shown: list[DeviceRecord] | None,
    written: list[DeviceRecord],
    dropped: list[DeviceRecord],
) -> None:
    assert sync_devices([] if row is None else [row], shown, HOLDERS) == RecordChanges(
        devices=tuple(written), dropped_devices=tuple(dropped)
    )


NS = unit(HERE, version=2)
TAKEN = replace(NS, holder="claim")


@pytest.mark.parametrize(
    ("row", "shown", "written", "dropped"),
    [
        (None, [unit(HERE)], [unit(HERE)], []),
        (NS, [unit(HERE)], [], []),
        (NS, [unit(HERE, metadata={"size": "4"})], [replace(NS, metadata={"size": "4"})], []),
        (NS, [], [], [NS]),
        (TAKEN, [unit(HERE, metadata={"size": "4"})], [], []),
        (TAKEN, [], [replace(TAKEN, present=False)], []),
        (replace(NS, holder="nobody"), [unit(HERE)], [NS], []),
        (TAKEN, None, [], []),
        (replace(NS, holder="nobody"), None, [NS], []),
    ],
)
def test_a_unit(
    row: UnitRecord | None,
    shown: list[UnitRecord] | None,
    written: list[UnitRecord],
    dropped: list[UnitRecord],
) -> None:
    assert sync_units([] if row is None else [row], shown, HOLDERS) == RecordChanges(
        units=tuple(written), dropped_units=tuple(dropped)
    )


def test_units_of_one_name_are_told_apart_by_provider_and_class() -> None:
    child = replace(NS, provider=ProviderUuid("cell-0"))
    other = replace(NS, resource_class="CUSTOM_OTHER")
    changes = sync_units([NS, child, other], [unit(HERE)], HOLDERS)
    assert changes == RecordChanges(dropped_units=(child, other))


def test_each_device_is_compared_with_itself() -> None:
    rows = [replace(FREE, address=f"0000:00:0{number}.0") for number in range(3)]
    shown = [device(HERE, "0000:00:01.0"), device(HERE, "0000:00:07.0")]
    assert sync_devices(rows, shown, HOLDERS) == RecordChanges(
        devices=(shown[1],), dropped_devices=(rows[0], rows[2])
    )
