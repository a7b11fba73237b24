"""Which devices a guest gets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.instance import PciPolicy
from agent.model.names import ProviderUuid
from agent.pci.choice import FreeDevices, Shortage, free_devices
from agent.pci.device_request import Nearness, matches
from tests.unit.pci.free_device_samples import GPU, NEAR, by_address, card, gpus_on
from tests.unit.store.record_samples import device
from tests.unit.tracker.samples import HERE, gpus


def choose(
    free: Sequence[DeviceRecord], *requests: DeviceRequest
) -> list[tuple[DeviceRecord, DeviceRequest]] | Shortage:
    """For a guest that floats."""
    return FreeDevices(free, requests).chosen(None)


def addresses(devices: Sequence[DeviceRecord]) -> list[str]:
    """Their addresses."""
    return [one.address for one in devices]


# --- whatever there is ----------------------------------------------------------------------------

ALL = [*card(1, 3), *card(2, 1), *card(3, 0), *gpus(1)]
HELD = st.lists(st.sampled_from([None, None, None, "claim"]), min_size=len(ALL), max_size=len(ALL))
SPECS: Sequence[dict[str, str]] = (
    {},
    {"kind": "nic"},
    {"kind": "gpu"},
    {"kind": "none"},
    {"type": "type-PF"},
    {"type": "type-VF"},
    {"address": "0000:01:10.0"},
)
REQUESTS = st.lists(
    st.builds(DeviceRequest, st.sampled_from("abc"), st.integers(1, 3), st.sampled_from(SPECS)),
    max_size=3,
)


@settings(max_examples=500)
@given(HELD, REQUESTS, st.randoms())
def test_what_is_chosen_was_asked_for_and_excludes_nothing_of_itself(
    held: list[str | None], requests: list[DeviceRequest], random: Any
) -> None:
    rows = [
        replace(one, holder=holder, state="claimed" if holder else "available")
        for one, holder in zip(ALL, held, strict=True)
    ]
    random.shuffle(rows)
    free = free_devices(by_address(rows))
    taken = {row.address for row in rows if row.holder is not None}
    assert all(one.holder is None and one.parent not in taken for one in free)
    assert {row.parent for row in rows if row.holder is not None} & {
        one.address for one in free
    } == set()
    chosen = choose(free, *requests)
    if isinstance(chosen, Shortage):
        return
    got = [one for one, _ in chosen]
    assert all(matches(one, request) for one, request in chosen)
    assert Counter(request.id for _, request in chosen) == Counter(
        one for request in requests for one in [request.id] * request.count
    )
    assert len({one.address for one in got}) == len(got)
    assert {one.parent for one in got} & {one.address for one in got} == set()
    assert set(addresses(got)) <= set(addresses(free))


@settings(max_examples=200)
@given(HELD, st.sampled_from(SPECS), st.integers(1, 6))
def test_one_request_is_refused_only_if_there_is_too_little(
    held: list[str | None], spec: dict[str, str], count: int
) -> None:
    rows = [
        replace(one, holder=holder, state="claimed" if holder else "available")
        for one, holder in zip(ALL, held, strict=True)
    ]
    request = DeviceRequest("any", count, spec)
    fitting = [one for one in free_devices(by_address(rows)) if matches(one, request)]
    cards = {one.parent for one in fitting}
    most = sum(one.address not in cards for one in fitting)
    assert isinstance(choose(fitting, request), Shortage) == (count > most)


LINE = Nearness(
    {cell: cell // 2 for cell in range(4)},
    {one: {other: 10 + abs(one - other) for other in range(4)} for one in range(4)},
)
# PFs and functions on the same cell or on two, and cards that are alike on several.
SHAPES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 3, None]), st.sampled_from([0, 1, 2, 3]), st.integers(0, 2)
    ),
    max_size=6,
)
POLICIES: Sequence[PciPolicy] = ("required", "preferred", "legacy", "socket")


@settings(max_examples=200)
@given(SHAPES, REQUESTS, st.sampled_from(POLICIES), st.randoms())
def test_what_a_set_of_cells_costs_does_not_depend_on_the_sets_before(
    shapes: list[tuple[int | None, int, int]],
    requests: list[DeviceRequest],
    policy: PciPolicy,
    random: Any,
) -> None:
    rows = [
        replace(one, numa_node=cell if place == 0 else below)
        for number, (cell, below, functions) in enumerate(shapes)
        for place, one in enumerate(card(number, functions))
    ]
    free = free_devices(by_address(rows))
    sets = [frozenset(cells) for size in range(1, 5) for cells in combinations(range(4), size)]
    random.shuffle(sets)
    devices = FreeDevices(free, requests, policy, LINE)
    for cells in sets:
        new = FreeDevices(free, requests, policy, LINE)
        assert devices.cost(cells) == new.cost(cells)
        assert devices.least(cells) == new.least(cells)


# --- devices --------------------------------------------------------------------------------------


def test_a_device_has_to_have_everything_that_is_asked() -> None:
    one = device(HERE, tags={"kind": "gpu", "vendor_id": "a tag of that name"})
    assert matches(
        one,
        DeviceRequest(
            "a", 1, {"kind": "gpu", "vendor_id": "8086", "product_id": "1572", "type": "type-PCI"}
        ),
    )
    assert not matches(one, DeviceRequest("a", 1, {"kind": "gpu", "model": "big"}))
    assert matches(one, DeviceRequest("a", 1))


def test_a_pf_of_which_the_host_uses_a_function_is_not_free() -> None:
    head, used, other = card(1, 2)
    rows = by_address([head, replace(used, serves="host"), other])
    assert addresses(free_devices(rows)) == [other.address]


def test_devices_that_are_alike_come_by_the_numbers_of_their_addresses() -> None:
    rows = [device(HERE, f"{domain}:00:00.0") for domain in ("10000", "ffff", "0000", "000a")]
    assert addresses(free_devices(by_address(rows))) == [
        f"{domain}:00:00.0" for domain in ("0000", "000a", "ffff", "10000")
    ]


def test_an_address_may_be_asked_for_in_capitals() -> None:
    rows = [device(HERE, f"0000:{bus}:00.0") for bus in ("0a", "0b")]
    got = choose(rows, DeviceRequest("a", 1, {"address": "0000:0B:00.0"}))
    assert not isinstance(got, Shortage)
    assert [one.address for one, _ in got] == ["0000:0b:00.0"]


def test_a_shortage_names_what_was_wanted_and_how_many_there_are() -> None:
    short = choose(gpus(2), DeviceRequest("a", 3, {"kind": "gpu", "type": "type-PCI"}))
    assert short == Shortage("3 devices with kind=gpu, type=type-PCI wanted, 2 free")
    assert choose([], DeviceRequest("a", 1)) == Shortage(
        "1 device with any properties wanted, 0 free"
    )


def test_a_shortage_is_that_of_the_request_that_lacks_devices() -> None:
    nothing = FreeDevices(gpus(2), (GPU, vfs(2)), "required", NEAR).chosen(None)
    assert nothing == Shortage("2 devices with product_id=154c wanted, 0 free")
    far = FreeDevices([*gpus_on(0), *nics(4, 1, 3)[1:]], (GPU, vfs(2)), "required", NEAR).chosen(
        frozenset({0})
    )
    assert far == Shortage("2 devices with product_id=154c wanted, 0 free near enough")


def test_what_breaks_no_whole_card_comes_first_and_cards_with_free_functions_last() -> None:
    begun = [
        replace(one, holder="claim", state="claimed") if one.address == "0000:04:10.0" else one
        for one in card(4, 2)
    ]
    free = free_devices(by_address([*card(1, 2), *card(2, 0), *card(3, 1), *begun]))
    assert addresses(free) == [
        "0000:02:00.0",
        "0000:04:10.1",
        "0000:01:10.0",
        "0000:01:10.1",
        "0000:03:10.0",
        "0000:01:00.0",
        "0000:03:00.0",
    ]


def test_what_is_chosen_harms_other_guests_least() -> None:
    begun = card(4, 2)
    begun[1] = replace(begun[1], holder="claim", state="claimed")
    free = free_devices(by_address([*card(1, 2), *card(2, 0), *begun]))
    for wanted, expected in (("type-VF", "0000:04:10.1"), ("type-PF", "0000:02:00.0")):
        got = choose(free, DeviceRequest("one", 1, {"type": wanted}))
        assert not isinstance(got, Shortage)
        assert [one.address for one, _ in got] == [expected]


# --- near and far ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [("required", {0}), ("socket", {0, 1}), ("legacy", {0, None}), ("preferred", {0, 1, 2, None})],
)
def test_a_policy_says_how_near_devices_must_be(
    policy: PciPolicy, allowed: set[int | None]
) -> None:
    for cell in (0, 1, 2, None):
        devices = FreeDevices(gpus_on(cell), (GPU,), policy, NEAR)
        assert (devices.cost(frozenset({0})) is not None) == (cell in allowed), (policy, cell)


def test_what_is_far_costs_its_distance_to_the_nearest_cell() -> None:
    devices = FreeDevices(gpus_on(2, 0), (replace(GPU, count=2),), "preferred", NEAR)
    assert devices.cost(frozenset({0})) == (1, 21)
    assert devices.cost(frozenset({1})) == (2, 33)
    assert devices.cost(frozenset({0, 2})) == (0, 0)
    assert FreeDevices([], (GPU,), "preferred", NEAR).cost(frozenset({0})) is None


def test_only_wanted_devices_of_a_cell_count() -> None:
    devices = FreeDevices([*gpus_on(0, 0, 1), *card(9, 1, numa_node=0)], (GPU,), "legacy", NEAR)
    assert [devices.free(cell) for cell in range(3)] == [2, 1, 0]
    assert devices.wanted
    assert not FreeDevices([], (), "legacy", NEAR).wanted


def test_devices_that_any_request_wants_count_once() -> None:
    free = [*gpus_on(0, 1), *nics(4, 0, 3)[1:], *nics(5, 1, 0)]
    devices = FreeDevices(free, (GPU, vfs(2), replace(GPU, id="again")), "legacy", NEAR)
    assert [devices.free(cell) for cell in range(3)] == [4, 1, 0]


def test_all_devices_of_a_cell_count_for_a_guest_that_wants_none() -> None:
    devices = FreeDevices(gpus_on(0, 0, 1), (), "legacy", NEAR)
    assert [devices.free(cell) for cell in range(3)] == [2, 1, 0]


def test_cells_with_as_many_devices_are_of_one_kind() -> None:
    devices = FreeDevices(gpus_on(0, 0, 1, 1, 2), (GPU,), "required", NEAR)
    assert devices.kind(0) == devices.kind(1) != devices.kind(2)


def test_cells_with_devices_of_begun_cards_too_are_of_another_kind() -> None:
    begun = card(4, 2, numa_node=0)
    begun[1] = replace(begun[1], holder="claim", state="claimed")
    rows = [*begun, *card(1, 2, numa_node=0), *card(2, 2, numa_node=1)]
    devices = FreeDevices(
        free_devices(by_address(rows)),
        (DeviceRequest("vf", 1, {"type": "type-VF"}),),
        "required",
        NEAR,
    )
    assert devices.kind(0) != devices.kind(1)


# --- cards of which PF and functions are asked for -----------------------------------------------


def nics(number: int, cell: int | None, functions: int) -> list[DeviceRecord]:
    """A card of the scenarios: 8086:1572 with functions 154c."""
    head, *rest = card(number, functions, numa_node=cell)
    return [
        replace(head, product_id="1572"),
        *(replace(one, product_id="154c", numa_node=cell) for one in rest),
    ]


F2, F3 = nics(2, 0, 2), nics(3, 1, 4)


def chosen(
    devices: dict[str, DeviceRecord], request: DeviceRequest, cells: set[int], policy: PciPolicy
) -> list[str] | None:
    """The addresses, None if they cannot be had."""
    found = FreeDevices(free_devices(devices), (request,), policy, NEAR).chosen(frozenset(cells))
    return None if isinstance(found, Shortage) else sorted(one.address for one, _ in found)


def vfs(count: int) -> DeviceRequest:
    """So many 154c."""
    return DeviceRequest("vf", count, {"product_id": "154c"})


def test_required_takes_the_lowest_local_one_or_none() -> None:
    cards = by_address(
        [device(HERE, f"0000:81:0{slot}.0", product_id="1533", numa_node=0) for slot in range(2)]
    )
    wanted = DeviceRequest("a", 1, {"product_id": "1533"})
    assert chosen(cards, wanted, {0}, "required") == ["0000:81:00.0"]
    assert chosen(cards, wanted, {1}, "required") is None


def test_a_socket_that_is_not_known_makes_none_the_same() -> None:
    unknown = Nearness({0: 0, 1: 0, 2: None})
    assert isinstance(
        FreeDevices(gpus_on(1), (GPU,), "socket", unknown).chosen(frozenset({0})), Shortage
    )


def test_a_pf_is_only_given_to_who_asks_for_one() -> None:
    heads = by_address([F2[0], F3[0]])
    assert isinstance(
        choose(free_devices(heads), DeviceRequest("a", 1, {"product_id": "1572"})), Shortage
    )
    assert not isinstance(
        choose(
            free_devices(heads), DeviceRequest("a", 1, {"product_id": "1572", "type": "type-PF"})
        ),
        Shortage,
    )


def test_a_shortage_of_providers_counts_those_that_have_enough() -> None:
    one, other = ProviderUuid("a"), ProviderUuid("b")
    rows = [*gpus(2), *nics(4, 0, 2)[1:]]
    providers = {row.address: one for row in rows}
    wanted = (
        replace(GPU, count=2, providers=(one, one)),
        DeviceRequest("vf", 3, {"product_id": "154c"}, providers=(one, one, other)),
    )
    found = FreeDevices(free_devices(by_address(rows)), wanted, providers=providers).chosen(None)
    assert found == Shortage("3 devices with product_id=154c wanted, 2 free")


def test_what_must_not_be_live_migratable_has_to_say_so() -> None:
    wanted = DeviceRequest("a", 1, {"live_migratable": "false"})
    assert isinstance(choose(gpus(1), wanted), Shortage)
    assert not isinstance(
        choose([replace(gpu, tags={"live_migratable": "false"}) for gpu in gpus(1)], wanted),
        Shortage,
    )
    assert not isinstance(choose(gpus(1), DeviceRequest("a", 1)), Shortage)


@pytest.mark.parametrize("kept", ["fast", "slow"])
def test_of_cards_with_other_functions_that_one_is_broken_that_leaves_enough(kept: str) -> None:
    """Both have four functions, so that only their kinds tell which PF is to be taken."""
    rows = [
        replace(one, tags={**one.tags, name: "yes"} if one.parent else one.tags)
        for number, name in ((6, "fast"), (7, "slow"))
        for one in nics(number, 0, 3)
    ]
    mixed = [
        *rows,
        replace(rows[1], address="0000:06:10.7", tags={"kind": "nic", "slow": "yes"}),
        replace(rows[5], address="0000:07:10.7", tags={"kind": "nic", "fast": "yes"}),
    ]
    got = choose(
        free_devices(by_address(mixed)),
        DeviceRequest("pf", 1, {"type": "type-PF"}),
        DeviceRequest("kept", 3, {kept: "yes"}),
        DeviceRequest("other", 1, {"slow" if kept == "fast" else "fast": "yes"}),
    )
    assert not isinstance(got, Shortage)
    assert {one.address[5:7] for one, request in got if request.id == "pf"} == {
        "07" if kept == "fast" else "06"
    }
