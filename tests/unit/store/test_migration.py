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
from sqlalchemy import Engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from agent.errors import StoreError
from agent.store import engines
from agent.store.location import located
from agent.store.migration import config, create, upgrade
from agent.store.schema import METADATA, VERSION, VERSION_TABLE
from agent.store.store import open_read_only, open_store
from tests.unit.store.trees import ENDPOINT, ROOT, contents, folder_state, node_view


def _tables(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as outside:
        return {name for (name,) in outside.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")}


def _downgrade(folder: Path) -> None:
    engine = engines.on_disk(located(folder, None))
    with engine.begin() as connection:
        command.downgrade(config(connection), "base")
    engine.dispose()


def _set_version(folder: Path, version: str) -> None:
    with closing(sqlite3.connect(folder / "store.sqlite")) as outside, outside:
        outside.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (version,))


@pytest.fixture
def migrated() -> Iterator[Engine]:
    engine = engines.in_memory(engines.memory())
    upgrade(engine)
    yield engine
    engine.dispose()


def test_the_migrations_make_the_tables_that_the_code_uses(migrated: Engine) -> None:
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_constraints_have_the_names_that_the_migrations_give(migrated: Engine) -> None:
    with migrated.connect() as connection:
        made = connection.exec_driver_sql("SELECT group_concat(sql) FROM sqlite_master").scalar_one()
    for table in METADATA.tables.values():
        for constraint in table.constraints:
            assert f"CONSTRAINT {constraint.name} " in made


def test_a_new_store_is_what_the_migrations_make(migrated: Engine) -> None:
    made = engines.in_memory(engines.memory())
    create(made)
    schemas = []
    for engine in (migrated, made):
        with engine.connect() as connection:
            statements = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").scalars()
            versions = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalars()
            schemas.append((sorted(" ".join(sql.split()) for sql in statements), list(versions)))
    made.dispose()
    assert schemas[0] == schemas[1]


def test_the_newest_migration_is_the_version_the_code_knows(migrated: Engine) -> None:
    with migrated.connect() as connection:
        assert ScriptDirectory.from_config(config(connection)).get_heads() == [VERSION]


def test_the_schema_goes_down_and_up_again(folder: Path) -> None:
    open_store(folder).close()
    tables = _tables(folder / "store.sqlite")
    _downgrade(folder)
    assert _tables(folder / "store.sqlite") == {VERSION_TABLE}
    with open_store(folder) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view())
        assert contents(store.view(ENDPOINT, ROOT)) == contents(node_view())
    assert _tables(folder / "store.sqlite") == tables


def test_an_older_schema_is_migrated_in_memory_when_opened_read_only(folder: Path) -> None:
    open_store(folder).close()
    _downgrade(folder)
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
        assert "store.sqlite has schema 0999, made by a newer agent; this one knows 0001" in refused.value.message
        assert "install the newer agent" in refused.value.remedy
    assert folder_state(folder) == before


def test_a_version_of_another_kind_is_refused_and_left_alone(folder: Path) -> None:
    open_store(folder).close()
    _set_version(folder, "1.0'; --")
    before = folder_state(folder)
    with pytest.raises(StoreError, match="damaged: its schema version is"):
        open_store(folder)
    assert folder_state(folder) == before


def test_alembic_is_not_loaded_when_there_is_nothing_to_migrate(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from agent.store.store import open_store, open_read_only\n"
        "open_store(Path(sys.argv[1])).close(); open_read_only(Path(sys.argv[1])).close(); open_read_only(Path('/nowhere')).close()\n"
        "sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True)


def test_the_tables_can_be_made_on_postgresql() -> None:
    for table in METADATA.sorted_tables:
        assert f"CREATE TABLE {table.name} " in str(CreateTable(table).compile(dialect=postgresql.dialect()))
