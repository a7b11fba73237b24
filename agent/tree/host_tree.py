"""The part of the tree that follows from the facts alone: VCPU, PCPU, MEMORY_MB, DISK_GB and the
NUMA cells.

Layouts: ``nested`` puts every cell below the root as ``<root>_NUMA<n>`` with HW_NUMA_ROOT and the
resources that the cell mode puts there; ``flat`` puts everything on the root. For a section of the
facts that is not complete, the last good part of the tree stays, where an older layout has it.
"""

from collections.abc import Mapping
from dataclasses import replace

import os_resource_classes as orc

from agent.errors import ConfigError, ConfigErrors, NotReady
from agent.model.facts import CpuFacts, HostFacts, Section, Topology
from agent.model.inventory import Inventories, Record
from agent.model.names import format_cpu_list, printable
from agent.model.provider_tree import ProviderTree
from agent.numa.fit import cells_named
from agent.tree.node_trees import (
    OF_CELLS,
    Cpus,
    NodeTrees,
    inventory_record,
    is_cell_name,
    of_cells,
    page_records,
    page_size,
    put_cell,
    shape_cells,
)
from agent.tree.policy import Layout, Policy


def offered_cpus(cpu: CpuFacts, policy: Policy, numa: Topology | None = None) -> Cpus:
    """Return which CPUs are offered: without any set all online CPUs are shared; with only a
    dedicated set none is shared.

    A CPU that went offline is not offered; the checks at the start have seen that it exists. Nor is
    a dedicated CPU of a cell without memory.
    """
    shared, dedicated = policy.host.shared, policy.host.dedicated
    if shared is None and dedicated is None:
        return Cpus(cpu.online, frozenset())
    pinnable = cpu.pinnable - (numa.cpus_without_memory if numa else frozenset())
    return Cpus((shared or frozenset()) & cpu.online, (dedicated or frozenset()) & pinnable)


def choose_layout(policy: Policy, present: ProviderTree, root: str) -> Layout:
    """Return the configured layout; without one that of an existing root, and the policy's for a
    new one.
    """
    return layout_and_reason(policy, present, root)[0]


def describe_layout(
    numa: Topology | None, policy: Policy, present: ProviderTree, root: str
) -> str | None:
    """Return which layout the tree has, and why, for the log; None for a host without cells."""
    if numa is None or not numa.cells:
        return None
    layout, reason = layout_and_reason(policy, present, root)
    return f"the tree is {layout}, because {reason}"


def layout_and_reason(policy: Policy, present: ProviderTree, root: str) -> tuple[Layout, str]:
    """Return the layout of the tree, and why."""
    if policy.layout:
        return policy.layout, f"[compute] tree_layout = {policy.layout}"
    if not present.exists(root) or not present.has_inventory(root):
        files = "is" if policy.new_layout == "flat" else "is not"
        return (
            policy.new_layout,
            f"[compute] tree_layout is unset, the node is new and the configuration {files} nova's",
        )
    name = present.name_of(root)
    cells = any(is_cell_name(present.name_of(child), name) for child in present.children(root))
    layout: Layout = "nested" if cells else "flat"
    return layout, f"[compute] tree_layout is unset and the root was found {layout}"


def layout_hint(
    numa: Topology | None, policy: Policy, present: ProviderTree, root: str
) -> str | None:
    """Return a hint for an operator whose host has cells that its tree lacks only because no layout
    is configured; None if there is nothing to hint at.
    """
    count = len(numa.cells) if numa else 0
    if policy.layout or not count or not present.exists(root):
        return None
    if choose_layout(policy, present, root) == "nested":
        return None
    cells = "1 NUMA cell" if count == 1 else f"{count} NUMA cells"
    return (
        "the root was found flat and stays flat; [compute] tree_layout = nested would give its "
        f"{cells} a provider each"
    )


def memory_hint(numa: Topology, dedicated: frozenset[int]) -> str | None:
    """Return a hint that ``dedicated`` CPUs are not offered because their cells have no memory;
    None if all have some.
    """
    lost = numa.cpus_without_memory & dedicated
    if not lost:
        return None
    cells = [cell.id for cell in numa.cells if cell.cpus & lost]
    return (
        f"CPUs {format_cpu_list(lost)} of cpu_dedicated_set are not offered: no guest can be "
        f"pinned to them, because {cells_named(cells)} {'has' if len(cells) == 1 else 'have'} no "
        "memory"
    )


