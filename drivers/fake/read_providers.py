"""The providers that a host file describes outright."""

import difflib
from collections.abc import Collection
from graphlib import CycleError, TopologicalSorter

from agent.model.inventory import Record, problems
from agent.model.names import MAX_PROVIDER_NAME, normal_uuid
from agent.yaml_files.document import shown
from drivers.fake.entry import NODE, ProviderEntry, full_record, named
from drivers.fake.part import Part


def read_providers(part: Part, node: str, cells: Collection[int] | None) -> tuple[ProviderEntry, ...]:
    """The providers of the node called ``node``, parents first.

    ``cells``: those that the agent makes providers of, ``None`` if they are not known.
    """
    entries: dict[str, ProviderEntry] = {}
    for item in part.items():
        name = named(item.data["name"], node)
        if len(name) > MAX_PROVIDER_NAME:
            item.wrong(("name",), f"{shown(name)} has {len(name)} characters", f"write at most {MAX_PROVIDER_NAME}, the node's name included")
        if name in entries:
            item.wrong(("name",), f"{shown(name)} is here twice", "give every provider its own name")
        if name == node and "parent" in item.data:
            item.wrong(("parent",), "the node itself has no parent", "leave the parent out")
        entries[name] = _entry(item)
    if part.whole and cells is not None:
        _check_parents(part, node, {node, *entries, *(f"{node}_NUMA{cell}" for cell in cells)})
    return _parents_first(part, node, entries)


def _entry(part: Part) -> ProviderEntry:
    data = part.data
    inventories: dict[str, Record] = {}
    for name, record in data.get("inventories", {}).items():
        inventories[name] = full_record(record)
        for problem in problems(name, inventories[name]):
            part.wrong(("inventories", name), problem, "correct the record, or leave out what is as usual")
    return ProviderEntry(
        data["name"],
        data.get("parent", NODE),
        inventories,
        frozenset(data.get("traits", ())),
        frozenset(normal_uuid(aggregate) for aggregate in data.get("aggregates", ())),
    )


def _check_parents(part: Part, node: str, known: Collection[str]) -> None:
    for item in part.items():
        parent = named(item.data.get("parent", NODE), node)
        if parent not in known:
            close = difflib.get_close_matches(parent, known, 1)
            remedy = f"did you mean {close[0]}?" if close else "describe it as a provider too"
            item.wrong(("parent",), f"there is no provider {shown(parent)}", remedy)


def _parents_first(part: Part, node: str, entries: dict[str, ProviderEntry]) -> tuple[ProviderEntry, ...]:
    graph = {name: {named(entry.parent, node)} - {node} for name, entry in entries.items() if name != node}
    root = (entries[node],) if node in entries else ()
    try:
        return root + tuple(entries[name] for name in TopologicalSorter(graph).static_order() if name in entries)
    except CycleError as error:
        names = [str(name) for name in error.args[1]]
        first = next(item for item in part.items() if named(item.data["name"], node) in names)
        first.wrong(("parent",), f"the providers {', '.join(names[1:])} are each other's parents", "put one of them below the node")
        return root
