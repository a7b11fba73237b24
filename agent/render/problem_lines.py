"""Drift and errors as lines, each with its remedy."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from agent.model.finding import Drift, Problem
from agent.model.names import printable
from agent.render.document import replace_uuids
from agent.render.look import Look, Text, escape_text, to_string, wrap_line

Names = Mapping[str, str]
NONE: Names = {}
# The ways of a remedy are apart by "; ", which may stand in quotes and brackets too.
_WAY = re.compile(r"((?:(?<![^\s=])'[^']*'|\([^()]*\)|[^;]|;(?! ))+)(?:; |\Z)")
_COMMAND = re.compile(
    r"(?:^|(?<=: ))(?=(?:agent|chcpu|nova-manage|openstack|printf|systemctl|virsh) )"
)

_OF_THE_AGENT = re.compile(r"(^|\| |&& )agent (?=[a-z-])")


class _Program:
    """How remedies call the agent. Of the process, because the daemon's pages come from threads."""

    words = "agent"


def name_program(words: str) -> None:
    """Have remedies call the agent by ``words``: those of the shell, with options."""
    _Program.words = words


def drift_lines(drift: Drift, look: Look, hidden: Names = NONE, names: Names = NONE) -> list[Text]:
    """Return the lines of one drift, with its remedy.

    ``hidden``: what replaces uuids that are not shown. ``names``: of the providers.
    """
    style = "yellow" if drift.severity == "warning" else "cyan"
    subject = drift.consumer or names.get(drift.provider or "", drift.provider)
    if subject == drift.consumer and subject and subject in drift.detail:
        # There it stands behind its name.
        subject = None
    line = Text.assemble(
        ("! " if drift.severity == "warning" else "i ", f"bold {style}"), (drift.kind, style)
    )
    if subject:
        line.append(f" {printable(replace_uuids(subject, hidden))}", "bold")
    line.append(f": {printable(replace_uuids(drift.detail, hidden))}")
    return [*wrap_line(line, look), *remedy_lines(replace_uuids(drift.remedy, hidden), look)]


def error_lines(errors: Iterable[Problem], look: Look, hidden: Names = NONE) -> list[Text]:
    """Return the lines of errors, each with its remedy."""
    lines = []
    for error in errors:
        line = Text.assemble(
            (f"{look.signs.bad} ", "bold red"),
            escape_text(replace_uuids(error.message, hidden), "red"),
            (f" [{printable(error.code)}]", "dim"),
        )
        lines += [*wrap_line(line, look), *remedy_lines(replace_uuids(error.remedy, hidden), look)]
    return lines


def render_problems(problems: Iterable[Problem], look: Look, places: Sequence[str] = ()) -> str:
    """Return errors as text, for a run without a report. ``places``: where each comes from, empty
    if unknown.
    """
    lines: list[Text] = []
    for problem, place in zip_longest(problems, places, fillvalue=""):
        lines += error_lines([problem], look) if isinstance(problem, Problem) else []
        lines += wrap_line(escape_text(f"  at {place}", "dim"), look) if place else []
    return to_string(lines, look)


def remedy_ways(remedy: str) -> list[tuple[str, str]]:
    """Return the ways of a remedy, each as its words and its command; either may be empty. One
    without commands is one way. Commands of the agent are as ``name_program`` was told.
    """
    ways = _WAY.findall(remedy := printable(remedy))
    if not any(map(_COMMAND.search, ways)):
        return [(remedy, "")] if remedy else []
    return [_words_and_command(way) for way in ways]


def _words_and_command(way: str) -> tuple[str, str]:
    words, *command = _COMMAND.split(way, maxsplit=1)
    if not command:
        return words, ""
    return words.rstrip(), command_line(command[0])


def command_line(command: str) -> str:
    """Return a command for the shell, with the agent called as ``name_program`` was told."""
    return _OF_THE_AGENT.sub(lambda found: f"{found[1]}{_Program.words} ", command)


def remedy_lines(remedy: str, look: Look, indent: str = "  ") -> list[Text]:
    """Return the lines of a remedy. One with commands has a line for each of its ways, and one for
    each command. Commands are not wrapped, because they are pasted into a shell, which reads on
    behind "&&".
    """
    lines: list[Text] = []
    lead = f"{indent}{look.signs.change} "
    below = " " * len(lead)
    for words, command in remedy_ways(remedy):
        if words:
            lines += wrap_line(Text.assemble((lead, "dim"), words), look)
            lead = f"{below}  "
        for part in command.replace(" && ", " &&\n").splitlines():
            lines.append(Text.assemble((lead, "dim"), part))
            lead = " " * len(lead)
        lead = below
    return lines
