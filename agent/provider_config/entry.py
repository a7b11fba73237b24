"""The parsed provider config files: one entry per provider, and warnings about absent providers."""

import logging
from collections.abc import Collection, Set
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

from agent.errors import ConfigError
from agent.model.inventory import Inventories
from agent.model.names import printable
from agent.yaml_files.document import TextPosition

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
