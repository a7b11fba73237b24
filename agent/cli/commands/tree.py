"""``agent tree`` and ``resources``: the provider trees, what the nodes have and what of it is
claimed, as the daemon, or without one the store, has them.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from agent.api.client import ApiClient
from agent.cli.command import Commands, Options
from agent.cli.daemon_client import (
    RecordList,
    ask_daemon_or_store,
    from_daemon,
    select_nodes,
    select_trees,
    show_list,
)
from agent.cli.output import write, write_document
from agent.model.inventory import capacity
from agent.model.provider_tree import Provider, ProviderTree
from agent.render.document import Document
from agent.render.json_report import StoredTree, tree_document
from agent.render.look import look_of
from agent.render.records import resource_lines
from agent.render.text import TREES_AT_MOST, render_tree_table, render_trees

if TYPE_CHECKING:
    from agent.store.store import Store


def show_tree(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the trees of all nodes, or of those that match ``--node`` by name or uuid. Return the
    exit code.

    :raises StoreError: the store cannot be read, or has no tree.
    :raises ConfigErrors: there is no such tree.
    :raises ApiProblem, ApiUnreachable: a daemon runs, but does not answer.
    """
    # A daemon that has not audited any node yet knows no more than the store.
    found, place = (None if options.offline else from_daemon(conf, _of_daemon)) or [], "daemon"
    if not found:
        from agent.cli.without_daemon import open_stored, recorded_trees

        with open_stored(conf) as store:
            found = [tree for tree, _ in recorded_trees(conf, store) if tree.endpoint]
            place = f"store {store}"
    # Neither daemon nor store has an order that is the same in every run.
    found = sorted(found, key=lambda tree: (tree.name, tree.endpoint))
    chosen = select_trees(found, options.nodes, f"the {place}")
    if options.as_document:
        write_document(tree_document(chosen), options)
    elif options.format == "dot":
        from agent.render.tree_lines import render_drawing

        write(render_drawing(chosen))
    else:
        look = look_of(sys.stdout, wide=options.wide)
        write(
            render_tree_table(chosen, look)
            if len(chosen) > TREES_AT_MOST
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
            name: {key: record[key] for key in record if key not in ("used", "in_placement")}
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
    owned = frozenset(row["uuid"] for row in rows if row["owned"])
    return StoredTree(
        document["name"],
        document["uuid"],
        document["endpoint"] or "",
        tree,
        owned,
        _known_amounts(rows, "used"),
        in_placement={
            uuid: amounts
            for uuid, amounts in _known_amounts(rows, "in_placement").items()
            if amounts
        },
    )


def _known_amounts(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, dict[str, int]]:
    return {
        row["uuid"]: {
            name: record[key]
            for name, record in row["inventories"].items()
            if record[key] is not None
        }
        for row in rows
    }


def show_resources(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show all nodes, or those that match ``--node`` by name or uuid. Return the exit code.

    :raises StoreError: the store cannot be read.
    :raises ConfigErrors: there is no such node.
    :raises ApiProblem, ApiUnreachable: a daemon runs, but does not answer.
    """
    wanted = options.nodes
    found, offline = ask_daemon_or_store(
        conf,
        options,
        lambda client: list(_resources_of_daemon(client, wanted)),
        lambda store: select_nodes(_of_store(conf, store), wanted, "the store"),
    )
    return show_list(
        options,
        "resources",
        RecordList("store" if offline else "daemon", found),
        resource_lines,
    )


def _of_store(conf: cfg.ConfigOpts, store: "Store") -> Sequence[Document]:
    from agent.cli.without_daemon import resources

    return resources(conf, store)


def _resources_of_daemon(client: ApiClient, wanted: Sequence[str]) -> Iterator[Document]:
    # Details are read for the chosen nodes only, because there may be thousands.
    for summary in select_nodes(list(client.nodes()), wanted):
        node = client.node(summary["uuid"])
        placement = list(offered_inventories(client.tree(node["uuid"])["tree"]))
        yield {
            "name": node["name"],
            "uuid": node["uuid"],
            "state": node["state"],
            "placement": placement,
            "records": node["records"],
        }


def offered_inventories(tree: Sequence[Document]) -> Iterator[Document]:
    """Yield what Placement has of each class of each of the node's providers. ``used``, ``free``:
    by the records, None if they have no figure. ``in_placement``, ``free_in_placement``: by what
    Placement counts, None if it was not asked.
    """
    for row in tree:
        for name, record in row["inventories"].items():
            used, counted = record["used"], record["in_placement"]
            amounts = {key: record[key] for key in ("total", "reserved", "allocation_ratio")}
            yield {
                "provider": {"uuid": row["uuid"], "name": row["name"]},
                "resource_class": name,
                "used": used,
                "in_placement": counted,
                **amounts,
                "free": None if used is None else max(capacity(record) - used, 0),
                "free_in_placement": None
                if counted is None
                else max(capacity(record) - counted, 0),
            }


RUN: Commands = {
    ("resources",): show_resources,
    ("tree",): show_tree,
}
