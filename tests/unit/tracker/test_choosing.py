"""Which devices and units a guest gets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.guest import PciPolicy
from agent.model.held_device import DeviceRow
from agent.numa.host import HostCell
from agent.tracker.choosing import FreeDevices, Shortage, choose_devices, choose_units, free_devices, matches
from agent.tracker.requests import DeviceRequest
from tests.unit.store.record_samples import device, unit
from tests.unit.tracker.samples import ELSEWHERE, HERE, gpus

GPU = DeviceRequest("gpu", 1, {"kind": "gpu"})
CELLS = (
    HostCell(0, frozenset(), frozenset(), 1024, socket=0, distances={0: 10, 1: 12, 2: 21}),
    HostCell(1, frozenset(), frozenset(), 1024, socket=0, distances={0: 12, 1: 10, 2: 21}),
    HostCell(2, frozenset(), frozenset(), 1024, socket=1, distances={0: 21, 1: 21, 2: 10}),
)


def card(number: int, functions: int, **fields: Any) -> list[DeviceRow]:
    """A network card with its functions."""
    parent = device(HERE, f"0000:{number:02x}:00.0", type="type-PF", tags={"kind": "nic"}, **fields)
    return [parent, *(replace(parent, address=f"0000:{number:02x}:10.{one}", type="type-VF", parent=parent.address) for one in range(functions))]


def by_address(devices: Sequence[DeviceRow]) -> dict[str, DeviceRow]:
    """As a node's state has them."""
    return {one.address: one for one in devices}


def addresses(devices: Sequence[DeviceRow]) -> list[str]:
    """Their addresses."""
    return [one.address for one in devices]


# --- whatever there is ---------------------------------------------------------------------------------------------

ALL = [*card(1, 3), *card(2, 1), *card(3, 0), *gpus(1)]
HELD = st.lists(st.sampled_from([None, None, None, "claim"]), min_size=len(ALL), max_size=len(ALL))
SPECS: Sequence[dict[str, str]] = (
    {}, {"kind": "nic"}, {"kind": "gpu"}, {"kind": "none"}, {"type": "type-PF"}, {"type": "type-VF"}, {"address": "0000:01:10.0"},
)  # fmt: skip
REQUESTS = st.lists(st.builds(DeviceRequest, st.sampled_from("abc"), st.integers(1, 3), st.sampled_from(SPECS)), max_size=3)


@settings(max_examples=500)
@given(HELD, REQUESTS, st.randoms())
def test_what_is_chosen_was_asked_for_and_excludes_nothing_of_itself(held: list[str | None], requests: list[DeviceRequest], random: Any) -> None:
    rows = [replace(one, holder=holder, state="claimed" if holder else "available") for one, holder in zip(ALL, held, strict=True)]
    random.shuffle(rows)
    free = free_devices(by_address(rows))
    taken = {one.address for one in rows if one.holder is not None}
    assert all(one.holder is None and one.parent not in taken for one in free)
    assert {one.parent for one in rows if one.holder is not None} & {one.address for one in free} == set()
    chosen = choose_devices(free, requests)
    if isinstance(chosen, Shortage):
        return
    got = [one for one, _ in chosen]
    assert all(matches(one, request) for one, request in chosen)
    assert Counter(request.id for _, request in chosen) == Counter(one for request in requests for one in [request.id] * request.count)
    assert len({one.address for one in got}) == len(got)
    assert {one.parent for one in got} & {one.address for one in got} == set()
    assert set(addresses(got)) <= set(addresses(free))


@settings(max_examples=200)
@given(HELD, st.sampled_from(SPECS), st.integers(1, 6))
def test_one_request_is_refused_only_if_there_is_too_little(held: list[str | None], spec: dict[str, str], count: int) -> None:
    rows = [replace(one, holder=holder, state="claimed" if holder else "available") for one, holder in zip(ALL, held, strict=True)]
    request = DeviceRequest("any", count, spec)
    fitting = [one for one in free_devices(by_address(rows)) if matches(one, request)]
    cards = {one.parent for one in fitting}
    most = sum(one.address not in cards for one in fitting)
    assert isinstance(choose_devices(fitting, [request]), Shortage) == (count > most)


# --- devices -------------------------------------------------------------------------------------------------------


def test_a_device_has_to_have_everything_that_is_asked() -> None:
    one = device(HERE, tags={"kind": "gpu", "vendor_id": "a tag of that name"})
    assert matches(one, DeviceRequest("a", 1, {"kind": "gpu", "vendor_id": "8086", "product_id": "1572", "type": "type-PCI"}))
    assert not matches(one, DeviceRequest("a", 1, {"kind": "gpu", "model": "big"}))
    assert matches(one, DeviceRequest("a", 1))


def test_a_device_that_is_gone_is_not_free() -> None:
    assert free_devices(by_address([replace(one, present=False) for one in gpus(1)])) == []


