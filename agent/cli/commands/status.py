"""``agent status``: how the daemon and its nodes are, or without a daemon what the store knows."""

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.api.client import ApiProblem, ApiClient
from agent.cli.daemon_client import from_daemon
from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.model.exit_codes import CHANGED, DONE, FAILED
from agent.render.look import look_of
from agent.render.status import render_status
from agent.store.store import Store, open_read_only

STATUS_SCHEMA = "compute-node-agent/status/1"
# What only a daemon can tell of a node.
_UNKNOWN = ("driver", "state", "audited_at", "last_good_audit_at", "usage", "drift", "drift_kinds", "drift_warnings")


def show_status(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show it. That a node is not well is told, and is no failure of this command unless ``--detailed-exitcode`` asks for it.

    :raises StoreError: no daemon runs, and the store cannot be read.
    :raises ApiProblem, ApiUnreachable: a daemon runs, and does not tell.
    """
    found = None if options.offline else from_daemon(conf, _of_daemon)
    if found is None:
        with open_read_only(Path(conf.store.path), conf.store.connection) as store:
            found = {"daemon": None, "nodes": list(_of_store(store))}
    code = _code(found) if options.detailed_exitcode else DONE
    if options.as_document:
        write_document({"schema": STATUS_SCHEMA, **found, "errors": [], "exit_code": code}, options)
    else:
        write(render_status(found["daemon"], found["nodes"], time.time(), look_of(sys.stdout), as_table=options.format == "table"))
    return code


def _code(found: Mapping[str, Any]) -> int:
    """For scripts: whether the daemon answers, all is well and nothing drifts that is to be seen to."""
    if found["daemon"] is None:
        return FAILED
    return DONE if found["daemon"]["ready"] and not any(node["drift_warnings"] for node in found["nodes"]) else CHANGED


def _of_daemon(client: ApiClient) -> dict[str, Any]:
    try:
        ready, status, reasons = True, client.readiness(), []
    except ApiProblem as problem:
        if problem.status != 503:
            raise
        ready, status, reasons = False, problem.message, list(problem.problem.get("reasons", ()))
    return {"daemon": {"ready": ready, "status": status, "reasons": reasons}, "nodes": list(client.nodes())}


def _of_store(store: Store) -> Iterator[dict[str, Any]]:
    """What is left of the last run; how the nodes are now, nobody knows."""
    for endpoint, root in store.views():
        view = store.view(endpoint, root)
        if view is not None and view.tree.exists(root):
            unknown: dict[str, Any] = dict.fromkeys(_UNKNOWN)
            yield {"name": view.tree.name_of(root), "uuid": root, **unknown, "providers": len(view.tree.get_provider_uuids(root)), "errors": []}
