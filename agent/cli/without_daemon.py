"""What the commands that ask the daemon first show without one: nodes, trees, resources and the
views of the API, from the store. Imported only then, because the database's library takes longer to
load than the daemon takes to answer.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from oslo_config import cfg

from agent.api.node_documents import JsonObject, node_records
from agent.api.record_views import RecordViews
from agent.cli.commands.tree import offered_inventories
from agent.conf.default import host_name, only_observes
from agent.model.instance import NOTHING, Amounts
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.model.report import LastFound
from agent.render.document import error_rows
from agent.render.json_report import (
    StoredTree,
    drift_document,
    found_summary,
    own_providers,
    tree_rows,
)
from agent.store.records import Records
from agent.store.store import Store, open_read_only
from agent.tracker.claim_usage import cells_of_claims, provider_usage
from agent.tracker.node_record import HostCapacity
from agent.tracker.node_state import NodeState
from agent.tree.policy import Policy


def open_stored(conf: cfg.ConfigOpts) -> Store:
    """Open the store of ``conf`` for reading.

    :raises StoreError: the store cannot be read.
    """
    return open_read_only(Path(conf.store.path), conf.store.connection)


def last_found(conf: cfg.ConfigOpts, store: Store) -> dict[str, LastFound]:
    """Return what the last audits of this host's nodes found, by node. Nothing for an observer,
    whose audits are not kept.
    """
    if only_observes(conf):
        return {}
    return {one.root: one for one in store.last_found(host_name(conf))}


def drifts(conf: cfg.ConfigOpts, store: Store) -> list[JsonObject]:
    """Return the nodes with the drift that audits found; None: there was no audit."""
    return [drift_of(tree, found) for tree, found in _found_nodes(conf, store)]


def drift_of(tree: StoredTree, found: LastFound | None) -> JsonObject:
    """Return what audits found of a node, None where it is unknown."""
    return {
        **_node(tree, found),
        "drift": found and [drift_document(one, tree.tree) for one in found.drift],
    }


def summaries(conf: cfg.ConfigOpts, store: Store) -> list[JsonObject]:
    """Return the summaries of the nodes, as the API lists them, as audits found them."""
    unknown = dict.fromkeys(("drift", "drift_kinds", "drift_warnings"))
    return [
        {
            **_node(tree, found),
            "usage": None,
            "providers": len(own_providers(tree.tree, tree.uuid)),
            **(unknown if found is None else found_summary(found)),
        }
        for tree, found in _found_nodes(conf, store)
    ]


def _node(tree: StoredTree, found: LastFound | None) -> JsonObject:
    return {
        "name": tree.name,
        "uuid": tree.uuid,
        "driver": found and found.driver,
        "state": found and found.state,
        "found_at": found and found.found_at,
        "audited_at": None,
        "last_good_audit_at": None,
        "errors": error_rows(found.errors) if found is not None else [],
    }


def _found_nodes(
    conf: cfg.ConfigOpts, store: Store
) -> Iterator[tuple[StoredTree, LastFound | None]]:
    """Yield the nodes with what audits found last, None if that is unknown."""
    found = last_found(conf, store)
    seen = list(_seen_trees(store))
    yield from ((tree, found.get(tree.uuid)) for tree in seen)
    for uuid in found.keys() - {tree.uuid for tree in seen}:
        yield StoredTree(found[uuid].name, uuid, "", ProviderTree(), frozenset()), found[uuid]


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
