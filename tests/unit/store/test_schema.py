"""The schema: a store of another version is refused, and left as it is."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.schema import CreateIndex, CreateTable

from agent.errors import StoreError
from agent.store.record_table import METADATA
from agent.store.store import open_read_only, open_store
from agent.store.tables import VERSION, VERSIONS
from tests.unit.store.trees import folder_state


def test_another_schema_has_another_number() -> None:
    tables = METADATA.sorted_tables
    made = [
        *(str(CreateTable(table)) for table in tables),
        *sorted(str(CreateIndex(index)) for table in tables for index in table.indexes),
    ]
    digest = hashlib.sha256("".join(made).encode()).hexdigest()[:12]
    assert (VERSION, digest) == ("0017", "345ff0e7393f"), (
        "give the schema the next number, and note it here"
    )


@pytest.mark.parametrize(
    ("version", "told", "remedy"),
    [
        ("'0999'", f"made by a newer agent; this one knows {VERSION}", "install that agent again"),
        ("'0014'", "has schema 0014, made by an earlier agent", "agent db set-aside"),
        ("'1.0''; --'", "damaged: its schema version is", "agent db restore"),
        ("NULL", "damaged: its schema version is None", "agent db set-aside"),
    ],
)
def test_a_store_of_another_version_is_refused_and_left_alone(
    folder: Path, version: str, told: str, remedy: str
) -> None:
    open_store(folder).close()
    with closing(sqlite3.connect(folder / "database/store.sqlite")) as outside:
        outside.executescript(
            f"DROP TABLE {VERSIONS.name}; CREATE TABLE {VERSIONS.name} (version_num TEXT);"
            f"INSERT INTO {VERSIONS.name} VALUES ({version})"
        )
    before = folder_state(folder)
    for opening in (open_store, open_read_only):
        with pytest.raises(StoreError) as refused:
            opening(folder)
        assert told in refused.value.message
        assert remedy in refused.value.remedy
    assert folder_state(folder) == before
