"""A rebuild in place keeps its cells, or is refused."""

from dataclasses import replace

import pytest

from agent.model.instance import PlacedCell
from agent.numa.fit import fit
from agent.numa.host_cells import count_guests
from agent.numa.host_policy import RebuildRefused, check_rebuild
from tests.unit.numa.cells import dedicated, h2, ht1, pages


def occupied(host, guest):
    """The guest placed, and the host with it."""
    placed = fit(host, guest).cells
    return count_guests(host, placed), placed


def test_the_second_cell_of_the_host_is_as_good_as_the_first():
    _, placed = occupied(h2(), dedicated((2, 1024)))
    there = [replace(placed[0], host_cell=1, pins={0: 8, 1: 9})]
    check_rebuild(count_guests(h2(), there), there, dedicated((2, 1024)))


def test_cells_that_change_places_are_other_cells():
    placed = [PlacedCell(dedicated((3, 1024), (2, 1024)).cells[0], 0, pins={0: 0, 1: 1, 2: 2})]
    placed.append(PlacedCell(dedicated((3, 1024), (2, 1024)).cells[1], 1, pins={3: 8, 4: 9}))
    host = count_guests(h2(), placed)
    check_rebuild(host, placed, dedicated((3, 1024), (2, 1024)))
    with pytest.raises(RebuildRefused, match="would have other cells"):
        check_rebuild(host, placed, dedicated((2, 1024), (3, 1024)))


def test_a_rebuild_keeps_its_pins_so_that_these_have_to_be_as_the_new_image_wants_them():
    host, placed = occupied([ht1(1, 3)], dedicated((2, 1024)))
    threads = sorted(placed[0].pinned_cpus)
    # Two threads of one core.
    assert threads in ([4, 5], [6, 7])
    check_rebuild(host, placed, dedicated((2, 1024), thread_policy="require"))
    apart = [replace(placed[0], pins={0: 4, 1: 6})]
    with pytest.raises(RebuildRefused, match="does not fit where the old one is"):
        check_rebuild(
            count_guests([ht1(1, 3)], apart), apart, dedicated((2, 1024), thread_policy="require")
        )


def test_pages_of_another_size_that_are_free_meanwhile_make_no_difference():
    asked = dedicated((2, 1024), pages="large")
    host, placed = occupied(h2(pages=pages(k4=2097152, k2048=1024)), asked)
    more = [replace(cell, pages=(*cell.pages, *pages(k1048576=4))) for cell in host]
    check_rebuild(more, placed, asked)


def test_a_cell_that_the_host_has_lost_is_named():
    host, placed = occupied(h2(), dedicated((2, 1024)))
    with pytest.raises(RebuildRefused, match="the host does not have cell 0 any more"):
        check_rebuild(host[1:], placed, dedicated((2, 1024)))