def test_a_shortage_names_what_was_wanted_and_how_many_there_are() -> None:
    short = choose_devices(gpus(2), [DeviceRequest("a", 3, {"kind": "gpu", "type": "type-PCI"})])
    assert short == Shortage("3 devices with kind=gpu, type=type-PCI wanted, 2 free")
    assert choose_devices([], [DeviceRequest("a", 1)]) == Shortage("1 devices with any properties wanted, 0 free")


def test_the_lowest_addresses_come_first_and_cards_with_free_functions_last() -> None:
    free = free_devices(by_address([*card(1, 2), *card(2, 0), *card(3, 1)]))
    assert addresses(free) == ["0000:01:10.0", "0000:01:10.1", "0000:02:00.0", "0000:03:10.0", "0000:01:00.0", "0000:03:00.0"]


def test_who_has_the_least_choice_chooses_first() -> None:
    certain = DeviceRequest("certain", 1, {"address": "0000:00:00.0"})
    chosen = choose_devices(gpus(2), [GPU, certain])
    assert not isinstance(chosen, Shortage)
    assert {request.id: one.address for one, request in chosen} == {"certain": "0000:00:00.0", "gpu": "0000:01:00.0"}


# --- near and far --------------------------------------------------------------------------------------------------


def gpus_on(*cells: int | None) -> list[DeviceRow]:
    """A GPU on each of these cells, None for one that does not say."""
    return [replace(one, numa_node=cell) for one, cell in zip(gpus(len(cells)), cells, strict=True)]


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [("required", {0}), ("socket", {0, 1}), ("legacy", {0, None}), ("preferred", {0, 1, 2, None})],
)  # fmt: skip
def test_a_policy_says_how_near_devices_must_be(policy: PciPolicy, allowed: set[int | None]) -> None:
    for cell in (0, 1, 2, None):
        devices = FreeDevices(gpus_on(cell), (GPU,), CELLS, policy)
        assert devices.fits(frozenset({0})) == (cell in allowed), (policy, cell)


def test_devices_of_the_guests_own_cells_come_first() -> None:
    devices = FreeDevices(gpus_on(2, None, 1), (GPU,), CELLS, "preferred")
    chosen = devices.chosen(frozenset({1}))
    assert not isinstance(chosen, Shortage)
    assert [one.numa_node for one, _ in chosen] == [1]
    assert devices.cost(frozenset({1})) == (0, 0)


def test_what_is_far_costs_its_distance_to_the_nearest_cell() -> None:
    devices = FreeDevices(gpus_on(2, 0), (replace(GPU, count=2),), CELLS, "preferred")
    assert devices.cost(frozenset({0})) == (1, 21)
    assert devices.cost(frozenset({1})) == (2, 33)
    assert devices.cost(frozenset({0, 2})) == (0, 0)
    # Where they cannot be had at all, nothing tells one cell from another.
    assert FreeDevices([], (GPU,), CELLS, "preferred").cost(frozenset({0})) == (0, 0)


def test_only_wanted_devices_of_a_cell_count() -> None:
    devices = FreeDevices([*gpus_on(0, 0, 1), *card(9, 1, numa_node=0)], (GPU,), CELLS, "legacy")
    assert [devices.free(cell) for cell in range(3)] == [2, 1, 0]
    assert devices.wanted
    assert not FreeDevices([], (), CELLS, "legacy").wanted


# --- units ---------------------------------------------------------------------------------------------------------


def test_units_are_taken_in_the_order_of_their_names() -> None:
    units = [unit(HERE, name) for name in ("ns_2", "ns_0", "ns_1")]
    chosen, reasons = choose_units(units, {HERE.uuid: {"CUSTOM_PMEM": 2}})
    assert ([one.identifier for one in chosen], reasons) == (["ns_0", "ns_1"], [])


def test_units_that_are_held_or_gone_are_not_taken() -> None:
    units = [unit(HERE, "ns_0", holder="claim"), unit(HERE, "ns_1", present=False), unit(HERE, "ns_2")]
    chosen, reasons = choose_units(units, {HERE.uuid: {"CUSTOM_PMEM": 2}})
    assert (chosen, reasons) == ([], ["2 units of CUSTOM_PMEM wanted, 1 free"])


def test_what_is_not_assigned_here_is_skipped() -> None:
    wanted = {HERE.uuid: {"VCPU": 4, "MEMORY_MB": 4096}, ELSEWHERE.uuid: {"CUSTOM_PMEM": 3}}
    assert choose_units([unit(HERE, "ns_0")], wanted) == ([], [])


def test_every_class_that_is_short_is_named() -> None:
    units = [unit(HERE, "a", resource_class="CUSTOM_A", holder="claim"), unit(HERE, "b", resource_class="CUSTOM_B", holder="claim")]
    _, reasons = choose_units(units, {HERE.uuid: {"CUSTOM_B": 1, "CUSTOM_A": 1}})
    assert reasons == ["1 units of CUSTOM_A wanted, none free", "1 units of CUSTOM_B wanted, none free"]
