"""Dedicated CPUs that sleep: on which cell and core each is, from what was seen before and what the
kernel still tells.
"""

import pytest

from agent.model.topology import Cell, Topology
from drivers.libvirt.capabilities import (
    CORES_FILE,
    add_sleeping_cpus,
    read_topology,
    write_topology,
)

ALL = frozenset(range(8))


def cores(*sets):
    return tuple(map(frozenset, sets))


AWAKE = Topology(
    (
        Cell(0, frozenset(range(4)), 1024, siblings=cores({0, 2}, {1, 3}), sockets=frozenset({0})),
        Cell(
            1, frozenset(range(4, 8)), 1024, siblings=cores({4, 6}, {5, 7}), sockets=frozenset({1})
        ),
    )
)


def seen(*sleeping: int) -> Topology:
    """What libvirt tells of the same host while these sleep."""
    gone = frozenset(sleeping)
    return Topology(
        tuple(
            Cell(
                one.id,
                one.cpus - gone,
                one.memory_mib,
                siblings=tuple(core - gone for core in one.siblings if core - gone),
                sockets=one.sockets if one.cpus - gone else frozenset(),
            )
            for one in AWAKE.cells
        )
    )


def test_what_was_never_seen_awake_is_on_the_cell_that_the_kernel_tells_and_a_core_of_its_own():
    first, second = add_sleeping_cpus(
        seen(3, 5), ALL - {3, 5}, frozenset({3, 5}), {3: 0}, None
    ).cells
    assert (first.cpus, first.siblings) == (frozenset(range(4)), cores({0, 2}, {1}, {3}))
    # Nobody knows where 5 is.
    assert (second.cpus, second.siblings) == (frozenset({4, 6, 7}), cores({4, 6}, {7}))


def test_cores_are_learned_as_cpus_wake_up_in_turn():
    only_two = add_sleeping_cpus(
        seen(0, 1, 3), ALL - {0, 1, 3}, frozenset({0, 1, 3}), {0: 0, 1: 0, 3: 0}, None
    )
    assert only_two.cells[0].siblings == cores({0}, {1}, {2}, {3})
    with_zero = add_sleeping_cpus(
        seen(1, 3), ALL - {1, 3}, frozenset({1, 3}), {1: 0, 3: 0}, only_two
    )
    assert with_zero.cells[0].siblings == cores({0, 2}, {1}, {3})
    assert add_sleeping_cpus(seen(), ALL, frozenset(), {}, with_zero) == AWAKE


def test_a_core_that_is_another_one_now_is_forgotten():
    now = Topology(
        (Cell(0, frozenset({0, 1, 2}), 1024, siblings=cores({0, 1}, {2})), AWAKE.cells[1])
    )
    (cell, _) = add_sleeping_cpus(
        now,
        ALL - {3},
        frozenset({3}),
        {3: 0},
        Topology((Cell(0, frozenset(range(4)), 0, siblings=cores({0, 3}, {1, 2})),)),
    ).cells
    assert cell.siblings == cores({0, 1}, {2}, {3})


def test_a_thread_that_is_offline_for_good_is_in_no_core():
    assert add_sleeping_cpus(seen(2, 3), ALL - {2, 3}, frozenset({3}), {}, AWAKE).cells[
        0
    ].siblings == cores({0}, {1, 3})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"cells": [{}]}',
        '{"cells": 1}',
        '{"cells": [{"id": "x", "cpus": [], "siblings": [], "sockets": []}]}',
    ],
)
def test_what_cannot_be_used_of_a_memory_is_left_out(tmp_path, text):
    (tmp_path / CORES_FILE).write_text(text)
    assert read_topology(tmp_path) is None


def test_a_folder_that_cannot_be_written_loses_only_the_memory(tmp_path):
    write_topology(tmp_path / "nowhere", AWAKE)
    assert read_topology(tmp_path / "nowhere") is None
