"""A command as the command table has it: its words, its arguments, and where what it
does is found.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """What only one command takes: a flag, if its name begins with hyphens, else a word after the
    command's own.

    ``many``: a flag may be repeated, of words there may be more. ``switch``: a flag without a
    value. ``optional``: a word that may be left out.
    """

    name: str
    help: str
    metavar: str
    many: bool = False
    switch: bool = False
    optional: bool = False

    @property
    def key(self) -> str:
        """The name by which the command finds it."""
        return self.name.lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Command:
    """``target`` is ``module:function``. ``flags`` are the common flags that go with it, beside
    those for every command.

    ``examples``: command lines that its help shows. ``lenient``: it reads the configuration itself,
    also one with errors.
    """

    words: tuple[str, ...]
    help: str
    target: str
    flags: frozenset[str] = frozenset()
    arguments: tuple[Argument, ...] = ()
    examples: tuple[str, ...] = ()
    lenient: bool = False
