"""Applies the operator's files to the tree of one node: a pure function, in which all conflicts are
found before anything is changed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import os_traits

from agent.errors import AgentError
from agent.model.inventory import Inventories
from agent.model.journal import Configured
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.provider_config.entry import Entry, Key, ProviderConfig


@dataclass(frozen=True, slots=True)
class Matches:
    """The entries of each provider that has any. ``found``: by which keys; what is missing there
    has no provider in this tree.
    """

    entries: Mapping[ProviderUuid, Sequence[Entry]]
    found: frozenset[Key]


def match(
    config: ProviderConfig, tree: ProviderTree, root: ProviderUuid, gone: Collection[ProviderUuid]
) -> Matches:
    """Find the providers of the node ``root``, but for those that are ``gone``. The default is for
    its root, unless an entry names that.
    """
    members = [tree.provider(uuid) for uuid in tree.get_provider_uuids(root) if uuid not in gone]
    # Not by the tree's own look-up, which takes a name for a uuid too.
    known = {
        key: one.uuid for one in members for key in (Key("uuid", one.uuid), Key("name", one.name))
    }
    entries: dict[ProviderUuid, list[Entry]] = {}
    for one in config.entries:
        if one.key in known:
            entries.setdefault(known[one.key], []).append(one)
    found = frozenset(one.key for several in entries.values() for one in several)
    default = [one for one in config.entries if one.key.is_default]
    if default and root not in entries and tree.has_traits(root, [os_traits.COMPUTE_NODE]):
        entries[root] = default
    return Matches(entries, found)


class ProviderConfigConflict(AgentError):
    """An entry that does not fit the provider that it names. Nothing of it is applied; what an
    earlier configuration gave stays.
    """

    code = "provider-config.conflict"


@dataclass(frozen=True, slots=True)
class Addition:
    """What a provider gets beside what the node itself has."""

    inventories: Inventories = field(default_factory=dict)
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConfiguredNode:
    """A node's tree without the operator's part, and what has to be known of it.

    ``made``: the providers that are the agent's to write, with the classes that the node itself
    gives each of them. ``gone``: providers that the node no longer has, and that are in the tree
    for others to hang from. ``last``: what the operator's files have given so far, which stays
    where an entry cannot be applied.
    """

    tree: ProviderTree
    root: ProviderUuid
    made: Mapping[ProviderUuid, frozenset[str]]
    gone: frozenset[ProviderUuid] = frozenset()
    last: Mapping[ProviderUuid, Addition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """The tree with the operator's part. ``configured``: what of it is the operator's alone;
    ``found``: entries that have a provider.
    """

    tree: ProviderTree
    configured: Mapping[ProviderUuid, Configured] = field(default_factory=dict)
    problems: Sequence[ProviderConfigConflict] = ()
    found: frozenset[Key] = frozenset()


def apply(config: ProviderConfig, node: ConfiguredNode, owner_trait: str) -> Applied:
    """Give every provider what its entry says, and ``owner_trait``. An entry with a conflict is
    left out, as a whole.
    """
    matches = match(config, node.tree, node.root, node.gone)
    problems: list[ProviderConfigConflict] = []
    additions: dict[ProviderUuid, Addition] = {}
    for uuid, entries in matches.entries.items():
        wrong = list(_conflicts(entries, uuid, node))
        problems += wrong
        additions[uuid] = (
            _kept(uuid, node)
            if wrong
            else Addition(entries[0].inventories, entries[0].traits | {owner_trait})
        )
    tree, configured = node.tree.copy(), {}
    for uuid, addition in additions.items():
        before = tree.provider(uuid)
        tree.update_inventory(uuid, {**before.inventory, **addition.inventories})
        tree.add_traits(uuid, *addition.traits)
        configured[uuid] = Configured(
            frozenset(addition.inventories), addition.traits - before.traits
        )
    return Applied(tree, configured, problems, matches.found)


def _conflicts(
    entries: Sequence[Entry], uuid: ProviderUuid, node: ConfiguredNode
) -> Iterator[ProviderConfigConflict]:
    name = printable(node.tree.name_of(uuid))
    if len(entries) > 1:
        what = (
            f"provider {name} ({uuid}) has more than one entry: {' and '.join(map(str, entries))}"
        )
        yield ProviderConfigConflict(what, "keep one of them", provider=uuid)
    if uuid not in node.made:
        what = (
            f"{entries[0]}: provider {name} was put there by somebody else, and the agent writes "
            "nothing on it"
        )
        yield ProviderConfigConflict(what, "remove the entry", provider=uuid)
        return
    for one in entries:
        if taken := sorted(one.inventories.keys() & node.made[uuid]):
            what = (
                f"{one}: {', '.join(taken)} of provider {name} is what the node itself has, by "
                "its driver or its devices"
            )
            yield ProviderConfigConflict(
                what, "remove it from the entry, or choose another name", provider=uuid
            )


def _kept(uuid: ProviderUuid, node: ConfiguredNode) -> Addition:
    """What the operator's files have given the provider so far, but for what is the
    node's own now.
    """
    last, own = node.last.get(uuid, Addition()), node.made.get(uuid, frozenset())
    return Addition(
        {name: record for name, record in last.inventories.items() if name not in own}, last.traits
    )
