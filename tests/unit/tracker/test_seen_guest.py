from dataclasses import replace
from typing import Any

import pytest

from agent.model.devices import PciAddress
from agent.model.facts import Domain, Origin
from agent.model.instance import Flavor, GuestCell, PlacedCell
from agent.model.names import ConsumerUuid
from agent.numa.host import HostCell, Pages
from agent.numa.request import guest_of
from agent.tracker.node_state import NodeState
from agent.tracker.seen_guest import contradictions, records_of, seen_flavor
from tests.unit.store.record_samples import claim, device
from tests.unit.tracker.samples import HERE, HOST, guest_here, holder, pinned, state

GUEST = ConsumerUuid("3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11")
GPU, PF, VF = "0000:01:00.0", "0000:02:00.0", "0000:02:00.1"
SMALL = Flavor("f1", "small", 2, 2048, root_gb=20, swap_mb=512)
PINNED = replace(SMALL, extra_specs={"hw:cpu_policy": "dedicated"})
OTHER = guest_here(uuid="3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a99")


def seen(vcpus: int | None = 2, **fields: Any) -> Domain:
    return Domain(GUEST, "x", fields.pop("memory_mib", 2048), vcpus, **fields)


def reasons(guest: Domain, on: NodeState) -> list[str]:
    found = list(contradictions(on, guest))
    assert all(refusal.remedy for refusal in found)
    return [refusal.reason for refusal in found]


def made_of(flavor: Flavor, **fields: Any) -> Origin:
    return Origin(flavor, "p", "u", **fields)


def test_a_guest_that_comes_back_gets_a_claim_of_its_own():
    first, again = (records_of(state(), seen(), now).claims[0].id for now in (5.0, 6.0))
    assert first != again


@pytest.mark.parametrize(
    "guest",
    [
        seen(),
        seen(None, origin=made_of(SMALL)),
        seen(cells=(pinned(0, 4, 5),)),
        seen(cells=(pinned(1, 12, 13),), origin=made_of(PINNED)),
        # What the image asked for beside the flavor nobody sees.
        seen(cells=(pinned(0, 4, 5),), origin=made_of(SMALL)),
        seen(origin=made_of(replace(SMALL, extra_specs={"hw:cpu_thread_policy": "require"}))),
    ],
)
def test_nothing_contradicts_an_ordinary_guest(guest):
    assert reasons(guest, state()) == []


@pytest.mark.parametrize(
    ("guest", "told"),
    [
        (seen(None), "the number of its CPUs is unknown"),
        (seen(1, cells=(pinned(0, 4, 5),)), "its cells have 2 CPUs, and all of it 1"),
        (
            seen(None, cells=(PlacedCell(GuestCell(frozenset({1}), frozenset(), 64), 0),)),
            "its cells make no sense: ",
        ),
        (
            seen(origin=made_of(PINNED)),
            "its flavor small asks for CPUs of its own, and it is pinned to none",
        ),
        (
            seen(cells=(pinned(0, 3, 4),)),
            "[compute] cpu_dedicated_set lacks CPUs 3, to which guest ",
        ),
        (
            seen(cells=(pinned(7, 4, 5),)),
            "the hypervisor has it on a cell that the host does not have",
        ),
    ],
)
def test_what_cannot_be_on_record_is_told(guest, told):
    (reason,) = reasons(guest, state())
    assert reason.startswith(told)


def test_shared_cpus_where_none_are_offered_would_keep_the_agent_from_starting():
    dedicated = tuple(replace(cell, shared=frozenset()) for cell in HOST.cells)
    (reason,) = reasons(seen(), state(host=replace(HOST, cells=dedicated)))
    assert "cpu_shared_set is not, but there are guests with shared CPUs" in reason
    assert reasons(seen(cells=(pinned(0, 4, 5),)), state(host=replace(HOST, cells=dedicated))) == []


def test_a_guest_without_cells_where_numa_mode_is_strict():
    on = state(host=replace(HOST, strict=True))
    assert reasons(seen(), on) == ["[compute] numa_mode is strict here, and it has no cells"]
    assert reasons(seen(cells=(pinned(0, 4, 5),)), on) == []


def test_a_pin_to_a_cpu_that_went_offline_is_kept():
    cell = replace(HOST.cells[0], dedicated=frozenset({4}), offline=frozenset({5}))
    assert reasons(seen(cells=(pinned(0, 4, 5),)), state(host=replace(HOST, cells=(cell,)))) == []


