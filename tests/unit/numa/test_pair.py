"""Why a guest cell does not fit a host cell: each rule, at its limit and beyond."""

from typing import Any

import pytest

from agent.model.instance import Guest, GuestCell
from agent.numa.host import HostCell, Pages
from agent.numa.pair import Allocated, CellLimits
from tests.unit.numa.cells import NOTHING, cpus, dedicated, ht1, placed, placed_on, refused, shared

CELL = HostCell(0, cpus(0, 4), cpus(4, 4), 4096)
BOTH = HostCell(0, cpus(0, 4), cpus(0, 4), 4096)
"""Each CPU serves both kinds."""
SMALL, LARGE, HUGE = Pages(4, 262144), Pages(2048, 512), Pages(1048576, 2)
PAGED = HostCell(0, cpus(0, 8), cpus(8, 8), 4096, pages=(LARGE, SMALL, HUGE))
LIMITS = CellLimits(2.0, 1.5)
MIXED = Guest((GuestCell(cpus(0, 1), cpus(1, 2), 1024),), "mixed")
# 513 pages of 4 KiB: no whole number of MiB.
ODD = HostCell(0, cpus(0, 8), NOTHING, 4, pages=(Pages(4, 513),))


@pytest.mark.parametrize(
    ("host", "guest", "more", "expected"),
    [
        # The scheduler's allocation.
        (CELL, MIXED, {"allocated": Allocated(1, 1)}, (0, "PCPU: 2 needed, 1 allocated")),
        (CELL, MIXED, {"allocated": Allocated(2, 2)}, (0, "VCPU: 1 needed, 2 allocated")),
        (
            CELL,
            MIXED,
            {"allocated": Allocated(2, 1, 512)},
            (0, "MEMORY_MB: 1024 needed, 512 allocated"),
        ),
        (
            CELL,
            dedicated((2, 512), emulator_policy="isolate"),
            {"allocated": Allocated(2)},
            (0, "PCPU: 3 needed, 2 allocated"),
        ),
        (BOTH, MIXED, {"allocated": Allocated(0, 2)}, (0, "VCPU: 3 needed, 2 allocated")),
        (BOTH, MIXED, {"allocated": Allocated(2, 1)}, (0, "PCPU: 0 needed, 2 allocated")),
        (
            PAGED,
            dedicated((1, 1024), pages="large"),
            {"allocated": Allocated(pages={4: 1024})},
            (0, "MiB in pages of 1048576 or 2048 KiB: 1024 needed, {4: 1024} allocated"),
        ),
        (
            PAGED,
            dedicated((1, 1024)),
            {"allocated": Allocated(pages={2048: 1024})},
            (0, "MiB in pages of 4 KiB: 1024 needed, {2048: 1024} allocated"),
        ),
        # Memory.
        (CELL, dedicated((1, 4097)), {}, (1, "MiB: 4097 needed, 4096 available")),
        (
            HostCell(0, NOTHING, cpus(0, 4), 4096, memory_used_mib=1),
            dedicated((1, 4096)),
            {},
            (1, "MiB: 4096 needed, 4095 available"),
        ),
        (
            PAGED,
            dedicated((1, 3072), pages="any"),
            {},
            (
                1,
                "MiB in free pages (any): 3072 needed, "
                "{2048: 512, 4: 262144, 1048576: 2} available",
            ),
        ),
        (
            PAGED,
            dedicated((1, 1025), pages="large"),
            {},
            (
                1,
                "MiB in free pages (large): 1025 needed, "
                "{2048: 512, 4: 262144, 1048576: 2} available",
            ),
        ),
        (PAGED, shared((1, 1025)), {}, (1, "MiB in pages of 4 KiB: 1025 needed, 1024 available")),
        (ODD, shared((1, 3)), {}, (1, "MiB in pages of 4 KiB: 3 needed, 2 available")),
        (
            HostCell(0, cpus(0, 8), NOTHING, 4096, pages=(LARGE,)),
            shared((1, 1023)),
            {},
            (1, "MiB in pages of 2048 KiB: 1023 needed, 1024 available"),
        ),
        # CPUs of each kind.
        (CELL, dedicated((5, 512)), {}, (2, "dedicated CPUs: 5 needed, 4 available")),
        (
            CELL,
            dedicated((4, 512), emulator_policy="isolate"),
            {},
            (2, "dedicated CPUs: 5 needed, 4 available"),
        ),
        (CELL, shared((5, 512)), {}, (2, "shared CPUs: 5 needed, 4 available")),
        # Free CPUs, and the thread policy.
        (ht1(0, 1, 2), dedicated((6, 512)), {}, (3, "free dedicated CPUs: 6 needed, 5 available")),
        (
            ht1(0, 1, 2),
            dedicated((5, 512), emulator_policy="isolate"),
            {},
            (3, "free dedicated CPUs: 6 needed, 5 available"),
        ),
        (
            ht1(),
            dedicated((2, 512), thread_policy="isolate"),
            {},
            (3, "cores without SMT for thread policy isolate: 2 needed, 0 available"),
        ),
        (
            ht1(0, 2, 4, 6),
            dedicated((2, 512), thread_policy="require"),
            {},
            (
                3,
                "free cores for thread policy require: 2 needed, [[1], [3], [5], [7]] available",
            ),
        ),
        # The ratios.
        (
            HostCell(0, cpus(0, 4), NOTHING, 4096, shared_used=7),
            shared((2, 512)),
            {"limits": LIMITS},
            (4, "shared CPUs within the ratio: 9 needed, 8.0 available"),
        ),
        (
            HostCell(0, cpus(0, 4), NOTHING, 4096, memory_used_mib=6000),
            shared((2, 145)),
            {"limits": LIMITS},
            (4, "MiB within the ratio: 6145 needed, 6144.0 available"),
        ),
        (
            HostCell(
                0,
                cpus(0, 4),
                NOTHING,
                4097,
                memory_used_mib=3000,
                pages=(Pages(4, 524288), Pages(2048, 1024, used=500), Pages(16, 1, used=1)),
            ),
            shared((2, 1074)),
            {"limits": LIMITS},
            (4, "MiB within the ratio: 3074 needed, 3073.5 available"),
        ),
    ],
)
def test_a_refusal_names_the_first_rule_that_fails(
    host: HostCell, guest: Guest, more: dict[str, Any], expected: tuple[int, str]
) -> None:
    if "allocated" in more:
        more = {**more, "allocated": {0: more["allocated"]}}
    (misfit,) = refused(host, guest, **more).misfits.values()
    assert (misfit.rule, str(misfit)) == expected


