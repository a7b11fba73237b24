"""``agent resources``: shows what the nodes have, and what of it is claimed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from agent.api.client import ApiClient
from agent.cli.command import Options
from agent.cli.record_lists import RecordList, ask_daemon_or_store, show_list
from agent.errors import StoreError
from agent.model.inventory import capacity
from agent.model.names import choose_nodes
from agent.render.resources import resource_lines, resource_table

if TYPE_CHECKING:
    from agent.store.store import Store

Document = Mapping[str, Any]


def show_resources(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show all nodes, or those that match ``--node`` by name or uuid. Return the exit code.

    :raises StoreError: the store cannot be read, or there is no such node.
    :raises ApiProblem, ApiUnreachable: a daemon runs, but does not answer.
    """
    wanted = options.nodes
    found, offline = ask_daemon_or_store(
        conf,
        options,
        lambda client: list(_of_daemon(client, wanted)),
        lambda store: _select(list(_of_store(conf, store)), wanted),
    )
    return show_list(
        options,
        "resources",
        RecordList("store" if offline else "daemon", found),
        resource_table if options.format == "table" else resource_lines,
    )


def _of_store(conf: cfg.ConfigOpts, store: "Store") -> Iterator[Document]:
    from agent.cli.stored import resources

    return resources(conf, store)


def _select(nodes: Sequence[Document], wanted: Sequence[str]) -> Sequence[Document]:
    chosen, unmatched = choose_nodes(nodes, wanted, lambda node: (node["uuid"], node["name"]))
    if unmatched:
        raise StoreError(
            f"--node {unmatched[0]}: no records of such a node",
            f"there are {', '.join(node['name'] for node in nodes[:10]) or 'none'}",
        )
    return chosen


def _of_daemon(client: ApiClient, wanted: Sequence[str]) -> Iterator[Document]:
    # Details are read for the chosen nodes only, because there may be thousands.
    for summary in _select(list(client.nodes()), wanted):
        node = client.node(summary["uuid"])
        placement = list(offered_inventories(client.tree(node["uuid"])["tree"], node["records"]))
        yield {
            "name": node["name"],
            "uuid": node["uuid"],
            "state": node["state"],
            "placement": placement,
            "records": node["records"],
        }


def offered_inventories(tree: Sequence[Document], records: Document | None) -> Iterator[Document]:
    """Yield what Placement has of each class of each of the node's providers, and how much of it is
    free. ``used``, ``free``: None if unknown.
    """
    nothing_held = records is not None and not any(
        records["usage"][noun] for noun in ("instances", "claims", "migrations")
    )
    for row in tree:
        for name, record in row["inventories"].items():
            used = 0 if nothing_held else record["used"]
            amounts = {key: record[key] for key in ("total", "reserved", "allocation_ratio")}
            free = None if used is None else max(capacity(record) - used, 0)
            yield {
                "provider": {"uuid": row["uuid"], "name": row["name"]},
                "resource_class": name,
                "used": used,
                **amounts,
                "free": free,
            }
