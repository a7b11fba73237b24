"""Which CPUs dedicated guest CPUs are pinned to."""

import logging

import pytest

from agent.model.instance import Guest, GuestCell, PlacedCell
from agent.numa.host import CellUsageError, HostCell
from agent.numa.pair import Pins, can_pin, pin
from tests.unit.numa.cells import (
    NOTHING,
    cpus,
    dedicated,
    h2,
    host_cell,
    ht1,
    pinned_to,
    placed,
    placed_on,
    refused,
)

TABLE = [
    (4, 0, "prefer", True, [[0, 4], [1, 5], [2, 6], [3, 7]], [0, 4, 1, 5]),
    (3, 0, "prefer", True, [[0, 4], [1, 5]], [0, 4, 1]),
    (4, 0, "require", True, [[0], [1], [2], [3]], None),
    (4, 0, "prefer", True, [[0], [1], [2], [3]], [0, 1, 2, 3]),
    (4, 0, "prefer", True, [[0, 4], [1], [2]], [0, 4, 1, 2]),
    (2, 0, "require", True, [[0], [1, 5]], [1, 5]),
    (2, 0, "require", True, [[0, 4, 8], [1, 5]], [1, 5]),
    (2, 0, "isolate", False, [[0], [1]], [0, 1]),
    (2, 0, "isolate", True, [[0, 2], [1, 3]], None),
    (3, 1, "prefer", True, [[0, 4], [1, 5]], [0, 4, 1]),
    (4, 1, "prefer", True, [[0, 4], [1, 5]], None),
]


@pytest.mark.parametrize(("need", "reserve", "policy", "smt", "cores", "chosen"), TABLE)
def test_the_table_of_pinning(need, reserve, policy, smt, cores, chosen):
    possible = can_pin(map(len, cores), need, reserve, policy, smt=smt)
    assert possible == (chosen is not None)
    if possible:
        pins = pin(cores, need, reserve, policy)
        assert list(pins.cpus) == chosen
        assert pins.reserved == ({5} if reserve else set())


