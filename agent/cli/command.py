"""The parsed command line as frozen values; one command of it, with its words, its arguments and
the function that runs it; and the flags that commands have in common.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from oslo_config import cfg

Format = Literal["text", "json", "yaml", "nagios", "prometheus", "dot"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""The formats of output. ``text`` is for people; ``json`` and ``yaml`` hold the same document for
tools. ``nagios`` is the line of a monitoring plug-in, ``prometheus`` a file for a textfile
collector; both are for audits. ``dot`` is a graph of provider trees.
"""
FOR_MONITORING: tuple[Format, ...] = ("nagios", "prometheus")
"""The formats that only an audit has, beside the common ones."""
FOR_DRAWING: tuple[Format, ...] = ("dot",)
"""The formats that only ``agent tree`` has, beside the common ones."""
COMMON_FORMATS: tuple[Format, ...] = ("text", "json", "yaml")


@dataclass(frozen=True, slots=True)
class Source:
    """One ``--config-file`` or ``--config-dir``."""

    path: Path
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Override:
    """One option of the configuration, given as ``--group-option``."""

    group: str | None
    """None for [DEFAULT]."""
    name: str
    value: Any
    words: tuple[str, ...] = field(default=(), compare=False)
    """Those that give it, to be repeated in commands; empty if a secret is in them."""


@dataclass(frozen=True, slots=True)
class Options:
    """One command line."""

    command: tuple[str, ...] = ()
    """The words of the command; empty for an audit (``once``) or the daemon."""
    once: bool = False
    observe: bool = False
    dry_run: bool = False
    adopt: bool = False
    reread: bool = False
    remove_deleted: bool = False
    with_usages: bool = False
    detailed_exitcode: bool = False
    offline: bool = False
    wide: bool = False
    debug: bool = False
    format: Format = "text"
    report: str | None = None
    """The file of the page that an audit writes; None for no page."""
    nodes: tuple[str, ...] = ()
    """The values of ``--node``; empty for all nodes."""
    sources: tuple[Source, ...] = ()
    """In the order given."""
    overrides: tuple[Override, ...] = ()
    """In the order given."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The command's own arguments by key: a text or None, a tuple of texts if there may be many, a
    bool for a switch.
    """

    @property
    def as_document(self) -> bool:
        """Whether stdout gets one document, also for errors."""
        return self.format in ("json", "yaml")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of one command: a flag if its name begins with hyphens, else a positional
    argument.
    """

    name: str
    help: str
    metavar: str
    many: bool = False
    """A flag may be repeated; a positional argument may have several values."""
    switch: bool = False
    """A flag without a value."""
    optional: bool = False
    """A positional argument that may be left out."""
    implied: str = ""
    """The value of a flag that is given without one; empty if it needs one."""
    choices: tuple[str, ...] = ()
    """The only values, if not any value."""

    @property
    def key(self) -> str:
        """The argument's key in :attr:`agent.cli.command.Options.arguments`."""
        return self.name.lstrip("-").replace("-", "_")


Commands = Mapping[tuple[str, ...], Callable[[cfg.ConfigOpts, Options], int]]
"""The commands of a module: by words, what runs the command and returns the exit code."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command table."""

    words: tuple[str, ...]
    help: str
    module: str
    """The module of :mod:`agent.cli.commands` whose ``RUN`` has the command."""
    flags: frozenset[str] = frozenset()
    """The common flags that the command takes, beside those of every command."""
    formats: tuple[Format, ...] = field(default=COMMON_FORMATS, kw_only=True)
    """The values of ``--format``; empty if the command only shows text."""
    arguments: tuple[Argument, ...] = ()
    examples: tuple[str, ...] = ()
    """Command lines for the help."""
    lenient: bool = False
    """The command gets the configuration even if it has errors."""
    local: bool = False
    """The command asks the daemon or the store, and never Placement, ironic or nova: its
    configuration is without the options of oslo.log and keystoneauth.
    """
    document: str = ""
    """The name of the document that the command writes with ``--format json``, if it is not made of
    the words.
    """
    no_document: str = ""
    """Why ``--format json`` is of no use for the command; empty if it writes a document."""

    @property
    def document_name(self) -> str:
        """The name of the document, which ``agent schema`` takes; empty if there is none."""
        return "" if self.no_document else self.document or "-".join(self.words)


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that may be anywhere in the command line: a switch, unless it has choices or a
    ``metavar``.
    """

    name: str
    help: str
    when: str = ""
    """Where the flag can be used, for the help of the program itself."""
    choices: Sequence[str] | None = None
    metavar: str | None = None
    """What the help calls its value."""

    @property
    def key(self) -> str:
        """The name of its value in ``Options``."""
        return "nodes" if self.name == "--node" else self.name[2:].replace("-", "_")


COMMON_FLAGS = (
    Flag("--once", "audit every node once, write a report, and exit"),
    Flag(
        "--dry-run",
        "show what would be done, write nothing",
        "with --once and commands that write",
    ),
    Flag(
        "--observe",
        "write nothing, report what Placement has otherwise than this host and its guests: for a "
        "host that nova-compute manages",
        "with --once",
    ),
    Flag(
        "--node",
        "only this node; may be repeated",
        metavar="NAME",
    ),
    Flag("--format", "format of the report; text unless given", choices=FORMATS),
    Flag("--wide", "show all traits of each provider, however many it has"),
    Flag("--detailed-exitcode", "exit 2 if there are changes, made or pending, or warnings"),
    Flag("--adopt", "take over a tree that another program made", "with --once"),
    Flag("--reread", "read everything again, trust no saved mirror", "with --once"),
    Flag(
        "--remove-deleted",
        "delete the providers of all nodes that the driver says are deleted, however many",
        "with --once",
    ),
    Flag(
        "--with-usages",
        "show usages as Placement counts them, with one request for each provider",
        "with --once",
    ),
    Flag(
        "--report",
        "write a page that shows the nodes into this file, for a browser",
        "with --once",
        metavar="FILE.html",
    ),
    Flag(
        "--offline",
        "read the store even if a daemon runs",
        "with a command that asks the daemon",
    ),
    Flag("--version", "show the version and exit"),
    Flag("--debug", "log every step, and every request to Placement"),
    Flag(
        "--config-file",
        "read this file; may be repeated, later ones win",
        metavar="FILE",
    ),
    Flag(
        "--config-dir",
        "read every *.conf of this folder",
        metavar="DIR",
    ),
)
