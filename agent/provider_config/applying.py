"""The entries of provider config files, and their application to the tree of one node: pure
functions that find all conflicts before anything is changed.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

import os_traits

from agent.errors import AgentError, ConfigError
from agent.model.inventory import Inventories
from agent.model.mirror import Configured
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import DesiredTree, ProviderTree
from agent.yaml_files import TextPosition

COMPUTE_NODE = "$COMPUTE_NODE"
"""The key, in place of a uuid, of the default entry: for every node without one of its own."""


@dataclass(frozen=True, slots=True)
class Key:
    """The key of an entry: how it names its provider."""

    by: Literal["uuid", "name"]
    value: str
    """A lower-case uuid or :data:`COMPUTE_NODE`, or a name, as ``by`` says."""

    def __str__(self) -> str:
        return f"{self.by} {printable(self.value)}"

    @property
    def is_default(self) -> bool:
        """Whether the entry is the default for nodes without an entry of their own."""
        return self.by == "uuid" and self.value == COMPUTE_NODE


@dataclass(frozen=True, slots=True)
class Entry:
    """What one provider gets: inventories and traits."""

    key: Key
    file: str
    """The file of the entry, as in messages."""
    place: TextPosition
    """The position of the entry's key in the file."""
    inventories: Inventories = field(default_factory=dict)
    """Complete records by resource class."""
    traits: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.key} ({self.file}:{self.place})"


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """All provider config files of ``folder``."""

    folder: Path | None = None
    """``None`` if no folder is configured."""
    files: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    warnings: tuple[ConfigError, ...] = ()
    """About what is valid but perhaps not as intended."""


LOG = logging.getLogger(__name__)

MAX_NAMES = 10


class Absences:
    """The absent providers that have been reported, so that each is reported once."""

    def __init__(self) -> None:
        self._reported: frozenset[Key] = frozenset()

    def warn(self, config: ProviderConfig, found: Set[Key], names: Collection[str]) -> None:
        """Log a warning for each entry whose provider is absent and was not at the last call.

        :param found: the keys of the entries with a provider.
        :param names: the names of all existing providers.
        """
        missing = absent(config, found)
        for entry in missing:
            if entry.key not in self._reported:
                LOG.warning("%s", absence(entry, names))
        self._reported = frozenset(entry.key for entry in missing)


def absent(config: ProviderConfig, found: Set[Key]) -> list[Entry]:
    """Return the entries whose keys are not in ``found``, without the default entry."""
    return [
        entry for entry in config.entries if entry.key not in found and not entry.key.is_default
    ]


def absence(entry: Entry, names: Collection[str]) -> str:
    """Return the message about an absent provider, with similar names from ``names``."""
    near = ", ".join(map(printable, _nearest(entry, names)))
    return (
        f"{entry}: there is no such provider now; it gets what is due as soon as there is one. "
        f"Known here: {near or 'none'}"
    )


def _nearest(entry: Entry, names: Collection[str]) -> list[str]:
    """Return the names that are most similar to the wanted one, or for a uuid the first names."""
    if entry.key.by == "uuid":
        return sorted(names)[:MAX_NAMES]
    return sorted(
        names, key=lambda name: (-SequenceMatcher(None, entry.key.value, name).ratio(), name)
    )[:MAX_NAMES]


def _match(
    config: ProviderConfig, tree: ProviderTree, root: ProviderUuid, gone: Collection[ProviderUuid]
) -> Mapping[ProviderUuid, Sequence[Entry]]:
    """Return the entries of each provider of the node ``root`` that has any and is not in ``gone``.

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
    default = [entry for entry in config.entries if entry.key.is_default]
    if default and root not in entries and tree.has_traits(root, [os_traits.COMPUTE_NODE]):
        entries[root] = default
    return entries


class ProviderConfigConflict(AgentError):
    """An entry that does not fit its provider. Nothing of the entry is applied; what the files gave
    the provider before stays.
    Remedy: correct the entry; ``agent provider-config check`` shows it.
    """

    code = "provider-config.conflict"


@dataclass(frozen=True, slots=True)
class Addition:
    """What a provider gets in addition to the node's own inventories and traits."""

    inventories: Inventories = field(default_factory=dict)
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Applied:
    """A node's tree with the additions of provider config files."""

    tree: DesiredTree
    configured: Mapping[ProviderUuid, Configured] = field(default_factory=dict)
    """What of the tree comes from the files alone."""
    problems: Sequence[ProviderConfigConflict] = ()
    found: frozenset[Key] = frozenset()
    """The keys of the entries that have a provider."""


def apply(
    config: ProviderConfig,
    tree: DesiredTree,
    root: ProviderUuid,
    owner_trait: str,
    made: Mapping[ProviderUuid, frozenset[str]],
    *,
    gone: Collection[ProviderUuid] = (),
    last: Mapping[ProviderUuid, Addition],
) -> Applied:
    """Return the tree of a node in which each provider has what its entry adds, and
    ``owner_trait``. An entry with a conflict is left out as a whole.

    :param tree: without the additions of provider config files.
    :param made: the providers that are the agent's to write, with the node's own classes on each.
    :param gone: providers that the node no longer has and that are in the tree only as parents of
        foreign ones.
    :param last: what the files have given so far, which stays where an entry cannot be applied.
    """
    matches = _match(config, tree, root, gone)
    problems: list[ProviderConfigConflict] = []
    changed, configured = tree.copy(), {}
    for uuid, entries in matches.items():
        addition = Addition(entries[0].inventories, entries[0].traits | {owner_trait})
        if wrong := [*_conflicts(entries, uuid, tree, made)]:
            problems += wrong
            addition = _keep(last.get(uuid, Addition()), made.get(uuid, frozenset()))
        before = changed.provider(uuid)
        changed.update_inventory(uuid, {**before.inventory, **addition.inventories})
        changed.add_traits(uuid, *addition.traits)
        classes = frozenset(addition.inventories)
        configured[uuid] = Configured(classes, addition.traits - before.traits)
    found = frozenset(entry.key for entries in matches.values() for entry in entries)
    return Applied(changed, configured, problems, found)


def _conflicts(
    entries: Sequence[Entry],
    uuid: ProviderUuid,
    tree: ProviderTree,
    made: Mapping[ProviderUuid, frozenset[str]],
) -> Iterator[ProviderConfigConflict]:
    name = printable(tree.name_of(uuid))
    if len(entries) > 1:
        yield ProviderConfigConflict(
            f"provider {name} ({uuid}) has more than one entry: {' and '.join(map(str, entries))}",
            "keep one of them",
            provider=uuid,
        )
    if uuid not in made:
        yield ProviderConfigConflict(
            (
                f"{entries[0]}: provider {name} was put there by somebody else, and the agent "
                "writes nothing on it"
            ),
            "remove the entry",
            provider=uuid,
        )
        return
    for entry in entries:
        if taken := sorted(entry.inventories.keys() & made[uuid]):
            yield ProviderConfigConflict(
                (
                    f"{entry}: {', '.join(taken)} of provider {name} is what the node itself has, "
                    "by its driver or its devices"
                ),
                "remove it from the entry, or choose another name",
                provider=uuid,
            )


def _keep(last: Addition, own: frozenset[str]) -> Addition:
    """Return what the files have given the provider so far, without the classes that are the node's
    own now.
    """
    return Addition(
        {name: record for name, record in last.inventories.items() if name not in own}, last.traits
    )
