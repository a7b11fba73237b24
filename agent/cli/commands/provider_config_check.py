"""``agent provider-config check``: everything wrong with the files that add to providers, and what right ones would change."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.cli.provider_config_changes import changes
from agent.tree.policy import Policy
from agent.errors import ConfigError, ConfigErrors, StoreError
from agent.model.exit_codes import exit_code
from agent.model.names import printable
from agent.model.report import NodeReport, Problem
from agent.provider_config.absences import absence, absent
from agent.provider_config.entry import Entry, Key, ProviderConfig
from agent.provider_config.folder import folder_of, read_folder
from agent.render.look import look_of
from agent.render.problems import problems_of
from agent.render.provider_config_check import Checked, check_document, render_check
from agent.store.store import open_read_only

UNSEEN = "no node was audited yet, so that nothing can be said of what would change"


def run(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check the files, and compare what they say with the trees as the store knows them.

    :raises ConfigErrors: everything that is wrong with the files, or there is no such folder.
    """
    config = _read(conf, options.arguments["folder"])
    found, note = _found(conf, config)
    nodes = [node for node, _keys in found]
    checked = Checked(
        folder=printable(str(config.folder or "")), files=config.files, entries=[_document(one) for one in config.entries],
        warnings=[*(problem for one in config.warnings for problem in problems_of(one)), *_absences(config, found)],
        nodes=nodes, note=note, exit_code=exit_code(nodes, detailed=options.detailed_exitcode),
    )  # fmt: skip
    if options.as_document:
        write_document(check_document(checked), options)
    else:
        write(render_check(checked, look_of(sys.stdout)))
    return checked.exit_code


def _read(conf: cfg.ConfigOpts, named: str | None) -> ProviderConfig:
    folder = Path(named) if named else folder_of(conf)
    # One that is configured may be missing, one that somebody names may not.
    if named and folder is not None and not folder.is_dir():
        raise ConfigErrors([ConfigError(f"{printable(named)}: there is no such folder", "name the folder of the files")])
    return read_folder(folder) if folder else ProviderConfig()


def _found(conf: cfg.ConfigOpts, config: ProviderConfig) -> tuple[Sequence[tuple[NodeReport, frozenset[Key]]], str]:
    """Every known node, and what to say if there is none."""
    owner_trait = Policy.from_options(conf).owner_trait
    try:
        with open_read_only(Path(conf.store.path), conf.store.connection) as store:
            found = list(changes(store, config, owner_trait))
    except StoreError as error:
        return [], f"nothing can be said of what would change: {error}"
    return found, "" if found else UNSEEN


def _absences(config: ProviderConfig, found: Sequence[tuple[NodeReport, frozenset[Key]]]) -> Iterator[Problem]:
    if found:
        keys: frozenset[Key] = frozenset().union(*(keys for _node, keys in found))
        names = {provider.name for node, _keys in found for provider in node.tree.providers()}
        yield from (Problem("provider-config.absent", absence(one, names), "") for one in absent(config, keys))


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "file": entry.file, "line": entry.place.line, "column": entry.place.column, "identification": {entry.key.by: entry.key.value},
        "inventories": {name: dict(record) for name, record in sorted(entry.inventories.items())}, "traits": sorted(entry.traits),
    }  # fmt: skip
