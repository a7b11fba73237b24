"""The SQLite file of a store: copying it without changing a byte of its folder, and moving it away
as a whole, with the log that SQLite keeps beside it.
"""

import errno
import logging
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
from agent.model.names import printable
from agent.store.engines import Location, memory
from agent.store.lock import holder, present, sync
from agent.store.store_errors import not_a_file
from agent.store.tables import APPLICATION_ID

LOG = logging.getLogger(__name__)

LOG_SUFFIX, JOURNAL_SUFFIX, INDEX_SUFFIX = "-wal", "-journal", "-shm"
BESIDE = (LOG_SUFFIX, JOURNAL_SUFFIX, INDEX_SUFFIX)
ATTEMPTS = 10
PAUSE = 0.05
# In bytes. Less free space counts as none, because the log grows to some MiB before it restarts.
ROOM = 1024 * 1024
Place = tuple[int, int]


def beside(file: Path, suffix: str) -> Path:
    """Return the path of the file with ``suffix`` that SQLite keeps beside ``file``."""
    return file.with_name(file.name + suffix)


def place_of(file: Path) -> Place | None:
    """Return what tells the file from another one that is put in its place; None: there is none."""
    status = present(file)
    return (status.st_dev, status.st_ino) if status else None


def check_room(file: Path) -> None:
    """Check that the file system has more room than the little that a transaction may reuse.

    :raises OSError: it is full or read-only.
    """
    folder = file.parent
    found = os.statvfs(folder)
    if found.f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(folder))
    # Blocks reserved for root count only for root.
    if (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize < ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


# --- moving a database away -----------------------------------------------------------------------


def set_aside(location: Location) -> Path | None:
    """Move the database of this or of an earlier version into a folder beside it. Return the
    folder, ``None`` if there is no database.

    The caller holds the run lock.

    :raises StoreError: it is on a database server, or belongs to somebody else.
    :raises OSError: it cannot be moved.
    """
    if location.file is None:
        raise not_a_file(location, "name another database in [store] connection, and keep this one")
    moved = None
    for file in (location.former, location.file):
        if file is not None and any(map(present, (file, *_logs(file)))):
            _check_ours(location, file)
            moved = _move(file, "aside", location.file.parent)
    return moved


def set_aside_orphans(file: Path) -> None:
    """Move a log away whose database is gone, so that SQLite does not apply it to the next one.

    :raises OSError: it cannot be moved.
    """
    if present(file) is None and any(map(present, _logs(file))):
        folder = _move(file, "orphan", file.parent)
        LOG.warning(
            "%s is gone and its log is not: the log is in %s now, with the last that was written "
            "(to see it, put the database beside it)",
            printable(str(file)),
            printable(str(folder)),
        )


def make_aside(file: Path, why: str, parent: Path) -> Path:
    """Return a new folder in ``parent`` for what is moved away of ``file``, with the time in its
    name.

    :raises OSError: it cannot be made.
    """
    stamp, count = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), 0
    while True:
        folder = parent / f"{file.name}.{why}-{stamp}{f'-{count}' if count else ''}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            count += 1
        else:
            return folder


def move_logs(file: Path, folder: Path) -> None:
    """Move what SQLite keeps beside ``file`` into the folder."""
    for path in filter(present, _logs(file)):
        path.rename(folder / path.name)


def _move(file: Path, why: str, parent: Path) -> Path:
    """Move the file, and what SQLite keeps beside it, into a new folder."""
    parent.mkdir(mode=0o700, exist_ok=True)
    folder = make_aside(file, why, parent)
    # The file first, because a log without its file is set aside too, and a file without its log
    # would be used.
    if present(file):
        file.rename(folder / file.name)
    move_logs(file, folder)
    for changed in {folder, parent, file.parent}:
        sync(changed)
    return folder


def _logs(file: Path) -> list[Path]:
    return [beside(file, suffix) for suffix in BESIDE]


def _check_ours(location: Location, file: Path) -> None:
    """Check that the file is no database of another program; a damaged one may be ours."""
    try:
        with closing(_connect(file, "immutable=1")) as connection:
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.Error:
        return
    if tables and found != APPLICATION_ID:
        raise StoreError(
            f"{location.option}: {printable(str(file))} is not a store of this agent",
            f"move it away, or point {location.option} elsewhere",
            place=str(file),
        )


# --- copying a database ---------------------------------------------------------------------------


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
    what = f"{location.option}: the store {location} changes all the time"
    raise StoreError(what, "try again; see why: agent status")


def _attempt(
    folder: Path | None, file: Path, copied: sqlite3.Connection
) -> sqlite3.Connection | None:
    """Copy the store once; return ``None`` if a file changed meanwhile, as when a run begins or
    ends.
    """
    before, held = _state(file), folder is not None and holder(folder) is not None
    try:
        if _copy(file, held, copied) or _state(file) == before:
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
    unsettled = [
        path
        for path in (beside(file, LOG_SUFFIX), beside(file, JOURNAL_SUFFIX))
        if (status := present(path)) is not None and status.st_size
    ]
    if not unsettled:
        # Without pending changes the file alone is the whole store, and with "immutable" SQLite
        # uses no lock and no other file.
        _backup(file, "immutable=1", into)
        return False
    # A crash left pending changes: SQLite would write when it applies them, so they are applied to
    # a copy elsewhere.
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-") as elsewhere:
        copy = Path(elsewhere) / file.name
        for source in (file, *unsettled):
            shutil.copyfile(source, copy.with_name(source.name))
        _backup(copy, "mode=rw", into)
    return False


def _backup(file: Path, how: str, into: sqlite3.Connection) -> None:
    with closing(_connect(file, how)) as connection:
        connection.backup(into)


def _connect(file: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file.absolute()))}?{how}", uri=True)


def _state(file: Path) -> list[tuple[int, int, int] | None]:
    """Return a value that differs if one of the files was created, deleted or changed."""
    found = [present(path) for path in (file, *_logs(file))]
    return [
        (status.st_ino, status.st_size, status.st_mtime_ns) if status else None for status in found
    ]
