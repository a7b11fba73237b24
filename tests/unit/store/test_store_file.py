"""A store's SQLite file and what lies beside it: whose a log is, and what becomes of the file while
it is open.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from agent.errors import StoreError
from agent.store.backup import back_up, restore
from agent.store.engines import FILE_NAME, in_file, locate, on_disk
from agent.store.leftovers import LogMarks, following, marks_of_log
from agent.store.lock import RunLock
from agent.store.open_file import OpenFile
from agent.store.store import open_read_only, open_store
from tests.unit.store.trees import ENDPOINT, ROOT, contents, folder_state, names_in, node_view

SAVER = """
import os, sys
from pathlib import Path
from agent.store.store import open_store
from tests.unit.store.trees import ENDPOINT, ROOT, node_view
store = open_store(Path(sys.argv[1]))
old = store.view(ENDPOINT, ROOT)
for generation in range(int(sys.argv[2]), int(sys.argv[3])):
    store.save_view(ENDPOINT, ROOT, old, new := node_view(cells=generation % 30, generation=generation))
    old = new
os.kill(os.getpid(), 9)
"""


def crash_after(folder: Path, first: int, beyond: int) -> None:
    """An agent that has saved these generations and was killed."""
    assert (
        subprocess.run(
            [sys.executable, "-c", SAVER, str(folder), str(first), str(beyond)], check=False
        ).returncode
        == -9
    )


def generation(folder: Path) -> int | None:
    """What is saved, as a new opening sees it."""
    with open_store(folder) as store:
        view = store.view(ENDPOINT, ROOT)
    with closing(sqlite3.connect(folder / "store.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return view.tree.provider(ROOT).generation if view else None


def asides(folder: Path) -> list[str]:
    return [name for name in names_in(folder) if "orphan" in name]


# However much there is in the log: less than SQLite writes into the file at once, and more.
@pytest.fixture(params=[3, 150], ids=["few", "many"])
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.long
def test_a_log_is_taken_into_its_own_file_after_a_crash(folder: Path, count: int) -> None:
    for times in range(3):
        crash_after(folder, 1 + times * count, 1 + (times + 1) * count)
        with open_read_only(folder) as store:
            view = store.view(ENDPOINT, ROOT)
        assert view is not None
        assert view.tree.provider(ROOT).generation == (times + 1) * count
    assert generation(folder) == 3 * count
    assert names_in(folder) == ["store.sqlite"]


def test_a_log_is_not_taken_into_a_new_file(folder: Path, count: int) -> None:
    crash_after(folder, 1, 1 + count)
    (folder / "store.sqlite").rename(folder / "moved")
    assert generation(folder) is None
    (log,) = [name for name in asides(folder) if name.endswith("-wal")]
    (folder / "moved").rename(folder / log.removesuffix("-wal"))
    with RunLock(folder):
        restore(
            locate(folder, None),
            folder / log.removesuffix("-wal"),
            lambda _store: None,
            dry_run=False,
        )
    assert generation(folder) == count


@pytest.mark.long
@pytest.mark.parametrize("opening", [open_store, open_read_only])
def test_a_log_is_not_taken_into_an_older_copy_of_its_own_file(
    folder: Path, tmp_path: Path, opening: Callable[..., object], count: int
) -> None:
    with open_store(folder) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view(cells=5, generation=1))
    shutil.copyfile(folder / "store.sqlite", tmp_path / "copy")
    crash_after(folder, 2, 2 + count)
    shutil.copyfile(tmp_path / "copy", folder / "store.sqlite")
    if opening is open_read_only:
        before = folder_state(folder)
        with open_read_only(folder) as store:
            assert contents(store.view(ENDPOINT, ROOT)) == contents(
                node_view(cells=5, generation=1)
            )
        assert folder_state(folder) == before
    assert generation(folder) == 1
    assert [name.endswith("-wal") for name in asides(folder)].count(True) == 1


def test_a_log_is_not_taken_into_a_backup_of_the_running_agent_that_wrote_it(
    folder: Path, tmp_path: Path
) -> None:
    with open_store(folder) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view(cells=5, generation=1))
        back_up(folder, locate(folder, None), tmp_path / "backup")
        store.save_view(
            ENDPOINT, ROOT, node_view(cells=5, generation=1), node_view(cells=6, generation=2)
        )
        # As a crash leaves them.
        for name in ("store.sqlite-wal", "store.sqlite-shm"):
            shutil.copyfile(folder / name, tmp_path / name)
    for name in ("store.sqlite-wal", "store.sqlite-shm"):
        shutil.copyfile(tmp_path / name, folder / name)
    shutil.copyfile(tmp_path / "backup", folder / "store.sqlite")
    assert generation(folder) == 1
    assert asides(folder)


def test_the_log_of_an_agent_without_marks_is_taken_in(folder: Path, tmp_path: Path) -> None:
    open_store(folder).close()
    file = folder / "store.sqlite"
    with closing(sqlite3.connect(file, isolation_level=None)) as old:
        old.execute("PRAGMA user_version = 0")
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        old.execute("INSERT INTO identity VALUES ('h', ?)", [ROOT])
        shutil.copytree(folder, tmp_path / "crashed")
    with open_store(tmp_path / "crashed") as store:
        assert store.identity("h") == ROOT
    assert asides(tmp_path / "crashed") == []


def test_a_journal_that_cannot_be_the_stores_is_set_aside(folder: Path) -> None:
    open_store(folder).close()
    (folder / "store.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    assert generation(folder) is None
    assert [name.endswith("-journal") for name in asides(folder)] == [True]


@pytest.mark.parametrize("opening", [open_store, open_read_only])
def test_an_index_that_lacks_rows_is_found_without_a_crash_too(
    folder: Path, opening: Callable[[Path], object]
) -> None:
    open_store(folder).close()
    statements = [
        [
            "CREATE TABLE kept AS SELECT * FROM sqlite_master WHERE name = 'ix_instance_node'",
            "DELETE FROM sqlite_master WHERE name = 'ix_instance_node'",
        ],
        [
            "INSERT INTO instance (uuid, node, project_id, user_id, flavor, vm_state, "
            "image_properties, volume_backed, hidden, deleted, created_at, updated_at, version) "
            "VALUES ('u', 'n', 'p', 'u', '{}', 'active', '{}', 0, 0, 0, 0, 0, 1)"
        ],
        ["INSERT INTO sqlite_master SELECT * FROM kept"],
        ["DROP TABLE kept"],
    ]
    for some in statements:
        # Each in a connection of its own, because the schema is read once.
        with closing(sqlite3.connect(folder / "store.sqlite", isolation_level=None)) as connection:
            for pragma in ("writable_schema = ON", "ignore_check_constraints = ON"):
                connection.execute(f"PRAGMA {pragma}")
            for statement in some:
                connection.execute(statement)
    with pytest.raises(StoreError, match="missing from index") as refused:
        opening(folder)
    assert "agent db restore" in refused.value.remedy


@pytest.mark.parametrize(
    "harm", ["moved", "removed", "replaced", "overwritten", "emptied", "log removed"]
)
def test_nothing_is_read_or_written_once_the_file_is_another(
    folder: Path, tmp_path: Path, harm: str
) -> None:
    first, second = node_view(cells=5, generation=1), node_view(cells=6, generation=2)
    file, log = folder / "store.sqlite", folder / "store.sqlite-wal"
    store = open_store(folder)
    store.save_view(ENDPOINT, ROOT, None, first)
    back_up(folder, locate(folder, None), tmp_path / "backup")
    store.save_view(ENDPOINT, ROOT, first, second)
    harms: dict[str, Callable[[], object]] = {
        "moved": lambda: file.rename(tmp_path / "moved"),
        "removed": file.unlink,
        "log removed": log.unlink,
        "replaced": lambda: (
            shutil.copyfile(tmp_path / "backup", tmp_path / "new"),
            (tmp_path / "new").replace(file),
        ),
        "overwritten": lambda: shutil.copyfile(tmp_path / "backup", file),
        "emptied": lambda: os.truncate(file, 0),
    }
    harms[harm]()
    for use in (
        lambda: store.view(ENDPOINT, ROOT),
        lambda: store.save_view(ENDPOINT, ROOT, second, first),
        store.check_writable,
    ):
        with pytest.raises(StoreError, match="while the agent runs") as refused:
            use()
        assert "agent db restore" in refused.value.remedy
    store.close()
    # What was put there is as it was put there.
    if harm in ("replaced", "overwritten"):
        assert file.read_bytes() == (tmp_path / "backup").read_bytes()
        assert generation(folder) == 1
    elif harm == "log removed":
        assert generation(folder) == 2
    elif harm != "emptied":
        assert generation(folder) is None


def test_a_file_that_is_put_back_is_used_again(folder: Path, tmp_path: Path) -> None:
    with open_store(folder) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view(cells=5, generation=1))
        (folder / "store.sqlite").rename(tmp_path / "moved")
        with pytest.raises(StoreError, match="moved away or removed"):
            store.view(ENDPOINT, ROOT)
        (tmp_path / "moved").rename(folder / "store.sqlite")
        assert store.view(ENDPOINT, ROOT) is not None


def test_a_log_that_is_moved_into_the_file_between_two_readings_is_no_harm(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(count: int) -> None:
        """Write as another process would, and move the log's contents into the file."""
        for _ in range(count):
            (mark,) = other.execute("PRAGMA user_version").fetchone()
            other.execute(f"PRAGMA user_version = {following(mark)}")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        other.execute(f"PRAGMA user_version = {following(mark + 1)}")

    def read_late(log: Path) -> LogMarks:
        read.append(log)
        if len(read) == 1:
            work(3)
        return marks_of_log(log)

    read: list[Path] = []
    with (
        open_store(folder) as store,
        closing(sqlite3.connect(folder / "store.sqlite", isolation_level=None)) as other,
    ):
        work(3)
        monkeypatch.setattr("agent.store.open_file.marks_of_log", read_late)
        store.save_view(ENDPOINT, ROOT, None, node_view(cells=5, generation=1))
    assert len(read) > 1
    assert generation(folder) == 1


