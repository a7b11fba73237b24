"""The trees of one node while its desired tree is built, the steps that several parts of the
desired tree take, and the NUMA cells as providers, each with the resources that the operator's cell
mode puts there.

``mixed``: dedicated CPUs and pages, because a guest that floats is on no cell; ``strict``: shared
CPUs and memory too, so that every guest has to have a topology.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import os_resource_classes as orc
import os_traits

from agent.errors import ConfigError, ConfigErrors
from agent.model.facts import Cell, HostFacts
from agent.model.inventory import Inventories, Record
from agent.model.names import ProviderUuid, child_role, child_uuid, printable
from agent.model.provider_tree import DesiredTree, PresentTree, Provider, ProviderTree
from agent.tree.policy import Policy


@dataclass(frozen=True, slots=True)
class NodeTrees:
    """The desired tree of a node, and what Placement has of the node."""

    desired: DesiredTree
    """Edited in place."""
    present: PresentTree
    """What Placement has."""
    root: ProviderUuid

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.desired.name_of(self.root)

    @property
    def present_root(self) -> Provider | None:
        """The root in Placement; None if Placement does not have the node yet."""
        return self.present.provider(self.root) if self.present.exists(self.root) else None

    @property
    def present_providers(self) -> list[Provider]:
        """The providers of the node's tree in Placement, parents before their children."""
        if not self.present.exists(self.root):
            return []
        return [
            self.present.provider(uuid)
            for uuid in self.present.get_provider_uuids_in_tree(self.root)
        ]

    def add_inventory(self, provider: str, inventory: Mapping[str, Record]) -> None:
        """Add the records to those of the provider in the desired tree."""
        known = self.desired.provider(provider).inventory
        self.desired.update_inventory(provider, {**known, **inventory})

    def keep_last(self, name: str, classes: Collection[str]) -> bool:
        """Copy the ``classes`` that Placement has on the provider called ``name`` to the desired
        tree. Return whether they were copied: not if Placement has none of them, or the desired
        tree has one of them there already.
        """
        if not self.present.exists(name):
            return False
        last = self.present.provider(name)
        inventory = {
            resource_class: record
            for resource_class, record in last.inventory.items()
            if resource_class in classes
        }
        if not inventory:
            return False
        if not self.desired.exists(name):
            self.desired.new_child(name, last_parent(self.desired, last, self.root))
        elif not self.desired.provider(name).inventory.keys().isdisjoint(classes):
            return False
        self.add_inventory(name, inventory)
        return True


def uuid_of_child(tree: ProviderTree, root: ProviderUuid, name: str, node: str) -> ProviderUuid:
    """Return the uuid that the child called ``name`` of the node called ``node`` has in ``tree``,
    or that it will get.
    """
    if tree.exists(name):
        return tree.provider(name).uuid
    return child_uuid(root, child_role(name, node))


def shares_provider(tree: ProviderTree, provider: Provider) -> bool:
    """Whether ``provider``, of a tree derived from ``tree`` or that ``tree`` is derived from, was
    not written since: copies of a tree share what neither wrote.
    """
    return tree.exists(provider.uuid) and tree.provider(provider.uuid) is provider


def last_parent(tree: DesiredTree, last: Provider, root: ProviderUuid) -> ProviderUuid:
    """Return the parent that the provider has in Placement; the root if ``tree`` lacks it."""
    if last.parent_uuid and tree.exists(last.parent_uuid):
        return last.parent_uuid
    return root


def ensure_child(tree: DesiredTree, name: str, parent: str) -> None:
    """Give ``tree`` a provider of that name below ``parent``. An existing one is moved there: it
    may be kept only for a foreign provider below it, and now belong below another parent.
    """
    if tree.exists(name):
        tree.reparent(name, parent)
    else:
        tree.new_child(name, parent)


def inventory_record(
    total: int, *, reserved: int = 0, unit: int = 1, most: int | None = None, ratio: float = 1.0
) -> Record:
    """Return a complete inventory record. ``unit``: the least amount, and the step. ``most``: what
    one consumer may have; None for all.
    """
    return {
        "total": total,
        "reserved": reserved,
        "min_unit": unit,
        "max_unit": total if most is None else most,
        "step_size": unit,
        "allocation_ratio": ratio,
    }


