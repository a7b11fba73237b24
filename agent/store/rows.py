"""The rows of claims."""

from typing import Any

from sqlalchemy import Row

from agent.model.amounts import Amounts
from agent.model.claim import CLAIM_STATES, HALVES, PURPOSES, Claim
from agent.store.record_schema import CLAIM
from agent.store.record_texts import cells_of, cells_text, mdevs_of, mdevs_text, one_of, whole
from agent.store.versioned import VersionedTable

AMOUNTS = ("memory_mb", "vcpus", "disk_mb")
# Of the others, columns and fields are the same.
CLAIM_COLUMNS = tuple(column.name for column in CLAIM.c if column.name not in (*AMOUNTS, "cells", "mdevs", "version"))


def _claim_row(claim: Claim) -> dict[str, Any]:
    return {
        **{name: getattr(claim, name) for name in CLAIM_COLUMNS},
        **{name: getattr(claim.amounts, name) for name in AMOUNTS},
        "cells": cells_text(claim.cells),
        "mdevs": mdevs_text(claim.mdevs),
    }


def _claim_record(row: Row[Any]) -> Claim:
    one_of(row.purpose, PURPOSES)
    one_of(row.half, HALVES)
    one_of(row.state, CLAIM_STATES)
    amounts = Amounts(whole(row.memory_mb), whole(row.vcpus), whole(row.disk_mb))
    return Claim(
        **{name: row._mapping[name] for name in CLAIM_COLUMNS}, amounts=amounts, cells=cells_of(row.cells), mdevs=mdevs_of(row.mdevs), version=row.version
    )  # fmt: skip


CLAIMS = VersionedTable(CLAIM, _claim_row, _claim_record)
