from dataclasses import replace
from typing import Any

import pytest

from agent.model.devices import PciAddress
from agent.model.facts import Domain, Origin
from agent.model.instance import Flavor, GuestCell, PlacedCell
from agent.model.names import ConsumerUuid
from agent.tracker.node_state import NodeState
from agent.tracker.seen_guest import contradictions, records_of
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
        f"it has device {GPU}, which belongs to {OTHER.uuid}",
        f"it has device {PF}, whose PF or VFs others have",
        f"it has device {VF}, which belongs to {OTHER.uuid}",
        "it has device 0000:03:00.0, which is not offered to guests",
        "it has device 0000:04:00.0, which is not offered to guests",
    ]
