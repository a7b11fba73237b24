"""``agent status``, ``drift`` and ``reload``: the state of the daemon and its nodes; without a
daemon, what the store has.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config import cfg

from agent.api.client import ApiClient, ApiProblem
from agent.cli.command import Options
from agent.cli.daemon_client import client, from_daemon, select_nodes
from agent.cli.output import write, write_document
from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable
from agent.model.report import CHANGED, DONE, FAILED
from agent.render.look import look_of
from agent.render.status import render_drift, render_status

RELOAD_SCHEMA = "compute-node-agent/reload/1"


def reload_configuration(conf: cfg.ConfigOpts, options: Options) -> int:
    """Have the daemon reload its configuration. Return the exit code.

    :raises ConfigErrors: all errors of the configuration; the daemon keeps the former one.
    :raises ApiProblem, ApiUnreachable: the daemon refuses, or none runs.
    """
    try:
        status = client(conf).reload()
    except ApiProblem as problem:
        if problem.code != ConfigError.code:
            raise
        parts = problem.parts or [problem.problem]
        raise ConfigErrors(
            [
                ConfigError(str(part.get("detail", "")), str(part.get("remedy", "")))
                for part in parts
            ]
        ) from problem
    if options.as_document:
        write_document(
            {"schema": RELOAD_SCHEMA, "status": status, "errors": [], "exit_code": 0}, options
        )
    else:
        write(f"the configuration was reloaded; {printable(status)}\n")
    return 0


DRIFT_SCHEMA = "compute-node-agent/drift/1"
_SHOWN = ("name", "uuid", "state", "audited_at", "last_good_audit_at", "drift", "errors")


def show_drift(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the drift of all nodes, or of those that ``--node`` names, as the last audits found it
    that could look. Return the exit code.

    :raises ApiProblem, ApiUnreachable: no daemon runs, or it does not answer.
    :raises ConfigErrors: there is no such node.
    """
    nodes = _drift_nodes(client(conf), options.nodes)
    found = any(drift["severity"] == "warning" for node in nodes for drift in node["drift"])
    code = CHANGED if found and options.detailed_exitcode else DONE
    if options.as_document:
        write_document(
            {"schema": DRIFT_SCHEMA, "nodes": nodes, "errors": [], "exit_code": code}, options
        )
    else:
        write(render_drift(nodes, time.time(), look_of(sys.stdout)))
    return code


def _drift_nodes(daemon: ApiClient, wanted: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    chosen = select_nodes(list(daemon.nodes()), wanted)
    # Details are read for the nodes with drift only, because there may be thousands of others.
    return [
        {key: node[key] for key in _SHOWN}
        for node in (
            daemon.node(node["uuid"]) if node["drift"] else {**node, "drift": []} for node in chosen
        )
    ]


STATUS_SCHEMA = "compute-node-agent/status/1"


def show_status(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the status. A node that is not well is no failure of this command, except with
    ``--detailed-exitcode``. Return the exit code.

    :raises StoreError: no daemon runs, and the store cannot be read.
    :raises ApiProblem, ApiUnreachable: a daemon runs, but does not answer.
    """
    found = None if options.offline else from_daemon(conf, _of_daemon)
    if found is None:
        from agent.cli.stored import nodes, open_stored

        with open_stored(conf) as store:
            found = {"daemon": None, "nodes": list(nodes(store))}
    code = _code(found) if options.detailed_exitcode else DONE
    if options.as_document:
        write_document({"schema": STATUS_SCHEMA, **found, "errors": [], "exit_code": code}, options)
    else:
        write(
            render_status(
                found["daemon"],
                found["nodes"],
                time.time(),
                look_of(sys.stdout),
                as_table=options.format == "table",
            )
        )
    return code


def _code(found: Mapping[str, Any]) -> int:
    """Return the detailed exit code: DONE if the daemon is ready and no drift needs attention,
    CHANGED if not, FAILED if no daemon answers.
    """
    if found["daemon"] is None:
        return FAILED
    return (
        DONE
        if found["daemon"]["ready"] and not any(node["drift_warnings"] for node in found["nodes"])
        else CHANGED
    )


def _of_daemon(client: ApiClient) -> dict[str, Any]:
    try:
        ready, status, reasons = True, client.readiness(), []
    except ApiProblem as problem:
        if problem.status != 503:
            raise
        ready, status, reasons = False, problem.message, list(problem.problem.get("reasons", ()))
    return {
        "daemon": {"ready": ready, "status": status, "reasons": reasons},
        "nodes": list(client.nodes()),
    }
