"""Opening a store: what it makes, and what it refuses."""

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.errors import StoreError
from agent.store import engines
from agent.store.engines import locate
from agent.store.store import Store, open_read_only, open_store
from tests.unit.store.ordinary_user import as_ordinary_user
from tests.unit.store.trees import ENDPOINT, ROOT, folder_state, names_in, node_view

OPENINGS = [open_store, open_read_only]
Opening = Callable[..., Store]
IN_MEMORY = ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"]
UNUSABLE = [
    *IN_MEMORY,
    "no url",
    "://",
    "postgresql+nothing://u:secret@h/d",
    "nothing://u:secret@h/d",
    "mysql://u:secret@h/d",
]


def _refusal(opening: Opening, folder: Path, connection: str | None = None) -> StoreError:
    with pytest.raises(StoreError) as refused:
        opening(folder, connection)
    assert "\n" not in str(refused.value)
    assert refused.value.remedy
    return refused.value


def test_a_new_folder_is_its_owners_only(folder: Path) -> None:
    open_store(folder / "below").close()
    assert stat.S_IMODE((folder / "below").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "below/database").stat().st_mode) == 0o700
    assert names_in(folder / "below") == ["database"]
    assert names_in(folder / "below/database") == ["store.sqlite"]


def test_the_database_is_durable_and_keeps_its_references(folder: Path, file_store: Store) -> None:
    with closing(sqlite3.connect(folder / "database/store.sqlite")) as outside:
        assert outside.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    engine = engines.on_disk(locate(folder, None))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 10000
    engine.dispose()


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("url", UNUSABLE)
def test_an_unusable_url_is_refused_without_its_password(
    opening: Opening, url: str, folder: Path
) -> None:
    error = _refusal(opening, folder, url)
    assert "[store] connection" in error.message
    assert "secret" not in str(error)


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_somebody_elses_database_is_refused_and_left_alone(
    opening: Opening, mode: str, folder: Path
) -> None:
    (folder / "database").mkdir(parents=True)
    with closing(sqlite3.connect(folder / "database/store.sqlite")) as outside, outside:
        outside.execute(f"PRAGMA journal_mode = {mode}")
        outside.execute("CREATE TABLE alembic_version (version_num)")
        outside.execute("INSERT INTO alembic_version VALUES ('0001')")
    before = folder_state(folder)
    assert "is not a store of this agent" in _refusal(opening, folder).message
    assert folder_state(folder) == before


def test_a_file_that_may_not_be_written_is_refused_when_written() -> None:
    def attempt(shared: Path) -> str:
        for path in (
            shared / "state",
            shared / "state/database",
            shared / "state/database/store.sqlite",
        ):
            path.chmod(path.stat().st_mode & ~0o222)
        with open_read_only(shared / "state") as store:
            assert store.view(ENDPOINT, ROOT) is not None
        with pytest.raises(StoreError) as refused, open_store(shared / "state") as store:
            store.save_view(ENDPOINT, ROOT, None, node_view())
        return str(refused.value)

    def made(shared: Path) -> None:
        with open_store(shared / "state") as store:
            store.save_view(ENDPOINT, ROOT, None, node_view())

    said = as_ordinary_user(attempt, made)
    assert "store.sqlite" in said
    assert "make it readable and writable for uid" in said
