"""The devices that a guest gets on a set of cells against trying everything, and how long they are
searched for.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.instance import PciPolicy
from agent.pci.choice import FreeDevices, Shortage, free_devices
from agent.pci.device_request import Nearness, matches
from tests.unit.pci.free_device_samples import GPU, NEAR, by_address, card, gpus_on
from tests.unit.tracker.samples import gpus

NODES = (None, 0, 1, 2)
POLICIES: Sequence[PciPolicy] = ("required", "socket", "legacy", "preferred")


@st.composite
def hosts(draw: st.DrawFn) -> list[DeviceRecord]:
    """A few cards and GPUs anywhere."""
    rows = []
    for number in range(draw(st.integers(1, 3))):
        head, *functions = card(
            number, draw(st.integers(0, 3)), numa_node=draw(st.sampled_from(NODES))
        )
        # Now and then the functions of a card are not all alike.
        marks = [draw(st.sampled_from(({}, {}, {"fast": "yes"}))) for _ in functions]
        rows += [
            head,
            *(
                replace(one, tags={**one.tags, **mark})
                for one, mark in zip(functions, marks, strict=True)
            ),
        ]
    rows += [
        replace(gpu, numa_node=draw(st.sampled_from(NODES)))
        for gpu in gpus(draw(st.integers(0, 2)))
    ]
    return [
        replace(row, holder="claim", state="claimed") if draw(st.integers(0, 5)) == 0 else row
        for row in rows
    ]


WISHES = st.lists(
    st.builds(
        DeviceRequest,
        st.sampled_from("abc"),
        st.integers(1, 2),
        st.sampled_from(
            (
                {"kind": "nic"},
                {"kind": "gpu"},
                {"fast": "yes"},
                {"type": "type-PF"},
                {"type": "type-VF"},
                {"address": "0000:01:10.0"},
                {},
            )
        ),
        policy=st.sampled_from((None, *POLICIES)),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.id,
)
SETS = [frozenset(some) for count in (1, 2, 3) for some in combinations((0, 1, 2), count)]


def allowed(
    one: DeviceRecord, request: DeviceRequest, cells: frozenset[int], policy: PciPolicy
) -> bool:
    policy, node = request.policy or policy, one.numa_node
    near = (
        node in cells
        or policy == "preferred"
        or (policy == "legacy" and node is None)
        or (policy == "socket" and NEAR.same_socket(node, cells))
    )
    return near and matches(one, request)


def cheapest(
    free: Sequence[DeviceRecord],
    wanted: Sequence[DeviceRequest],
    cells: frozenset[int],
    policy: PciPolicy,
) -> tuple[int, int] | None:
    """What it costs at least, by trying every device for everything; None if it cannot be had."""
    if not wanted:
        return 0, 0
    found = []
    for one in free:
        if allowed(one, wanted[0], cells, policy):
            rest = [
                other
                for other in free
                if other.address not in (one.address, one.parent) and other.parent != one.address
            ]
            more = cheapest(rest, wanted[1:], cells, policy)
            far = one.numa_node is not None and one.numa_node not in cells
            if more is not None:
                found.append(
                    (
                        more[0] + far,
                        more[1]
                        + (
                            min(NEAR.distances[cell][one.numa_node] for cell in cells)
                            if far and one.numa_node is not None
                            else 0
                        ),
                    )
                )
    return min(found, default=None)


@settings(max_examples=400, deadline=None)
@given(hosts(), WISHES, st.sampled_from(POLICIES))
def test_what_is_chosen_is_the_nearest_of_all_that_could_be(
    rows: list[DeviceRecord], requests: list[DeviceRequest], policy: PciPolicy
) -> None:
    assert_nearest(rows, requests, policy)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(NODES)), min_size=2, max_size=4),
    st.lists(st.sampled_from((None, *POLICIES)), min_size=2, max_size=2),
    st.integers(1, 3),
    st.sampled_from(POLICIES),
)
def test_pfs_and_functions_of_the_same_cards_are_the_nearest_of_all_that_could_be(
    cards: list[tuple[int, int | None]],
    policies: list[PciPolicy | None],
    functions: int,
    policy: PciPolicy,
) -> None:
    rows = [
        one
        for number, (size, node) in enumerate(cards)
        for one in card(number, size, numa_node=node)
    ]
    wanted = [
        DeviceRequest(name, count, {"type": f"type-{name}"}, policy=own)
        for name, count, own in zip(("PF", "VF"), (1, functions), policies, strict=True)
    ]
    assert_nearest(rows, wanted, policy)


def assert_nearest(
    rows: list[DeviceRecord], requests: list[DeviceRequest], policy: PciPolicy
) -> None:
    """What is chosen for every set of cells costs what the cheapest choice of all costs, and what
    is told before the search holds.
    """
    free = free_devices(by_address(rows))
    devices = FreeDevices(free, requests, policy, NEAR)
    each = [request for request in requests for _ in range(request.count)]
    costs = {cells: cheapest(free, each, cells, policy) for cells in SETS}
    assert {cells: devices.cost(cells) for cells in SETS} == costs
    for cells, cost in costs.items():
        got, least = devices.chosen(cells), devices.least(cells)
        assert isinstance(got, Shortage) == (cost is None)
        if not isinstance(got, Shortage):
            assert sorted(request.id for _, request in got) == sorted(one.id for one in each)
            assert all(allowed(one, request, cells, policy) for one, request in got)
            taken = {one.address for one, _ in got}
            assert len(taken) == len(got)
            assert not taken & {one.parent for one, _ in got}
        # What is told before of all sets holds for each of them.
        for demand in devices.demands:
            short = demand.lacking(sum(demand.near.get(cell, 0) for cell in cells))
            assert cost is None or short <= (0 if demand.required else cost[0])
        for fewer in (one for one in SETS if one <= cells and costs[one] is not None):
            assert least is not None
            assert least <= (costs[fewer] or (0, 0))


def test_cells_whose_devices_are_alike_are_of_one_kind() -> None:
    rows = [*card(1, 2, numa_node=0), *card(2, 2, numa_node=1), *card(3, 1, numa_node=2)]
    both = [
        DeviceRequest("pf", 1, {"type": "type-PF"}),
        DeviceRequest("vf", 1, {"type": "type-VF"}),
    ]
    for policy, alike in (("required", True), ("preferred", True)):
        devices = FreeDevices(free_devices(by_address(rows)), both, policy, NEAR)
        assert (devices.kind(0) == devices.kind(1)) is alike
        assert devices.kind(1) != devices.kind(2)
    # The cells 1 and 2 are on different sockets, which matters only where sockets do.
    single = [*card(1, 2, numa_node=1), *card(2, 2, numa_node=2)]
    assert FreeDevices(single, both, "required", NEAR).kind(1) == FreeDevices(
        single, both, "required", NEAR
    ).kind(2)
    assert FreeDevices(single, both, "socket", NEAR).kind(1) != FreeDevices(
        single, both, "socket", NEAR
    ).kind(2)


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (
            ("required", "required"),
            [
                (2, {0: 1, 1: 1, 2: 0}, True, 1),
                (4, {0: 2, 1: 3, 2: 0}, True, 1),
                (6, {0: 2, 1: 3, 2: 0}, True, 1),
                (8, {0: 2, 1: 3, 2: 0}, True, 2),
                (10, {0: 3, 1: 3, 2: 0}, True, 3),
            ],
        ),
        (
            ("required", "preferred"),
            [
                (2, {0: 1, 1: 1, 2: 0}, True, 1),
                (2, {0: 2, 1: 3}, False, 1),
                (4, {0: 2, 1: 3}, False, 1),
                (6, {0: 2, 1: 3}, False, 2),
                (7, {0: 3, 1: 3}, False, 3),
                # Without the functions, which need not be near.
                (4, {0: 2, 1: 2, 2: 0}, True, 2),
                (6, {0: 3, 1: 3, 2: 0}, True, 3),
            ],
        ),
        (
            ("legacy", "socket"),
            [
                (1, {0: 1, 1: 1, 2: 0}, True, 1),
                # The cells 0 and 1 are on one socket.
                (4, {0: 5, 1: 5, 2: 0}, True, 1),
                (2, {0: 2, 1: 3}, False, 1),
                (5, {0: 5, 1: 5, 2: 0}, True, 1),
                (4, {0: 2, 1: 3}, False, 1),
                (6, {0: 5, 1: 5, 2: 0}, True, 2),
                (6, {0: 2, 1: 3}, False, 2),
                (7, {0: 6, 1: 5, 2: 0}, True, 3),
                (7, {0: 3, 1: 3}, False, 3),
            ],
        ),
    ],
)
def test_what_the_cells_have_to_offer_together(
    policies: Sequence[PciPolicy], expected: list[tuple[int, dict[int, int], bool, int]]
) -> None:
    """Of two PFs and four functions: first each and both with the weight 1, then a PF with the
    weight of the functions that it costs. A card offers the one or the others.
    """
    cards = [card(1, 2, numa_node=0), card(2, 3, numa_node=1), card(3, 2, numa_node=None)]
    wanted = [
        DeviceRequest(name, count, {"type": f"type-{name}"}, policy=policy)
        for name, count, policy in zip(("PF", "VF"), (2, 4), policies, strict=True)
    ]
    rows = by_address([*(one for each in cards for one in each), *gpus_on(1)])
    devices = FreeDevices(free_devices(rows), wanted, "legacy", NEAR)
    assert [
        (demand.missing, demand.near, demand.required, demand.heaviest)
        for demand in devices.demands
    ] == expected


def test_requests_that_each_take_the_only_near_device_get_the_next_one() -> None:
    # Each alone would be content with the GPU on cell 0, which only one can have.
    wanted = [replace(GPU, id=name, policy="preferred") for name in ("a", "b")]
    got = FreeDevices(gpus_on(0, 2), wanted, "preferred", NEAR).chosen(frozenset({0}))
    assert not isinstance(got, Shortage)
    assert sorted(str(one.numa_node) for one, _ in got) == ["0", "2"]


@pytest.mark.parametrize(
    ("cards", "functions", "pfs", "vfs", "had"),
    [(8, 8, 2, 49, False), (8, 8, 2, 48, True), (8, 8, 3, 48, False), (64, 64, 9, 3520, True)],
)
def test_many_cards_alike_are_a_few_steps(
    cards: int, functions: int, pfs: int, vfs: int, had: bool
) -> None:
    rows = [
        replace(
            one,
            address=f"{number:04x}:00:{place // 8:02x}.{place % 8}",
            parent=None if place == 0 else f"{number:04x}:00:00.0",
            numa_node=number % 8,
        )
        for number in range(cards)
        for place, one in enumerate(card(0, functions))
    ]
    wanted = [
        DeviceRequest("pf", pfs, {"type": "type-PF"}, policy="preferred"),
        DeviceRequest("vf", vfs, {"type": "type-VF"}, policy="preferred"),
    ]
    nearness = Nearness(
        {}, {one: {other: 10 + abs(one - other) for other in range(8)} for one in range(8)}
    )
    devices = FreeDevices(free_devices(by_address(rows)), wanted, "legacy", nearness)
    got = devices.chosen(frozenset({0}))
    assert isinstance(got, Shortage) is not had
    assert devices.steps < 2_000


def test_cells_that_are_alike_are_searched_once_for_each_distance() -> None:
    rows = [
        replace(
            one,
            address=f"{cell:04x}{one.address[4:]}",
            parent=one.parent and f"{cell:04x}:01:00.0",
            numa_node=cell,
        )
        for cell in range(8)
        for one in card(1, 8)
    ]
    wanted = [
        DeviceRequest("pf", 3, {"type": "type-PF"}, policy="preferred"),
        DeviceRequest("vf", 40, {"type": "type-VF"}, policy="preferred"),
    ]
    nearness = Nearness(
        {}, {one: {other: 10 + abs(one - other) for other in range(8)} for one in range(8)}
    )
    devices = FreeDevices(free_devices(by_address(rows)), wanted, "legacy", nearness)
    cost = devices.cost(frozenset({0, 1}))
    assert cost is not None
    steps = devices.steps
    # The other end of the line.
    assert devices.cost(frozenset({6, 7})) == cost
    assert devices.steps == steps
    assert devices.cost(frozenset({3, 4})) != cost
