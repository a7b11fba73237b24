"""Free devices for tests of what a guest gets: cards with their functions, GPUs, and the cells of a
host.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.model.devices import DeviceRecord, DeviceRequest
from agent.pci.device_request import Nearness
from tests.unit.store.record_samples import device
from tests.unit.tracker.samples import HERE, gpus

GPU = DeviceRequest("gpu", 1, {"kind": "gpu"})
NEAR = Nearness(
    {0: 0, 1: 0, 2: 1},
    {0: {0: 10, 1: 12, 2: 21}, 1: {0: 12, 1: 10, 2: 21}, 2: {0: 21, 1: 21, 2: 10}},
)


def card(number: int, functions: int, **fields: Any) -> list[DeviceRecord]:
    """A network card with its functions."""
    parent = device(HERE, f"0000:{number:02x}:00.0", type="type-PF", tags={"kind": "nic"}, **fields)
    return [
        parent,
        *(
            replace(
                parent, address=f"0000:{number:02x}:10.{one}", type="type-VF", parent=parent.address
            )
            for one in range(functions)
        ),
    ]


def by_address(devices: Sequence[DeviceRecord]) -> dict[str, DeviceRecord]:
    """As a node's state has them."""
    return {one.address: one for one in devices}


def gpus_on(*cells: int | None) -> list[DeviceRecord]:
    """A GPU on each of these cells, None for one that does not say."""
    return [replace(one, numa_node=cell) for one, cell in zip(gpus(len(cells)), cells, strict=True)]
