"""What the operator's files say: one entry a provider, and all of them together."""

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
"""Stands in place of a uuid for every node that has no entry of its own."""


@dataclass(frozen=True, slots=True)
class Key:
    """How an entry names its provider. ``value``: a lower-case uuid, :data:`COMPUTE_NODE`, or a
    name, as ``by`` says.
    """

    by: Literal["uuid", "name"]
    value: str

    def __str__(self) -> str:
        return f"{self.by} {printable(self.value)}"

    @property
    def is_default(self) -> bool:
        """Whether the entry is for every node that has none of its own."""
        return self.by == "uuid" and self.value == COMPUTE_NODE


@dataclass(frozen=True, slots=True)
class Entry:
    """What one provider gets: complete records by resource class, and traits. ``file`` and
    ``place`` say where it is written.
    """

    key: Key
    file: str
    place: TextPosition
    inventories: Inventories = field(default_factory=dict)
    traits: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.key} ({self.file}:{self.place})"


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """All that was read from ``folder``; None: there is none to read. ``warnings`` are of what
    works, and perhaps not as meant.
    """

    folder: Path | None = None
    files: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    warnings: tuple[ConfigError, ...] = ()


LOG = logging.getLogger(__name__)

MAX_NAMES = 10


class Absences:
    """Remembers what was told."""

    def __init__(self) -> None:
        self._told: frozenset[Key] = frozenset()

    def tell(self, config: ProviderConfig, found: Set[Key], names: Collection[str]) -> None:
        """Warn of each entry that is not among ``found`` and was when this was last asked.
        ``names``: of all providers there are.
        """
        missing = absent(config, found)
        for one in missing:
            if one.key not in self._told:
                LOG.warning("%s", absence(one, names))
        self._told = frozenset(one.key for one in missing)


def absent(config: ProviderConfig, found: Set[Key]) -> list[Entry]:
    """The entries whose providers are not among ``found``."""
    return [one for one in config.entries if one.key not in found and not one.key.is_default]


def absence(entry: Entry, names: Collection[str]) -> str:
    """What to say of an absent provider, with those of ``names`` that may be meant."""
    near = ", ".join(map(printable, _nearest(entry, names)))
    return (
        f"{entry}: there is no such provider now; it gets what is due as soon as there is one. "
        f"Known here: {near or 'none'}"
    )


def _nearest(entry: Entry, names: Collection[str]) -> list[str]:
    """The names that are most like the one wanted, or for a uuid the first ones."""
    if entry.key.by == "uuid":
        return sorted(names)[:MAX_NAMES]
    return sorted(
        names, key=lambda name: (-SequenceMatcher(None, entry.key.value, name).ratio(), name)
    )[:MAX_NAMES]