OF_CELLS = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB})
"""The classes of the cells in strict mode, where every guest has a topology."""

_PAGES = re.compile(r"CUSTOM_MEMORY_PAGE_([1-9][0-9]*)")
_MIB = 1024  # KiB


@dataclass(frozen=True, slots=True)
class Cpus:
    """The host CPUs offered to shared and to dedicated guest CPUs."""

    shared: frozenset[int]
    dedicated: frozenset[int]


def of_cells(policy: Policy) -> frozenset[str]:
    """Return the classes that the cells count besides pages."""
    return OF_CELLS if policy.strict else frozenset({orc.PCPU})


def cell_name(root: str, cell: int) -> str:
    """Return the name of a NUMA cell's provider."""
    return f"{root}_NUMA{cell}"


def is_cell_name(name: str, root: str) -> bool:
    """Whether ``name`` is that of a NUMA cell of the root called ``root``."""
    number = name.removeprefix(f"{root}_NUMA")
    return number.isdecimal() and name == cell_name(root, int(number))


def page_class(size_kib: int) -> str:
    """Return the class that counts, in MiB, the memory in pages of that size."""
    return f"CUSTOM_MEMORY_PAGE_{size_kib}"


def page_size(resource_class: str) -> int | None:
    """Return the size, in KiB, of the pages that the class counts; None for any other class."""
    found = _PAGES.fullmatch(resource_class)
    return int(found[1]) if found else None


def cell_or_root(tree: ProviderTree, root: ProviderUuid, numa_node: int | None) -> ProviderUuid:
    """Return the parent for a device of that cell: the cell's provider, or the root if ``tree``
    does not have it or the cell is unknown.
    """
    if numa_node is None:
        return root
    cell = cell_name(tree.name_of(root), numa_node)
    return tree.provider(cell).uuid if tree.exists(cell) else root


def page_records(cells: Sequence[Cell], policy: Policy) -> dict[str, Record]:
    """Return the pages of ``cells`` together, by class; only of sizes that are whole MiB, because
    the classes count MiB.
    """
    if not policy.page_classes:
        return {}
    totals, reserved = Counter[int](), Counter[int]()
    for cell in cells:
        for pool in cell.pages:
            mib, remainder = divmod(pool.size_kib, _MIB)
            if pool.total and not remainder:
                totals[mib] += pool.total * mib
                reserved[mib] += policy.host.reserved_pages.get((cell.id, pool.size_kib), 0) * mib
    return {
        page_class(mib * _MIB): inventory_record(
            total, reserved=min(reserved[mib], total), unit=mib
        )
        for mib, total in totals.items()
    }


def shape_cells(trees: NodeTrees, facts: HostFacts, cpus: Cpus | None, policy: Policy) -> None:
    """Give the desired tree a provider for each cell of ``facts``. ``cpus`` None: the CPUs are
    unknown now, and what Placement has of them stays.

    :raises ConfigErrors: in strict mode, more memory is reserved than the cells have.
    """
    name, present, present_root = trees.name, trees.present, trees.present_root
    last = {
        present.name_of(uuid): present.provider(uuid).inventory
        for uuid in (present.children(trees.root) if present_root else ())
    }
    if not facts.complete("numa"):
        on_root = OF_CELLS - of_cells(policy)
        for child, inventory in last.items():
            if is_cell_name(child, name):
                put_cell(trees, child, {one: inventory[one] for one in inventory.keys() - on_root})
    cells = facts.numa.cells if facts.numa else ()
    memory_mib = sum(cell.memory_mib for cell in cells)
    if policy.strict and cells and policy.reserved_memory_mib > memory_mib:
        raise ConfigErrors(
            [
                ConfigError(
                    (
                        f"[DEFAULT] reserved_host_memory_mb: {policy.reserved_memory_mib} of "
                        f"MEMORY_MB reserved, above the {memory_mib} of the cells of "
                        f"{printable(name)}"
                    ),
                    "lower it",
                )
            ]
        )
    root_inventory = present_root.inventory if present_root else {}
    running = (
        facts.cpu.online
        if facts.cpu and facts.complete("cpu")
        else frozenset[int]().union(*(cell.cpus for cell in cells))
    )
    for cell, reserved in zip(cells, _reserved(cells, cpus, running, policy), strict=True):
        cell_provider = cell_name(name, cell.id)
        known = last.get(cell_provider, {})
        records = {
            **page_records([cell], policy),
            **_records(cell, cpus, reserved, known, root_inventory, policy),
        }
        put_cell(trees, cell_provider, records)


