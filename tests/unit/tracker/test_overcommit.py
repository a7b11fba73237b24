"""What of a node is promised beyond its ratios."""

from dataclasses import replace

import pytest

from agent.model.instance import Amounts
from agent.tracker.node_drift import overcommitted
from tests.unit.tracker.samples import HERE, RESERVED

# Beside what is reserved there are 3 CPUs with a ratio of 4, 3584 MiB with one of 1.5 and 8192 MiB
# of disk.
NODE = replace(
    HERE,
    vcpus=4,
    memory_mb=4096,
    local_gb=10,
    cpu_allocation_ratio=4.0,
    ram_allocation_ratio=1.5,
    disk_allocation_ratio=1.0,
)
FULL = RESERVED + Amounts(5376, 12, 8192)


def test_a_node_may_be_full() -> None:
    assert list(overcommitted(NODE, RESERVED, FULL)) == []


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            Amounts(memory_mb=1),
            "node n1: 5889 MiB of memory are promised, of 4096 with a ratio of 1.5; -1793 are free",
        ),
        (Amounts(vcpus=1), "node n1: 14 CPUs are promised, of 4 with a ratio of 4; -10 are free"),
        (
            Amounts(disk_mb=1),
            "node n1: 10241 MiB of disk are promised, of 10240 with a ratio of 1; -1 are free",
        ),
    ],
)
def test_one_more_is_too_much(more: Amounts, told: str) -> None:
    (drift,) = overcommitted(NODE, RESERVED, FULL + more)
    assert (drift.kind, drift.severity, drift.detail, drift.provider) == (
        "overcommitted",
        "warning",
        told,
        HERE.uuid,
    )


def test_a_host_that_is_smaller_than_what_is_reserved_is_overcommitted_by_the_first_guest() -> None:
    tiny = replace(NODE, memory_mb=256)
    assert len(list(overcommitted(tiny, RESERVED, RESERVED + Amounts(memory_mb=1)))) == 1
