"""The rows of compute nodes."""

from typing import Any

from sqlalchemy import Row

from agent.model.compute_node import ComputeNode
from agent.store.record_schema import COMPUTE_NODE
from agent.store.versioned import VersionedTable

# Columns and fields are the same.
NAMES = tuple(column.name for column in COMPUTE_NODE.c if column.name != "version")


def _row(node: ComputeNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in NAMES}


def _record(row: Row[Any]) -> ComputeNode:
    return ComputeNode(**row._mapping)


NODES = VersionedTable(COMPUTE_NODE, _row, _record)
