"""``agent guests list``, ``import`` and ``forget``: the hypervisor's guests and their records, from
the daemon, or without one from the driver and the store.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from oslo_config import cfg

from agent.api.client import ApiClient
from agent.cli.command import Commands, Options
from agent.cli.configuration import load
from agent.cli.daemon_client import from_daemon, select_nodes, show_record
from agent.cli.output import answer
from agent.errors import ConfigError
from agent.model.finding import CHANGED, DONE, FAILED, PARTLY
from agent.model.names import ConsumerUuid, is_uuid, normal_uuid, printable
from agent.render.look import Look, Text, escape_text, look_of
from agent.render.records import render_guests

Document = Mapping[str, Any]

# In seconds: how long a command waits for the daemon to audit its nodes first.
PATIENCE = 60.0


def list_guests(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the guests, and their records. Return the exit code.

    :raises AgentError: neither daemon nor driver can be asked, or there is no such node.
    """
    nodes = (
        None
        if options.offline
        else from_daemon(conf, lambda client: select_nodes(client.guests(), options.nodes))
    )
    found = _guests_here(options, imports=False, dry_run=True) if nodes is None else nodes
    return _show_guests(
        options,
        "guests",
        found,
        guests_exit_code(found, done=(), failed=()),
        from_driver=nodes is None,
    )


def import_guests(conf: cfg.ConfigOpts, options: Options) -> int:
    """Import the guests without records, and show the outcome for each. Return the exit code.

    :raises AgentError: neither daemon nor driver can be asked, or there is no such node.
    """
    nodes = from_daemon(conf, lambda client: _import_by_daemon(client, options))
    found = _guests_here(options, imports=True, dry_run=options.dry_run) if nodes is None else nodes
    done = ("importable", "imported")
    return _show_guests(
        options,
        "guests-import",
        found,
        guests_exit_code(found, done=done, failed=("refused",), detailed=options.detailed_exitcode),
        from_driver=nodes is None,
    )


def forget_guest(conf: cfg.ConfigOpts, options: Options) -> int:
    """End the record of a guest that is gone for good. Return the exit code.

    :raises AgentError: there is no such record, the hypervisor shows the guest or may, or the guest
        is on another host.
    """
    wanted = options.arguments["instance"]
    if not is_uuid(wanted):
        raise ConfigError(
            f"{printable(wanted)} is no uuid", "see agent claims for those of instances"
        )
    instance = ConsumerUuid(normal_uuid(wanted))
    document = from_daemon(conf, lambda client: _forget_by_daemon(client, instance))
    if document is None:
        from agent.cli.guests_here import forget_here

        document = forget_here(load(options), instance)
    return show_record(options, "instance", document, _forgotten_lines)


def _guests_here(options: Options, *, imports: bool, dry_run: bool) -> Sequence[Document]:
    from agent.cli.guests_here import guests_here

    # Loaded again, with the options of other services, which a driver may need.
    return guests_here(load(options), options, imports=imports, dry_run=dry_run)


def _forget_by_daemon(client: ApiClient, instance: ConsumerUuid) -> Document:
    # Audited first, so that a guest that has come back since is not forgotten.
    client.audit_report(client.request_audit(()), wait=PATIENCE)
    return client.forget_guest(instance)


def _forgotten_lines(instances: Sequence[Document], _look: Look) -> list[Text]:
    return [
        escape_text(
            f"instance {instance['uuid']} is forgotten: all that it had here is given back, in "
            "Placement with the next audit"
        )
        for instance in instances
    ]


def guests_exit_code(
    nodes: Sequence[Document], *, done: Sequence[str], failed: Sequence[str], detailed: bool = False
) -> int:
    """Return the exit code. ``done`` and ``failed``: the outcomes that count as a change and as a
    failure.
    """
    outcomes = {guest["outcome"] for node in nodes for guest in node["guests"]}
    well = [
        not node["errors"] and all(guest["outcome"] not in failed for guest in node["guests"])
        for node in nodes
    ]
    changed = any(outcome in outcomes for outcome in done)
    if not all(well):
        return PARTLY if changed or any(well) else FAILED
    return CHANGED if changed and detailed else DONE


def _import_by_daemon(client: ApiClient, options: Options) -> Sequence[Document]:
    if not options.dry_run:
        # Audited first, so that no guest is recorded that has gone since.
        client.audit_report(client.request_audit(options.nodes), wait=PATIENCE)
    return client.import_guests(options.nodes, dry_run=options.dry_run)


def _show_guests(
    options: Options,
    name: Literal["guests", "guests-import"],
    nodes: Sequence[Document],
    exit_code: int,
    *,
    from_driver: bool,
) -> int:
    dry_run = name == "guests-import" and options.dry_run
    source = "driver" if from_driver else "daemon"
    document = {"source": source, "dry_run": dry_run, "nodes": list(nodes)}
    text = render_guests(nodes, look_of(sys.stdout), from_driver=from_driver, dry_run=dry_run)
    return answer(options, f"compute-node-agent/{name}/1", document, text, exit_code)


RUN: Commands = {
    ("guests", "list"): list_guests,
    ("guests", "import"): import_guests,
    ("guests", "forget"): forget_guest,
}
