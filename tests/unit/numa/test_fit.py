"""A fit as a whole: cells that the scheduler allocated from, and why a guest does not fit."""

from dataclasses import replace
from typing import Any

import pytest

from agent.model.instance import Guest
from agent.numa.fit import Networks, NoFit, cells_named, fit
from agent.numa.host import NoDeviceFit
from agent.numa.pair import Allocated
from tests.unit.numa.cells import dedicated, full, h2, h4, placed_on, refused
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