def test_devices_that_it_cannot_have_are_told_one_by_one():
    held = claim(OTHER, HERE)
    rows = [
        device(HERE, GPU, **holder(held)),
        device(HERE, PF, type="type-PF"),
        device(HERE, VF, type="type-VF", parent=PF, **holder(held)),
        device(HERE, "0000:03:00.0", serves="nobody"),
    ]
    on = state(instances=[OTHER], claims=[held], devices=rows)
    addresses = (GPU, PF, VF, "0000:03:00.0", "0000:04:00.0")
    assert reasons(seen(devices=tuple(PciAddress.parse(address) for address in addresses)), on) == [
        f"it has device {GPU}, which belongs to instance {OTHER.uuid}",
        f"it has device {PF}, whose PF or VFs others have",
        f"it has device {VF}, which belongs to instance {OTHER.uuid}",
        "it has device 0000:03:00.0, which is not offered to guests",
        "it has device 0000:04:00.0, which is not offered to guests",
    ]


# --- more ---


PAGED = [
    HostCell(number, frozenset({0}), frozenset({1}), 100, pages=(Pages(4, 10), Pages(2048, 10)))
    for number in range(2)
]


def guest(*cells: PlacedCell, memory_mib: int = 512, **fields: Any) -> Domain:
    return Domain(
        ConsumerUuid("3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11"), "x", memory_mib, cells=cells, **fields
    )


def floating(cell: int, *cpus: int, memory_mib: int = 1024, **fields: Any) -> PlacedCell:
    return PlacedCell(GuestCell(frozenset(cpus), frozenset(), memory_mib), cell, **fields)


def test_guests_that_look_the_same_have_one_flavor():
    one, same, other = (
        seen_flavor(guest(*cells), 2, ())
        for cells in ([pinned(0, 4, 5)], [pinned(1, 12, 13)], [floating(0, 0, 1)])
    )
    assert one == same
    assert (one.memory_mb, one.vcpus) == (other.memory_mb, other.vcpus)
    assert one.id != other.id


@pytest.mark.parametrize(
    ("cells", "specs"),
    [
        (
            [floating(0, 0, 1)],
            {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-1", "hw:numa_mem.0": "1024"},
        ),
        (
            [pinned(0, 4, 5)],
            {
                "hw:numa_nodes": "1",
                "hw:numa_cpus.0": "0-1",
                "hw:numa_mem.0": "1024",
                "hw:cpu_policy": "dedicated",
            },
        ),
        (
            [
                PlacedCell(
                    GuestCell(frozenset({0}), frozenset({1}), 64), 0, 4, {1: 4}, frozenset({5})
                ),
                floating(1, 2, memory_mib=32),
            ],
            {
                "hw:numa_nodes": "2",
                "hw:numa_cpus.0": "0-1",
                "hw:numa_mem.0": "64",
                "hw:numa_cpus.1": "2",
                "hw:numa_mem.1": "32",
                "hw:cpu_policy": "mixed",
                "hw:cpu_dedicated_mask": "1",
                "hw:emulator_threads_policy": "isolate",
            },
        ),
        (
            [floating(number, number, page_size_kib=2048) for number in range(2)],
            {
                "hw:numa_nodes": "2",
                "hw:numa_cpus.0": "0",
                "hw:numa_mem.0": "1024",
                "hw:numa_cpus.1": "1",
                "hw:numa_mem.1": "1024",
                "hw:mem_page_size": "2048",
            },
        ),
    ],
)
def test_the_specs_ask_for_the_cells_that_are_seen(cells, specs):
    seen = guest(*cells, memory_mib=sum(cell.cell.memory_mib for cell in cells))
    flavor = seen_flavor(seen, sum(len(cell.cell.cpus) for cell in cells), PAGED)
    assert flavor.extra_specs == specs
    asked = guest_of(flavor.vcpus, flavor.memory_mb, flavor.extra_specs, {})
    assert asked is not None
    assert asked.cells == tuple(cell.cell for cell in cells)


def test_cpus_and_memory_that_are_in_no_cell_of_the_host_are_in_the_first_one():
    second = PlacedCell(GuestCell(frozenset(), frozenset({3}), 1024), 1, None, {3: 12})
    flavor = seen_flavor(guest(pinned(0, 4, 5), second, memory_mib=4096), 4, PAGED)
    assert (flavor.vcpus, flavor.memory_mb) == (4, 4096)
    assert flavor.extra_specs == {
        "hw:numa_nodes": "2",
        "hw:numa_cpus.0": "0-2",
        "hw:numa_mem.0": "3072",
        "hw:numa_cpus.1": "3",
        "hw:numa_mem.1": "1024",
        "hw:cpu_policy": "mixed",
        "hw:cpu_dedicated_mask": "0-1,3",
    }
    asked = guest_of(flavor.vcpus, flavor.memory_mb, flavor.extra_specs, {})
    assert asked is not None
    assert [(cell.shared, cell.dedicated) for cell in asked.cells] == [({2}, {0, 1}), (set(), {3})]
