"""``agent config check``: shows every error of the configuration at once."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Literal

from oslo_config import cfg

from agent.bootstrap.components import check_configuration
from agent.cli.command import Options
from agent.cli.configuration import Configuration, origin, read_configuration
from agent.cli.exposures import exposures
from agent.cli.output import write, write_document, write_problems
from agent.cli.unknown_options import Unknown, unknown_options
from agent.conf.default import host_name
from agent.errors import AgentError, ConfigError
from agent.model.names import printable
from agent.model.report import DONE, FAILED, Problem, Report
from agent.render.json_report import report_document
from agent.version import agent_version

SCHEMA = "compute-node-agent/config-check/1"
# The beginnings of messages that name the number of a value, and the option.
_NUMBER = re.compile(r"#(\d+)")
_ABOUT = re.compile(r"\[(?P<section>\w+)\] (?P<option>\w+)")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an error comes from, as far as that is known."""

    file: str | None = None
    line: int | None = None
    section: str | None = None
    option: str | None = None


def check_config(_conf: cfg.ConfigOpts, options: Options) -> int:
    """Check everything that can be checked without changing anything. Return the exit code."""
    read = read_configuration(options)
    found = check_configuration(read.conf, Event(), daemon=False) if read.whole else None
    errors = [
        *read.errors,
        *(found.errors if found else ()),
        *(_folder_errors(read.conf) if read.whole else ()),
    ]
    unknown = unknown_options(
        read.conf, read.files, complete=found is not None and found.components is not None
    )
    warnings = [*map(str, unknown), *exposures(read.conf, [file.path for file in read.files])]
    warnings += found.components.warnings if found and found.components else ()
    places = [(error, _place(error, read)) for error in errors]
    problems = [Problem(error.code, error.message, error.remedy) for error in errors]
    code = FAILED if problems else DONE
    rows = [
        *map(_row_of_unknown, unknown),
        *(_row(problem, place) for problem, (_, place) in zip(problems, places, strict=True)),
    ]
    if options.as_document:
        write_document(_document(read, problems, warnings, rows, code), options)
        return code
    write("".join(f"warning: {warning}\n" for warning in warnings))
    if problems:
        write_problems(problems, [_place_text(error, place) for error, place in places])
    else:
        files = [str(file.path) for file in read.files]
        write(
            "nothing wrong in "
            f"{', '.join(files) if files else 'the defaults: no configuration file was found'}\n"
        )
    return code


def _document(
    read: Configuration,
    problems: Sequence[Problem],
    warnings: Sequence[str],
    rows: Sequence[dict[str, Any]],
    code: int,
) -> dict[str, Any]:
    """Return the document of the command; with errors, the report of a run with further keys."""
    files = [str(file.path) for file in read.files]
    if not problems:
        return {
            "schema": SCHEMA,
            "files": files,
            "warnings": warnings,
            "problems": rows,
            "errors": [],
            "exit_code": code,
        }
    conf = read.conf
    mode: Literal["embedded", "http"] = (
        "embedded" if conf.placement.backend == "embedded" else "http"
    )
    report = Report(
        agent_version(),
        host_name(conf),
        mode,
        None,
        None,
        dry_run=False,
        errors=problems,
        exit_code=code,
    )
    return {**report_document(report), "files": files, "warnings": warnings, "problems": rows}


def _folder_errors(conf: cfg.ConfigOpts) -> Iterator[ConfigError]:
    """Yield an error for each folder that the agent could not use if it started now."""
    store = Path(conf.store.path)
    about = f"[store] path = {printable(str(store))}"
    if store.exists() and not store.is_dir():
        yield ConfigError(
            f"{about}: it is no folder", "name a folder; the agent creates it if it does not exist"
        )
    elif store.exists() and not os.access(store, os.R_OK | os.W_OK | os.X_OK):
        yield ConfigError(
            f"{about}: this user may not read and write it",
            "give it to the agent's user, or run this check as that user",
        )
    if conf.log_config_append and not os.access(conf.log_config_append, os.R_OK):
        yield ConfigError(
            f"[DEFAULT] log_config_append = {printable(conf.log_config_append)}: it cannot be read",
            "name a file that exists, or remove the option",
        )


def _place(error: AgentError, read: Configuration) -> _Place:
    """Return the place that an error names, else where the option in its message is set."""
    data = error.data
    named = _ABOUT.search(error.message)
    section, option = (
        data.get("group") or (named and named["section"]),
        data.get("option") if "group" in data else (named and named["option"]),
    )
    if data.get("file"):
        return _Place(data["file"], data.get("line"), section, option)
    if not (section and option):
        return _Place()
    group = None if section == "DEFAULT" else section
    for info, registered in read.conf._all_opt_infos():
        # The host's name is in a group of its own, called DEFAULT.
        if (
            info["opt"].dest == option
            and (registered.name if registered and registered.name != "DEFAULT" else None) == group
        ):
            number = _NUMBER.match(str(data.get("place", "")))
            found = origin(
                info["opt"], group, read.files, os.environ, int(number[1]) if number else None
            )
            file, _, line = found.place.rpartition(":") if found else ("", "", "")
            return (
                _Place(file, int(line), section, option)
                if line.isdecimal()
                else _Place(None, None, section, option)
            )
    return _Place(None, None, section, option)


def _place_text(error: AgentError, place: _Place) -> str:
    """Return the place as text for people; empty if the message contains it."""
    return (
        f"{place.file}:{place.line}"
        if place.file and place.line and printable(place.file) not in error.message
        else ""
    )


def _row(problem: Problem, place: _Place) -> dict[str, Any]:
    where = {
        "file": place.file,
        "line": place.line,
        "section": place.section,
        "option": place.option,
    }
    return {
        "severity": "error",
        **where,
        "code": problem.code,
        "message": problem.message,
        "remedy": problem.remedy,
    }


class UnknownName(AgentError):
    """A section or option that nothing reads; a warning.
    Remedy: use the name that the message suggests, or remove the line.
    """

    code = "config.unknown"


def _row_of_unknown(unknown: Unknown) -> dict[str, Any]:
    where = {
        "file": unknown.file,
        "line": unknown.line,
        "section": unknown.section,
        "option": unknown.option,
    }
    return {
        "severity": "warning",
        **where,
        "code": UnknownName.code,
        "message": unknown.message,
        "remedy": unknown.remedy,
    }
