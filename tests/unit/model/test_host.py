"""Facts and topology of a host."""

import dataclasses

import pytest

from agent.model.facts import HostFacts
from agent.model.topology import Cell, PagePool, Topology
from drivers.fake.base import DescribedFacts

FACTS = HostFacts("node-a", 1.0, "QEMU", incomplete={"pci": "the device listing failed"})


@pytest.mark.parametrize(("sockets", "socket"), [({1}, 1), ({0, 1}, None), ((), None), ({0}, 0)])
def test_a_cell_has_a_socket_if_all_its_cpus_are_on_one(sockets, socket):
    assert Cell(0, frozenset({0}), 1, sockets=frozenset(sockets)).socket == socket


@pytest.mark.parametrize(
    ("siblings", "smt"), [([{0, 1}, {2}], True), ([{0}, {1}], False), ([], False)]
)
def test_threads_show_in_the_siblings_of_a_core(siblings, smt):
    cell = Cell(0, frozenset({0, 1, 2}), 1, siblings=tuple(map(frozenset, siblings)))
    assert Topology((Cell(1, frozenset(), 1), cell)).smt is smt


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"taken_at": 2.0}, True),
        ({"memory_mib": 1}, False),
        ({"incomplete": {}}, False),
        ({"providers": ("one",)}, False),
    ],
)
def test_facts_are_compared_without_their_time(change, same):
    facts = DescribedFacts("node-a", 1.0, "QEMU", incomplete={"pci": "the device listing failed"})
    assert facts.same_but_for_time(dataclasses.replace(facts, **change)) is same
    assert not facts.same_but_for_time(FACTS)
    assert not FACTS.same_but_for_time(facts)


def test_cells_that_share_some_cpus_are_one_cell_with_all_that_they_have():
    shared = Topology(
        (
            Cell(
                0, frozenset({0, 1}), 1024, (PagePool(2048, 8, 4),), siblings=(frozenset({0, 1}),)
            ),
            Cell(1, frozenset({1, 2}), 512, (PagePool(2048, 2),), siblings=(frozenset({1, 2}),)),
            Cell(9, frozenset(), 256, sockets=frozenset({1})),
        )
    )
    whole = shared.with_disjoint_cells()
    assert whole.cells == (
        Cell(
            0,
            frozenset({0, 1, 2}),
            1792,
            (PagePool(2048, 10),),
            {0: 10},
            (frozenset({0, 1, 2}),),
            frozenset({1}),
        ),
    )
    assert (whole.shared_by, whole.cell_of(9), whole.with_disjoint_cells()) == ((0, 1, 9), 0, whole)
    apart = Topology((Cell(0, frozenset({0}), 1), Cell(8, frozenset({1}), 1)))
    assert apart.with_disjoint_cells() is apart