def test_a_store_stays_usable_through_thousands_of_writes(folder: Path) -> None:
    with open_store(folder) as store:
        old = None
        for number in range(1, 400):
            store.save_view(
                ENDPOINT, ROOT, old, old := node_view(cells=number % 40, generation=number)
            )
    assert generation(folder) == 399


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(mounted)],
        check=False,
        capture_output=True,
    ).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield mounted
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def test_a_disk_on_which_only_the_log_has_room_is_full(small_disk: Path) -> None:
    with open_store(small_disk) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view(cells=30, generation=1))
        store.check_writable()
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb") as opened:
            while True:
                opened.write(bytes(65536))
        with pytest.raises(StoreError, match="No space left") as refused:
            store.check_writable()
        assert "make room" in refused.value.remedy
        filler.unlink()
        store.check_writable()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    file = OpenFile(locate(small_disk, None))
    with pytest.raises(OSError, match="Read-only file system"):
        file.check_room()
    file.close()


def test_transactions_one_after_the_other_use_one_connection_of_many(tmp_path):
    engine = on_disk(in_file(tmp_path / FILE_NAME, "[store] path"))
    with ExitStack() as stack:
        at_once = [stack.enter_context(engine.connect()) for _ in range(4)]
        assert len({id(connection.connection.dbapi_connection) for connection in at_once}) == 4
    used = set()
    for _ in range(8):
        with engine.connect() as connection:
            used.add(id(connection.connection.dbapi_connection))
    engine.dispose()
    assert len(used) == 1
