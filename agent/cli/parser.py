"""The command line, parsed by argparse, with an exit code of its own for wrong usage, and every
option of the configuration as a flag.
"""

import argparse
import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from oslo_config import cfg

from agent.cli.command import (
    COMMON_FLAGS,
    COMMON_FORMATS,
    FORMATS,
    Command,
    Format,
    Options,
    Override,
    Source,
)
from agent.cli.command_table import AUDIT, COMMANDS, TOPICS, find
from agent.cli.configuration import (
    WITH_KEYSTONEAUTH,
    OptionsByGroup,
    catalogue,
    plugin_options,
)
from agent.errors import UsageError
from agent.model.names import masked

PROGRAM = "agent"
DESCRIPTION = (
    "Keeps OpenStack Placement true for a hypervisor. Without a command: the daemon, in the "
    "foreground."
)
EPILOG = (
    "Every option of the configuration file can be given here too, as --group-option VALUE, and "
    "wins over the files: --compute_driver fake, --store-path DIR, --placement-auth_url URL; a "
    "switch is turned off by --noswitch or --group-noswitch."
)
HELP = "help"
HELPS = {HELP, "-h", "--help"}
DEBUG = cfg.BoolOpt("debug")
"""An option of oslo.log, which most commands do not load."""

# The prefix of a command's own argument in the namespace, because it may have the name of a common
# flag.
OWN = "own "
# The beginning of argparse's message about unknown arguments.
UNRECOGNIZED = "unrecognized arguments: "


@dataclass(slots=True)
class _CommandLine:
    """What is collected across the parsers of command and subcommand, because argparse would keep
    the last part only.
    """

    overrides: dict[tuple[str | None, str], Override] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)

    def override(
        self, group: str | None, option: cfg.Opt, value: Any, words: tuple[str, ...] = ()
    ) -> None:
        before = self.overrides.pop((group, option.dest), None)
        if option.multi and before is not None:
            value, words = [*before.value, value], (*before.words, *words)
        elif option.multi:
            value = [value]
        self.overrides[group, option.dest] = Override(group, option.dest, value, words)


# The flags that only the help of their own commands shows.
PARTICULAR = {flag.key for flag in COMMON_FLAGS} - {"format", "config_file", "config_dir", "debug"}
# What begins with hyphens and is no option of the configuration.
NO_OPTIONS = {"--", "--help", "--nodebug", *(flag.name for flag in COMMON_FLAGS)} | {
    argument.name for command in COMMANDS for argument in command.arguments
}
# The flags that belong to certain commands only, as they are written.
FLAGS = {
    flag.key: flag.name for flag in COMMON_FLAGS if flag.key in PARTICULAR - {"once", "version"}
}


class _ArgumentParser(argparse.ArgumentParser):
    """A parser that raises a UsageError where argparse would print and exit with 2, and that
    suggests what may have been meant.
    """

    meant: str = ""

    def error(self, message: str) -> NoReturn:
        unknown = (
            message.removeprefix(UNRECOGNIZED).split() if message.startswith(UNRECOGNIZED) else []
        )
        flag = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
        meant = self.meant or (
            _suggest(flag, [*self._option_string_actions, *_flags_of(_catalogue([flag]))])
            if flag
            else ""
        )
        # What was meant comes first, before the line of all that there is.
        usage = "" if meant else self.format_usage()
        raise UsageError(f"{meant}{message}", f"{self.prog} --help", usage=usage)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            self.meant = _suggest(str(value), action.choices)
            what = (
                f"there is no {value!r}"
                if self.meant
                else f"{value!r} is none of {', '.join(action.choices)}"
            )
            raise argparse.ArgumentError(action, what)


def _suggest(word: str, known: Iterable[str]) -> str:
    """Return the beginning of a message with the most similar known word; empty if there is
    none.
    """
    alike = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)
    # The word is known, and only in the wrong place.
    return f"did you mean {alike[0]}? " if alike and alike[0] != word else ""


