"""What the commands that ask the daemon first show without one: nodes, trees, resources and the
views of the API, from the store. Imported only then, because the database's library takes longer to
load than the daemon takes to answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.api.node_documents import node_records
from agent.api.service import RecordViews
from agent.cli.commands.tree import offered_inventories
from agent.conf.default import host_name
from agent.model.instance import NOTHING, Amounts
from agent.model.node_records import NodeRecords
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


def trees(store: Store) -> Iterator[StoredTree]:
    """Yield the trees as they were last seen in Placement. Usages are not stored."""
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


def resources(conf: cfg.ConfigOpts, store: Store) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes as the records alone show them. The state of the host's cells, and whether
    the driver offers the node, are unknown.
    """
    policy = Policy.from_options(conf)
    reserved = Amounts(policy.reserved_memory_mib, policy.reserved_cpus, policy.reserved_disk_mib)
    stored = {tree.uuid: tree for tree in trees(store)}
    with Records(store).reading() as reading:
        for node in reading.nodes(host_name(conf)).records:
            records = reading.load(node.uuid) or NodeRecords(node)
            unseen = StoredTree(node.name, node.uuid, "", ProviderTree(), frozenset())
            shown = stored.get(node.uuid, unseen)
            tree = shown.tree
            providers = [tree.provider(uuid) for uuid in own_providers(tree, node.uuid)]
            side = HostCapacity(
                reserved if node.vcpus is not None else NOTHING,
                cells_of_claims(records.claims, providers),
            )
            state = NodeState.of(records, side)
            shown = replace(shown, used=provider_usage(state, tree))
            yield {
                "name": node.name,
                "uuid": node.uuid,
                "state": None,
                "placement": list(offered_inventories(tree_rows(shown))),
                "records": {**node_records(state), "cells": [], "available": None},
            }


def record_views(conf: cfg.ConfigOpts, store: Store) -> RecordViews:
    """Return the views of this host's records."""
    return RecordViews(Records(store), host_name(conf))
