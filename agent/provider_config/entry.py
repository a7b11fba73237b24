"""What the operator's files say: one entry a provider, and all of them together."""

from dataclasses import dataclass, field
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
    """How an entry names its provider. ``value``: a lower-case uuid, :data:`COMPUTE_NODE`, or a name, as ``by`` says."""

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
    """What one provider gets: complete records by resource class, and traits. ``file`` and ``place`` say where it is written."""

    key: Key
    file: str
    place: TextPosition
    inventories: Inventories = field(default_factory=dict)
    traits: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.key} ({self.file}:{self.place})"


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """All that was read from ``folder``; None: there is none to read. ``warnings`` are of what works, and perhaps not as meant."""

    folder: Path | None = None
    files: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    warnings: tuple[ConfigError, ...] = ()
