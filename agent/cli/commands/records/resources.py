"""``agent resources``: what the nodes have, and what of it is promised."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from oslo_config import cfg

from agent.api.client import Client
from agent.api.documents.node import node_records
from agent.cli.options import Options
from agent.cli.record_lists import Listed, asked, show
from agent.conf.default import host_name
from agent.desired.policy import Policy
from agent.errors import StoreError
from agent.model.amounts import NOTHING, Amounts
from agent.model.node_records import NodeRecords
from agent.render.resources import resource_lines
from agent.store.records import Records
from agent.store.store import Store
from agent.tracker.host_side import HostSide
from agent.tracker.node_state import NodeState

Document = Mapping[str, Any]


def run(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show all nodes, or those that match ``--node`` by name or uuid.

    :raises StoreError: the store cannot be read, or there is no such node.
    :raises ApiProblem, ApiUnreachable: a daemon runs, and does not tell.
    """
    found, offline = asked(conf, options, lambda client: list(_of_daemon(client)), lambda store: list(_of_store(conf, store)))
    chosen = [one for one in found if not options.nodes or any(_matches(one, name) for name in options.nodes)]
    missing = [name for name in options.nodes if not any(_matches(one, name) for one in found)]
    if missing:
        raise StoreError(f"--node {missing[0]}: no records of such a node", f"there are {', '.join(one['name'] for one in found[:10]) or 'none'}")
    return show(options, "resources", Listed("store" if offline else "daemon", chosen), resource_lines)


def _of_daemon(client: Client) -> Iterator[Document]:
    for summary in client.nodes():
        node = client.node(summary["uuid"])
        yield {"name": node["name"], "uuid": node["uuid"], "state": node["state"], "records": node["records"]}


def _of_store(conf: cfg.ConfigOpts, store: Store) -> Iterator[Document]:
    """What the records alone tell. How the host's cells are, and whether its driver offers it, nobody knows."""
    policy = Policy.from_options(conf)
    reserved = Amounts(policy.reserved_memory_mib, policy.reserved_cpus, policy.reserved_disk_mib)
    with Records(store).reading() as reading:
        for node in reading.nodes(host_name(conf)).records:
            records = reading.load(node.uuid) or NodeRecords(node)
            side = HostSide(reserved if node.vcpus is not None else NOTHING)
            without_cells = replace(records, claims=tuple(replace(one, cells=()) for one in records.claims))
            known = {**node_records(NodeState.of(without_cells, side)), "available": None}
            yield {"name": node.name, "uuid": node.uuid, "state": None, "records": known}


def _matches(node: Document, wanted: str) -> bool:
    return node["uuid"] == wanted or fnmatchcase(node["name"], wanted)
