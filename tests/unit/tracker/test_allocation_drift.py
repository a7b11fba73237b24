"""What guests are promised against what Placement has of them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.model.facts import CpuFacts, HostFacts, PagePool, Topology
from agent.model.finding import Drift
from agent.model.instance import Amounts, Flavor, GuestCell, PlacedCell
from agent.model.inventory import Inventories
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Claim, ComputeNode, Migration, RecordChanges
from agent.model.provider_tree import ProviderTree
from agent.store.store import open_store
from agent.tracker.allocation_drift import allocation_drift
from agent.tracker.allocations import AllocationShare
from agent.tracker.claim_usage import provider_usage
from agent.tracker.node_drift import overcommitted
from agent.tracker.node_record import Agent, node_record
from agent.tracker.stored_state import TreeConsumers
from agent.tree.policy import Policy
from tests.support.consumer_book import HOST, claim, instance
from tests.support.tracking import F2, FN, PMEM, Host, World, numa_cells
from tests.unit.tracker.samples import HERE, RESERVED

NODE = ProviderUuid("node-a")
GUEST, MOVE = ConsumerUuid("guest"), ConsumerUuid("move")
OFFERED = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})
F1 = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}


def told(
    held: dict[ConsumerUuid, dict[str, int]],
    *claims: Claim,
    migrations: tuple[Migration, ...] = (),
    offered: frozenset[str] = OFFERED,
    **guest: Any,
) -> list[Drift]:
    records = TreeConsumers(
        host=HOST,
        claims=claims or (claim(GUEST, NODE),),
        instances={GUEST: instance(GUEST, **guest)},
        migrations={migration.uuid: migration for migration in migrations},
    )
    return list(allocation_drift(AllocationShare(NODE, {NODE: held}, offered), records))


def migration(status: Any) -> Migration:
    return Migration(
        uuid=MOVE,
        instance=GUEST,
        type="resize",
        status=status,
        source_compute=HOST,
        source_node=NODE,
    )


@pytest.mark.parametrize(("disk_mb", "gib"), [(0, 0), (1, 1), (1024, 1), (51712, 51)])
def test_disk_is_promised_in_mib_and_allocated_in_gib_rounded_up(disk_mb: int, gib: int) -> None:
    promised = claim(GUEST, NODE, amounts=Amounts(2048, 1, disk_mb))
    assert (
        told({GUEST: {"VCPU": 1, "MEMORY_MB": 2048, **({"DISK_GB": gib} if gib else {})}}, promised)
        == []
    )


def test_the_halves_of_a_resize_here_are_rounded_one_by_one() -> None:
    halves = [
        claim(GUEST, NODE, amounts=Amounts(2048, 1, 512), half=half) for half in ("old", "new")
    ]
    one = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 1}
    assert told({GUEST: one, MOVE: one}, *halves, migrations=(migration("finished"),)) == []


def test_the_cpu_for_an_isolated_emulator_counts() -> None:
    cell = PlacedCell(
        GuestCell(frozenset(), frozenset({0, 1}), 2048),
        0,
        pins={0: 4, 1: 6},
        reserved=frozenset({8}),
    )
    promised = claim(GUEST, NODE, amounts=Amounts(2048, 2, 20480), cells=(cell,))
    assert told({GUEST: {"PCPU": 3, "MEMORY_MB": 2048, "DISK_GB": 20}}, promised) == []


@pytest.mark.parametrize("spec", ["resources:VCPU", "resources1:VCPU", "resources_cpus:PCPU"])
def test_a_class_that_the_flavor_sizes_itself_is_not_compared(spec: str) -> None:
    flavor = Flavor("f", "F", 1, 2048, 20, extra_specs={spec: "0", "hw:cpu_policy": "shared"})
    assert told({GUEST: F1 | {"VCPU": 4}}, flavor=flavor) == []
    (found,) = told({GUEST: F1 | {"MEMORY_MB": 1}}, flavor=flavor)
    assert found.detail == "instance guest holds MEMORY_MB 1 instead of 2048"


def test_a_migration_that_is_over_does_not() -> None:
    (found,) = told({MOVE: F1}, migrations=(migration("failed"),))
    assert found.kind == "missing-allocation"
    assert "(failed)" in found.detail


# --- what claims use of a tree ---


def tree_of(host: Host, **cells: Inventories) -> ProviderTree:
    """The host's tree, with cells in it."""
    tree = ProviderTree()
    tree.new_root(host.name, host.node)
    tree.update_inventory(
        host.name, {name: {"total": 64} for name in ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB", PMEM)}
    )
    for name, inventory in cells.items():
        tree.new_child(f"{host.name}_{name}", host.name)
        tree.update_inventory(f"{host.name}_{name}", inventory)
    return tree


def used(host: Host, tree: ProviderTree) -> dict[str, dict[str, int]]:
    return {
        tree.name_of(uuid): dict(amounts)
        for uuid, amounts in provider_usage(host.tracker.view(host.node), tree).items()
    }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_store(tmp_path) as store:
        yield World(store)


def test_pinned_cpus_are_shared_ones_where_nothing_counts_dedicated_ones(world: World) -> None:
    host = world.numa()
    host.claim("n1", FN)
    tree = ProviderTree()
    tree.new_root(host.name, host.node)
    tree.update_inventory(host.name, {"VCPU": {"total": 64}})
    assert used(host, tree) == {"HN": {"VCPU": 2}}


def test_pages_count_in_mib_where_they_are(world: World) -> None:
    cells = [replace(cell, pages=(PagePool(2048, 4096),)) for cell in numa_cells().cells]
    host = world.numa(topology=Topology(tuple(cells)))
    host.claim("n1", replace(FN, extra_specs={**FN.extra_specs, "hw:mem_page_size": "large"}))
    pages = {"CUSTOM_MEMORY_PAGE_2048": {"total": 8192}}
    found = used(host, tree_of(host, NUMA0=pages, NUMA1=pages))
    assert (found["HN_NUMA0"], found["HN_NUMA1"]) == (
        {"CUSTOM_MEMORY_PAGE_2048": 4096},
        {"CUSTOM_MEMORY_PAGE_2048": 0},
    )


# --- the record of a node and its lease, as an audit writes them ---


NOW, LEASE = 1_000_000.0, 300.0
UUID, OTHER = (
    ProviderUuid("11111111-0000-4000-8000-000000000001"),
    ProviderUuid("11111111-0000-4000-8000-000000000002"),
)
US = Agent("HA", "192.0.2.1", LEASE)
FACTS = HostFacts(
    "node-a",
    NOW,
    "QEMU",
    8000,
    CpuFacts(frozenset(range(4)), "x86_64", "Nehalem", "Intel"),
    8192,
    100,
)
KNOWN = ComputeNode(
    uuid=UUID,
    host="HA",
    name="node-a",
    host_ip="192.0.2.1",
    vcpus=4,
    memory_mb=8192,
    local_gb=100,
    hypervisor_type="QEMU",
    hypervisor_version=8000,
    cpu_info="x86_64 Intel Nehalem",
    cpu_allocation_ratio=4.0,
    created_at=1.0,
    updated_at=2.0,
    version=7,
)


def recorded(
    node: ComputeNode | None = KNOWN,
    *,
    facts: HostFacts = FACTS,
    namesake: ComputeNode | None = None,
    us: Agent = US,
    **policy: Any,
) -> tuple[ComputeNode, RecordChanges]:
    return node_record(node, namesake, UUID, facts, us, Policy(**policy), NOW)


# --- the record -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "becomes"),
    [
        ({"memory_mib": 4096}, {"memory_mb": 4096}),
        ({"memory_mib": 0, "disk_gib": 0}, {"memory_mb": 0, "local_gb": 0}),
        ({"cpu": CpuFacts(frozenset({0, 1}), "aarch64")}, {"vcpus": 2, "cpu_info": "aarch64"}),
        ({"name": "node-b"}, {"name": "node-b"}),
        (
            {"hypervisor_type": "KVM", "hypervisor_version": 9},
            {"hypervisor_type": "KVM", "hypervisor_version": 9},
        ),
        # What the driver does not tell now stays.
        ({"cpu": None, "memory_mib": None, "disk_gib": None}, {}),
    ],
)
def test_what_the_driver_says_is_written_down(
    said: dict[str, Any], becomes: dict[str, Any]
) -> None:
    node, changes = recorded(facts=replace(FACTS, **said))
    assert node == replace(KNOWN, **becomes, updated_at=NOW if becomes else KNOWN.updated_at)
    assert changes == (RecordChanges(nodes=(node,)) if becomes else RecordChanges())


