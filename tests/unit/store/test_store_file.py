"""A store's SQLite file and the log beside it: after a crash, moved away, restored, and while it is
open.
"""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.errors import StoreError
from agent.store.backup import back_up, restore
from agent.store.database_file import set_aside
from agent.store.engines import locate
from agent.store.store import open_read_only, open_store
from tests.unit.store.trees import ENDPOINT, ROOT, names_in, node_view

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
    with closing(sqlite3.connect(folder / "database/store.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return view.tree.provider(ROOT).generation if view else None


# However much there is in the log: less than SQLite writes into the file at once, and more.
@pytest.fixture(params=[3, 150], ids=["few", "many"])
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
def test_the_log_of_a_crash_is_not_applied_to_the_backup_that_is_restored(
    folder: Path, tmp_path: Path, count: int, damaged: bool
) -> None:
    with open_store(folder) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view(cells=5, generation=1))
    back_up(folder, locate(folder, None), tmp_path / "backup")
    crash_after(folder, 2, 2 + count)
    if damaged:
        (folder / "database/store.sqlite").write_bytes(b"not a database any more")
    before = restore(locate(folder, None), tmp_path / "backup", lambda _store: None, dry_run=False)
    assert names_in(folder / "database") == ["store.sqlite", before.name if before else ""]
    assert generation(folder) == 1
    # What was there is whole, too.
    if not damaged and before is not None:
        restore(locate(folder, None), before / "store.sqlite", lambda _store: None, dry_run=False)
        assert generation(folder) == 1 + count


def test_nothing_is_set_aside_that_is_not_there_or_is_somebody_elses(tmp_path: Path) -> None:
    folder, file = tmp_path / "state", tmp_path / "nova.sqlite"
    assert set_aside(locate(folder, None)) is None
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE services (id)")
    with pytest.raises(StoreError, match="is not a store of this agent"):
        set_aside(locate(folder, f"sqlite:///{file}"))
    assert names_in(tmp_path) == ["nova.sqlite"]


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
        with closing(
            sqlite3.connect(folder / "database/store.sqlite", isolation_level=None)
        ) as connection:
            for pragma in ("writable_schema = ON", "ignore_check_constraints = ON"):
                connection.execute(f"PRAGMA {pragma}")
            for statement in some:
                connection.execute(statement)
    with pytest.raises(StoreError, match="missing from index") as refused:
        opening(folder)
    assert "agent db restore" in refused.value.remedy
