"""What claims use of a tree."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.model.inventory import Inventories
from agent.model.provider_tree import ProviderTree
from agent.model.topology import PagePool, Topology
from agent.store.store import open_store
from agent.tracker.claim_usage import provider_usage
from tests.support.tracking import FN, PMEM, Host, World, numa_cells


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
