"""``agent guests list``, ``import`` and ``forget``: the hypervisor's guests and their records, from
the daemon, or without one from the driver and the store.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Any, Literal

from oslo_config import cfg
from rich.text import Text

from agent.api.client import ApiClient
from agent.api.documents.node import JsonObject, instance_document, node_guests, node_without_guests
from agent.bootstrap.components import build_components
from agent.bootstrap.fleet import open_run_store, open_tracker_services, start_driver
from agent.cli.command import Options
from agent.cli.daemon_client import from_daemon, select_nodes
from agent.cli.output import write, write_document
from agent.cli.record_lists import show_record
from agent.conf.default import only_observes
from agent.driver.answers import chosen_nodes, managed_nodes, node_facts
from agent.errors import AgentError, ConfigError, ConfigErrors, ObservesOnly
from agent.model.names import ConsumerUuid, ProviderUuid, is_uuid, normal_uuid, printable
from agent.model.provider_tree import ProviderTree
from agent.model.report import CHANGED, DONE, FAILED, PARTLY
from agent.render.look import Look, escape_text, look_of
from agent.render.records import GuestList, guests_document, render_guests
from agent.store.store import Store
from agent.tracker.claims import check_ready
from agent.tracker.domains import GuestImport
from agent.tracker.node_state import NodeState, NodeView


def guests_here(
    conf: cfg.ConfigOpts, options: Options, *, imports: bool, dry_run: bool
) -> list[JsonObject]:
    """Return the guests of all nodes, or of those that ``--node`` names. With ``imports``, guests
    are imported; with ``dry_run`` too, what would be imported is shown. Placement is not used.

    :raises AgentError: the configuration is wrong, another run holds the store, or the driver does
        not list its nodes.
    """
    if imports and not dry_run:
        _check_manages(conf)
    cancelled = Event()
    parts = build_components(conf, cancelled, daemon=False)
    deadline, driver = conf.compute.facts_deadline, (parts.driver, parts.worker, parts.driver_name)
    with (
        open_run_store(conf, dry_run=dry_run) as store,
        start_driver(conf, parts, store, cancelled, dry_run=dry_run) as provisional,
    ):
        found, errors = chosen_nodes(
            managed_nodes(*driver, conf.compute.nodes_deadline), options.nodes, parts.driver_name
        )
        ConfigErrors.raise_if_any(errors)

        def view(uuid: ProviderUuid, name: str) -> NodeView:
            return records.usage_step.audit(
                uuid,
                node_facts(*driver, name, deadline),
                _last_seen_tree(store, uuid),
                start=imports,
                dry_run=dry_run,
            )

        def look(state: NodeState) -> GuestImport:
            if imports and not dry_run:
                return records.tracker.import_guests(state.node.uuid)
            if imports:
                check_ready(state)
            return records.tracker.preview_import(state)

        with open_tracker_services(conf, parts, store, dry_run=dry_run) as records:
            nodes = [_node(ProviderUuid(uuid), name, view, look) for uuid, name in found.items()]
    return [{**node, "uuid": None} for node in nodes] if provisional else nodes


def forget_here(conf: cfg.ConfigOpts, instance: ConsumerUuid) -> JsonObject:
    """End the record of a guest that is gone, after the hypervisor was read. Return the ended
    instance. Placement is not used.

    :raises AgentError: there is no such guest, it is on another host, the hypervisor shows it, or
        the hypervisor does not answer.
    """
    _check_manages(conf)
    parts = build_components(conf, cancelled := Event(), daemon=False)
    driver = (parts.driver, parts.worker, parts.driver_name)
    with (
        open_run_store(conf) as store,
        start_driver(conf, parts, store, cancelled, dry_run=False),
        open_tracker_services(conf, parts, store, dry_run=False) as records,
    ):
        for uuid, name in managed_nodes(*driver, conf.compute.nodes_deadline).items():
            facts = node_facts(*driver, name, conf.compute.facts_deadline)
            records.usage_step.audit(
                ProviderUuid(uuid), facts, _last_seen_tree(store, ProviderUuid(uuid)), start=False
            )
        return instance_document(records.tracker.forget(instance))


def _check_manages(conf: cfg.ConfigOpts) -> None:
    """Check that the agent is to keep records of guests.

    :raises ObservesOnly: it only observes.
    """
    if only_observes(conf):
        raise ObservesOnly("no record of a guest was changed")


def _node(
    uuid: ProviderUuid,
    name: str,
    view: Callable[[ProviderUuid, str], NodeView],
    look: Callable[[NodeState], GuestImport],
) -> JsonObject:
    """Return the document of one node. An error of the node is part of it, so that the others are
    shown.
    """
    try:
        state = view(uuid, name).state
        return node_guests(state, look(state))
    except AgentError as error:
        return node_without_guests(uuid, name, error)


def _last_seen_tree(store: Store, root: ProviderUuid) -> ProviderTree:
    """Return the node's tree as it was last seen in any Placement."""
    views = [store.view(endpoint, uuid) for endpoint, uuid in store.views() if uuid == root]
    return next((view.tree for view in views if view is not None), ProviderTree())


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
    found = guests_here(conf, options, imports=False, dry_run=True) if nodes is None else nodes
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
    found = (
        guests_here(conf, options, imports=True, dry_run=options.dry_run)
        if nodes is None
        else nodes
    )
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
    return show_record(
        options,
        "instance",
        forget_here(conf, instance) if document is None else document,
        _forgotten_lines,
    )


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
    found = GuestList(
        name,
        "driver" if from_driver else "daemon",
        name == "guests-import" and options.dry_run,
        nodes,
        exit_code,
    )
    if options.as_document:
        write_document(guests_document(found), options)
    else:
        write(render_guests(found, look_of(sys.stdout)))
    return exit_code
