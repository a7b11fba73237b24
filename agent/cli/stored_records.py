"""What the commands that ask the daemon first show without one of the nodes' records: resources,
and the views of the API. Imported only then, as :mod:`agent.cli.without_daemon`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from oslo_config import cfg

from agent.api.node_documents import node_records
from agent.api.service import RecordViews
from agent.cli.commands.tree import offered_inventories
from agent.cli.without_daemon import trees
from agent.conf.default import host_name
from agent.model.instance import NOTHING, Amounts
from agent.model.node_records import NodeRecords
from agent.render.json_report import tree_rows
from agent.store.records import Records
from agent.store.store import Store
from agent.tracker.node_record import HostCapacity
from agent.tracker.node_state import NodeState
from agent.tree.policy import Policy


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
            side = HostCapacity(reserved if node.vcpus is not None else NOTHING)
            without_cells = replace(
                records, claims=tuple(replace(claim, cells=()) for claim in records.claims)
            )
            known = {**node_records(NodeState.of(without_cells, side)), "available": None}
            placement = (
                list(offered_inventories(tree_rows(stored[node.uuid]), known))
                if node.uuid in stored
                else []
            )
            yield {
                "name": node.name,
                "uuid": node.uuid,
                "state": None,
                "placement": placement,
                "records": known,
            }


def record_views(conf: cfg.ConfigOpts, store: Store) -> RecordViews:
    """Return the views of this host's records."""
    return RecordViews(Records(store), host_name(conf))
