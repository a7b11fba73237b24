"""A store in SQLite and in PostgreSQL, each in a place of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.store.records import Records
from agent.store.store import Store, open_store
from tests.support.store_place import Place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


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
