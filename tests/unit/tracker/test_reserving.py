"""The test of a claim: what a guest gets of a node, and every reason why it gets nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.model.devices import DeviceRequest
from agent.model.instance import Flavor, Instance
from agent.model.names import ProviderUuid
from agent.tracker.errors import ResourcesUnavailable
from agent.tracker.node_state import NodeState
from agent.tracker.reserving import needs_search, reserve
from agent.tracker.stored_state import InstanceClaim
from tests.support.tracking import instance
from tests.unit.tracker.samples import HERE, HOST, state

PLAIN = Flavor("plain", "plain", 2, 4096, root_gb=40, ephemeral_gb=10, swap_mb=512)
PINNED = replace(PLAIN, extra_specs={"hw:cpu_policy": "dedicated"})
GPU = (DeviceRequest("gpu", 1, {"kind": "gpu"}),)


Wanted = tuple[InstanceClaim, Instance, Flavor]


def wanted(flavor: Flavor = PLAIN, allocations: Any = None) -> Wanted:
    """What a guest of the flavor asks for."""
    guest = instance("i1", flavor)
    asked = InstanceClaim(id="claim", node=HERE.uuid, instance=guest, allocations=allocations or {})
    return asked, guest, flavor


def reasons(on: NodeState, what: Wanted) -> Sequence[str]:
    """Why the guest gets nothing, the first words of each."""
    with pytest.raises(ResourcesUnavailable) as caught:
        reserve(on, *what)
    return [reason.partition(":")[0] for reason in caught.value.reasons]


@pytest.mark.parametrize(
    ("extra_specs", "image_properties", "devices", "needed"),
    [
        ({"aggregate:ssd": "true"}, {}, (), False),
        ({"hw:numa_nodes": "none"}, {}, (), False),
        (PINNED.extra_specs, {}, (), True),
        ({}, {"hw_cpu_policy": "dedicated"}, (), True),
        ({"pci_passthrough:alias": "gpu:1"}, {}, (), True),
        ({}, {}, GPU, True),
    ],
    ids=["plain", "nonsense", "flavor", "image", "alias", "devices"],
)
def test_only_cells_and_devices_have_to_be_searched(
    extra_specs: Mapping[str, str],
    image_properties: Mapping[str, str],
    devices: tuple[DeviceRequest, ...],
    needed: bool,
) -> None:
    guest = instance("i1", replace(PLAIN, extra_specs=extra_specs))
    asked = InstanceClaim(
        id=guest.uuid,
        node=HERE.uuid,
        instance=replace(guest, image_properties=image_properties),
        devices=devices,
    )
    assert needs_search(asked) is needed


def test_a_guest_with_cells_does_not_fit_a_host_without() -> None:
    bare = state(host=replace(HOST, cells=()))
    assert reasons(bare, wanted(PINNED)) == ["NUMA"]
    reserve(bare, *wanted())


# --- cells that the scheduler allocated from ------------------------------------------------------

CELL = {number: ProviderUuid(f"cell-{number}") for number in (0, 1)}


def nested(**fields: Any) -> NodeState:
    """The node with a provider for each cell."""
    return state(
        host=replace(HOST, cell_providers={uuid: number for number, uuid in CELL.items()}, **fields)
    )


def on_cell(number: int, on: NodeState, **amounts: int) -> int:
    """The cell of a pinned guest of which the scheduler allocated that on a cell."""
    (cell,) = reserve(on, *wanted(PINNED, allocations={CELL[number]: amounts})).cells
    return cell.host_cell


def test_a_class_that_was_allocated_of_the_root_before_a_new_layout_binds_no_cell() -> None:
    before = {HERE.uuid: {"VCPU": 2, "MEMORY_MB": 4096}, CELL[1]: {"PCPU": 2}}
    assert [
        cell.host_cell
        for cell in reserve(nested(strict=True), *wanted(PINNED, allocations=before)).cells
    ] == [1]


def test_where_one_cpu_serves_both_kinds_dedicated_ones_are_counted_as_shared() -> None:
    both = tuple(
        replace(cell, shared=cell.shared | cell.dedicated, dedicated=cell.shared | cell.dedicated)
        for cell in HOST.cells
    )
    assert on_cell(1, nested(cells=both, strict=True), VCPU=2, MEMORY_MB=4096) == 1


def test_other_classes_of_a_cell_say_nothing_of_the_guests_cells() -> None:
    assert on_cell(1, nested(), CUSTOM_OTHER=1) == 0
