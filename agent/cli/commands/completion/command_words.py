"""The words of the command line as data, for the scripts of all shells: commands, flags, and what
their values are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from oslo_config import cfg

from agent.cli.command import (
    COMMON_FLAGS,
    FORMATS,
    Argument,
    Command,
    Format,
    describe_formats,
)
from agent.cli.command_table import COMMANDS, TOPICS
from agent.cli.parser import FLAGS, HELP
from agent.conf import options as agent_options

ValueKind = Literal["", "any", "file", "folder", "choice"]
"""The value of a flag or an argument: none, one that nothing is known of, the path of a file or
folder, one of a few words.
"""
_PATHS: Mapping[str, ValueKind] = {
    "FILE": "file",
    "FILE.html": "file",
    "PATH": "file",
    "DIR": "folder",
}


@dataclass(frozen=True, slots=True)
class FlagWords:
    """A flag of the command line."""

    name: str
    """With its hyphens."""
    help: str = ""
    kind: ValueKind = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandWords:
    """The words of one command, or of a part of it that further words follow."""

    words: str
    """Separated by spaces; empty for the command line without a command."""
    flags: tuple[FlagWords, ...] = ()
    following: tuple[tuple[str, str], ...] = ()
    """The words that can follow, with their help."""
    kind: ValueKind = ""
    """What the command's arguments without a flag are."""


@dataclass(frozen=True, slots=True)
class CommandLineWords:
    """All words of the command line."""

    commands: tuple[CommandWords, ...]
    options: tuple[FlagWords, ...]
    """The options of the configuration, which any command takes."""

    def with_value(self) -> list[str]:
        """Return the names of all flags that a value follows, sorted."""
        flags = [*self.options, *(flag for command in self.commands for flag in command.flags)]
        return sorted({flag.name for flag in flags if flag.kind})


def command_line_words() -> CommandLineWords:
    """Return the words of the agent's command line. They do not depend on the configuration or on
    what is installed besides the agent.
    """
    first = {
        **{command.words[0]: command.help for command in COMMANDS if len(command.words) == 1},
        **TOPICS,
        HELP: "show what a command does",
    }
    everywhere = {"format", "config_file", "config_dir"}
    commands = [
        CommandWords(
            "", _common({flag.key for flag in COMMON_FLAGS}, FORMATS), tuple(sorted(first.items()))
        ),
        CommandWords(HELP, following=tuple(sorted(first.items()))),
    ]
    commands += (
        CommandWords(
            topic,
            following=tuple(
                sorted(
                    (command.words[1], command.help)
                    for command in COMMANDS
                    if command.words[0] == topic
                )
            ),
        )
        for topic in TOPICS
    )
    commands += (
        CommandWords(
            " ".join(command.words),
            (*_common(everywhere | command.flags, command.formats), *_own_flags(command)),
            _choices(command),
            _operand(command),
        )
        for command in COMMANDS
    )
    return CommandLineWords(
        tuple(sorted(commands, key=lambda command: command.words)), tuple(_options())
    )


def fill_script(template: str, parts: Mapping[str, Iterable[str]]) -> str:
    """Return a script: each line of ``template`` that is the name of a part between ``@`` is
    replaced by the lines of the part.
    """
    lines: list[str] = []
    for line in template.splitlines():
        name = line.strip("@")
        lines += parts[name] if line == f"@{name}@" else [line]
    return "".join(f"{line}\n" for line in lines)


def _common(keys: set[str], formats: Sequence[Format]) -> tuple[FlagWords, ...]:
    found = [
        FlagWords(
            flag.name,
            describe_formats(formats) if flag.choices else flag.help,
            "choice" if flag.choices else _PATHS.get(flag.metavar, "any") if flag.metavar else "",
            tuple(formats) if flag.choices else (),
        )
        for flag in COMMON_FLAGS
        if flag.key in keys and (formats or not flag.choices)
    ]
    log = FlagWords("--debug", "log every step, and every request to Placement")
    return (*found, log, FlagWords("--help", "show this help"))


def _own_flags(command: Command) -> Iterator[FlagWords]:
    for argument in command.arguments:
        if argument.name.startswith("-"):
            yield FlagWords(argument.name, argument.help, _kind(argument), tuple(argument.choices))


def _kind(argument: Argument) -> ValueKind:
    if argument.switch:
        return ""
    return "choice" if argument.choices else _PATHS.get(argument.metavar, "any")


def _operand(command: Command) -> ValueKind:
    kinds = [_kind(found) for found in command.arguments if not found.name.startswith("-")]
    return next((kind for kind in kinds if kind in ("file", "folder")), "")


def _choices(command: Command) -> tuple[tuple[str, str], ...]:
    return tuple(
        (choice, argument.help)
        for argument in command.arguments
        if not argument.name.startswith("-")
        for choice in argument.choices
    )


def _options() -> Iterator[FlagWords]:
    seen = set(FLAGS.values())
    for group, options in agent_options.by_group():
        prefix = f"--{group}-" if group not in (None, "DEFAULT") else "--"
        for option in sorted(options, key=lambda option: str(option.name)):
            name = f"{prefix}{option.name}"
            if name not in seen:
                seen.add(name)
                yield FlagWords(name, kind="" if isinstance(option, cfg.BoolOpt) else "any")
