"""Opening a store: what it makes, and what it refuses."""

import hashlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy.schema import CreateIndex, CreateTable

from agent.errors import StoreError, StoreLocked
from agent.model.mirror import Journal, PlacementView
from agent.store import engines
from agent.store.engines import locate
from agent.store.lock import RunLock, holder
from agent.store.record_table import METADATA
from agent.store.store import Store, open_read_only, open_store
from agent.store.tables import VERSION, VERSIONS
from tests.support.store_place import Place
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


# --- the run lock ---


HOLDER = """
import sys
from pathlib import Path
from agent.store.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_nobody_holds_a_lock_that_is_not_there_or_was_left(folder: Path) -> None:
    assert holder(folder) is None
    assert not folder.exists()
    with RunLock(folder):
        pass
    assert holder(folder) is None


def test_the_own_process_is_refused_too_and_does_not_lose_the_lock_by_asking(folder: Path) -> None:
    with RunLock(folder):
        with pytest.raises(StoreLocked, match=f"pid {os.getpid()}"):
            RunLock(folder).acquire()
        assert holder(folder) == os.getpid()
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder)], stderr=subprocess.PIPE, text=True
        ) as second:
            assert second.stderr is not None
            assert (
                f"StoreLocked: [store] path {folder} is in use by another run of the agent, pid "
                f"{os.getpid()}"
            ) in second.stderr.read()


def test_a_lock_that_cannot_be_opened_is_named(folder: Path) -> None:
    (folder / "lock").mkdir(parents=True)
    with pytest.raises(
        StoreError, match=r"\[store\] path .*/state/lock: Is a directory"
    ) as refused:
        RunLock(folder).acquire()
    assert not isinstance(refused.value, StoreLocked)


# --- the schema: a store of another version is refused, and left as it is ---


def test_another_schema_has_another_number() -> None:
    tables = METADATA.sorted_tables
    made = [
        *(str(CreateTable(table)) for table in tables),
        *sorted(str(CreateIndex(index)) for table in tables for index in table.indexes),
    ]
    digest = hashlib.sha256("".join(made).encode()).hexdigest()[:12]
    assert (VERSION, digest) == ("0020", "34a7c9fc80b4"), (
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


# --- a store opened to be read only ---


DAEMON = """
import sys
from pathlib import Path
from agent.store.lock import RunLock
from agent.store.store import open_store
from tests.support.store_place import Place
from tests.unit.store.trees import ENDPOINT, ROOT, names_in, node_view

with RunLock(Path(sys.argv[1])), open_store(Path(sys.argv[1])) as store:
    for generation in range(int(sys.argv[2])):
        store.save_view(ENDPOINT, ROOT, None, node_view(generation=generation))
    print("saved", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def daemon(folder: Path, saves: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run lock and the open store, after that many saves."""
    command = [sys.executable, "-c", DAEMON, str(folder), str(saves)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "saved\n"
        try:
            yield process
        finally:
            process.kill()


def _read(folder: Path) -> PlacementView | None:
    before = folder_state(folder)
    with open_read_only(folder) as store:
        view = store.view(ENDPOINT, ROOT)
        assert folder_state(folder) == before
    assert folder_state(folder) == before
    return view


def test_a_store_that_is_not_there_is_empty_and_is_not_made(place: Place) -> None:
    with place.open_read_only() as store:
        assert store.view(ENDPOINT, ROOT) is None
        assert store.journal(ROOT) == Journal()
        assert store.capabilities(ENDPOINT) is None
        assert store.identity("host") is None
    assert not place.folder.exists()


def test_the_copy_of_a_crashed_store_is_gone_afterwards(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "copies"))
    with daemon(folder, saves=3):
        pass
    assert _read(folder) is not None
    assert names_in(tmp_path / "copies") == []


@pytest.mark.parametrize("index", ["left", "lost"])
def test_a_run_that_holds_the_lock_but_has_not_opened_its_crashed_store_yet_is_no_obstacle(
    folder: Path, index: str
) -> None:
    with daemon(folder, saves=3):
        pass
    if index == "lost":
        (folder / "database/store.sqlite-shm").unlink()
    with RunLock(folder):
        assert contents(_read(folder)) == contents(node_view(generation=2))


def test_a_folder_with_odd_characters_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c=%20#d&é"
    with open_store(folder) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view())
    assert contents(_read(folder)) == contents(node_view())


def test_a_crashed_store_opened_read_only_is_whole_for_the_next_run(
    folder: Path, tmp_path: Path
) -> None:
    with daemon(folder, saves=5):
        pass
    shutil.copytree(folder, tmp_path / "untouched")
    _read(folder)
    with open_store(folder) as store, open_store(tmp_path / "untouched") as untouched:
        assert (
            contents(store.view(ENDPOINT, ROOT))
            == contents(untouched.view(ENDPOINT, ROOT))
            == contents(node_view(generation=4))
        )
