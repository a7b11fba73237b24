"""``agent provider-config check``: shows every error of the provider files, and what valid ones
would change.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.cli.command import Commands, Options
from agent.cli.output import answer
from agent.errors import AgentError, ConfigError, ConfigErrors, StoreError
from agent.model.finding import NodeState, Problem
from agent.model.mirror import PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import BaseTree, DesiredTree
from agent.model.report import NodeReport, Outcome, exit_code
from agent.placement.merge import Merge
from agent.placement.merge_inventory import Use
from agent.placement.ownership import MergeInputs
from agent.placement.plan import make_plan
from agent.provider_config.applying import Entry, Key, ProviderConfig, absence, absent
from agent.provider_config.reading import folder_of, read_folder
from agent.render.checks import render_changes, render_check
from agent.render.document import error_rows, problems_of
from agent.render.json_report import node_document
from agent.render.look import Text, escape_text, look_of, to_string, wrap_line
from agent.store.store import Store, open_read_only
from agent.tree.desired_tree import put_operators_files
from agent.tree.policy import Policy


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
    state: NodeState = "degraded" if problems else "pending" if outcomes else "in-sync"
    return NodeReport(
        view.tree.name_of(root),
        root,
        "",
        state,
        outcomes=outcomes,
        tree=target.tree,
        errors=problems,
    ), applied.found


SCHEMA = "compute-node-agent/provider-config-check/1"
SHOWN = ("name", "uuid", "operations", "errors")
UNSEEN = "no node was audited yet, so that nothing can be said of what would change"


def check_provider_config(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check the files, and compare them with the trees in the store. Return the exit code.

    :raises ConfigErrors: all errors of the files, or the folder does not exist.
    """
    config = _read(conf, options.arguments["folder"])
    found, note = _changes_of_nodes(conf, config)
    nodes = [node for node, _keys in found]
    nodes = [node for node, _keys in found]
    warnings = [
        *(problem for warning in config.warnings for problem in problems_of(warning)),
        *_absences(config, found),
    ]
    document = {
        "folder": printable(str(config.folder or "")),
        "files": list(config.files),
        "entries": [_document(entry) for entry in config.entries],
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
    return answer(options, SCHEMA, document, to_string(lines, look), code)


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


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "file": entry.file,
        "line": entry.place.line,
        "column": entry.place.column,
        "identification": {entry.key.by: entry.key.value},
        "inventories": {name: dict(record) for name, record in sorted(entry.inventories.items())},
        "traits": sorted(entry.traits),
    }


RUN: Commands = {
    ("provider-config", "check"): check_provider_config,
}
