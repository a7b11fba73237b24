"""``agent config check``: shows every error of the configuration at once."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from oslo_config import cfg

from agent.bootstrap.components import check_configuration
from agent.cli.command import Commands, Options
from agent.cli.config_warnings import Unknown, exposures, unknown_options
from agent.cli.configuration import Configuration, files_of, origin, read_configuration
from agent.cli.output import write, write_document, write_problems
from agent.cli.report_output import failed_run
from agent.errors import AgentError, ConfigError
from agent.model.finding import DONE, FAILED, Problem
from agent.model.names import printable
from agent.placement.transport import uses_embedded
from agent.render.json_report import report_document

SCHEMA = "compute-node-agent/config-check/1"
# The beginnings of messages that name the number of a value, and the option.
_NUMBER = re.compile(r"#(\d+)")
_ABOUT = re.compile(r"\[(?P<section>\w+)\] (?P<option>\w+)")
Row = Mapping[str, Any]
NOWHERE: Row = {"file": None, "line": None}


class UnknownName(AgentError):
    """A section or option that nothing reads; a warning.
    Remedy: use the name that the message suggests, or remove the line.
    """

    code = "config.unknown"


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
        read.conf, complete=found is not None and found.components is not None
    )
    warnings = [*map(str, unknown), *exposures(read.conf)]
    warnings += found.components.warnings if found and found.components else ()
    warnings += _daemon_warnings(read.conf) if not errors else ()
    problems = [Problem(error.code, error.message, error.remedy) for error in errors]
    code = FAILED if problems else DONE
    found_rows = [_row("error", error, _place(error, read.conf)) for error in errors]
    rows = [*map(_row_of_unknown, unknown), *found_rows]
    if options.as_document:
        write_document(_document(options, read, problems, warnings, rows, code), options)
        return code
    write("".join(f"warning: {warning}\n" for warning in warnings))
    if problems:
        write_problems(problems, [*map(_place_text, found_rows)])
    else:
        files = [str(file.path) for file in files_of(read.conf)]
        write(
            "nothing wrong in "
            f"{', '.join(files) if files else 'the defaults: no configuration file was found'}\n"
        )
    return code


def _document(
    options: Options,
    read: Configuration,
    problems: Sequence[Problem],
    warnings: Sequence[str],
    rows: Sequence[Row],
    code: int,
) -> dict[str, Any]:
    """Return the document of the command; with errors, the report of a run with further keys."""
    files = [str(file.path) for file in files_of(read.conf)]
    if not problems:
        return {
            "schema": SCHEMA,
            "files": files,
            "warnings": warnings,
            "problems": rows,
            "errors": [],
            "exit_code": code,
        }
    report = failed_run(options, problems, code, read.conf)
    return {**report_document(report), "files": files, "warnings": warnings, "problems": rows}


def _daemon_warnings(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Yield what a daemon lacks, and a single audit does not."""
    lacks = []
    if not conf.compute_driver:
        lacks.append("[DEFAULT] compute_driver, unless libvirt answers")
    try:
        uses_embedded(conf, daemon=True)
    except ConfigError as error:
        lacks.append(f"credentials: {error.message}")
    if lacks:
        yield f"enough for agent --once; the daemon needs {'; '.join(lacks)}"


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


def _place(error: AgentError, conf: cfg.ConfigOpts) -> Row:
    """Return the place that an error names, else where the option in its message is set."""
    data = error.data
    named = _ABOUT.search(error.message)
    section, option = (
        data.get("group") or (named and named["section"]),
        data.get("option") if "group" in data else (named and named["option"]),
    )
    place: Row = {"file": data.get("file"), "line": data.get("line")}
    if not data.get("file") and section and option:
        number = _NUMBER.match(str(data.get("place", "")))
        place = _place_of_option(conf, section, option, int(number[1]) if number else None)
    return {**place, "section": section, "option": option}


def _place_of_option(conf: cfg.ConfigOpts, section: str, option: str, number: int | None) -> Row:
    """Return the file and the line where an option is set; None for both if no file sets it."""
    group = None if section == "DEFAULT" else section
    for info, registered in conf._all_opt_infos():
        # The host's name is in a group of its own, called DEFAULT.
        if (
            info["opt"].dest == option
            and (registered.name if registered and registered.name != "DEFAULT" else None) == group
        ):
            found = origin(conf, info["opt"], group, os.environ, number)
            file, _, line = found.place.rpartition(":") if found else ("", "", "")
            return {"file": file, "line": int(line)} if line.isdecimal() else NOWHERE
    return NOWHERE


def _place_text(row: Row) -> str:
    """Return the place as text for people; empty if the message contains it."""
    told = not row["line"] or printable(row["file"]) in row["message"]
    return "" if told else f"{row['file']}:{row['line']}"


def _row(severity: str, error: AgentError, place: Row) -> Row:
    told = {"code": error.code, "message": error.message, "remedy": error.remedy}
    return {"severity": severity, **place, **told}


def _row_of_unknown(unknown: Unknown) -> Row:
    place = {name: getattr(unknown, name) for name in ("file", "line", "section", "option")}
    return _row("warning", UnknownName(unknown.message, unknown.remedy), place)


RUN: Commands = {
    ("config", "check"): check_config,
}
