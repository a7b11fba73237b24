"""A fit as a whole: cells that the scheduler allocated from, and why a guest does not fit."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from agent.errors import Undecided
from agent.model.instance import Guest, GuestCell, PlacedCell
from agent.numa.fit import Networks, NoFit, cells_named, fit
from agent.numa.host import CellUsageError, HostCell, NoDeviceFit, Pages
from agent.numa.pair import Allocated, CellLimits, Pins, can_pin, pin
from tests.unit.numa.cells import (
    NOTHING,
    changed,
    cpus,
    dedicated,
    full,
    h2,
    h2s,
    h4,
    host_cell,
    ht1,
    pages,
    pinned_to,
    placed,
    placed_on,
    refused,
    shared,
)
from tests.unit.numa.devices import LocalDevices

ONE = dedicated((2, 1024))
TWO = dedicated((2, 1024), (2, 1024))
TWO_CPUS = Allocated(dedicated=2)
NO_CPUS = Allocated(dedicated=0)


# --- cells that the scheduler allocated from ------------------------------------------------------


@pytest.mark.parametrize(
    ("guest", "cells", "expected"),
    [
        (ONE, [0], [0]),
        (ONE, [3], [3]),
        (TWO, [1, 3], [1, 3]),
        (TWO, [3, 2], [2, 3]),
    ],
)
def test_a_guest_gets_the_cells_that_the_scheduler_allocated_from(
    guest: Guest, cells: list[int], expected: list[int]
) -> None:
    allocated = {cell.id: TWO_CPUS if cell.id in cells else NO_CPUS for cell in h4()}
    assert placed_on(h4(), guest, allocated=allocated) == expected


def test_cells_of_which_nothing_was_allocated_are_no_cells_of_the_allocation() -> None:
    assert placed_on(h4(), ONE, allocated={0: Allocated(), 3: Allocated(dedicated=None)}) == [0]


def test_a_networks_cell_is_one_of_those_that_the_scheduler_allocated_from() -> None:
    host = tuple(replace(cell, physnets=frozenset({f"p{cell.id}"})) for cell in h4())
    allocated = {cell.id: TWO_CPUS if cell.id in (1, 2) else NO_CPUS for cell in host}
    wanted = Networks(frozenset({"p2"}))
    assert placed_on(host, TWO, allocated=allocated, networks=wanted) == [1, 2]
    reason = refused(host, TWO, allocated=allocated, networks=Networks(frozenset({"p3"})))
    assert (reason.failed, reason.message) == (
        "networks",
        "among cells 1 and 2, of which the scheduler allocated, no cells with room are local to "
        "physnet p3",
    )


# --- why it does not fit --------------------------------------------------------------------------


def no_devices() -> LocalDevices:
    return LocalDevices(h4(), [0], 2, "required")


@pytest.mark.parametrize(
    ("host", "guest", "options", "failed", "message"),
    [
        (h2(), dedicated(*[(2, 1024)] * 3), {}, "count", "3 guest cells on 2 host cells"),
        (h2()[:1], TWO, {}, "count", "2 guest cells on 1 host cell"),
        (
            h4(),
            ONE,
            {"allocated": {0: TWO_CPUS, 1: TWO_CPUS, 3: TWO_CPUS}},
            "allocation",
            "the scheduler allocated of cells 0, 1 and 3, and the guest has 1 cell",
        ),
        (
            h4(),
            TWO,
            {"allocated": {0: TWO_CPUS, 1: TWO_CPUS, 3: TWO_CPUS}},
            "allocation",
            "the scheduler allocated of cells 0, 1 and 3, and the guest has 2 cells",
        ),
        (h2(), dedicated((9, 512)), {}, "pair", "guest cell 0 fits no host cell"),
        (
            full(h2(), 1),
            TWO,
            {},
            "matching",
            "each guest cell fits some host cell, but not all at once",
        ),
        (
            h4(),
            ONE,
            {"devices": no_devices()},
            "devices",
            "no cells with room are near enough to the wanted devices",
        ),
    ],
)
def test_a_guest_that_does_not_fit_is_told_the_first_test_that_nothing_passes(
    host: Any, guest: Guest, options: dict[str, Any], failed: str, message: str
) -> None:
    reason = refused(host, guest, **options)
    assert (reason.failed, reason.message) == (failed, message)
    assert reason.remedy == "another host, or a smaller guest"
    assert reason.data == {
        "failed": failed,
        "misfits": reason.misfits,
        "set_tests": reason.set_tests,
    }
    if failed in ("count", "allocation", "devices"):
        assert reason.misfits == {}


def test_a_guest_that_cannot_be_on_all_cells_of_its_allocation_is_told_those() -> None:
    """Its cells have room on cells of which nothing was allocated, and both cells of the
    allocation are as large as only one of its own.
    """
    guest = dedicated((2, 1024), (4, 1024))
    reason = refused(h4(), guest, allocated={1: TWO_CPUS, 2: TWO_CPUS})
    assert (reason.failed, reason.message) == (
        "allocation",
        "the guest cannot have cells on all of cells 1 and 2, of which the scheduler allocated",
    )
    assert sorted(reason.misfits) == [(1, 1), (1, 2)]


def test_a_fit_tells_its_score_and_how_many_sets_it_tested() -> None:
    found = fit(h4(), ONE)
    assert (found.score, found.set_tests) == ((0, 0, 0), 1)
    devices = LocalDevices(h4(), [2], 1, "preferred")
    found = fit(h4(), ONE, devices=devices)
    assert [cell.host_cell for cell in found.cells] == [2]
    assert (found.score, found.set_tests) == ((0, 10, 0), 4)


@pytest.mark.parametrize(
    ("ids", "words"),
    [([3], "cell 3"), ([0, 2], "cells 0 and 2"), ([0, 1, 7], "cells 0, 1 and 7")],
)
def test_cells_are_named_in_words(ids: list[int], words: str) -> None:
    assert cells_named(ids) == words


def test_a_reason_counts_no_sets_unless_some_were_tested() -> None:
    assert NoFit("count", "why", {}).set_tests == 0


class NothingNear(NoDeviceFit):
    """Devices that no set of cells is near enough to, which no bound tells."""

    wanted = True

    def kind(self, cell):
        return cell

    def cost(self, cells):
        return None


def test_a_refusal_says_how_many_sets_of_cells_were_tested():
    reason = refused(h4(), dedicated((1, 512), (1, 512)), devices=NothingNear())
    assert (reason.failed, reason.set_tests) == ("devices", 6)


# --- affinity to networks. That to devices is in tests/functional/devices/test_placing_guests.py, with real ones ---


def wants(*physnets: str, tunneled: bool = False) -> Networks:
    return Networks(frozenset(physnets), tunneled)


def host(*physnets: str, tunnel: bool = False):
    """H2 with a physnet a cell, and tunnels on cell 0."""
    cells = tuple(
        replace(cell, physnets=frozenset({name})) for cell, name in zip(h2(), physnets, strict=True)
    )
    return changed(cells, 0, tunneled=tunnel)


def test_a_network_that_is_local_somewhere_has_to_be_near():
    assert placed_on(host("p0", "p1"), ONE, networks=wants("p1")) == [1]
    reason = refused(full(host("p0", "p1"), 1), ONE, networks=wants("p1"))
    assert reason.failed == "networks"
    assert reason.message == "no cells with room are local to physnet p1"
    assert reason.misfits[0, 1].available == 0


def test_two_networks_on_two_cells_need_two_cells():
    assert (
        refused(host("p0", "p1"), ONE, networks=wants("p0", "p1")).message
        == "no cells with room are local to physnet p0 and physnet p1"
    )
    assert placed_on(host("p0", "p1"), TWO, networks=wants("p0", "p1")) == [0, 1]


def test_tunnels_are_a_network_too():
    first, second = host("p0", "p1", tunnel=True)
    assert placed_on((second, first), ONE, networks=wants(tunneled=True)) == [0]
    assert placed_on(
        (second, replace(first, tunneled=False)), ONE, networks=wants(tunneled=True)
    ) == [1]
    assert (
        refused((first, second), ONE, networks=wants("p1", tunneled=True)).message
        == "no cells with room are local to physnet p1 and tunnels"
    )


# --- memory, shared CPUs and pages of guest cells ---


def paged(**pools: int) -> HostCell:
    """A shared cell of 16 GiB that tells about its pages."""
    return host_cell(0, cpus(0, 8), shared=True, pages=pages(**pools))


def rules(reason) -> list[tuple[int, object, object]]:
    """The misfits of a refused guest: rule, needed, available."""
    return [(misfit.rule, misfit.needed, misfit.available) for misfit in reason.misfits.values()]


# --- pages ----------------------------------------------------------------------------------------


def test_large_pages_are_taken_until_none_is_left():
    cell = paged(k4=4194304, k2048=512)
    first = placed(cell, shared((2, 1024), pages="large"))
    assert first.page_size_kib == 2048
    after = cell.with_guest(first)
    assert [(pool.used, pool.free) for pool in after.pages] == [(0, 4194304), (512, 0)]
    assert rules(refused(after, shared((1, 2), pages="large"))) == [(1, 2, {4: 4194304, 2048: 0})]
    assert placed(after, shared((1, 2), pages="any")).page_size_kib == 4


def test_reserved_pages_are_nobody_s():
    cell = replace(paged(), pages=(Pages(4, 4194304), Pages(2048, 512, reserved=64)))
    refused(cell, shared((1, 1024), pages="large"))
    assert placed(cell, shared((1, 896), pages="large")).page_size_kib == 2048


def test_a_page_size_chosen_on_one_cell_does_not_bind_the_next():
    first = host_cell(0, cpus(0, 8), shared=True, pages=pages(k4=1048576, k1048576=4))
    second = host_cell(
        1, cpus(8, 8), shared=True, pages=pages(k4=1048576, k2048=512), physnets=frozenset({"p"})
    )
    for host in ((first, second), (second, first)):
        cell = placed(host, shared((2, 1024), pages="large"), networks=Networks(frozenset({"p"})))
        assert (cell.host_cell, cell.page_size_kib) == (1, 2048)


def test_given_back_twice_is_an_accounting_fault(caplog):
    cell = paged(k4=4194304, k2048=512)
    guest = placed(cell, shared((2, 1024), pages="large"))
    freed = cell.with_guest(guest).without_guest(guest)
    assert freed == cell
    assert not caplog.records
    with caplog.at_level(logging.ERROR):
        assert freed.without_guest(guest) == cell
    assert "Accounting fault: cell 0" in caplog.text


# --- more -----------------------------------------------------------------------------------------


def test_a_part_of_a_page_is_a_page():
    cell = host_cell(0, cpus(0, 8), shared=True, pages=(Pages(1048576, 4),))
    after = cell.with_guest(replace(placed(h2s(), shared((1, 1500))), page_size_kib=None))
    assert after.pages[0].used == 2


# --- which CPUs dedicated guest CPUs are pinned to ---


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


# --- why a guest cell does not fit a host cell: each rule, at its limit and beyond ---


CELL = HostCell(0, cpus(0, 4), cpus(4, 4), 4096)
BOTH = HostCell(0, cpus(0, 4), cpus(0, 4), 4096)
"""Each CPU serves both kinds."""
SMALL, LARGE, HUGE = Pages(4, 262144), Pages(2048, 512), Pages(1048576, 2)
PAGED = HostCell(0, cpus(0, 8), cpus(8, 8), 4096, pages=(LARGE, SMALL, HUGE))
LIMITS = CellLimits(2.0, 1.5)
MIXED = Guest((GuestCell(cpus(0, 1), cpus(1, 2), 1024),), "mixed")
# 513 pages of 4 KiB: no whole number of MiB.
ODD = HostCell(0, cpus(0, 8), NOTHING, 4, pages=(Pages(4, 513),))


@pytest.mark.parametrize(
    ("host", "guest", "more", "expected"),
    [
        # The scheduler's allocation.
        (CELL, MIXED, {"allocated": Allocated(1, 1)}, (0, "PCPU: 2 needed, 1 allocated")),
        (CELL, MIXED, {"allocated": Allocated(2, 2)}, (0, "VCPU: 1 needed, 2 allocated")),
        (
            CELL,
            MIXED,
            {"allocated": Allocated(2, 1, 512)},
            (0, "MEMORY_MB: 1024 needed, 512 allocated"),
        ),
        (
            CELL,
            dedicated((2, 512), emulator_policy="isolate"),
            {"allocated": Allocated(2)},
            (0, "PCPU: 3 needed, 2 allocated"),
        ),
        (BOTH, MIXED, {"allocated": Allocated(0, 2)}, (0, "VCPU: 3 needed, 2 allocated")),
        (BOTH, MIXED, {"allocated": Allocated(2, 1)}, (0, "PCPU: 0 needed, 2 allocated")),
        (
            PAGED,
            dedicated((1, 1024), pages="large"),
            {"allocated": Allocated(pages={4: 1024})},
            (0, "MiB in pages of 1048576 or 2048 KiB: 1024 needed, {4: 1024} allocated"),
        ),
        (
            PAGED,
            dedicated((1, 1024)),
            {"allocated": Allocated(pages={2048: 1024})},
            (0, "MiB in pages of 4 KiB: 1024 needed, {2048: 1024} allocated"),
        ),
        # Memory.
        (CELL, dedicated((1, 4097)), {}, (1, "MiB: 4097 needed, 4096 available")),
        (
            HostCell(0, NOTHING, cpus(0, 4), 4096, memory_used_mib=1),
            dedicated((1, 4096)),
            {},
            (1, "MiB: 4096 needed, 4095 available"),
        ),
        (
            PAGED,
            dedicated((1, 3072), pages="any"),
            {},
            (
                1,
                "MiB in free pages (any): 3072 needed, "
                "{2048: 512, 4: 262144, 1048576: 2} available",
            ),
        ),
        (
            PAGED,
            dedicated((1, 1025), pages="large"),
            {},
            (
                1,
                "MiB in free pages (large): 1025 needed, "
                "{2048: 512, 4: 262144, 1048576: 2} available",
            ),
        ),
        (PAGED, shared((1, 1025)), {}, (1, "MiB in pages of 4 KiB: 1025 needed, 1024 available")),
        (ODD, shared((1, 3)), {}, (1, "MiB in pages of 4 KiB: 3 needed, 2 available")),
        (
            HostCell(0, cpus(0, 8), NOTHING, 4096, pages=(LARGE,)),
            shared((1, 1023)),
            {},
            (1, "MiB in pages of 2048 KiB: 1023 needed, 1024 available"),
        ),
        # CPUs of each kind.
        (CELL, dedicated((5, 512)), {}, (2, "dedicated CPUs: 5 needed, 4 available")),
        (
            CELL,
            dedicated((4, 512), emulator_policy="isolate"),
            {},
            (2, "dedicated CPUs: 5 needed, 4 available"),
        ),
        (CELL, shared((5, 512)), {}, (2, "shared CPUs: 5 needed, 4 available")),
        # Free CPUs, and the thread policy.
        (ht1(0, 1, 2), dedicated((6, 512)), {}, (3, "free dedicated CPUs: 6 needed, 5 available")),
        (
            ht1(0, 1, 2),
            dedicated((5, 512), emulator_policy="isolate"),
            {},
            (3, "free dedicated CPUs: 6 needed, 5 available"),
        ),
        (
            ht1(),
            dedicated((2, 512), thread_policy="isolate"),
            {},
            (3, "cores without SMT for thread policy isolate: 2 needed, 0 available"),
        ),
        (
            ht1(0, 2, 4, 6),
            dedicated((2, 512), thread_policy="require"),
            {},
            (
                3,
                "free cores for thread policy require: 2 needed, [[1], [3], [5], [7]] available",
            ),
        ),
        # The ratios.
        (
            HostCell(0, cpus(0, 4), NOTHING, 4096, shared_used=7),
            shared((2, 512)),
            {"limits": LIMITS},
            (4, "shared CPUs within the ratio: 9 needed, 8.0 available"),
        ),
        (
            HostCell(0, cpus(0, 4), NOTHING, 4096, memory_used_mib=6000),
            shared((2, 145)),
            {"limits": LIMITS},
            (4, "MiB within the ratio: 6145 needed, 6144.0 available"),
        ),
        (
            HostCell(
                0,
                cpus(0, 4),
                NOTHING,
                4097,
                memory_used_mib=3000,
                pages=(Pages(4, 524288), Pages(2048, 1024, used=500), Pages(16, 1, used=1)),
            ),
            shared((2, 1074)),
            {"limits": LIMITS},
            (4, "MiB within the ratio: 3074 needed, 3073.5 available"),
        ),
    ],
)
def test_a_refusal_names_the_first_rule_that_fails(
    host: HostCell, guest: Guest, more: dict[str, Any], expected: tuple[int, str]
) -> None:
    if "allocated" in more:
        more = {**more, "allocated": {0: more["allocated"]}}
    (misfit,) = refused(host, guest, **more).misfits.values()
    assert (misfit.rule, str(misfit)) == expected


@pytest.mark.parametrize(
    ("host", "guest", "more", "size"),
    [
        (CELL, MIXED, {"allocated": Allocated(2, 1, 1024)}, None),
        (BOTH, MIXED, {"allocated": Allocated(0, 3)}, None),
        (
            CELL,
            dedicated((2, 512), emulator_policy="isolate"),
            {"allocated": Allocated(3, 0)},
            None,
        ),
        (CELL, dedicated((1, 4096)), {}, None),
        (PAGED, dedicated((1, 1024)), {"allocated": Allocated(pages={})}, 4),
        (PAGED, dedicated((1, 1024), pages="any"), {"allocated": Allocated(pages={})}, 4),
        (
            PAGED,
            dedicated((1, 1024), pages="any"),
            {"allocated": Allocated(pages={2048: 1024})},
            2048,
        ),
        (PAGED, dedicated((1, 1024), pages="any"), {}, 1048576),
        (PAGED, dedicated((1, 1022), pages="large"), {}, 2048),
        (PAGED, dedicated((1, 1024), pages="small"), {}, 4),
        (PAGED, dedicated((1, 1024), pages=2048), {}, 2048),
        (PAGED, shared((1, 1024)), {}, 4),
        (ODD, shared((1, 2)), {}, 4),
        (
            HostCell(0, cpus(0, 4), NOTHING, 4096, shared_used=6, memory_used_mib=6000),
            shared((2, 144)),
            {"limits": LIMITS},
            None,
        ),
        # Huge pages are not overcommitted.
        (
            HostCell(0, cpus(0, 4), NOTHING, 2048, memory_used_mib=9999, pages=PAGED.pages),
            shared((2, 1024), pages=2048),
            {"limits": LIMITS},
            2048,
        ),
    ],
)
def test_a_guest_cell_at_the_limit_is_placed(
    host: HostCell, guest: Guest, more: dict[str, Any], size: int | None
) -> None:
    if "allocated" in more:
        more = {**more, "allocated": {0: more["allocated"]}}
    assert placed(host, guest, **more).page_size_kib == size


def test_only_the_first_of_equal_guest_cells_needs_a_cpu_for_the_emulator() -> None:
    host = (HostCell(0, NOTHING, cpus(0, 5), 4096), HostCell(1, NOTHING, cpus(5, 4), 4096))
    guest = dedicated((4, 512), (4, 512), emulator_policy="isolate")
    assert placed_on(host, guest) == [0, 1]


# --- which guest cell goes to which host cell, and how many sets of cells are tested for that ---


def cells_of(*counts: int, **more):
    """Cells with so many dedicated CPUs each."""
    return tuple(
        host_cell(number, cpus(100 * number, count), **more) for number, count in enumerate(counts)
    )


def networks(*cells: int) -> Networks:
    """A guest on a physnet for each of ``cells``."""
    return Networks(frozenset(f"p{cell}" for cell in cells))


def each_with_its_physnet(count: int):
    return tuple(
        host_cell(number, cpus(4 * number, 4), physnets=frozenset({f"p{number}"}))
        for number in range(count)
    )


def test_eight_cells_on_eight_are_one_set_to_test():
    host = cells_of(*[8] * 8)
    devices = LocalDevices(host, [3], 2)
    reason = refused(host, dedicated(*[(4, 1024)] * 8), devices=devices)
    assert (reason.failed, reason.set_tests, devices.tests) == ("devices", 0, 0)
    assert fit(host, dedicated(*[(4, 1024)] * 8), devices=LocalDevices(host, [3], 1)).set_tests == 1


# --- the search -----------------------------------------------------------------------------------


def test_only_sets_with_room_networks_and_enough_devices_are_tested():
    host = full(full(each_with_its_physnet(8), 0), 1)
    guest, devices = dedicated(*[(2, 1024)] * 4), LocalDevices(host, [2, 5], 2)
    assert sorted(placed_on(host, guest, networks=networks(7), devices=devices)) == [2, 3, 5, 7]
    assert devices.tests <= 3


def test_the_budget_ends_the_search_without_a_no():
    host = cells_of(*[8] * 8)
    # Some two cells have three devices, but no one is told of that before.
    devices = LocalDevices(host, [5, 5, 6], 3)
    with pytest.raises(Undecided) as error:
        fit(host, dedicated((4, 1024), (4, 1024)), devices=devices, budget=1)
    assert error.value.code == "fit.undecided"
    assert placed_on(host, dedicated((4, 1024), (4, 1024)), devices=devices) == [5, 6]


def test_the_budget_ends_the_search_for_nearer_cells_with_what_was_found():
    distances = ({0: 10, 1: 21, 2: 12}, {0: 21, 1: 10, 2: 21}, {0: 12, 1: 21, 2: 10})
    host = tuple(
        host_cell(number, cpus(8 * number, 8), distances=one)
        for number, one in enumerate(distances)
    )
    assert placed_on(host, dedicated((2, 1024), (2, 1024)), budget=2) == [0, 1]
    assert placed_on(host, dedicated((2, 1024), (2, 1024))) == [0, 2]


@pytest.mark.parametrize(("guest_cells", "host_cells"), [(16, 32), (32, 64)])
def test_a_large_host_answers_within_the_budget_what_needs_no_devices(guest_cells, host_cells):
    host, guest = each_with_its_physnet(host_cells), dedicated(*[(2, 1024)] * guest_cells)
    assert (
        fit(
            host, guest, budget=500, networks=networks(*range(guest_cells, 2 * guest_cells))
        ).set_tests
        <= 10
    )
    assert fit(host, guest, budget=500).set_tests <= 10


def test_cells_near_each_other_are_better():
    distances = ({0: 10, 1: 21, 2: 12}, {0: 21, 1: 10, 2: 21}, {0: 12, 1: 21, 2: 10})
    host = tuple(
        host_cell(number, cpus(8 * number, 8), distances=one)
        for number, one in enumerate(distances)
    )
    found = fit(changed(host, 2, memory_used_mib=4096), dedicated((2, 1024), (2, 1024)))
    assert [cell.host_cell for cell in found.cells] == [0, 2]
    assert found.score == (0, 0, 12)
