"""``agent config check`` and ``agent provider-config check``: show every error of the
configuration, or of the provider files, at once; the latter also what valid files would change.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from oslo_config import cfg

from agent.bootstrap.components import check_configuration
from agent.cli.command import Commands, Options
from agent.cli.config_warnings import Unknown, exposures, unknown_options
from agent.cli.configuration import (
    Configuration,
    Row,
    files_of,
    place_of,
    place_text,
    read_configuration,
)
from agent.cli.output import answer, write, write_document, write_problems
from agent.cli.report_output import failed_run
from agent.errors import AgentError, ConfigError, ConfigErrors, StoreError
from agent.model.finding import DONE, FAILED, AuditState, Problem
from agent.model.mirror import PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import BaseTree, DesiredTree
from agent.model.report import NodeReport, Outcome, exit_code
from agent.placement.merge import Merge, Use
from agent.placement.ownership import MergeInputs
from agent.placement.plan import make_plan
from agent.placement.transport import uses_embedded
from agent.provider_config.applying import Entry, Key, ProviderConfig, absence, absent
from agent.provider_config.reading import folder_of, read_folder
from agent.render.checks import render_changes, render_check
from agent.render.document import error_rows, problems_of
from agent.render.json_report import node_document, report_document
from agent.render.look import Text, escape_text, look_of, to_string, wrap_line
from agent.store.store import Store, open_read_only
from agent.tree.desired_tree import put_operators_files
from agent.tree.policy import Policy

CONFIG_SCHEMA = "compute-node-agent/config-check/1"


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
    found_rows = [_row("error", error, place_of(error, read.conf)) for error in errors]
    rows = [*map(_row_of_unknown, unknown), *found_rows]
    if options.as_document:
        write_document(_document(options, read, problems, warnings, rows, code), options)
        return code
    write("".join(f"warning: {warning}\n" for warning in warnings))
    if problems:
        write_problems(problems, [*map(place_text, found_rows)])
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
            "schema": CONFIG_SCHEMA,
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
        lacks.append("no [DEFAULT] compute_driver, unless libvirt answers")
    try:
        uses_embedded(conf, daemon=True)
    except ConfigError as error:
        lacks.append(f"{error.message}: {error.remedy}")
    yield from (f"enough for agent --once, not for the daemon: {lack}" for lack in lacks)


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


def _row(severity: str, error: AgentError, place: Row) -> Row:
    told = {"code": error.code, "message": error.message, "remedy": error.remedy}
    return {"severity": severity, **place, **told}


def _row_of_unknown(unknown: Unknown) -> Row:
    place = {name: getattr(unknown, name) for name in ("file", "line", "section", "option")}
    return _row("warning", UnknownName(unknown.message, unknown.remedy), place)


def changes(
    store: Store, config: ProviderConfig, owner_trait: str
) -> Iterator[tuple[NodeReport, frozenset[Key]]]:
    """Yield a report for each node that the agent has audited, with the operations and the errors,
    and the keys of the entries that have a provider there.
    """
    for endpoint, root in store.views():
        view = store.view(endpoint, root)
        if view is not None and view.tree.exists(root) and store.journal(root).owns(root):
            yield _node(
                store,
                view,
                root,
                store.capabilities(endpoint) or ServerCapabilities(endpoint, "1.30"),
                config,
                owner_trait,
            )


def _node(
    store: Store,
    view: PlacementView,
    root: ProviderUuid,
    capabilities: ServerCapabilities,
    config: ProviderConfig,
    owner_trait: str,
) -> tuple[NodeReport, frozenset[Key]]:
    # The base is the node's tree as it was last seen, unchanged.
    base, journal = BaseTree(view.tree.scoped(root)), store.journal(root)
    by = MergeInputs.of(view, journal, base, DesiredTree(base.copy()), root)
    applied = put_operators_files(config, by, owner_trait)
    # Placement is not asked whether held classes are free by now; they count as used.
    held = {uuid: dict.fromkeys(classes, Use(1)) for uuid, classes in journal.held.items()}
    target = Merge(
        replace(by, desired=applied.tree), capabilities, held, applied.configured
    ).target()
    outcomes = tuple(
        Outcome(operation) for operation in make_plan(view, target, capabilities, root).operations
    )
    problems = tuple(problem for error in applied.problems for problem in problems_of(error))
    state: AuditState = "degraded" if problems else "pending" if outcomes else "in-sync"
    return NodeReport(
        view.tree.name_of(root),
        root,
        "",
        state,
        outcomes=outcomes,
        tree=target.tree,
        errors=problems,
    ), applied.found


PROVIDERS_SCHEMA = "compute-node-agent/provider-config-check/1"
SHOWN = ("name", "uuid", "operations", "errors")
UNSEEN = "no node was audited yet, so that nothing can be said of what would change"


def check_provider_config(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check the files, and compare them with the trees in the store. Return the exit code.

    :raises ConfigErrors: all errors of the files, or the folder does not exist.
    """
    config = _read(conf, options.arguments["folder"])
    found, note = _changes_of_nodes(conf, config)
    nodes = [node for node, _keys in found]
    warnings = [
        *(problem for warning in config.warnings for problem in problems_of(warning)),
        *_absences(config, found),
    ]
    document = {
        "folder": printable(str(config.folder or "")),
        "files": list(config.files),
        "entries": [_entry(entry) for entry in config.entries],
        "warnings": error_rows(warnings),
        "nodes": [
            {key: value for key, value in node_document(node).items() if key in SHOWN}
            for node in nodes
        ],
    }
    look = look_of(sys.stdout)
    lines = [*render_check(config, warnings, look), *render_changes(nodes, look)]
    if note:
        lines += [Text(), *wrap_line(escape_text(note, "dim"), look)]
    code = exit_code(nodes, detailed=options.detailed_exitcode)
    return answer(options, PROVIDERS_SCHEMA, document, to_string(lines, look), code)


