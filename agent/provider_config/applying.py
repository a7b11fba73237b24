"""Applying provider config files to the tree of one node: pure functions that find all conflicts
before anything is changed.
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
    """The entries that match providers of a tree."""

    entries: Mapping[ProviderUuid, Sequence[Entry]]
    """The entries of each provider that has any."""
    found: frozenset[Key]
    """The keys that match; an entry with another key has no provider in the tree."""


def match(
    config: ProviderConfig, tree: ProviderTree, root: ProviderUuid, gone: Collection[ProviderUuid]
) -> Matches:
    """Match the entries with the providers of the node ``root`` that are not in ``gone``.

    The default entry is for the root, unless another entry names the root.
    """
    members = [tree.provider(uuid) for uuid in tree.get_provider_uuids(root) if uuid not in gone]
    # Not by the tree's own lookup, which accepts a uuid as a name too.
    known = {
        key: provider.uuid
        for provider in members
        for key in (Key("uuid", provider.uuid), Key("name", provider.name))
    }
    entries: dict[ProviderUuid, list[Entry]] = {}
    for entry in config.entries:
        if entry.key in known:
            entries.setdefault(known[entry.key], []).append(entry)
    found = frozenset(entry.key for several in entries.values() for entry in several)
    default = [entry for entry in config.entries if entry.key.is_default]
    if default and root not in entries and tree.has_traits(root, [os_traits.COMPUTE_NODE]):
        entries[root] = default
    return Matches(entries, found)


class ProviderConfigConflict(AgentError):
    """An entry that does not fit its provider. Nothing of the entry is applied; what the files gave
    the provider before stays.
    """

    code = "provider-config.conflict"


@dataclass(frozen=True, slots=True)
class Addition:
    """What a provider gets in addition to the node's own inventories and traits."""

    inventories: Inventories = field(default_factory=dict)
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConfiguredNode:
    """A node's tree without the additions of provider config files."""

    tree: ProviderTree
    root: ProviderUuid
    made: Mapping[ProviderUuid, frozenset[str]]
    """The providers that are the agent's to write, with the node's own classes on each."""
    gone: frozenset[ProviderUuid] = frozenset()
    """Providers that the node no longer has and that are in the tree only as parents of foreign
    ones.
    """
    last: Mapping[ProviderUuid, Addition] = field(default_factory=dict)
    """What the files have given so far, which stays where an entry cannot be applied."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A node's tree with the additions of provider config files."""

    tree: ProviderTree
    configured: Mapping[ProviderUuid, Configured] = field(default_factory=dict)
    """What of the tree comes from the files alone."""
    problems: Sequence[ProviderConfigConflict] = ()
    found: frozenset[Key] = frozenset()
    """The keys of the entries that have a provider."""


def apply(config: ProviderConfig, node: ConfiguredNode, owner_trait: str) -> Applied:
    """Return the tree in which each provider has what its entry adds, and ``owner_trait``.

    An entry with a conflict is left out as a whole.
    """
    matches = match(config, node.tree, node.root, node.gone)
    problems: list[ProviderConfigConflict] = []
    additions: dict[ProviderUuid, Addition] = {}
    for uuid, entries in matches.entries.items():
        wrong = list(_conflicts(entries, uuid, node))
        problems += wrong
        additions[uuid] = (
            _keep(uuid, node)
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
    for entry in entries:
        if taken := sorted(entry.inventories.keys() & node.made[uuid]):
            what = (
                f"{entry}: {', '.join(taken)} of provider {name} is what the node itself has, by "
                "its driver or its devices"
            )
            yield ProviderConfigConflict(
                what, "remove it from the entry, or choose another name", provider=uuid
            )


def _keep(uuid: ProviderUuid, node: ConfiguredNode) -> Addition:
    """Return what the files have given the provider so far, without the classes that are the node's
    own now.
    """
    last, own = node.last.get(uuid, Addition()), node.made.get(uuid, frozenset())
    return Addition(
        {name: record for name, record in last.inventories.items() if name not in own}, last.traits
    )
