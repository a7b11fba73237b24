"""The host's CPUs and NUMA cells from its capabilities."""

import pytest

from agent.errors import DriverError
from agent.model.topology import Cell, PagePool
from drivers.libvirt.capabilities import read_capabilities
from tests.support.libvirt_answers import ONLINE, fixture

HOST = fixture("capabilities.xml")


def cells(xml: str, online: frozenset[int] = ONLINE):
    return read_capabilities(xml, online).topology


def one_cell(inside: str, online: frozenset[int] = frozenset({0, 1})):
    return cells(
        f"<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells>{inside}</cells></topology></host></capabilities>",
        online,
    )


def test_sparse_memory_only_and_memoryless_cells_are_all_there_with_their_offline_cpus():
    reading = cells(HOST)
    assert reading.faults == ()
    assert reading.value.cells == (
        Cell(
            0,
            frozenset(range(4)),
            4095,
            (PagePool(2048, 512), PagePool(1048576, 1)),
            {0: 10, 8: 20, 250: 80},
            (frozenset({0, 2}), frozenset({1, 3})),
            frozenset({0}),
        ),
        Cell(
            8,
            frozenset(range(4, 8)),
            8192,
            (PagePool(2048, 0),),
            {},
            (frozenset({4}), frozenset({5})),
            frozenset({1}),
        ),
        Cell(9, frozenset({8}), 0, (), {}, (frozenset({8}),)),
        Cell(250, frozenset(), 2048),
    )


def test_siblings_that_are_offline_do_not_count():
    assert cells(HOST, frozenset({0, 1, 3})).value.cells[0].siblings == (
        frozenset({0}),
        frozenset({1, 3}),
    )


def test_an_older_libvirt_tells_no_siblings_sockets_or_distances():
    reading = one_cell(
        "<cell id='0'><memory>1048576</memory><cpus><cpu id='0'/><cpu id='1'/></cpus></cell>"
    )
    assert reading.value.cells == (
        Cell(0, frozenset({0, 1}), 1024, siblings=(frozenset({0}), frozenset({1}))),
    )
    assert not reading.value.smt


@pytest.mark.parametrize(
    ("sizes", "pools"),
    [((64, 2048), [2048]), ((4, 64, 2048), [64, 2048]), ((2048,), [2048]), ((), [])],
)
def test_ordinary_pages_are_no_pool_whatever_their_size(sizes, pools):
    pages = "".join(f"<pages unit='KiB' size='{size}'>7</pages>" for size in sizes)
    assert [
        pool.size_kib for pool in one_cell(f"<cell id='0'>{pages}</cell>").value.cells[0].pages
    ] == pools


def test_host_without_cells_has_no_topology():
    assert one_cell("").value is None


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("<cell/>", "cell without id: nothing is not a number"),
        ("<cell id='-1'/>", "cell -1: -1 is negative"),
        ("<cell id='7'/>", "cell 7: listed twice"),
        (
            "<cell id='1'><memory unit='GiB'>1</memory></cell>",
            "cell 1: its memory is in 'GiB', not KiB",
        ),
        ("<cell id='1'><memory>much</memory></cell>", "cell 1: memory: 'much' is not a number"),
        ("<cell id='1'><pages size='x'>1</pages></cell>", "cell 1: pages: 'x' is not a number"),
        (
            "<cell id='1'><distances><sibling id='0'/></distances></cell>",
            "cell 1: distances: nothing is not a number",
        ),
        (
            "<cell id='1'><cpus><cpu id='0'/><cpu id='0'/></cpus></cell>",
            "cell 1: a CPU is listed twice",
        ),
        (
            "<cell id='1'><cpus><cpu id='0' siblings='1'/></cpus></cell>",
            "cell 1: the siblings of CPU 0 contradict those of another",
        ),
        (
            (
                "<cell id='1'><cpus><cpu id='0' siblings='0-1'/><cpu id='1' "
                "siblings='1'/></cpus></cell>"
            ),
            None,
        ),
        (
            (
                "<cell id='1'><cpus><cpu id='0' siblings='0'/><cpu id='1' "
                "siblings='0-1'/></cpus></cell>"
            ),
            "cell 1: the siblings of CPU 1 contradict",
        ),
        (
            "<cell id='1'><cpus><cpu id='0' siblings='0-99999'/></cpus></cell>",
            "cell 1: CPU 0: '0-99999' names more than libvirt knows",
        ),
        (
            "<cell id='1'><cpus><cpu id='0' socket_id='one'/></cpus></cell>",
            "cell 1: CPU 0: socket_id: 'one' is not a number",
        ),
        (f"<cell id='1'><cpus>{'<cpu/>' * 65537}</cpus></cell>", "cell 1: it has 65537 CPUs"),
    ],
    ids=range(14),
)
def test_cell_that_cannot_be_understood_is_set_aside_and_the_others_stay(cell, what):
    reading = one_cell(f"<cell id='7'><memory>2048</memory></cell>{cell}")
    assert Cell(7, frozenset(), 2) in reading.value.cells
    assert (len(reading.value.cells), len(reading.faults)) == ((1, 1) if what else (2, 0))
    assert all(fault.startswith(f"capabilities: {what}") for fault in reading.faults)


@pytest.mark.parametrize(
    ("xml", "what"),
    [
        ("<capabilities/>", "no <host>"),
        ("<capabilities><host/></capabilities>", "no architecture"),
        (HOST[:-40], "malformed XML"),
        ("<domain/>", "not 'capabilities'"),
    ],
    ids=("no-host", "no-arch", "cut-off", "another"),
)
def test_capabilities_that_cannot_be_understood_at_all(xml, what):
    with pytest.raises(DriverError, match=what):
        read_capabilities(xml, ONLINE)


def test_more_cells_than_there_can_be_are_none():
    reading = one_cell("<cell/>" * 4097)
    assert (reading.value.cells, reading.faults) == ((), ("capabilities: 4097 cells",))
