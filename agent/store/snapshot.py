"""Copying a SQLite store without changing a byte of its folder."""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from agent.errors import StoreError
from agent.store.engines import Location, memory
from agent.store.leftovers import ALL, INDEX_SUFFIX, beside, orphans, unsettled
from agent.store.lock import holder, present

ATTEMPTS = 10
PAUSE = 0.05


def snapshot(
    folder: Path | None, location: Location, into: Callable[[], sqlite3.Connection] = memory
) -> sqlite3.Connection | None:
    """Copy the store's contents at one moment into a database that ``into`` opens; return ``None``
    if there is no store.

    :param folder: the folder of the run lock, ``None`` if no run has the store open.
    :raises StoreError: the store changed during every attempt.
    :raises sqlite3.Error, OSError: the store cannot be read.
    """
    assert location.file is not None
    for _ in range(ATTEMPTS):
        if present(location.file) is None:
            return None
        if (copied := _attempt(folder, location.file, into())) is not None:
            return copied
        time.sleep(PAUSE)
    what = (
        f"{location.option}: the store {location} changes all the time, or the daemon has another "
        "file open that was there before"
    )
    raise StoreError(what, "try again, or look at agent status")


def _attempt(
    folder: Path | None, file: Path, copied: sqlite3.Connection
) -> sqlite3.Connection | None:
    """Copy the store once; return ``None`` if a file changed meanwhile, as when a run begins or
    ends.
    """
    before, pid = _state(file), holder(folder) if folder is not None else None
    try:
        # The log of a running daemon does not belong to a file that replaced the daemon's own.
        mixed = pid not in (None, os.getpid()) and orphans(file)
        if not mixed and (_copy(file, pid is not None, copied) or _state(file) == before):
            return copied
    except (sqlite3.DatabaseError, FileNotFoundError):
        if _state(file) == before:
            copied.close()
            raise
    copied.close()
    return None


def _copy(file: Path, held: bool, into: sqlite3.Connection) -> bool:
    """Copy the file's contents. Return true if nobody can have changed them meanwhile, false if the
    caller must check that.
    """
    if held and present(beside(file, INDEX_SUFFIX)):
        # A daemon has the store open: read what is committed, under SQLite's own locks and without
        # writing to its index.
        _backup(file, "mode=ro&readonly_shm=1", into)
        return True
    if not unsettled(file):
        # Without pending changes the file alone is the whole store, and with "immutable" SQLite
        # uses no lock and no other file.
        _backup(file, "immutable=1", into)
        return False
    # A crash left pending changes: SQLite would write when it applies them, so they are applied to
    # a copy elsewhere.
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-") as elsewhere:
        copy = Path(elsewhere) / file.name
        for source in (file, *unsettled(file)):
            shutil.copyfile(source, copy.with_name(source.name))
        _backup(copy, "mode=rw", into)
    return False


def _backup(file: Path, how: str, into: sqlite3.Connection) -> None:
    with closing(
        sqlite3.connect(f"file:{quote(str(file.absolute()))}?{how}", uri=True)
    ) as connection:
        connection.backup(into)


def _state(file: Path) -> list[tuple[int, int, int] | None]:
    """Return a value that differs if one of the files was created, deleted or changed."""
    found = [present(path) for path in (file, *(beside(file, suffix) for suffix in ALL))]
    return [_stamp(status) if status else None for status in found]


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns
