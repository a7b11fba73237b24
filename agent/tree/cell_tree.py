"""The NUMA cells of a node as providers, each with the resources that the operator's cell mode puts
there.

``mixed``: dedicated CPUs and pages, because a guest that floats is on no cell; ``strict``: shared
CPUs and memory too, so that every guest has to have a topology.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import os_resource_classes as orc
import os_traits

from agent.errors import ConfigError, ConfigErrors
from agent.model.facts import HostFacts
from agent.model.inventory import Inventories, Record
from agent.model.names import printable
from agent.model.provider_tree import ProviderTree
from agent.model.topology import Cell
from agent.tree.policy import Policy

OF_CELLS = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB})
"""The classes of the cells in strict mode, where every guest has a topology."""

_PAGES = re.compile(r"CUSTOM_MEMORY_PAGE_([1-9][0-9]*)")
_MIB = 1024  # KiB


@dataclass(frozen=True, slots=True)
class Cpus:
    """The host CPUs offered to shared and to dedicated guest CPUs."""

    shared: frozenset[int]
    dedicated: frozenset[int]


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


def amount(total: int, reserved: int = 0, ratio: float = 1.0) -> Record:
    """Return the record of a class of which one consumer may have all."""
    return {
        "total": total,
        "reserved": reserved,
        "min_unit": 1,
        "max_unit": total,
        "step_size": 1,
        "allocation_ratio": ratio,
    }


def page_records(cells: Sequence[Cell], policy: Policy) -> dict[str, Record]:
    """Return the pages of ``cells`` together, by class; only of sizes that are whole MiB, because
    the classes count MiB.
    """
    totals: dict[int, int] = {}
    kept: dict[int, int] = {}
    for cell in cells if policy.page_classes else ():
        for pool in (one for one in cell.pages if one.total and one.size_kib % _MIB == 0):
            mib = pool.size_kib // _MIB
            totals[mib] = totals.get(mib, 0) + pool.total * mib
            kept[mib] = (
                kept.get(mib, 0) + policy.host.reserved_pages.get((cell.id, pool.size_kib), 0) * mib
            )
    return {
        page_class(mib * _MIB): {
            **amount(total, min(kept[mib], total)),
            "min_unit": mib,
            "step_size": mib,
        }
        for mib, total in totals.items()
    }


def shape_cells(
    tree: ProviderTree,
    present: ProviderTree,
    root: str,
    facts: HostFacts,
    cpus: Cpus | None,
    policy: Policy,
) -> None:
    """Give ``tree`` a provider for each cell of ``facts``. ``cpus`` None: the CPUs are unknown now,
    and what ``present`` has of them stays.

    :raises ConfigErrors: in strict mode, more memory is reserved than the cells have.
    """
    name = tree.name_of(root)
    last = {
        present.name_of(uuid): present.provider(uuid).inventory
        for uuid in (present.children(root) if present.exists(root) else ())
    }
    if not facts.complete("numa"):
        for cell, inventory in last.items():
            if is_cell_name(cell, name):
                _put_cell(tree, root, cell, inventory)
    cells = facts.numa.cells if facts.numa else ()
    before = present.provider(root).inventory if present.exists(root) else {}
    if (
        policy.strict
        and policy.reserved_memory_mib > (memory := sum(one.memory_mib for one in cells))
        and cells
    ):
        what = (
            f"[DEFAULT] reserved_host_memory_mb: {policy.reserved_memory_mib} of MEMORY_MB "
            f"reserved, above the {memory} of the cells of {printable(name)}"
        )
        raise ConfigErrors([ConfigError(what, "lower it")])
    for one, reserved in zip(cells, _reserved(cells, cpus, policy), strict=True):
        known = last.get(cell_name(name, one.id), {})
        records = {
            **page_records([one], policy),
            **_records(one, cpus, reserved, known, before, policy),
        }
        _put_cell(tree, root, cell_name(name, one.id), records)


@dataclass(frozen=True, slots=True)
class _Reserved:
    """What of a cell is reserved for the host."""

    cpus: int = 0
    """CPUs."""
    memory_mib: int = 0
    """MiB."""


def _records(
    one: Cell,
    cpus: Cpus | None,
    reserved: _Reserved,
    last: Inventories,
    root: Inventories,
    policy: Policy,
) -> dict[str, Record]:
    """Return the CPUs and memory of a cell. Ratios set in Placement are kept; the ratio of ``root``
    counts where the cell has none yet.
    """
    records: dict[str, Record] = {}

    def ratio(name: str) -> float | None:
        found = last.get(name, root.get(name, {})).get("allocation_ratio")
        return float(found) if found is not None else None

    if cpus is None:
        records = {name: last[name] for name in (orc.PCPU, orc.VCPU) if name in last}
    else:
        if dedicated := len(one.cpus & cpus.dedicated):
            records[orc.PCPU] = amount(dedicated)
        if policy.strict and (shared := len(one.cpus & cpus.shared)):
            records[orc.VCPU] = amount(shared, reserved.cpus, policy.cpu_ratio.of(ratio(orc.VCPU)))
    if policy.strict and one.memory_mib:
        records[orc.MEMORY_MB] = amount(
            one.memory_mib, reserved.memory_mib, policy.memory_ratio.of(ratio(orc.MEMORY_MB))
        )
    return records


def _reserved(cells: Sequence[Cell], cpus: Cpus | None, policy: Policy) -> list[_Reserved]:
    """Return what the operator reserves for the host, spread over the cells in proportion to what
    they have.
    """
    shared = [len(one.cpus & cpus.shared) if cpus else 0 for one in cells]
    memory = [one.memory_mib for one in cells]
    return [
        _Reserved(*one)
        for one in zip(
            spread(policy.reserved_cpus, shared),
            spread(policy.reserved_memory_mib, memory),
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


def _put_cell(tree: ProviderTree, root: str, name: str, inventory: Mapping[str, Record]) -> None:
    if not tree.exists(name):
        tree.new_child(name, root)
    tree.update_inventory(name, {**tree.provider(name).inventory, **inventory})
    tree.add_traits(name, os_traits.HW_NUMA_ROOT)
