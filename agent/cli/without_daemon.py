"""What the commands that ask the daemon first show without one: nodes, trees, resources and the
views of the API, from the store. Imported only then, because the database's library takes longer to
load than the daemon takes to answer.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.api.node_documents import JsonObject, node_records
from agent.api.service import RecordViews
from agent.cli.commands.tree import offered_inventories
from agent.conf.default import host_name
from agent.model.instance import NOTHING, Amounts
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.render.json_report import StoredTree, own_providers, tree_rows
from agent.store.records import Records
from agent.store.store import Store, open_read_only
from agent.tracker.claim_usage import cells_of_claims, provider_usage
from agent.tracker.node_record import HostCapacity
from agent.tracker.node_state import NodeState
from agent.tree.policy import Policy

# The keys of a node that only a daemon knows.
ONLY_OF_A_DAEMON = (
    "driver",
    "state",
    "audited_at",
    "last_good_audit_at",
    "usage",
    "drift",
    "drift_kinds",
    "drift_warnings",
)


def open_stored(conf: cfg.ConfigOpts) -> Store:
    """Open the store of ``conf`` for reading.

    :raises StoreError: the store cannot be read.
    """
    return open_read_only(Path(conf.store.path), conf.store.connection)


def nodes(store: Store) -> Iterator[dict[str, Any]]:
    """Yield the nodes as the last run left them. Their present state is unknown."""
    for endpoint, root in store.views():
        view = store.view(endpoint, root)
        if view is not None and view.tree.exists(root):
            unknown: dict[str, Any] = dict.fromkeys(ONLY_OF_A_DAEMON)
            yield {
                "name": view.tree.name_of(root),
                "uuid": root,
                **unknown,
                "providers": len(view.tree.get_provider_uuids(root)),
                "errors": [],
            }


def _seen_trees(store: Store) -> Iterator[StoredTree]:
    for endpoint, root in store.views():
        view = store.view(endpoint, root)
        if view is not None and view.tree.exists(root):
            yield StoredTree(
                view.tree.name_of(root),
                root,
                endpoint,
                view.tree,
                frozenset(store.journal(root).providers),
                consumers=view.consumers,
            )


def recorded_trees(
    conf: cfg.ConfigOpts, store: Store
) -> Iterator[tuple[StoredTree, NodeState | None]]:
    """Yield each tree as it was last seen in Placement, with what is used on record; and the
    records of its node as they show it alone, None if it is not of this host. A node of this host
    whose tree was never seen has no providers.
    """
    policy = Policy.from_options(conf)
    reserved = Amounts(policy.reserved_memory_mib, policy.reserved_cpus, policy.reserved_disk_mib)
    found = list(_seen_trees(store))
    seen = {tree.uuid for tree in found}
    with Records(store).reading() as reading:
        here = {node.uuid: node for node in reading.nodes(host_name(conf)).records}
        found += [
            StoredTree(node.name, node.uuid, "", ProviderTree(), frozenset())
            for node in here.values()
            if node.uuid not in seen
        ]
        for shown in found:
            uuid, tree = ProviderUuid(shown.uuid), shown.tree
            if (records := reading.load(uuid)) is None:
                yield shown, None
                continue
            side = HostCapacity(
                reserved if records.node.vcpus is not None else NOTHING,
                cells_of_claims(
                    records.claims, [tree.provider(one) for one in own_providers(tree, uuid)]
                ),
            )
            state = NodeState.of(records, side)
            used = provider_usage(state, tree)
            yield replace(shown, used=used), state if uuid in here else None


def records_document(state: NodeState) -> JsonObject:
    """Return the document of a node's records. The state of the host's cells, and whether the
    driver offers the node, are unknown.
    """
    return {**node_records(state), "cells": [], "available": None}


def resources(conf: cfg.ConfigOpts, store: Store) -> list[JsonObject]:
    """Return this host's nodes as the records alone show them, each with its latest tree."""
    nodes = {
        tree.uuid: {
            "name": state.node.name,
            "uuid": tree.uuid,
            "state": None,
            "placement": list(offered_inventories(tree_rows(tree))),
            "records": records_document(state),
        }
        for tree, state in recorded_trees(conf, store)
        if state is not None
    }
    return list(nodes.values())


def record_views(conf: cfg.ConfigOpts, store: Store) -> RecordViews:
    """Return the views of this host's records."""
    return RecordViews(Records(store), host_name(conf))
