"""``agent status``, ``drift`` and ``reload``: the state of the daemon and its nodes; without a
daemon, what the store has.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from agent.api.client import ApiClient, ApiProblem
from agent.cli.command import Commands, Options
from agent.cli.daemon_client import ask_daemon_or_store, client, select_nodes
from agent.cli.output import answer, write
from agent.errors import AgentError, ConfigError, ConfigErrors
from agent.model.finding import CHANGED, DONE, FAILED
from agent.model.names import printable
from agent.render.document import Document
from agent.render.look import console_of, look_of, to_string
from agent.render.status import plain_lines, render_drift, status_lines, watch_lines

if TYPE_CHECKING:
    from agent.store.store import Store

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
    text = f"the configuration was reloaded; {printable(status)}\n"
    return answer(options, RELOAD_SCHEMA, {"status": status}, text)


DRIFT_SCHEMA = "compute-node-agent/drift/1"
_SHOWN = ("name", "uuid", "state", "audited_at", "last_good_audit_at", "drift", "errors")


def show_drift(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the drift of all nodes, or of those that ``--node`` names, as the last audits found it
    that could look. Return the exit code: with
    ``--detailed-exitcode`` CHANGED if any is a warning, FAILED if it is unknown.

    :raises StoreError: no daemon runs, and the store cannot be read.
    :raises ApiProblem, ApiUnreachable: a daemon runs, but does not answer.
    :raises ConfigErrors: there is no such node.
    """
    nodes, offline = ask_daemon_or_store(
        conf,
        options,
        lambda daemon: _drift_nodes(daemon, options.nodes),
        lambda store: _stored_nodes(conf, store, options.nodes),
    )
    found = any(drift["severity"] == "warning" for node in nodes for drift in node["drift"] or ())
    code = (
        (FAILED if offline else CHANGED if found else DONE) if options.detailed_exitcode else DONE
    )
    text = render_drift(nodes, time.time(), look_of(sys.stdout))
    return answer(options, DRIFT_SCHEMA, {"nodes": nodes}, text, code)


def _drift_nodes(daemon: ApiClient, wanted: Sequence[str]) -> Sequence[Document]:
    chosen = select_nodes(list(daemon.nodes()), wanted)
    # Details are read for the nodes with drift only, because there may be thousands of others.
    return [
        {key: node[key] for key in _SHOWN}
        for node in (
            daemon.node(node["uuid"]) if node["drift"] else {**node, "drift": []} for node in chosen
        )
    ]


def _stored_nodes(
    conf: cfg.ConfigOpts, store: "Store", wanted: Sequence[str]
) -> Sequence[Document]:
    from agent.cli.without_daemon import drifts

    return [
        {key: node[key] for key in (*_SHOWN, "found_at")}
        for node in select_nodes(drifts(conf, store), wanted, "the store")
    ]


STATUS_SCHEMA = "compute-node-agent/status/1"
SHORTEST, LONGEST = 0.2, 3600.0
"""The shortest and the longest time from one look to the next, in seconds."""


def show_status(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the status, with ``--watch`` again and again. A node that is not well is no failure of
    this command, except with ``--detailed-exitcode``. Return the exit code.

    :raises StoreError: no daemon runs, and the store cannot be read.
    :raises ApiProblem, ApiUnreachable: a daemon runs, but does not answer.
    :raises ConfigError: the interval is none.
    """
    if options.arguments["watch"] is not None:
        _watch(conf, options, _interval(options))
        return DONE
    found = _find_status(conf, options)
    code = _code(found) if options.detailed_exitcode else DONE
    look = look_of(sys.stdout)
    lines = status_lines(found["daemon"], found["nodes"], time.time(), look)
    return answer(options, STATUS_SCHEMA, found, to_string(lines, look), code)


def _find_status(conf: cfg.ConfigOpts, options: Options) -> Document:
    def of_store(store: "Store") -> Document:
        from agent.cli.without_daemon import summaries

        return {"daemon": None, "nodes": summaries(conf, store)}

    found, _ = ask_daemon_or_store(conf, options, _of_daemon, of_store)
    return found


def _interval(options: Options) -> float:
    """Return the seconds from one look to the next.

    :raises ConfigError: they are no number of seconds that is possible, or a document is asked for.
    """
    given = options.arguments["watch"]
    if options.as_document:
        raise ConfigError("--watch shows text, again and again", "leave --format out")
    try:
        seconds = float(given)
    except ValueError:
        seconds = float("nan")
    if not SHORTEST <= seconds <= LONGEST:
        raise ConfigError(
            f"--watch {printable(given)}: not a number of seconds",
            f"give {SHORTEST:g} to {LONGEST:g}",
        )
    return seconds


def _watch(conf: cfg.ConfigOpts, options: Options, interval: float) -> None:
    """Show the status until a signal ends the command, or nobody reads its output any more."""
    # Imported here, because the status alone is to be quick.
    from rich.live import Live
    from rich.text import Text

    found: Document = _find_status(conf, options)
    look, failure = look_of(sys.stdout), ""
    on_screen = look.width is not None and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    console = console_of(sys.stdout, look)
    with (
        Live(console=console, screen=True, auto_refresh=False)
        if on_screen
        else nullcontext() as live
    ):
        while True:
            if live is not None:
                lines = watch_lines(found, failure, time.time(), look_of(sys.stdout))
                shown = Text("\n", no_wrap=True, overflow="ellipsis")
                live.update(shown.join(line.styled() for line in lines), refresh=True)
            elif not write(
                "".join(f"{line}\n" for line in plain_lines(found, failure, time.time()))
            ):
                return
            time.sleep(interval)
            try:
                found, failure = _find_status(conf, options), ""
            except AgentError as error:
                # A daemon that restarts answers again in a moment.
                failure = f"{printable(error.message)}; {printable(error.remedy)}"


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


RUN: Commands = {
    ("status",): show_status,
    ("drift",): show_drift,
    ("reload",): reload_configuration,
}
