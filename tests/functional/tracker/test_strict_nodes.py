"""Claims on nodes whose cells count all CPUs and memory ([compute] numa_mode = strict): a guest
that is on no cell could not be counted.
"""

from dataclasses import replace

import pytest

from agent.model.instance import Flavor
from tests.support.tracking import F1, FN, NUMA_RESERVED, Host, World, refused

PLACED = Flavor("placed", "PLACED", 2, 4096, root_gb=10, extra_specs={"hw:numa_nodes": "2"})
REFUSED = "NUMA: [compute] numa_mode is strict here, and the guest has no topology"
NO_ROOM = "resources.unavailable"
STRICT = replace(NUMA_RESERVED, layout="nested", strict=True)


@pytest.fixture
def strict(world: World) -> Host:
    """A node in strict mode."""
    host = world.numa("HS")
    host.policy = STRICT
    host.restart()
    host.audit(start=True)
    return host


def test_a_guest_that_floats_is_refused_and_nothing_is_kept(world: World, strict: Host) -> None:
    with refused(world, NO_ROOM) as caught:
        strict.claim("i1", F1)
    assert REFUSED in caught.value.message
    assert strict.usage == "512/0/0"


@pytest.mark.parametrize("flavor", [FN, PLACED], ids=lambda flavor: flavor.name)
def test_a_guest_with_a_topology_is_on_its_cells(flavor: Flavor, strict: Host) -> None:
    strict.claim("i1", flavor)
    cells = strict.tracker.view(strict.node).cells
    assert sum(cell.memory_used_mib for cell in cells) == flavor.memory_mb
    assert sum(cell.shared_used + len(cell.pinned) for cell in cells) == flavor.vcpus


def test_neither_a_migration_nor_a_resize_brings_one_that_floats(
    world: World, strict: Host
) -> None:
    elsewhere = world.plain("HA")
    elsewhere.claim("i1", F1)
    elsewhere.update("i1", vm_state="active")
    strict.claim("i2", PLACED)
    strict.update("i2", vm_state="active", task_state="resize_prep")
    for name, kind, flavor in (("i1", "live-migration", None), ("i2", "resize", F1)):
        with refused(world, NO_ROOM) as caught:
            strict.move(name, kind, flavor)
        assert REFUSED in caught.value.message


@pytest.mark.parametrize(
    "policy", [replace(STRICT, layout="flat"), replace(STRICT, strict=False)], ids=["flat", "mixed"]
)
def test_where_the_root_counts_a_guest_may_float(policy, strict: Host) -> None:
    strict.policy = policy
    strict.restart()
    strict.audit(start=True)
    strict.claim("i1", F1)
    assert strict.usage == "2560/1/20480"


def test_nobody_knows_whether_a_guest_may_float_before_the_driver_has_told_of_the_cells(
    world: World, strict: Host
) -> None:
    whole = strict.facts.numa
    strict.restart()
    strict.audit(start=True, incomplete={"numa": "no answer"}, numa=None)
    with refused(world, "node.not-ready"):
        strict.claim("i1", F1)
    strict.audit(incomplete={}, numa=whole)
    with refused(world, "resources.unavailable"):
        strict.claim("i2", F1)
    # A host without cells may take it.
    strict.restart()
    strict.audit(start=True, numa=None)
    strict.claim("i3", F1)
