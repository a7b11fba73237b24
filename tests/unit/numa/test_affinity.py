"""Scenarios 47 to 55: networks and devices."""

from dataclasses import replace

import pytest

from agent.numa.fit import Networks, fit
from tests.unit.numa.cells import changed, dedicated, full, h2, h4, placed_on, refused
from tests.unit.numa.devices import LocalDevices

ONE = dedicated((2, 1024))
TWO = dedicated((2, 1024), (2, 1024))


def wants(*physnets: str, tunneled: bool = False) -> Networks:
    return Networks(frozenset(physnets), tunneled)


def host(*physnets: str, tunnel: bool = False):
    """H2 with a physnet a cell, and tunnels on cell 0."""
    cells = tuple(replace(cell, physnets=frozenset({name})) for cell, name in zip(h2(), physnets, strict=True))
    return changed(cells, 0, tunneled=tunnel)


def test_47_a_network_that_is_local_somewhere_has_to_be_near():
    assert placed_on(host("p0", "p1"), ONE, networks=wants("p1")) == [1]
    reason = refused(full(host("p0", "p1"), 1), ONE, networks=wants("p1"))
    assert reason.failed == "networks"
    assert reason.message == "no cells with room are local to physnet p1"
    assert reason.misfits[0, 1].available == 0


def test_48_a_network_that_is_local_nowhere_is_everywhere():
    assert placed_on(host("p0", "p1"), ONE, networks=wants("p9")) == [0]


def test_49_two_networks_on_two_cells_need_two_cells():
    assert refused(host("p0", "p1"), ONE, networks=wants("p0", "p1")).message == "no cells with room are local to physnet p0 and physnet p1"
    assert placed_on(host("p0", "p1"), TWO, networks=wants("p0", "p1")) == [0, 1]


def test_50_tunnels_are_a_network_too():
    first, second = host("p0", "p1", tunnel=True)
    assert placed_on((second, first), ONE, networks=wants(tunneled=True)) == [0]
    assert placed_on((second, replace(first, tunneled=False)), ONE, networks=wants(tunneled=True)) == [1]
    assert refused((first, second), ONE, networks=wants("p1", tunneled=True)).message == "no cells with room are local to physnet p1 and tunnels"


def test_51_a_required_device_is_near_and_a_preferred_one_if_possible():
    cells = h2()
    for policy in ("required", "preferred"):
        assert placed_on(cells, ONE, devices=LocalDevices(cells, [1], 1, policy)) == [1]
    assert refused(full(cells, 1), ONE, devices=LocalDevices(cells, [1], 1)).failed == "devices"
    found = fit(full(cells, 1), ONE, devices=LocalDevices(cells, [1], 1, "preferred"))
    assert ([cell.host_cell for cell in found.cells], found.score) == ([0], (1, 20, 0))


@pytest.mark.parametrize("used", [0, 8192])
def test_52_who_wants_no_device_leaves_the_cells_that_have_some(used):
    cells = changed(h2(), 0, memory_used_mib=used)
    assert placed_on(cells, ONE, devices=LocalDevices(cells, [1], 0)) == [0]


def test_53_two_devices_on_two_cells_need_two_cells_or_one_socket():
    cells = h2(socket=0)
    assert refused(cells, ONE, devices=LocalDevices(cells, [0, 1], 2)).set_tests == 2
    assert placed_on(cells, TWO, devices=LocalDevices(cells, [0, 1], 2)) == [0, 1]
    assert placed_on(cells, ONE, devices=LocalDevices(cells, [0, 1], 2, "socket")) == [0]


def test_54_a_device_of_an_unknown_cell_is_near_to_all():
    for number in (0, 1):
        cells = full(h2(), number)
        assert placed_on(cells, ONE, devices=LocalDevices(cells, [None], 1, "legacy")) == [1 - number]


def test_55_among_the_cells_of_a_socket_the_nearest_is_chosen():
    cells = tuple(
        replace(cell, socket=cell.id // 2, distances={other: 10 if other == cell.id else 12 if other // 2 == cell.id // 2 else 32 for other in range(4)})
        for cell in h4()
    )
    assert fit(cells, ONE, devices=LocalDevices(cells, [3], 1, "socket")).score == (0, 10, 0)
    assert placed_on(cells, ONE, devices=LocalDevices(cells, [3], 1, "socket")) == [3]
    assert placed_on(full(cells, 3), ONE, devices=LocalDevices(cells, [3], 1, "socket")) == [2]
    assert refused(full(full(cells, 3), 2), ONE, devices=LocalDevices(cells, [3], 1, "socket")).failed == "devices"