def shape_host(trees: NodeTrees, facts: HostFacts, policy: Policy) -> None:
    """Give the desired tree what follows from ``facts``.

    :raises ConfigErrors: a reserved amount is above its total, or a CPU set cannot be used.
    :raises NotReady: the first facts of a new node lack what its layout needs.
    """
    layout = choose_layout(policy, trees.present, trees.root)
    if trees.present_root is None:
        _check_first_facts(facts.name, facts.incomplete, layout, policy)
    cpus = (
        offered_cpus(facts.cpu, policy, facts.numa) if facts.cpu and facts.complete("cpu") else None
    )
    if facts.numa is not None:
        policy = replace(policy, host=policy.host.on(facts.numa))
    nested = layout == "nested" and (facts.numa is not None or not facts.complete("numa"))
    last = trees.present_root.inventory if trees.present_root else {}
    inventory = _root_inventory(
        trees.desired, facts, policy, cpus, last, _records_before(trees.present, trees.root)
    )
    if nested and policy.strict:
        inventory = {name: record for name, record in inventory.items() if name not in OF_CELLS}
    if not nested:
        known = facts.complete("numa")
        inventory |= _flat_cells(facts.numa if known else None, policy, cpus, {} if known else last)
    if inventory:
        trees.add_inventory(trees.root, inventory)
    if nested:
        shape_cells(trees, facts, cpus, policy)
    if trees.present_root is not None and facts.incomplete:
        _keep_unmoved(trees, facts, of_cells(policy) if nested else frozenset())


def _keep_unmoved(trees: NodeTrees, facts: HostFacts, on_cells: frozenset[str]) -> None:
    """Put the classes that would come to the root or to the cells, or leave them, back to where
    Placement has them, if it is unknown now how much there is of them. ``on_cells``: the classes of
    the cells besides pages.
    """
    before, after = _counting(trees.present, trees), _counting(trees.desired, trees)
    for name, places in before.items():
        moves = {place == trees.name for place in places} != {
            place == trees.name for place in after.get(name, ())
        }
        if not moves or facts.incomplete.keys().isdisjoint(_sections(name, on_cells)):
            continue
        for place in after.get(name, frozenset()) - places:
            left = dict(trees.desired.provider(place).inventory)
            del left[name]
            trees.desired.update_inventory(place, left)
        for place in places:
            record = trees.present.provider(place).inventory[name]
            if place == trees.name:
                trees.add_inventory(place, {name: record})
            else:
                put_cell(trees, place, {name: record})


def _counting(tree: ProviderTree, trees: NodeTrees) -> dict[str, frozenset[str]]:
    """Return the names of the root and the cells that count them, by the classes of cells."""
    found: dict[str, frozenset[str]] = {}
    for uuid in (trees.root, *tree.children(trees.root)):
        provider = tree.provider(uuid)
        if uuid == trees.root or is_cell_name(provider.name, trees.name):
            for name in provider.inventory:
                if name in OF_CELLS or page_size(name) is not None:
                    found[name] = found.get(name, frozenset()) | {provider.name}
    return found


def _sections(name: str, on_cells: frozenset[str]) -> frozenset[Section]:
    """Return the sections that tell how much of a class there is where it is to be counted."""
    if page_size(name) is not None or (name == orc.MEMORY_MB and name in on_cells):
        return frozenset({"numa"})
    if name == orc.MEMORY_MB:
        return frozenset({"memory"})
    return frozenset({"cpu", "numa"}) if name in on_cells else frozenset({"cpu"})


def _check_first_facts(
    name: str, incomplete: Mapping[Section, str], layout: Layout, policy: Policy
) -> None:
    """Check that the first facts of a new node are complete enough for its first tree.

    :raises NotReady: they are not.
    """
    # All other sections only add to the tree, once they are known.
    needed = {"cpu", "memory", "disk"} | (
        {"numa"} if layout == "nested" or policy.page_classes else set()
    )
    if missing := sorted(section for section in incomplete if section in needed):
        what = "; ".join(f"{section}: {printable(incomplete[section])}" for section in missing)
        raise NotReady(
            f"the first facts of {printable(name)} are not complete ({what})",
            "nothing is written before they are",
        )


