"""Affinity to networks. That to devices is in
tests/functional/devices/test_placing_guests.py, with real ones.
"""

from dataclasses import replace

from agent.numa.fit import Networks
from tests.unit.numa.cells import changed, dedicated, full, h2, placed_on, refused

ONE = dedicated((2, 1024))
TWO = dedicated((2, 1024), (2, 1024))


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