def test_siblings_of_unlike_cores_are_not_alone():
    cores = [[0, 1], [2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert pin(cores, 9, 0, "require").cpus == (0, 1, 4, 5, 6, 8, 9, 10, 11)


def ht(**more) -> HostCell:
    """4 threads a core: {0,1,2,3}, {4,5,6,7}, ..."""
    return host_cell(
        0, cpus(0, 12), siblings=tuple(cpus(first, 4) for first in range(0, 12, 4)), **more
    )


def test_single_threads_will_do_unless_siblings_are_required():
    assert pinned_to(ht1(0, 2, 4, 6), dedicated((4, 1024))) == [1, 3, 5, 7]
    reason = refused(ht1(0, 2, 4, 6), dedicated((4, 1024), thread_policy="require"))
    assert reason.misfits[0, 0].available == [[1], [3], [5], [7]]


def test_an_isolated_emulator_takes_a_cpu_of_its_own():
    assert placed_on(h2(), dedicated((8, 1024))) == [0]
    reason = refused(h2(), dedicated((8, 1024), emulator_policy="isolate"))
    assert (
        reason.misfits[0, 0].rule,
        reason.misfits[0, 0].needed,
        reason.misfits[0, 0].available,
    ) == (2, 9, 8)
    cell = placed(h2(), dedicated((7, 1024), emulator_policy="isolate"))
    assert cell.reserved == {7}
    assert cell.pinned_cpus == cpus(0, 8)


def test_the_emulator_sits_with_guest_cell_0():
    refused(h2(), dedicated((8, 1024), (7, 1024), emulator_policy="isolate"))
    assert placed_on(h2(), dedicated((7, 1024), (8, 1024), emulator_policy="isolate")) == [0, 1]


def mixed(**more) -> Guest:
    return Guest((GuestCell(frozenset({0, 1}), frozenset({2, 3}), 1024),), "mixed", **more)


def test_a_mixed_guest_has_both_kinds():
    cell = HostCell(0, cpus(0, 4), cpus(4, 4), 16384)
    guest = placed(cell, mixed())
    assert guest.pins == {2: 4, 3: 5}
    assert cell.with_guest(guest).shared_used == 2


def test_required_siblings_may_be_different_numbers_on_different_cores():
    cell = host_cell(0, cpus(0, 8), siblings=(cpus(0, 4), cpus(4, 4)), pinned=frozenset({6, 7}))
    assert pinned_to(cell, dedicated((6, 1024), thread_policy="require")) == [0, 1, 2, 3, 4, 5]


def test_the_best_fit_keeps_full_cores():
    cell = host_cell(0, cpus(0, 3), siblings=(cpus(0, 2), cpus(2, 1)))
    assert pinned_to(cell, dedicated((1, 1024))) == [2]


def test_pins_are_counted_once():
    cell, guest = h2()[0], dedicated((1, 1024)).cells[0]
    # A CPU that is not offered any more is the guest's all the same, and takes none of the others.
    beyond = cell.with_guest(PlacedCell(guest, 0, pins={0: 9}))
    assert (beyond.pinned, beyond.free_dedicated) == (frozenset({9}), cell.free_dedicated)
    pinned = cell.with_guest(PlacedCell(guest, 0, pins={0: 3}))
    with pytest.raises(CellUsageError, match=r"CPUs \[3\] are pinned already"):
        pinned.with_guest(PlacedCell(guest, 0, reserved=frozenset({3})))
    with pytest.raises(CellUsageError, match=r"CPUs \[3\] are not pinned"):
        cell.without_guest(PlacedCell(guest, 0, pins={0: 3}))


# --- more -----------------------------------------------------------------------------------------


def test_nothing_of_a_refused_count_stays(caplog):
    cell = h2()[0]
    with caplog.at_level(logging.DEBUG), pytest.raises(CellUsageError):
        cell.without_guest(PlacedCell(dedicated((1, 1024)).cells[0], 0, pins={0: 3}))
    assert not caplog.records


@pytest.mark.parametrize(
    ("need", "pinned", "chosen"),
    [
        (
            1,
            {1, 2, 3},
            [4],
        ),  # an odd one out is still beside free siblings, of the least core that has some
        (4, {3, 7, 8, 9, 10, 11}, [0, 1, 4, 5]),  # 2 and 2, not 3 and 1
        (6, {2, 3}, [4, 5, 6, 7, 8, 9]),
        (9, {3}, [0, 1, 2, 4, 5, 6, 8, 9, 10]),
        (7, {2, 3, 10, 11}, [0, 1, 4, 5, 6, 8, 9]),  # 3 and 2 and 2, not 4 and 2 and 1
    ],
)
def test_required_siblings_are_never_alone_if_it_can_be_helped(need, pinned, chosen):
    assert (
        pinned_to(ht(pinned=frozenset(pinned)), dedicated((need, 1024), thread_policy="require"))
        == chosen
    )


def test_the_emulator_gets_the_rest_of_a_broken_core():
    cell = placed(ht1(0), dedicated((2, 1024), emulator_policy="isolate", thread_policy="require"))
    assert list(cell.pins.values()) == [2, 3]
    assert cell.reserved == {1}


@pytest.mark.parametrize("policy", ["prefer", "require", "isolate"])
def test_a_cell_without_dedicated_cpus_needs_no_core(policy):
    assert can_pin([2], 0, 1, policy, smt=True)
    assert pin([[0, 1]], 0, 1, policy) == Pins((), frozenset({0}))
    guest = Guest(
        (GuestCell(frozenset({0}), frozenset({1}), 512), GuestCell(frozenset({2}), NOTHING, 512)),
        "mixed",
        thread_policy=policy,
    )
    host = (
        HostCell(0, cpus(0, 1), cpus(1, 4), 4096, siblings=(cpus(1, 2), cpus(3, 2))),
        HostCell(1, cpus(8, 1), NOTHING, 4096),
    )
    if policy == "isolate":
        refused(host, guest)
    else:
        assert placed_on(host, guest) == [0, 1]


def test_only_offered_threads_count():
    cell = HostCell(
        0,
        cpus(0, 4),
        cpus(4, 4),
        16384,
        siblings=tuple(frozenset({cpu, cpu + 4}) for cpu in range(4)),
    )
    assert cell.smt
    assert cell.free_cores() == [[4], [5], [6], [7]]
    refused(cell, dedicated((2, 1024), thread_policy="require"))
