"""Providers described outright, and how they are put into a node's tree."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.errors import DriverError
from agent.model.inventory import Inventories, Number, Record, completed
from agent.model.provider_tree import ProviderTree

NODE = "$NODE"


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """What a provider has. In ``name`` and ``parent`` ``$NODE`` stands for the node's name; ``$NODE`` alone is the root.

    Inventory records are complete.
    """

    name: str
    parent: str = NODE
    inventories: Inventories = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


def full_record(record: Record) -> dict[str, Number]:
    """``record`` with all six fields, so that no value left in Placement shines through; ``max_unit`` follows ``total``."""
    return completed(record, {"max_unit": record["total"]})


def named(text: str, node: str) -> str:
    """``text`` with the node's name put in."""
    return text.replace(NODE, node)


def add_entries(tree: ProviderTree, node: str, entries: Iterable[ProviderEntry]) -> None:
    """Put ``entries``, parents first, into the tree of ``node``; what a provider has already stays.

    :raises DriverError: an entry does not fit the tree.
    """
    for entry in entries:
        name, parent = named(entry.name, node), named(entry.parent, node)
        try:
            _place(tree, name, None if name == node else parent)
            _fill(tree, name, entry)
        except ValueError as error:
            raise DriverError(
                f"node {node}: provider {name} cannot be put below {parent}: {error}",
                f"describe {parent} as a provider of its own, or choose another name",
            ) from error


def _place(tree: ProviderTree, name: str, parent: str | None) -> None:
    if parent is None:
        return
    if tree.exists(name):
        # It may be here from last time, because something foreign lies below it, and belong elsewhere by now.
        tree.reparent(name, parent)
    else:
        tree.new_child(name, parent)


def _fill(tree: ProviderTree, name: str, entry: ProviderEntry) -> None:
    present: Mapping[str, Record] = tree.provider(name).inventory
    tree.update_inventory(name, {**present, **entry.inventories})
    tree.add_traits(name, *entry.traits)
    tree.add_aggregates(name, *entry.aggregates)
