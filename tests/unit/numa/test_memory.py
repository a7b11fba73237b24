"""Memory, shared CPUs and pages of guest cells."""

import logging
from dataclasses import replace

from agent.numa.fit import Networks
from agent.numa.host import HostCell, Pages
from agent.numa.pair import CellLimits
from tests.unit.numa.cells import (
    cpus,
    dedicated,
    h2,
    h2s,
    host_cell,
    pages,
    placed,
    placed_on,
    refused,
    shared,
)

GENEROUS = CellLimits(cpu_ratio=16.0, memory_ratio=16.0)


def paged(**pools: int) -> HostCell:
    """A shared cell of 16 GiB that tells about its pages."""
    return host_cell(0, cpus(0, 8), shared=True, pages=pages(**pools))


def rules(reason) -> list[tuple[int, object, object]]:
    """The misfits of a refused guest: rule, needed, available."""
    return [(misfit.rule, misfit.needed, misfit.available) for misfit in reason.misfits.values()]


# --- memory and shared CPUs -----------------------------------------------------------------------


def test_no_ratio_lets_a_guest_overcommit_against_itself():
    assert rules(refused(h2s(), shared((9, 1024)), limits=GENEROUS)) == [(2, 9, 8)] * 2


def test_shared_cpus_up_to_the_ratio_fit():
    host, limits = h2s(shared_used=12), CellLimits(2.0, 1.0)
    assert placed_on(host, shared((4, 1024)), limits=limits) == [0]
    assert rules(refused(host, shared((5, 1024)), limits=limits)) == [(4, 17, 16.0)] * 2


def test_memory_up_to_the_ratio_fits():
    host, limits = h2s(memory_used_mib=16384), CellLimits(16.0, 1.5)
    assert placed_on(host, shared((1, 8192)), limits=limits) == [0]
    assert rules(refused(host, shared((1, 8193)), limits=limits)) == [(4, 24577, 24576.0)] * 2


def test_dedicated_guests_get_only_free_memory():
    host = h2(memory_used_mib=12288)
    assert placed_on(host, dedicated((2, 4096)), limits=GENEROUS) == [0]
    assert rules(refused(host, dedicated((2, 4097)), limits=GENEROUS)) == [(1, 4097, 4096)] * 2


# --- pages ----------------------------------------------------------------------------------------


def test_large_pages_are_taken_until_none_is_left():
    cell = paged(k4=4194304, k2048=512)
    first = placed(cell, shared((2, 1024), pages="large"))
    assert first.page_size_kib == 2048
    after = cell.with_guest(first)
    assert [(pool.used, pool.free) for pool in after.pages] == [(0, 4194304), (512, 0)]
    assert rules(refused(after, shared((1, 2), pages="large"))) == [(1, 2, {4: 4194304, 2048: 0})]
    assert placed(after, shared((1, 2), pages="any")).page_size_kib == 4


def test_the_largest_pages_that_will_do_are_taken():
    cell = paged(k4=4194304, k2048=512, k1048576=2)
    assert placed(cell, shared((1, 2048), pages="large")).page_size_kib == 1048576
    refused(cell, shared((1, 1536), pages="large"))


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


def test_memory_in_huge_pages_has_no_part_in_the_ratio():
    cell = replace(
        paged(k4=2097152, k2048=4096),
        memory_used_mib=8192 + 7168,
        pages=(Pages(4, 2097152, used=7168 * 256), Pages(2048, 4096, used=4096)),
    )
    limits = CellLimits(16.0, 1.0)
    assert placed(cell, shared((1, 1024)), limits=limits).page_size_kib == 4
    assert rules(refused(cell, shared((1, 1025)), limits=limits)) == [(4, 8193, 8192.0)]
    free = replace(
        cell, pages=(Pages(4, 2097152, used=2097152), Pages(2048, 4096)), memory_used_mib=8192
    )
    assert placed(free, shared((1, 8192), pages="large"), limits=limits).page_size_kib == 2048


def test_a_part_of_a_page_is_a_page():
    cell = host_cell(0, cpus(0, 8), shared=True, pages=(Pages(1048576, 4),))
    after = cell.with_guest(replace(placed(h2s(), shared((1, 1500))), page_size_kib=None))
    assert after.pages[0].used == 2
