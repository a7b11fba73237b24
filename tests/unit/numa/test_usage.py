"""Which cells are preferred, what placed guests use, and the cells
of a host.
"""

from dataclasses import replace

import pytest

from agent.model.facts import Cell, PagePool, Topology
from agent.model.instance import PlacedCell
from agent.numa.fit import fit
from agent.numa.host import HostCell, NetworkAffinity, Pages, count_guests, host_cells
from agent.numa.host_policy import RebuildRefused, check_rebuild
from tests.unit.numa.cells import (
    NOTHING,
    cpus,
    dedicated,
    h2,
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

NO_NETWORKS = NetworkAffinity()


def test_memory_is_spread_or_packed():
    host = tuple(replace(cell, memory_used_mib=1024 * cell.id) for cell in h4(shared=True))
    assert placed_on(host, shared((1, 512))) == [0]
    assert placed_on(host, shared((1, 512)), strategy="pack") == [3]
    assert placed_on(
        tuple(replace(cell, memory_mib=3072) for cell in host[:3]) + host[3:],
        shared((1, 4096)),
        strategy="pack",
    ) == [3]
    assert placed_on(
        (*host[:3], replace(host[3], memory_mib=256)), shared((1, 512)), strategy="pack"
    ) == [2]


def test_dedicated_cpus_are_spread_or_packed():
    host = tuple(
        replace(cell, pinned=frozenset(sorted(cell.dedicated)[: cell.id])) for cell in h4()
    )
    assert [len(cell.free_dedicated) for cell in host] == [4, 3, 2, 1]
    assert placed_on(host, dedicated((1, 512))) == [0]
    assert placed_on(host, dedicated((1, 512)), strategy="pack") == [3]
    assert placed_on(host, dedicated((2, 512)), strategy="pack") == [2]


def test_shared_cpus_count_more_than_memory():
    used = ((1, 0), (0, 64), (0, 32), (1, 64))
    host = tuple(
        replace(cell, shared_used=used[cell.id][0], memory_used_mib=used[cell.id][1])
        for cell in h4(shared=True)
    )
    assert placed_on(host, shared((1, 512))) == [2]
    assert placed_on(host, shared((1, 512)), strategy="pack") == [3]


@pytest.mark.parametrize("strategy", ["spread", "pack"])
def test_a_guest_that_needs_all_cells_gets_them_in_their_order(strategy):
    host = tuple(
        replace(cell, memory_used_mib=memory)
        for cell, memory in zip(h4(), (64, 0, 128, 32), strict=True)
    )
    assert placed_on(host, dedicated(*[(2, 512)] * 4), strategy=strategy) == [0, 1, 2, 3]


def test_usage_does_not_depend_on_the_order_of_guests():
    cell = host_cell(0, cpus(0, 8), pages=pages(k4=2097152, k2048=1024))
    first = placed(cell, dedicated((2, 512)))
    second = placed(
        cell.with_guest(first), dedicated((2, 1024), pages="large", emulator_policy="isolate")
    )
    both = cell.with_guest(first).with_guest(second)
    assert both == cell.with_guest(second).with_guest(first)
    assert both.without_guest(first) == cell.with_guest(second)
    assert both.pinned == cpus(0, 5)
    assert both.memory_used_mib == 1536
    assert [pool.used for pool in both.pages] == [131072, 512]
    assert count_guests(
        h2(), [replace(second, host_cell=1, pins={0: 8, 1: 9}, reserved=frozenset({10})), first]
    ) == count_guests(
        h2(), [first, replace(second, host_cell=1, pins={0: 8, 1: 9}, reserved=frozenset({10}))]
    )


def test_a_resize_on_the_same_cell_needs_room_for_both():
    cell = host_cell(0, cpus(0, 8))
    old = placed(cell, dedicated((2, 1024)))
    crowded = cell.with_guest(old).with_guest(placed(cell.with_guest(old), dedicated((3, 1024))))
    reason = refused(crowded, dedicated((4, 1024)))
    assert (reason.misfits[0, 0].needed, reason.misfits[0, 0].available) == (4, 3)
    assert pinned_to(crowded.without_guest(old), dedicated((4, 1024))) == [0, 1, 5, 6]


def topology() -> Topology:
    cells = (
        Cell(
            0,
            cpus(0, 8),
            16384,
            (PagePool(2048, 1024),),
            {0: 10, 8: 21},
            tuple(cpus(first, 2) for first in range(0, 8, 2)),
            frozenset({0}),
        ),
        Cell(
            8,
            cpus(8, 8),
            16384,
            (),
            {0: 21, 8: 10},
            tuple(cpus(first, 2) for first in range(8, 16, 2)),
            frozenset({0, 1}),
        ),
    )
    return Topology(cells)


def test_a_cpu_that_goes_offline_keeps_its_guest_and_gets_no_other():
    everything = cpus(0, 16)
    guest = PlacedCell(dedicated((2, 1024)).cells[0], 0, pins={0: 4, 1: 5})
    (cell, other) = count_guests(
        host_cells(topology(), everything - {5}, NOTHING, NOTHING, everything, {}, NO_NETWORKS),
        [guest],
    )
    assert cell.pinned == {4, 5}
    assert cell.degraded == {5}
    assert other.degraded == NOTHING
    assert pinned_to(cell, dedicated((6, 1024))) == [0, 1, 2, 3, 6, 7]
    freed = cell.without_guest(guest)
    assert freed.degraded == NOTHING
    assert pinned_to(freed, dedicated((7, 1024))) == [0, 1, 2, 3, 4, 6, 7]
    assert refused(freed, dedicated((8, 1024))).misfits[0, 0].rule == 2


def test_the_cells_of_a_host_offer_what_the_operator_and_the_kernel_say():
    networks = NetworkAffinity({"p": frozenset({8})}, frozenset({0}))
    first, second = host_cells(
        topology(),
        cpus(0, 15),
        NOTHING,
        cpus(0, 3),
        cpus(4, 12),
        {(0, 2048): 64, (8, 4): 256},
        networks,
    )
    assert first == HostCell(
        0,
        cpus(0, 3),
        cpus(4, 4),
        16384,
        siblings=(cpus(0, 2), cpus(2, 1), cpus(4, 2), cpus(6, 2)),
        pages=(Pages(4, (16384 - 2048) * 256), Pages(2048, 1024, reserved=64)),
        tunneled=True,
        socket=0,
        distances={0: 10, 8: 21},
    )
    assert second == HostCell(
        8,
        NOTHING,
        cpus(8, 7),
        16384,
        siblings=(cpus(8, 2), cpus(10, 2), cpus(12, 2), cpus(14, 1)),
        pages=(Pages(4, 16384 * 256, reserved=256),),
        physnets=frozenset({"p"}),
        distances={0: 21, 8: 10},
        offline=frozenset({15}),
    )


@pytest.mark.parametrize(
    ("shared", "dedicated", "offered"),
    [
        (None, None, (cpus(0, 7), cpus(0, 7))),  # pinned guests may then still come by VCPU
        (cpus(0, 4), None, (cpus(0, 4), NOTHING)),
        (None, cpus(4, 4), (NOTHING, cpus(4, 3))),
        (cpus(0, 4), cpus(4, 4), (cpus(0, 4), cpus(4, 3))),
    ],
)
def test_a_kind_of_cpus_that_is_not_configured_gets_none_unless_neither_is(
    shared, dedicated, offered
):
    cell = host_cells(topology(), cpus(0, 7), NOTHING, shared, dedicated, {}, NO_NETWORKS)[0]
    assert (cell.shared, cell.dedicated) == offered
    assert cell.offline == (NOTHING if dedicated is None and shared is not None else frozenset({7}))


def test_ordinary_pages_are_the_rest_of_the_memory_unless_they_are_told():
    told = Topology((Cell(0, cpus(0, 4), 1024, (PagePool(4, 1000), PagePool(2048, 4))),))
    (cell,) = host_cells(told, cpus(0, 4), NOTHING, cpus(0, 4), NOTHING, {}, NO_NETWORKS)
    assert cell.pages == (Pages(4, 1000), Pages(2048, 4))


# --- a rebuild in place keeps its cells, or is refused ---


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