@pytest.mark.parametrize(
    ("host", "guest", "more", "size"),
    [
        (CELL, MIXED, {"allocated": Allocated(2, 1, 1024)}, None),
        (BOTH, MIXED, {"allocated": Allocated(0, 3)}, None),
        (
            CELL,
            dedicated((2, 512), emulator_policy="isolate"),
            {"allocated": Allocated(3, 0)},
            None,
        ),
        (CELL, dedicated((1, 4096)), {}, None),
        (PAGED, dedicated((1, 1024)), {"allocated": Allocated(pages={})}, 4),
        (PAGED, dedicated((1, 1024), pages="any"), {"allocated": Allocated(pages={})}, 4),
        (
            PAGED,
            dedicated((1, 1024), pages="any"),
            {"allocated": Allocated(pages={2048: 1024})},
            2048,
        ),
        (PAGED, dedicated((1, 1024), pages="any"), {}, 1048576),
        (PAGED, dedicated((1, 1022), pages="large"), {}, 2048),
        (PAGED, dedicated((1, 1024), pages="small"), {}, 4),
        (PAGED, dedicated((1, 1024), pages=2048), {}, 2048),
        (PAGED, shared((1, 1024)), {}, 4),
        (ODD, shared((1, 2)), {}, 4),
        (
            HostCell(0, cpus(0, 4), NOTHING, 4096, shared_used=6, memory_used_mib=6000),
            shared((2, 144)),
            {"limits": LIMITS},
            None,
        ),
        # Huge pages are not overcommitted.
        (
            HostCell(0, cpus(0, 4), NOTHING, 2048, memory_used_mib=9999, pages=PAGED.pages),
            shared((2, 1024), pages=2048),
            {"limits": LIMITS},
            2048,
        ),
    ],
)
def test_a_guest_cell_at_the_limit_is_placed(
    host: HostCell, guest: Guest, more: dict[str, Any], size: int | None
) -> None:
    if "allocated" in more:
        more = {**more, "allocated": {0: more["allocated"]}}
    assert placed(host, guest, **more).page_size_kib == size


def test_only_the_first_of_equal_guest_cells_needs_a_cpu_for_the_emulator() -> None:
    host = (HostCell(0, NOTHING, cpus(0, 5), 4096), HostCell(1, NOTHING, cpus(5, 4), 4096))
    guest = dedicated((4, 512), (4, 512), emulator_policy="isolate")
    assert placed_on(host, guest) == [0, 1]
