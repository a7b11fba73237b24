"""``agent tree``: shows the provider trees as the daemon, or without one the store, has them."""

import sys
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from agent.api.client import ApiClient
from agent.cli.command import Options
from agent.cli.daemon_client import from_daemon
from agent.cli.output import write, write_document
from agent.errors import StoreError
from agent.model.names import choose_nodes
from agent.model.provider import Provider
from agent.model.provider_tree import ProviderTree
from agent.render.json_report import StoredTree, tree_document
from agent.render.look import look_of
from agent.render.text import TREES_AT_MOST, render_tree_table, render_trees


def show_tree(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the trees of all nodes, or of those that match ``--node`` by name or uuid. Return the
    exit code.

    :raises StoreError: the store cannot be read, or there is no such tree.
    :raises ApiProblem, ApiUnreachable: a daemon runs, but does not answer.
    """
    # A daemon that has not audited any node yet knows no more than the store.
    found, place = (None if options.offline else from_daemon(conf, _of_daemon)) or [], "daemon"
    if not found:
        from agent.cli.stored import open_stored, trees

        with open_stored(conf) as store:
            found, place = list(trees(store)), f"store {store}"
    # Neither daemon nor store has an order that is the same in every run.
    found = sorted(found, key=lambda tree: (tree.name, tree.endpoint))
    chosen, unmatched = choose_nodes(found, options.nodes, lambda tree: (tree.uuid, tree.name))
    if unmatched:
        raise StoreError(
            f"--node {unmatched[0]}: no such tree in the {place}",
            f"it has {', '.join(tree.name for tree in found[:10]) or 'none'}",
        )
    if not chosen:
        raise StoreError(f"no tree in the {place}", "agent --once puts one there")
    if options.as_document:
        write_document(tree_document(chosen), options)
    elif options.format in ("dot", "mermaid"):
        from agent.render.tree_drawing import render_drawing

        write(render_drawing(chosen, options.format))
    else:
        look = look_of(sys.stdout, wide=options.wide)
        write(
            render_tree_table(chosen, look)
            if options.format == "table" or len(chosen) > TREES_AT_MOST
            else render_trees(chosen, look)
        )
    return 0


def _of_daemon(client: ApiClient) -> list[StoredTree]:
    return [_read(tree) for node in client.nodes() if (tree := client.tree(node["uuid"]))["tree"]]


def _read(document: Mapping[str, Any]) -> StoredTree:
    """Return the tree in the daemon's document."""
    tree, rows = ProviderTree(), document["tree"]
    for row in rows:
        inventory = {
            name: {key: value for key, value in record.items() if key != "used"}
            for name, record in row["inventories"].items()
        }
        tree.insert(
            Provider(
                row["uuid"],
                row["name"],
                row["generation"],
                row["parent"],
                inventory,
                frozenset(row["traits"]),
                frozenset(row["aggregates"]),
            )
        )
    used = {
        row["uuid"]: {
            name: record["used"]
            for name, record in row["inventories"].items()
            if record["used"] is not None
        }
        for row in rows
    }
    owned = frozenset(row["uuid"] for row in rows if row["owned"])
    return StoredTree(
        document["name"], document["uuid"], document["endpoint"] or "", tree, owned, used
    )
