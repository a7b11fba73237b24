"""Scenario 61: a rebuild in place keeps its cells, or is refused."""

from dataclasses import replace

import pytest

from agent.model.guest import PlacedCell
from agent.numa.fit import fit
from agent.numa.host_cells import counted
from agent.numa.pair import Limits
from agent.numa.rebuild import RebuildRefused, check_rebuild
from tests.unit.numa.cells import dedicated, h2, h2s, pages, shared


def occupied(host, guest):
    """The guest placed, and the host with it."""
    placed = fit(host, guest).cells
    return counted(host, placed), placed


@pytest.mark.parametrize("guest", [dedicated((2, 1024)), dedicated((2, 1024), (3, 512)), shared((4, 2048), (2, 512))])
def test_61_the_same_request_stays(guest):
    host, placed = occupied(h2() if guest.pinned else h2s(), guest)
    check_rebuild(host, placed, guest)
    check_rebuild(host, placed, replace(guest, thread_policy="isolate") if guest.pinned else guest)


def test_61_the_second_cell_of_the_host_is_as_good_as_the_first():
    _, placed = occupied(h2(), dedicated((2, 1024)))
    there = [replace(placed[0], host_cell=1, pins={0: 8, 1: 9})]
    check_rebuild(counted(h2(), there), there, dedicated((2, 1024)))


@pytest.mark.parametrize(
    "guest", [dedicated((1, 1024), (1, 1024)), dedicated((2, 2048)), dedicated((3, 1024)), shared((2, 1024)), dedicated((2, 1024), pages="large")]
)
def test_61_another_topology_is_refused(guest):
    host, placed = occupied(h2(pages=pages(k4=2097152, k2048=1024)), dedicated((2, 1024)))
    with pytest.raises(RebuildRefused):
        check_rebuild(host, placed, guest)


def test_61_cells_that_change_places_are_other_cells():
    placed = [PlacedCell(dedicated((3, 1024), (2, 1024)).cells[0], 0, pins={0: 0, 1: 1, 2: 2})]
    placed.append(PlacedCell(dedicated((3, 1024), (2, 1024)).cells[1], 1, pins={3: 8, 4: 9}))
    host = counted(h2(), placed)
    check_rebuild(host, placed, dedicated((3, 1024), (2, 1024)))
    with pytest.raises(RebuildRefused, match="would have other cells"):
        check_rebuild(host, placed, dedicated((2, 1024), (3, 1024)))


def test_61_the_old_guest_is_not_given_back_first():
    host, placed = occupied(h2(), dedicated((5, 1024)))
    with pytest.raises(RebuildRefused, match="there is no room for the rebuilt guest beside the old one: guest cell 0 fits no host cell"):
        check_rebuild(host, placed, dedicated((5, 1024)))


def test_61_limits_count():
    host, placed = occupied(h2s(), shared((5, 1024)))
    check_rebuild(host, placed, shared((5, 1024)), Limits(2.0, 1.0))
    with pytest.raises(RebuildRefused):
        check_rebuild(host, placed, shared((5, 1024)), Limits(1.0, 1.0))
