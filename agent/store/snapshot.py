"""A copy of a SQLite store in memory, made without changing a byte of the store's folder."""

import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from agent.errors import StoreError
from agent.store.engines import memory
from agent.store.folder import present
from agent.store.location import Location
from agent.store.lock import holder

ATTEMPTS = 10
PAUSE = 0.05
# What a crash may leave beside the file: changes that are not in the file yet, or that must be taken back.
LEFTOVERS = ("-wal", "-journal")


def snapshot(folder: Path, location: Location) -> sqlite3.Connection | None:
    """The store's contents at one moment, None if there is no store.

    :raises StoreError: it does not hold still.
    :raises sqlite3.Error, OSError: it cannot be read.
    """
    assert location.file is not None
    for _ in range(ATTEMPTS):
        if present(location.file) is None:
            return None
        if (copied := _attempt(folder, location.file)) is not None:
            return copied
        time.sleep(PAUSE)
    raise StoreError(f"{location.option}: the store {location} changes all the time", "try again, or ask the daemon with agent status")


def _attempt(folder: Path, file: Path) -> sqlite3.Connection | None:
    """A copy, None if the file was changed meanwhile: a run may begin or end just now, and its files come and go."""
    before, copied = _state(file), memory()
    try:
        if _copy(file, holder(folder) is not None, copied) or _state(file) == before:
            return copied
    except (sqlite3.DatabaseError, FileNotFoundError):
        if _state(file) == before:
            copied.close()
            raise
    copied.close()
    return None


def _copy(file: Path, held: bool, into: sqlite3.Connection) -> bool:
    """Copy the file's contents. True if nobody can have changed them meanwhile, false if the caller must check."""
    if held and present(_beside(file, "-shm")):
        # A daemon has it open: read what it has committed, under SQLite's own locks and without touching its index.
        _backup(file, "mode=ro&readonly_shm=1", into)
        return True
    if not _unsettled(file):
        # Without changes pending the file alone is the whole store, and "immutable" spares SQLite every lock and file.
        _backup(file, "immutable=1", into)
        return False
    # A crash left changes pending: SQLite would write when it takes them in, so it does that to a copy elsewhere.
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-") as elsewhere:
        copy = Path(elsewhere) / file.name
        for source in (file, *_unsettled(file)):
            shutil.copyfile(source, copy.with_name(source.name))
        _backup(copy, "mode=rw", into)
    return False


def _backup(file: Path, how: str, into: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?{how}", uri=True)) as connection:
        connection.backup(into)


def _beside(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)


def _unsettled(file: Path) -> list[Path]:
    beside = [_beside(file, suffix) for suffix in LEFTOVERS]
    return [one for one in beside if (status := present(one)) and status.st_size]


def _state(file: Path) -> list[tuple[int, int, int] | None]:
    """What tells that a file came, went or was changed."""
    found = [present(one) for one in (file, *(_beside(file, suffix) for suffix in (*LEFTOVERS, "-shm")))]
    return [_stamp(status) if status else None for status in found]


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns
