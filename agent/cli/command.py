"""One command of the command line: its words, its arguments, and the function that runs it."""

from collections.abc import Callable
from dataclasses import dataclass

from oslo_config import cfg

from agent.cli.options import Options


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

    @property
    def key(self) -> str:
        """The argument's key in :attr:`agent.cli.options.Options.arguments`."""
        return self.name.lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command table."""

    words: tuple[str, ...]
    help: str
    run: Callable[[cfg.ConfigOpts, Options], int]
    """Returns the exit code."""
    flags: frozenset[str] = frozenset()
    """The common flags that the command takes, beside those of every command."""
    arguments: tuple[Argument, ...] = ()
    examples: tuple[str, ...] = ()
    """Command lines for the help."""
    lenient: bool = False
    """The command gets the configuration even if it has errors."""
