"""The rows of compute nodes."""

from typing import Any

from sqlalchemy import Row

from agent.model.compute_node import ComputeNode
from agent.store.record_schema import COMPUTE_NODE
from agent.store.versioned import VersionedTable

# Columns and fields are the same.
COMPUTE_NODE_COLUMNS = tuple(column.name for column in COMPUTE_NODE.c if column.name != "version")


def _compute_node_row(node: ComputeNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in COMPUTE_NODE_COLUMNS}


def _compute_node_record(row: Row[Any]) -> ComputeNode:
    return ComputeNode(**row._mapping)


NODES = VersionedTable(COMPUTE_NODE, _compute_node_row, _compute_node_record)