def _read(conf: cfg.ConfigOpts, named: str | None) -> ProviderConfig:
    folder = Path(named) if named else folder_of(conf)
    # A configured folder may be missing; one that the command line names may not.
    if named and folder is not None and not folder.is_dir():
        raise ConfigErrors(
            [
                ConfigError(
                    f"{printable(named)}: there is no such folder", "name the folder of the files"
                )
            ]
        )
    return read_folder(folder) if folder else ProviderConfig()


def _changes_of_nodes(
    conf: cfg.ConfigOpts, config: ProviderConfig
) -> tuple[Sequence[tuple[NodeReport, frozenset[Key]]], str]:
    """Return the changes of every known node, and a note if there is none."""
    owner_trait = Policy.from_options(conf).owner_trait
    try:
        with open_read_only(Path(conf.store.path), conf.store.connection) as store:
            found = list(changes(store, config, owner_trait))
    except StoreError as error:
        return [], f"nothing can be said of what would change: {error}"
    return found, "" if found else UNSEEN


class AbsentProvider(AgentError):
    """An entry of the provider files names a provider that no node has.
    Remedy: correct the name or uuid, unless the provider is yet to come.
    """

    code = "provider-config.absent"


def _absences(
    config: ProviderConfig, found: Sequence[tuple[NodeReport, frozenset[Key]]]
) -> Iterator[Problem]:
    if found:
        keys: frozenset[Key] = frozenset().union(*(keys for _node, keys in found))
        names = {provider.name for node, _keys in found for provider in node.tree.providers()}
        yield from (
            Problem(AbsentProvider.code, absence(entry, names), "")
            for entry in absent(config, keys)
        )


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "file": entry.file,
        "line": entry.place.line,
        "column": entry.place.column,
        "identification": {entry.key.by: entry.key.value},
        "inventories": {name: dict(record) for name, record in sorted(entry.inventories.items())},
        "traits": sorted(entry.traits),
    }


RUN: Commands = {
    ("config", "check"): check_config,
    ("provider-config", "check"): check_provider_config,
}
