"""Two faults of the older fit, which walks the orders of host cells with a memo and writes into the
guest it fits.

The memo's key was the guest cell's id, which the pair test overwrote with the host's, so that
answers for one guest cell were taken for another's: a guest was reported to fit with a cell that
fits nowhere, left without pins. And the page size selected on one host cell overwrote the one
requested, so that the next host cell was asked for something else.
"""

import random

import pytest

from agent.model.instance import Guest, GuestCell
from agent.numa.fit import Fit, Networks, NoFit, fit
from agent.numa.host import HostCell, Pages

NOTHING = frozenset[int]()


def eight(number: int, *, shared: bool, physnets: frozenset[str] = NOTHING) -> HostCell:
    offered = frozenset(range(8 * number, 8 * number + 8))
    return HostCell(
        number,
        offered if shared else NOTHING,
        NOTHING if shared else offered,
        16384,
        physnets=physnets,
    )


def guest(*counts: int, shared: bool) -> Guest:
    cells = []
    for index, count in enumerate(counts):
        first = sum(counts[:index])
        cpus = frozenset(range(first, first + count))
        cells.append(GuestCell(cpus if shared else NOTHING, NOTHING if shared else cpus, 512))
    return Guest(tuple(cells), "shared" if shared else "dedicated")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("counts", [(4, 4, 64), (4, 64, 4), (64, 4, 4)])
def test_a_guest_cell_of_64_cpus_does_not_fit_cells_of_8(counts, shared):
    with pytest.raises(NoFit) as reason:
        fit([eight(number, shared=shared) for number in range(3)], guest(*counts, shared=shared))
    assert reason.value.failed == "pair"
    assert {misfit.needed for misfit in reason.value.misfits.values()} == {64}


def test_no_fit_takes_more_cpus_than_a_cell_has_left_or_those_of_another():
    chance, fits = random.Random(3), 0
    for _ in range(3000):
        host = []
        for number in range(chance.choice((3, 4))):
            cell = eight(
                number,
                shared=False,
                physnets=frozenset(name for name in "pq" if chance.random() < 0.4),
            )
            taken = frozenset(chance.sample(sorted(cell.dedicated), chance.randrange(7)))
            host.append(
                HostCell(
                    cell.id, NOTHING, cell.dedicated, 16384, pinned=taken, physnets=cell.physnets
                )
            )
        asked = guest(
            *(chance.randint(2, 8) for _ in range(chance.randint(2, len(host)))), shared=False
        )
        networks = Networks(frozenset(name for name in "pq" if chance.random() < 0.4))
        try:
            found = fit(host, asked, networks=networks)
        except NoFit:
            continue
        fits += 1
        check(host, asked, found)
    assert fits > 300


def check(host: list[HostCell], asked: Guest, found: Fit) -> None:
    for cell, wanted in zip(found.cells, asked.cells, strict=True):
        assert len(cell.pins) == len(wanted.dedicated)
        assert set(cell.pins.values()) <= host[cell.host_cell].free_dedicated


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pages_selected_on_one_cell_are_not_requested_of_the_next(order):
    large = HostCell(
        0, frozenset(range(8)), NOTHING, 16384, pages=(Pages(4, 1048576), Pages(1048576, 8))
    )
    near = HostCell(
        1,
        frozenset(range(8, 16)),
        NOTHING,
        16384,
        pages=(Pages(4, 1048576), Pages(2048, 4096)),
        physnets=frozenset({"p"}),
    )
    asked = Guest((GuestCell(frozenset({0, 1}), NOTHING, 1024),), pages="large")
    (cell,) = fit(
        [(large, near)[number] for number in order], asked, networks=Networks(frozenset({"p"}))
    ).cells
    assert (cell.host_cell, cell.page_size_kib) == (1, 2048)
    assert asked.pages == "large"
