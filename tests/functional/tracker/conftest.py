"""Hosts on a store in SQLite, and in PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.store.store import open_store
from tests.support.tracking import Host, World

if TYPE_CHECKING:
    from tests.support.postgresql import PostgreSQL


# make test holds the rules against one database: tests/unit/store holds what is stored against
# both.
@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A store of records that all hosts share."""
    if request.param == "sqlite":
        with open_store(tmp_path / "state") as store:
            yield World(store)
        return
    server: PostgreSQL = request.getfixturevalue("postgresql")
    database = server.create()
    with open_store(tmp_path / "state", server.url(database)) as store:
        yield World(store)
    server.drop(database)


@pytest.fixture
def ha(world: World) -> Host:
    """The plain host HA."""
    return world.plain("HA")


@pytest.fixture
def hb(world: World) -> Host:
    """The plain host HB."""
    return world.plain("HB")


@pytest.fixture
def hn(world: World) -> Host:
    """The host HN, of two cells."""
    return world.numa()