class _OptionAction(argparse.Action):
    """Passes the value, or for a switch its constant, to a function."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, take: Callable[[Any], None], **settings: Any
    ) -> None:
        super().__init__(option_strings, dest, **settings)
        self.take = take

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        values: Any,
        _option: str | None = None,
    ) -> None:
        self.take(self.const if self.nargs == 0 else values)


def parse(argv: Sequence[str]) -> Options:
    """Return the options that ``argv`` asks for.

    :raises UsageError: ``argv`` is wrong.
    :raises SystemExit: help was asked for, and printed.
    """
    asked = [command for command in COMMANDS if set(command.words) <= set(argv)]
    if HELPS.isdisjoint(argv):
        # Without the parsers of all other commands, which take longer than the rest of it.
        with suppress(UsageError):
            return _parse(argv, asked)
    return _parse(argv, COMMANDS)


def _parse(argv: Sequence[str], commands: Sequence[Command]) -> Options:
    given = _CommandLine()
    parser = _parser(given, argv, commands)
    found = vars(parser.parse_args(argv))
    if found.get("word0") == HELP:
        parser.parse_args([*found["asked"], "--help"])
    if found.get("observe"):
        given.overrides[None, "mode"] = Override(None, "mode", "observe")
    words = tuple(found.pop(f"word{place}") for place in range(2) if found.get(f"word{place}"))
    known = {option.name for option in fields(Options)}
    options = Options(
        arguments=_own_arguments(words, found),
        **{name: value for name, value in found.items() if name in known},
        command=words,
        nodes=tuple(given.nodes),
        report=given.reports[-1] if given.reports else None,
        sources=tuple(given.sources),
        overrides=tuple(given.overrides.values()),
        debug=any(
            override.name == "debug" and override.group is None and override.value
            for override in given.overrides.values()
        ),
    )
    _check(options, parser)
    return options


def find_format(argv: Sequence[str]) -> Format:
    """Return the format for errors, even if ``argv`` cannot be parsed. The last format wins."""
    words = [*argv, ""]
    asked = [
        words[place + 1] if word == "--format" else word.removeprefix("--format=")
        for place, word in enumerate(argv)
        if word.startswith("--format")
    ]
    return next((known for known in FORMATS if asked[-1:] == [known]), "text")


def _check(options: Options, parser: _ArgumentParser) -> None:
    called, command = " ".join(options.command), find(options.command, options.once)
    if options.command and options.once:
        parser.error(f"--once makes an audit, and cannot be used with {called}")
    if options.format not in (command.formats or ("text",)):
        if not command.formats:
            parser.error(f"{called} shows text, and cannot be used with --format")
        only = [one for one in (AUDIT, *COMMANDS) if options.format in one.formats]
        where = ", ".join(" ".join(one.words) or "--once" for one in only)
        parser.error(f"--format {options.format} can be used with {where} only")
    for name, flag in FLAGS.items():
        if getattr(options, name) and name not in command.flags:
            where = (
                f"cannot be used with {called}"
                if options.command
                else "can be used with --once, not with the daemon"
            )
            parser.error(f"{flag} {where}")


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser with all flags of all commands, for the generator of completion scripts."""
    words = [word for command in COMMANDS for word in command.words]
    return _parser(_CommandLine(), words, COMMANDS)


def _parser(
    given: _CommandLine, argv: Sequence[str], commands: Sequence[Command]
) -> _ArgumentParser:
    """Return the parser of ``commands``. Only those whose words are in ``argv`` get all flags, and
    of the hundreds of options of the configuration only those in ``argv`` are known.
    """
    plain: dict[str, Any] = {"allow_abbrev": False, "argument_default": argparse.SUPPRESS}
    options = _ArgumentParser(add_help=False, **plain)
    named = {word.partition("=")[0] for word in argv if word.startswith("--")} - NO_OPTIONS
    flags = _flags_of(_catalogue(named)) if named else {}
    for name in named & flags.keys():
        _add_option(options, given, name, flags[name])

    def settings(takes: Collection[str], formats: Sequence[Format] = FORMATS) -> dict[str, Any]:
        flags = _ArgumentParser(add_help=False, **plain)
        _add_flags(flags, given, takes, formats)
        return {"parents": [flags, options], **plain}

    all_flags = settings({"once", "version", *FLAGS})
    parser = _ArgumentParser(
        prog=PROGRAM,
        description=DESCRIPTION,
        epilog=EPILOG,
        usage="agent [OPTION]... [COMMAND]",
        **all_flags,
    )
    top = parser.add_subparsers(dest="word0", metavar="COMMAND", title="commands", prog=PROGRAM)
    asked = top.add_parser(HELP, help="show what a command does: agent help claim create", **plain)
    asked.add_argument(
        "asked", nargs="*", default=[], metavar="COMMAND", help="the words of a command"
    )
    topics: dict[str, Any] = {}
    for command in commands:
        first, *rest = command.words
        if rest and first not in topics:
            second = ", ".join(one.words[1] for one in COMMANDS if one.words[0] == first)
            topic = top.add_parser(
                first,
                help=f"{TOPICS[first]}: {second}",
                **(settings((), COMMON_FORMATS) if first in argv else plain),
            )
            topics[first] = topic.add_subparsers(
                dest="word1", metavar="COMMAND", title="commands", prog=topic.prog, required=True
            )
        parent = topics[first] if rest else top
        is_asked = set(command.words) <= set(argv)
        added = parent.add_parser(
            command.words[-1],
            help=command.help,
            description=command.help,
            **(settings(command.flags, command.formats) if is_asked else plain),
        )
        _add_examples(added, command)
        _add_own(added, command)
    return parser


def _add_examples(parser: argparse.ArgumentParser, command: Command) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    examples = "\n  ".join(["examples:", *command.examples])
    document = command.document_name
    parser.epilog = examples + (
        f"\n\nwhat --format json writes: agent schema {document}" if document else ""
    )


