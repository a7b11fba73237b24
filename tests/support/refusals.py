"""Refusals that leave no trace: the whole database is compared before and after."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import select

from agent.errors import AgentError
from agent.store.record_table import METADATA
from tests.support.tracking import World


def rows(world: World) -> Mapping[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with world.store.reading() as connection:
        return {
            table.name: [
                tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))
            ]
            for table in METADATA.sorted_tables
        }


@contextmanager
def refused(world: World, code: str) -> Iterator[pytest.ExceptionInfo[AgentError]]:
    """What is done here is refused with ``code``, and nothing is written; the error is told with a
    remedy.
    """
    before = rows(world)
    with pytest.raises(AgentError) as caught:
        yield caught
    assert caught.value.code == code, caught.value
    assert caught.value.message
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    assert rows(world) == before
