"""The rows of leases."""

from typing import Any

from sqlalchemy import Row

from agent.model.lease import Lease
from agent.store.record_schema import LEASE
from agent.store.versioned import VersionedTable


def _lease_row(lease: Lease) -> dict[str, Any]:
    return {"node": lease.node, "host": lease.host, "expires_at": lease.expires_at}


def _lease_record(row: Row[Any]) -> Lease:
    return Lease(**row._mapping)


LEASES = VersionedTable(LEASE, _lease_row, _lease_record)