def _add_own(parser: argparse.ArgumentParser, command: Command) -> None:
    for argument in command.arguments:
        settings: dict[str, Any] = {"help": argument.help}
        if argument.switch:
            settings |= {"action": "store_true", "default": False}
        else:
            settings |= {"metavar": argument.metavar, "choices": argument.choices or None}
        if argument.implied:
            settings |= {"nargs": "?", "const": argument.implied}
        if argument.name.startswith("-"):
            if argument.many:
                settings["action"] = "append"
            parser.add_argument(
                argument.name, dest=OWN + argument.key, **{"default": None, **settings}
            )
        else:
            many = "*" if argument.optional else "+"
            settings["nargs"] = many if argument.many else "?" if argument.optional else None
            parser.add_argument(OWN + argument.key, **settings)


def _own_arguments(words: tuple[str, ...], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command's own arguments, those that were not given included."""
    given = {one.key: found.get(OWN + one.key) for one in find(words, once=True).arguments}
    many = {one.key for one in find(words, once=True).arguments if one.many}
    return {key: tuple(value or ()) if key in many else value for key, value in given.items()}


def _add_flags(
    parser: _ArgumentParser,
    given: _CommandLine,
    takes: Collection[str],
    formats: Sequence[Format],
) -> None:
    """Add the flags that may be anywhere. Flags and formats that the command does not take are left
    out of its help, and refused by name later.
    """
    collected: Mapping[str, Callable[[str], None]] = {
        "--node": given.nodes.append,
        "--report": given.reports.append,
        "--config-file": lambda path: given.sources.append(Source(Path(path))),
        "--config-dir": lambda path: given.sources.append(Source(Path(path), True)),
    }
    for flag in COMMON_FLAGS:
        hidden = flag.key in PARTICULAR and flag.key not in takes
        what = f"{flag.when}: {flag.help}" if flag.when and "once" in takes else flag.help
        shown = argparse.SUPPRESS if hidden else what
        if flag.metavar is not None:
            parser.add_argument(
                flag.name,
                action=_OptionAction,
                take=collected[flag.name],
                metavar=flag.metavar,
                help=shown,
            )
        elif flag.choices is not None:
            parser.add_argument(
                flag.name,
                choices=flag.choices,
                metavar=f"{{{','.join(formats)}}}",
                help=flag.help if formats else argparse.SUPPRESS,
            )
        elif flag.name == "--debug":
            for names, value in ((("-d", "--debug"), True), (("--nodebug",), False)):
                parser.add_argument(
                    *names,
                    action=_OptionAction,
                    take=lambda value: given.override(None, DEBUG, value),
                    nargs=0,
                    const=value,
                    help=shown if value else argparse.SUPPRESS,
                )
        else:
            parser.add_argument(flag.name, action="store_true", help=shown)


@dataclass(frozen=True, slots=True)
class _OptionFlag:
    """A flag that sets an option of the configuration."""

    group: str | None
    option: cfg.Opt
    constant: bool | None = None
    """The value of a switch; None if the flag has a value."""


def _catalogue(named: Collection[str]) -> OptionsByGroup:
    """Return all options of the configuration; those of all authentication plugins for sections
    that the flags ``named`` are about.
    """
    listed = catalogue()
    for section in WITH_KEYSTONEAUTH:
        if any(word.startswith(f"--{section}-") for word in named):
            of_section = [one for group, some in listed if group == section for one in some]
            listed.append((section, plugin_options(of_section)))
    return listed


def _flags_of(listed: OptionsByGroup) -> dict[str, _OptionFlag]:
    """Return the flags of options, with hyphens and with underscores."""
    found: dict[str, _OptionFlag] = {}
    for group, options in listed:
        prefix = f"--{group}-" if group not in (None, "DEFAULT") else "--"
        for option in options:
            switch = isinstance(option, cfg.BoolOpt)
            for name in sorted({option.name, option.name.replace("_", "-"), option.dest}):
                found[f"{prefix}{name}"] = _OptionFlag(group, option, True if switch else None)
                if switch:
                    found[f"{prefix}no{name}"] = _OptionFlag(group, option, False)
    return found


def _add_option(
    parser: argparse.ArgumentParser, given: _CommandLine, name: str, flag: _OptionFlag
) -> None:
    def take(value: Any) -> None:
        words: tuple[str, ...] = (name,) if flag.constant is not None else (name, str(value))
        # Somebody's password may stand in a URL.
        if flag.option.secret or masked(words[-1]) != words[-1]:
            words = ()
        given.override(flag.group, flag.option, value, words)

    settings: dict[str, Any] = {} if flag.constant is None else {"nargs": 0, "const": flag.constant}
    parser.add_argument(name, action=_OptionAction, take=take, help=argparse.SUPPRESS, **settings)