def test_an_agent_without_an_address_keeps_the_one_that_was_known() -> None:
    assert recorded(us=replace(US, address=None)) == (KNOWN, RecordChanges())
    assert recorded(us=replace(US, address="192.0.2.9"))[0].host_ip == "192.0.2.9"


def test_a_name_that_only_a_deleted_node_had_is_free() -> None:
    assert recorded(None, namesake=replace(KNOWN, uuid=OTHER, deleted=True))[0].uuid == UUID


def test_disk_is_rounded_up_and_what_the_host_keeps_is_left_out(world: World) -> None:
    host = world.plain("HA")
    host.claim("i1", F2)
    assert used(host, tree_of(host)) == {
        "HA": {"VCPU": 2, "PCPU": 0, "MEMORY_MB": 4096, "DISK_GB": 51}
    }


def test_pinned_cpus_count_on_their_cell_and_not_as_shared_ones(world: World) -> None:
    host = world.numa()
    host.claim("n1", FN)
    found = used(host, tree_of(host, NUMA0={"PCPU": {"total": 4}}))
    assert (found["HN"]["VCPU"], found["HN_NUMA0"]) == (0, {"PCPU": 2})


# --- what of a node is promised beyond its ratios ---


# Beside what is reserved there are 3 CPUs with a ratio of 4, 3584 MiB with one of 1.5 and 8192 MiB
# of disk.
FULL_NODE = replace(
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
    assert list(overcommitted(FULL_NODE, RESERVED, FULL)) == []


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
    (drift,) = overcommitted(FULL_NODE, RESERVED, FULL + more)
    assert (drift.kind, drift.severity, drift.detail, drift.provider) == (
        "overcommitted",
        "warning",
        told,
        HERE.uuid,
    )


def test_a_host_that_is_smaller_than_what_is_reserved_is_overcommitted_by_the_first_guest() -> None:
    tiny = replace(FULL_NODE, memory_mb=256)
    assert len(list(overcommitted(tiny, RESERVED, RESERVED + Amounts(memory_mb=1)))) == 1
