"""Which guest cell goes to which host cell, and how many sets of cells are tested for that."""

import pytest

from agent.errors import Undecided
from agent.numa.fit import Networks, fit
from agent.numa.matching import match
from tests.unit.numa.cells import (
    changed,
    cpus,
    dedicated,
    full,
    host_cell,
    placed_on,
    refused,
)
from tests.unit.numa.devices import LocalDevices


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


def test_a_unique_matching_is_found_and_a_missing_one_refused():
    assert placed_on(cells_of(8, 6, 4), dedicated((4, 512), (6, 512), (8, 512))) == [2, 1, 0]
    reason = refused(cells_of(8, 6, 4), dedicated((5, 512), (5, 512), (8, 512)))
    assert (reason.failed, reason.set_tests) == ("matching", 0)
    assert {
        (guest, host): (one.needed, one.available) for (guest, host), one in reason.misfits.items()
    } == {
        (0, 2): (5, 4),
        (1, 2): (5, 4),
        (2, 1): (8, 6),
        (2, 2): (8, 4),
    }


def test_a_guest_cell_larger_than_every_host_cell_is_refused():
    reason = refused(cells_of(8, 8, 8), dedicated((4, 512), (4, 512), (64, 512)))
    assert reason.failed == "pair"
    assert reason.message == "guest cell 2 fits no host cell"
    assert [
        (where, one.rule, one.needed, one.available) for where, one in reason.misfits.items()
    ] == [((2, cell), 2, 64, 8) for cell in range(3)]


def test_eight_cells_on_eight_are_one_set_to_test():
    host = cells_of(*[8] * 8)
    devices = LocalDevices(host, [3], 2)
    reason = refused(host, dedicated(*[(4, 1024)] * 8), devices=devices)
    assert (reason.failed, reason.set_tests, devices.tests) == ("devices", 0, 0)
    assert fit(host, dedicated(*[(4, 1024)] * 8), devices=LocalDevices(host, [3], 1)).set_tests == 1


def test_networks_leave_one_set_to_test():
    host, guest = each_with_its_physnet(8), dedicated(*[(2, 1024)] * 4)
    found = fit(host, guest, networks=networks(4, 5, 6, 7))
    assert ([cell.host_cell for cell in found.cells], found.set_tests) == ([4, 5, 6, 7], 1)
    devices = LocalDevices(host, [0], 1)
    assert refused(host, guest, networks=networks(4, 5, 6, 7), devices=devices).failed == "devices"
    assert devices.tests == 0


def test_a_guest_cell_that_fits_nowhere_is_refused_before_any_set_is_tested():
    host = cells_of(*[4] * 8)
    devices = LocalDevices(host, [0], 1)
    reason = refused(host, dedicated((2, 1024), (6, 1024)), devices=devices)
    assert sorted(reason.misfits) == [(1, cell) for cell in range(8)]
    assert (reason.failed, reason.set_tests, devices.tests) == ("pair", 0, 0)


# --- the search -----------------------------------------------------------------------------------


def test_sixteen_cells_on_sixteen_are_decided_with_a_reason_by_one_set():
    host, guest = each_with_its_physnet(16), dedicated(*[(2, 1024)] * 16)
    assert fit(host, guest).set_tests == 1
    devices = LocalDevices(host, [3], 2)
    assert (refused(host, guest, devices=devices).failed, devices.tests) == ("devices", 0)
    assert refused(full(host, 5), guest).failed == "matching"


def test_eight_cells_on_sixteen_without_enough_devices_anywhere_are_refused_without_a_set():
    host = cells_of(*[8] * 16)
    devices = LocalDevices(host, [3], 2)
    assert (
        refused(host, dedicated(*[(4, 1024)] * 8), devices=devices).set_tests == devices.tests == 0
    )


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


def test_guest_cells_keep_their_order_where_they_can():
    assert match([[True] * 3] * 3, [0, 1, 2]) == [0, 1, 2]
    assert match([[True] * 3] * 2, [2, 0, 1]) == [2, 0]


def test_cells_near_each_other_are_better():
    distances = ({0: 10, 1: 21, 2: 12}, {0: 21, 1: 10, 2: 21}, {0: 12, 1: 21, 2: 10})
    host = tuple(
        host_cell(number, cpus(8 * number, 8), distances=one)
        for number, one in enumerate(distances)
    )
    found = fit(changed(host, 2, memory_used_mib=4096), dedicated((2, 1024), (2, 1024)))
    assert [cell.host_cell for cell in found.cells] == [0, 2]
    assert found.score == (0, 0, 12)
