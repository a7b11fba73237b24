"""The guests of the hypervisor and their records, from the driver and the store, for a host without
a running daemon. Imported only then.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from threading import Event

from oslo_config import cfg

from agent.api.node_documents import (
    JsonObject,
    node_guests,
    node_without_guests,
)
from agent.bootstrap.components import build_components
from agent.bootstrap.fleet import open_run_store, open_tracker_services, start_driver
from agent.cli.command import Options
from agent.conf.default import only_observes
from agent.driver.answers import chosen_nodes, managed_nodes, node_facts
from agent.errors import AgentError, ConfigErrors, ObservesOnly
from agent.model.mirror import PlacementView
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.placement.ownership import named_by_role
from agent.store.store import Store
from agent.tracker.claims import check_ready
from agent.tracker.domains import GuestImport
from agent.tracker.node_state import NodeState, NodeView


def guests_here(
    conf: cfg.ConfigOpts,
    options: Options,
    *,
    imports: bool,
    dry_run: bool,
    again: Sequence[ConsumerUuid] = (),
) -> list[JsonObject]:
    """Return the guests of all nodes, or of those that ``--node`` names. With ``imports``, guests
    are imported, those of ``again`` also against their records; with ``dry_run`` too, what would be
    imported is shown. Placement is not used.

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
        start_driver(conf, parts, store, cancelled, dry_run=dry_run) as own,
    ):
        found, errors = chosen_nodes(
            managed_nodes(*driver, conf.compute.nodes_deadline), options.nodes, parts.driver_name
        )
        ConfigErrors.raise_if_any(errors)

        def view(uuid: ProviderUuid, name: str) -> NodeView:
            return records.usage_step.audit(
                uuid,
                node_facts(*driver, name, deadline),
                _last_seen_tree(store, uuid, name),
                start=imports,
                dry_run=dry_run,
            )

        def look(state: NodeState) -> GuestImport:
            if imports and not dry_run:
                return records.tracker.import_guests(state.node.uuid, again)
            if imports:
                check_ready(state)
            return records.tracker.preview_import(state, again)

        with open_tracker_services(conf, parts, store, own, dry_run=dry_run) as records:
            nodes = [_node(ProviderUuid(uuid), name, view, look) for uuid, name in found.items()]
    return (
        [{**node, "uuid": None} for node in nodes]
        if own is not None and own.source == "made up"
        else nodes
    )


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
        start_driver(conf, parts, store, cancelled, dry_run=False) as own,
        open_tracker_services(conf, parts, store, own, dry_run=False) as records,
    ):
        for uuid, name in managed_nodes(*driver, conf.compute.nodes_deadline).items():
            facts = node_facts(*driver, name, conf.compute.facts_deadline)
            records.usage_step.audit(
                ProviderUuid(uuid),
                facts,
                _last_seen_tree(store, ProviderUuid(uuid), name),
                start=False,
            )
        return asdict(records.tracker.forget(instance))


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


def _last_seen_tree(store: Store, root: ProviderUuid, name: str) -> ProviderTree:
    """Return the node's tree as it was last seen in any Placement."""
    views = [store.view(endpoint, uuid) for endpoint, uuid in store.views() if uuid == root]
    view = next((view for view in views if view is not None), PlacementView())
    journal = store.journal(root)
    return named_by_role(view, journal, root, name, taking_over=False).tree
