"""Which entries are for which providers of a node."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import os_traits

from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.provider_config.entry import Entry, Key, ProviderConfig


@dataclass(frozen=True, slots=True)
class Matches:
    """The entries of each provider that has any. ``found``: by which keys; what is missing there has no provider in this tree."""

    entries: Mapping[ProviderUuid, Sequence[Entry]]
    found: frozenset[Key]


def match(config: ProviderConfig, tree: ProviderTree, root: ProviderUuid, gone: Collection[ProviderUuid]) -> Matches:
    """Find the providers of the node ``root``, but for those that are ``gone``. The default is for its root, unless an entry names that."""
    members = [tree.provider(uuid) for uuid in tree.get_provider_uuids(root) if uuid not in gone]
    # Not by the tree's own look-up, which takes a name for a uuid too.
    known = {key: one.uuid for one in members for key in (Key("uuid", one.uuid), Key("name", one.name))}
    entries: dict[ProviderUuid, list[Entry]] = {}
    for one in config.entries:
        if one.key in known:
            entries.setdefault(known[one.key], []).append(one)
    found = frozenset(one.key for several in entries.values() for one in several)
    default = [one for one in config.entries if one.key.is_default]
    if default and root not in entries and tree.has_traits(root, [os_traits.COMPUTE_NODE]):
        entries[root] = default
    return Matches(entries, found)
