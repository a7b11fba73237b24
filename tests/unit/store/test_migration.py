"""The schema's versions."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect

from agent.errors import StoreError
from agent.model.mirror import Journal, Ownership
from agent.model.node_records import RecordChanges
from agent.store.metadata import METADATA
from agent.store.migration import config, upgrade
from agent.store.records import Records
from agent.store.schema import VERSION, VERSION_TABLE
from agent.store.store import open_read_only, open_store
from tests.support.store_place import Place
from tests.unit.store.record_samples import device, grown, node, one_of_each, write
from tests.unit.store.trees import ENDPOINT, ROOT, contents, folder_state, node_view


def _tables(place: Place) -> set[str]:
    with place.outside() as connection:
        return set(inspect(connection).get_table_names())


def _downgrade(place: Place, target: str = "base") -> None:
    with place.outside() as connection:
        command.downgrade(config(connection), target)


def _set_version(folder: Path, version: str) -> None:
    with closing(sqlite3.connect(folder / "store.sqlite")) as outside, outside:
        outside.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (version,))


CATALOGUES = {
    "sqlite": ["SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"],
    "postgresql": [
        "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, "
        "column_default FROM information_schema.columns WHERE table_schema = 'public'",
        (
            "SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE connamespace = 'public'::regnamespace"
        ),
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    ],
}


def _schema(engine: Engine) -> list[str]:
    """All of the schema as the database itself tells it."""
    with engine.connect() as connection:
        rows = [
            row
            for query in CATALOGUES[engine.dialect.name]
            for row in connection.exec_driver_sql(query)
        ]
        versions = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalars()
        return [
            *sorted(
                " ".join(str(tuple(row)).replace("\\n", " ").replace("\\t", " ").split())
                for row in rows
            ),
            *versions,
        ]


@pytest.fixture
def migrated(place: Place) -> Iterator[Engine]:
    """A database that went through all the migrations."""
    place.folder.mkdir()
    with place.engine() as engine:
        with engine.begin() as connection:
            command.upgrade(config(connection), "head")
        yield engine


def test_the_migrations_make_the_tables_that_the_code_uses(migrated: Engine) -> None:
    with migrated.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, METADATA) == []


def test_a_new_store_is_what_the_migrations_make(migrated: Engine, place: Place) -> None:
    through = _schema(migrated)
    with migrated.begin() as connection:
        command.downgrade(config(connection), "base")
        connection.exec_driver_sql(f"DROP TABLE {VERSION_TABLE}")
    upgrade(migrated)
    assert _schema(migrated) == through


def test_the_newest_migration_is_the_version_the_code_knows(migrated: Engine) -> None:
    with migrated.connect() as connection:
        assert ScriptDirectory.from_config(config(connection)).get_heads() == [VERSION]


def test_the_schema_goes_down_and_up_again(place: Place) -> None:
    place.open().close()
    tables = _tables(place)
    _downgrade(place)
    assert _tables(place) == {VERSION_TABLE}
    with place.open() as store:
        store.save_view(ENDPOINT, ROOT, None, node_view())
        assert contents(store.view(ENDPOINT, ROOT)) == contents(node_view())
    assert _tables(place) == tables


def test_what_the_first_schema_kept_is_kept_when_the_records_come_and_when_they_go(
    place: Place,
) -> None:
    with place.open() as store:
        tables = _tables(place)
        store.save_view(ENDPOINT, ROOT, None, node_view())
        store.save_journal(ROOT, Journal({ROOT: Ownership()}))
        store.save_identity("host", ROOT)
        write(Records(store), one_of_each())
    _downgrade(place, "0001")
    assert _tables(place).isdisjoint(
        {"compute_node", "instance", "migration", "claim", "device", "unit", "lease"}
    )
    for _ in range(2):
        with place.open() as store:
            assert contents(store.view(ENDPOINT, ROOT)) == contents(node_view())
            assert (store.journal(ROOT), store.identity("host")) == (
                Journal({ROOT: Ownership()}),
                ROOT,
            )
            with Records(store).reading() as reading:
                assert reading.nodes().records == ()
    assert _tables(place) == tables


def test_devices_are_kept_when_it_is_known_whom_they_serve_and_when_it_is_not_any_more(
    place: Place,
) -> None:
    here = node()
    offered, relative = device(here, "0000:00:01.0"), device(here, "0000:00:01.1", serves="nobody")
    with place.open() as store:
        write(Records(store), RecordChanges(nodes=(here,), devices=(offered, relative)))
    _downgrade(place, "0003")
    with place.open() as store, Records(store).reading() as reading:
        records = reading.load(here.uuid)
    assert records is not None
    assert records.devices == (grown(offered),)


def test_an_older_schema_is_migrated_in_memory_when_opened_read_only(folder: Path) -> None:
    open_store(folder).close()
    _downgrade(Place(folder, None))
    before = folder_state(folder)
    with open_read_only(folder) as store:
        assert store.view(ENDPOINT, ROOT) is None
    assert folder_state(folder) == before


def test_a_newer_schema_is_refused_and_left_alone(folder: Path) -> None:
    open_store(folder).close()
    _set_version(folder, "0999")
    before = folder_state(folder)
    for opening in (open_store, open_read_only):
        with pytest.raises(StoreError) as refused:
            opening(folder)
        assert (
            f"store.sqlite has schema 0999, made by a newer agent; this one knows {VERSION}"
            in refused.value.message
        )
        assert "install the newer agent" in refused.value.remedy
    assert folder_state(folder) == before


def test_a_version_of_another_kind_is_refused_and_left_alone(folder: Path) -> None:
    open_store(folder).close()
    _set_version(folder, "1.0'; --")
    before = folder_state(folder)
    with pytest.raises(StoreError, match="damaged: its schema version is"):
        open_store(folder)
    assert folder_state(folder) == before


def test_a_version_that_a_damaged_file_lost_is_refused_and_left_alone(folder: Path) -> None:
    open_store(folder).close()
    with closing(sqlite3.connect(folder / "store.sqlite")) as connection:
        connection.executescript(
            f"DROP TABLE {VERSION_TABLE}; CREATE TABLE {VERSION_TABLE} (version_num TEXT);"
            f"INSERT INTO {VERSION_TABLE} VALUES (NULL)"
        )
    before = folder_state(folder)
    with pytest.raises(StoreError, match="damaged: its schema version is None"):
        open_store(folder)
    assert folder_state(folder) == before


def test_alembic_is_not_loaded_when_there_is_nothing_to_migrate(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from agent.store.store import open_store, "
        "open_read_only\n"
        "open_store(Path(sys.argv[1])).close(); open_read_only(Path(sys.argv[1])).close(); "
        "open_read_only(Path('/nowhere')).close()\n"
        "sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True)