def _records(
    cell: Cell,
    cpus: Cpus | None,
    reserved: tuple[int, int],
    last: Inventories,
    root: Inventories,
    policy: Policy,
) -> dict[str, Record]:
    """Return the CPUs and memory of a cell. Ratios set in Placement are kept; the ratio of ``root``
    counts where the cell has none yet. ``reserved``: CPUs and MiB for the host.
    """
    reserved_cpus, reserved_mib = reserved
    records: dict[str, Record] = {}

    def present_ratio(name: str) -> float | None:
        found = last.get(name, root.get(name, {})).get("allocation_ratio")
        return float(found) if found is not None else None

    if cpus is None:
        records = {name: last[name] for name in (orc.PCPU, orc.VCPU) if name in last}
    else:
        if dedicated := len(cell.cpus & cpus.dedicated):
            records[orc.PCPU] = inventory_record(dedicated)
        # In this mode no guest can have shared CPUs of a cell without memory either.
        if policy.strict and cell.memory_mib and (shared := len(cell.cpus & cpus.shared)):
            records[orc.VCPU] = inventory_record(
                shared,
                reserved=reserved_cpus,
                ratio=policy.cpu_ratio.of(present_ratio(orc.VCPU)),
            )
    if policy.strict and cell.memory_mib:
        records[orc.MEMORY_MB] = inventory_record(
            cell.memory_mib,
            reserved=reserved_mib,
            ratio=policy.memory_ratio.of(present_ratio(orc.MEMORY_MB)),
        )
    return records


def _reserved(
    cells: Sequence[Cell], cpus: Cpus | None, running: frozenset[int], policy: Policy
) -> list[tuple[int, int]]:
    """Return the CPUs and MiB that the operator reserves for the host, spread over the cells in
    proportion to what they have. Cells without CPUs that are ``running`` have a share of the memory
    only if the others cannot hold all of it, because the processes of the host are on the others.
    """
    shared = [len(cell.cpus & cpus.shared) if cpus and cell.memory_mib else 0 for cell in cells]
    near = [cell.memory_mib if cell.cpus & running else 0 for cell in cells]
    far = [0 if cell.cpus & running else cell.memory_mib for cell in cells]
    reserved_near = min(policy.reserved_memory_mib, sum(near))
    return [
        (reserved_cpus, mib_near + mib_far)
        for reserved_cpus, mib_near, mib_far in zip(
            spread(policy.reserved_cpus, shared),
            spread(reserved_near, near),
            spread(policy.reserved_memory_mib - reserved_near, far),
            strict=True,
        )
    ]


def spread(amount: int, weights: Sequence[int]) -> list[int]:
    """Split ``amount`` in proportion to ``weights``. No part is above its weight unless ``amount``
    is above the sum of the weights.
    """
    whole = sum(weights)
    return list(_parts(amount, weights, whole)) if whole else [0 for _ in weights]


def _parts(amount: int, weights: Sequence[int], whole: int) -> Iterator[int]:
    seen = given = 0
    for weight in weights:
        seen += weight
        part = amount * seen // whole - given
        given += part
        yield part


def put_cell(trees: NodeTrees, name: str, inventory: Mapping[str, Record]) -> None:
    """Add the records to those of the cell's provider in the desired tree, which may be new."""
    if not trees.desired.exists(name):
        trees.desired.new_child(name, trees.root)
    trees.add_inventory(name, inventory)
    trees.desired.add_traits(name, os_traits.HW_NUMA_ROOT)