def _flat_cells(
    numa: Topology | None, policy: Policy, cpus: Cpus | None, last: Inventories
) -> dict[str, Record]:
    """Return what the root has instead of its cells: PCPU and page classes. ``last``: what it has
    in Placement, if the cells are not known now.
    """
    # Which dedicated CPUs have memory beside them is unknown too then.
    records = {
        name: record
        for name, record in last.items()
        if page_size(name) is not None or (name == orc.PCPU and cpus and cpus.dedicated)
    }
    if numa is not None:
        records = page_records(numa.cells, policy)
    if cpus and cpus.dedicated and orc.PCPU not in records:
        records[orc.PCPU] = inventory_record(len(cpus.dedicated))
    return records


def _records_before(present: ProviderTree, root: str) -> Inventories:
    """Return the inventory of the root, completed by that of its cells, the first cell first: for
    the ratios that were set in Placement.
    """
    if not present.exists(root):
        return {}
    cells = [
        uuid
        for uuid in present.children(root)
        if is_cell_name(present.name_of(uuid), present.name_of(root))
    ]
    return {
        name: record
        for uuid in (*reversed(cells), root)
        for name, record in present.provider(uuid).inventory.items()
    }


def _root_inventory(
    tree: ProviderTree,
    facts: HostFacts,
    policy: Policy,
    cpus: Cpus | None,
    last: Inventories,
    before: Inventories,
) -> dict[str, Record]:
    """Return VCPU, MEMORY_MB and DISK_GB, as far as the node has them; no DISK_GB if a sharing
    provider has it. ``before``: for the ratios.

    :raises ConfigErrors: reserved amounts that are above their totals.
    """
    totals: dict[str, int | None] = {}
    if cpus is not None:
        totals[orc.VCPU] = len(cpus.shared)
    if facts.complete("memory"):
        totals[orc.MEMORY_MB] = facts.memory_mib
    if facts.complete("disk") and not tree.has_sharing_provider(orc.DISK_GB):
        known = last.get(orc.DISK_GB, {}).get("total")
        totals[orc.DISK_GB] = facts.disk_gib_after(int(known) if known else None)
    inventory: dict[str, Record] = {}
    errors: list[ConfigError] = []
    # What the operator keeps of each class, by which option, and how the rest is offered.
    shares = {
        orc.VCPU: (policy.reserved_cpus, "reserved_host_cpus", policy.cpu_ratio),
        orc.MEMORY_MB: (policy.reserved_memory_mib, "reserved_host_memory_mb", policy.memory_ratio),
        orc.DISK_GB: (policy.reserved_disk_gib, "reserved_host_disk_mb", policy.disk_ratio),
    }
    for name, total in totals.items():
        kept, option, ratio = shares[name]
        if total and kept > total:
            errors.append(
                ConfigError(
                    (
                        f"[DEFAULT] {option}: {kept} of {name} reserved, "
                        f"above the total {total} of {printable(facts.name)}"
                    ),
                    "lower it",
                )
            )
        elif total:
            present = before.get(name, {}).get("allocation_ratio")
            inventory[name] = inventory_record(total, reserved=kept, ratio=ratio.of(present))
    ConfigErrors.raise_if_any(errors)
    if disk := inventory.get(orc.DISK_GB):
        # The image cache may be larger than the disk if a link leads to another one; Placement
        # takes no reserved amount above the total.
        reserved = min(int(disk["total"]), policy.reserved_disk_gib + facts.image_cache_gib)
        inventory[orc.DISK_GB] = {**disk, "reserved": reserved}
    counted = {"cpu": (orc.VCPU, orc.PCPU), "memory": (orc.MEMORY_MB,), "disk": (orc.DISK_GB,)}
    names = (
        name for section, some in counted.items() if section in facts.incomplete for name in some
    )
    return inventory | {name: last[name] for name in names if name in last}
