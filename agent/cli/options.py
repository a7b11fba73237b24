"""What was asked on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

Format = Literal["text", "table", "json", "yaml"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""``text`` and ``table`` are for people, ``json`` and ``yaml`` the same document for tools.
``table``: a line for each thing, however few.
"""


@dataclass(frozen=True, slots=True)
class Source:
    """One ``--config-file`` or ``--config-dir``."""

    path: Path
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Override:
    """One option of the configuration given as ``--group-option``. ``group`` is None
    for [DEFAULT].
    """

    group: str | None
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Options:
    """One command line. ``command`` is empty for an audit (``once``) or the daemon.

    ``sources`` and ``overrides`` stand in the order given; ``nodes`` empty means all of them.
    ``arguments`` are the command's own: a text or ``None``, a tuple of texts of those that there
    may be many of, a bool of a switch.
    """

    command: tuple[str, ...] = ()
    once: bool = False
    dry_run: bool = False
    adopt: bool = False
    reread: bool = False
    with_usages: bool = False
    detailed_exitcode: bool = False
    offline: bool = False
    wide: bool = False
    debug: bool = False
    format: Format = "text"
    nodes: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    overrides: tuple[Override, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def as_document(self) -> bool:
        """Whether stdout gets one document, on errors too."""
        return self.format in ("json", "yaml")
