"""The documents of commands as JSON and YAML, and what all of them have: errors, and uuids that are
not shown; drift and errors as lines, each with its remedy.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from agent.errors import AgentError, ConfigErrors
from agent.model.finding import Drift, Problem
from agent.model.names import number_of, printable
from agent.render.look import Look, Text, escape_text, to_string, wrap_line

Document = Mapping[str, Any]
"""A JSON document."""


def replace_uuids(text: str, hidden: Mapping[str, str]) -> str:
    """Return ``text`` with every hidden uuid replaced."""
    for uuid, name in hidden.items():
        text = text.replace(uuid, name)
    return text


def problems_of(error: AgentError) -> tuple[Problem, ...]:
    """Return the problems of an error: several for an exception that carries several errors."""
    parts = error.errors if isinstance(error, ConfigErrors) else (error,)
    return tuple(Problem(part.code, part.message, part.remedy, part.fatal) for part in parts)


def dumps(document: Mapping[str, Any]) -> str:
    """Return a document as JSON. It is pure ASCII, so that every stream can carry every name."""
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def yaml_dumps(document: Mapping[str, Any]) -> str:
    """Return a document as YAML, converted from its JSON, so that both have the same content. It is
    pure ASCII too.
    """
    import yaml  # Imported here, because YAML is rarely asked for.

    text: str = yaml.safe_dump(
        json.loads(dumps(document)),
        sort_keys=False,
        allow_unicode=False,
        width=120,
        explicit_start=True,
    )
    return text


def error_rows(errors: Iterable[Problem]) -> list[dict[str, str]]:
    """Return the rows of errors, as every document has them."""
    return [
        {"code": error.code, "message": error.message, "remedy": error.remedy} for error in errors
    ]


def problems_in(rows: Iterable[Mapping[str, str]]) -> list[Problem]:
    """Return the problems of the rows of errors in a document."""
    return [Problem(row["code"], row["message"], row["remedy"]) for row in rows]


Names = Mapping[str, str]
NONE: Names = {}
# The ways of a remedy are apart by "; ", which may stand in quotes and brackets too.
_WAY = re.compile(r"((?:(?<![^\s=])'[^']*'|\([^()]*\)|[^;]|;(?! ))+)(?:; |\Z)")
_COMMAND = re.compile(
    r"(?:^|(?<=: ))(?=(?:agent|chcpu|nova-manage|openstack|printf|systemctl|virsh|/\S+ -m) )"
)

_OF_THE_AGENT = re.compile(r"(^|\| |&& )agent (?=[a-z-])")


class _Program:
    """How remedies call the agent. Of the process, because the daemon's pages come from threads."""

    words = "agent"


def name_program(words: str) -> None:
    """Have remedies call the agent by ``words``: those of the shell, with options."""
    _Program.words = words


# How the details of drift begin that is about one guest.
_GUEST = re.compile(r"(domain|guest|instance) ")
NAMED_AT_MOST = 5
"""Of more guests with one reason, so many are named in text."""


def all_drift_lines(
    drifts: Sequence[Drift], look: Look, hidden: Names = NONE, names: Names = NONE
) -> list[Text]:
    """Return the lines of all drift, see :func:`drift_lines`. Many guests with one reason and one
    remedy are told together, where the first of them stands.
    """
    told = [_without_guest(drift) for drift in drifts]
    alike: dict[Drift, list[str]] = {}
    for common, guest in told:
        alike.setdefault(common, []).append(guest)
    lines: list[Text] = []
    for drift, (common, _) in zip(drifts, told, strict=True):
        if len(alike.get(common, "")) > NAMED_AT_MOST:
            lines += _together(common, alike.pop(common), look)
        elif common in alike:
            lines += drift_lines(drift, look, hidden, names)
    return lines


def _without_guest(drift: Drift) -> tuple[Drift, str]:
    """Return the drift without what names its guest, and what names it; the drift itself if its
    detail does not begin with a guest.
    """
    noun, uuid = _GUEST.match(drift.detail), drift.consumer
    if noun is None or uuid is None:
        return drift, ""
    name, found, rest = drift.detail[noun.end() :].partition(uuid)
    if not found or not (name == "" or name.endswith(" (")):
        return drift, ""
    more, close, after = rest.partition(")") if name else ("", "", rest)
    common = replace(
        drift,
        detail=noun[0] + after.lstrip(),
        remedy=drift.remedy.replace(uuid, "UUID"),
        provider=None,
        consumer=None,
    )
    return common, f"{name}{uuid}{more}{close}"


def _together(common: Drift, guests: Sequence[str], look: Look) -> list[Text]:
    detail = f"{number_of(len(guests), 'time')}: {common.detail}"
    lines = drift_lines(replace(common, detail=detail, remedy=""), look)
    for guest in guests[:NAMED_AT_MOST]:
        lines += wrap_line(escape_text(f"    {guest}"), look)
    more = f"    and {len(guests) - NAMED_AT_MOST} more: see all with --format json"
    return [*lines, Text(more, "dim"), *remedy_lines(common.remedy, look)]


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
