"""``agent drift``: what the daemon has found that it will not touch by itself, and what to do about it."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config import cfg

from agent.api.client import ApiClient
from agent.cli.daemon_client import chosen_nodes, client
from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.model.exit_codes import CHANGED, DONE
from agent.render.look import look_of
from agent.render.status import render_drift

DRIFT_SCHEMA = "compute-node-agent/drift/1"
_SHOWN = ("name", "uuid", "state", "audited_at", "last_good_audit_at", "drift", "errors")


def show_drift(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show it, of all nodes or of those that ``--node`` names. It is what the last audit has found that could look.

    :raises ApiProblem, ApiUnreachable: no daemon runs, or it does not tell.
    :raises ConfigError: there is no such node.
    """
    nodes = _drift_nodes(client(conf), options.nodes)
    found = any(one["severity"] == "warning" for node in nodes for one in node["drift"])
    code = CHANGED if found and options.detailed_exitcode else DONE
    if options.as_document:
        write_document({"schema": DRIFT_SCHEMA, "nodes": nodes, "errors": [], "exit_code": code}, options)
    else:
        write(render_drift(nodes, time.time(), look_of(sys.stdout)))
    return code


def _drift_nodes(daemon: ApiClient, wanted: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    chosen = chosen_nodes(list(daemon.nodes()), wanted)
    # Only of these more is asked, because there may be thousands.
    return [{key: node[key] for key in _SHOWN} for node in (daemon.node(one["uuid"]) if one["drift"] else {**one, "drift": []} for one in chosen)]
