"""A store in SQLite and in PostgreSQL, each in a place of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.store.records import Records
from agent.store.store import Store, open_store
from tests.unit.store.place import Place

if TYPE_CHECKING:
    from tests.support.postgresql import PostgreSQL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    """Where a store can be made: in a new folder, or an empty database."""
    if request.param == "sqlite":
        yield Place(folder, None)
        return
    yield request.getfixturevalue("postgresql_place")


@pytest.fixture
def postgresql_place(postgresql: "PostgreSQL", folder: Path) -> Iterator[Place]:
    """An empty database on a server."""
    database = postgresql.create()
    yield Place(folder, postgresql.url(database))
    postgresql.drop(database)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with place.open() as opened:
        yield opened


@pytest.fixture
def records(store: Store) -> Records:
    return Records(store)


@pytest.fixture
def file_store(folder: Path) -> Iterator[Store]:
    """A store in SQLite only, for what is only about files."""
    with open_store(folder) as opened:
        yield opened
