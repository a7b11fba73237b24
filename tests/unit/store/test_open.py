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
from tests.unit.store.trees import ENDPOINT, ROOT, contents, folder_state, names_in, node_view

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


def test_a_connection_url_names_another_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    with open_store(tmp_path / "state", url) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view())
    assert names_in(tmp_path / "state") == []
    with open_read_only(tmp_path / "state", url) as store:
        assert contents(store.view(ENDPOINT, ROOT)) == contents(node_view())


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("url", UNUSABLE)
def test_an_unusable_url_is_refused_without_its_password(
    opening: Opening, url: str, folder: Path
) -> None:
    error = _refusal(opening, folder, url)
    assert "[store] connection" in error.message
    assert "secret" not in str(error)


@pytest.mark.parametrize("opening", OPENINGS)
def test_a_path_below_a_file_is_refused(opening: Opening, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        error = _refusal(opening, path)
        assert error.message.startswith("[store] path")
        assert str(path) in error.message
        assert "in the way" in error.remedy


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize(
    "garbage",
    [b"", b"not a database at all " * 500, b"SQLite format 3\x00" + b"\xff" * 4096],
    ids=["empty", "text", "header"],
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    opening: Opening, garbage: bytes, folder: Path
) -> None:
    (folder / "database").mkdir(parents=True)
    (folder / "database/store.sqlite").write_bytes(garbage)
    error = _refusal(opening, folder)
    assert str(folder / "database/store.sqlite") in error.message
    assert "move it away" in error.remedy
    assert (folder / "database/store.sqlite").read_bytes() == garbage
    assert names_in(folder / "database") == ["store.sqlite"]


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


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_a_damaged_store_is_refused_and_left_alone(
    opening: Opening, damage: str, folder: Path
) -> None:
    with open_store(folder) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view(cells=300))
    file = folder / "database/store.sqlite"
    whole = file.read_bytes()
    file.write_bytes(
        whole[: len(whole) // 2]
        if damage == "cut"
        else whole[:8192] + b"\x55" * (len(whole) - 8192)
    )
    before = folder_state(folder)
    error = _refusal(opening, folder)
    assert str(file) in error.message
    assert "restore it from a backup" in error.remedy
    assert folder_state(folder) == before


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    def attempt(open_to_all: Path) -> str:
        (open_to_all / "closed").chmod(0o555)
        return str(_refusal(open_store, open_to_all / "closed" / "state")) + str(
            _refusal(open_store, open_to_all / "closed")
        )

    said = as_ordinary_user(attempt, lambda shared: (shared / "closed").mkdir())
    assert said.count("[store] path") == 4
    assert said.count("Permission denied") + said.count("unable to open database file") == 2


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


def test_a_folder_that_may_not_be_read_is_not_taken_for_an_empty_store() -> None:
    def attempt(shared: Path) -> str:
        (shared / "state").chmod(0)
        return str(_refusal(open_read_only, shared / "state"))

    assert "Permission denied" in as_ordinary_user(
        attempt, lambda shared: open_store(shared / "state").close()
    )
