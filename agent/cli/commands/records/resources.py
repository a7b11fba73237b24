"""``agent resources``: shows what the nodes have, and what of it is claimed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oslo_config import cfg

from agent.api.client import ApiClient
from agent.api.documents.node import node_records
from agent.cli.command import Options
from agent.cli.commands.tree import stored_trees
from agent.cli.record_lists import RecordList, ask_daemon_or_store, show_list
from agent.conf.default import host_name
from agent.errors import StoreError
from agent.model.instance import NOTHING, Amounts
from agent.model.inventory import capacity
from agent.model.names import choose_nodes
from agent.model.node_records import NodeRecords
from agent.render.json_report import tree_rows
from agent.render.resources import resource_lines, resource_table
from agent.store.records import Records
from agent.store.store import Store
from agent.tracker.node_record import HostCapacity
from agent.tracker.node_state import NodeState
from agent.tree.policy import Policy

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
        lambda store: _select(list(nodes_of_store(conf, store)), wanted),
    )
    return show_list(
        options,
        "resources",
        RecordList("store" if offline else "daemon", found),
        resource_table if options.format == "table" else resource_lines,
    )


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
        placement = list(_offered_inventories(client.tree(node["uuid"])["tree"], node["records"]))
        yield {
            "name": node["name"],
            "uuid": node["uuid"],
            "state": node["state"],
            "placement": placement,
            "records": node["records"],
        }


def _offered_inventories(tree: Sequence[Document], records: Document | None) -> Iterator[Document]:
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


def nodes_of_store(conf: cfg.ConfigOpts, store: Store) -> Iterator[Document]:
    """Yield the nodes as the records alone show them. The state of the host's cells, and whether
    the driver offers the node, are unknown.
    """
    policy = Policy.from_options(conf)
    reserved = Amounts(policy.reserved_memory_mib, policy.reserved_cpus, policy.reserved_disk_mib)
    trees = {tree.uuid: tree for tree in stored_trees(store)}
    with Records(store).reading() as reading:
        for node in reading.nodes(host_name(conf)).records:
            records = reading.load(node.uuid) or NodeRecords(node)
            side = HostCapacity(reserved if node.vcpus is not None else NOTHING)
            without_cells = replace(
                records, claims=tuple(replace(claim, cells=()) for claim in records.claims)
            )
            known = {**node_records(NodeState.of(without_cells, side)), "available": None}
            placement = (
                list(_offered_inventories(tree_rows(trees[node.uuid]), known))
                if node.uuid in trees
                else []
            )
            yield {
                "name": node.name,
                "uuid": node.uuid,
                "state": None,
                "placement": placement,
                "records": known,
            }
