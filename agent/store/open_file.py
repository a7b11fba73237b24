"""The SQLite file of an open store, and the check that it still stands at its path with its log:
writes to a file that was moved away would be lost.

Every transaction writes a new number, a mark, into the file's header; see
:mod:`agent.store.leftovers`.
"""

import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event

from agent.errors import StoreError
from agent.store.engines import Location
from agent.store.leftovers import (
    HEADER_SIZE,
    INDEX_SUFFIX,
    LAST,
    LOG_HEADER_SIZE,
    LOG_SUFFIX,
    Header,
    beside,
    following,
    header,
    marks_of_log,
    new_mark,
)
from agent.store.lock import present

LOG = logging.getLogger(__name__)

REMEDY = (
    "restart the agent, and put another store in its place only while it is stopped: agent db "
    "restore FILE"
)
BUSY_SECONDS = 10
# In bytes. Less free space counts as none, because the log grows to some MiB before it restarts.
ROOM = 1024 * 1024
# The file and its log are read one after the other, and read again if another process moved the
# log's contents into the file meanwhile.
READINGS = 20
Place = tuple[int, int]


class OpenFile:
    """The file of an open store, which threads may share. It is created before the first connection
    and closed after the last.
    """

    def __init__(self, location: Location) -> None:
        assert location.file is not None
        self._location, self._file = location, location.file
        # Kept open, because closing any descriptor of the file releases SQLite's locks on it.
        self._descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        self._place = _place(os.fstat(self._descriptor))
        log = beside(self._file, LOG_SUFFIX)
        # Read before SQLite applies the log, which it does silently and only as far as the log is
        # sound.
        self._logged = marks_of_log(log).marks if present(log) is not None else ()
        self._beside: dict[Path, Place] = {}
        self._held: sqlite3.Connection | None = None
        self._looking = threading.Lock()
        # The first and the last mark that the file may have, and the one that it had at the last
        # check.
        self._first = self._last = self._seen = 0

    def begin(self, engine: Engine) -> None:
        """Apply what a crash left, begin at a new mark, and have each transaction of the engine
        write the next mark.

        :raises sqlite3.Error: the file cannot be written.
        """
        # Kept open to the end, because SQLite deletes the log with the last connection.
        self._held = held = sqlite3.connect(
            self._file, BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        held.execute("PRAGMA synchronous = FULL")
        # A copy that was made with other tools may be in another journal mode.
        held.execute("PRAGMA journal_mode = WAL").fetchall()
        self._tell_of_losses(_current(held))
        _checkpoint(held)
        # First the following mark, so that the log continues the file even before the new mark is
        # in the file.
        _write_mark(held, following)
        self._first = _write_mark(held, lambda _: new_mark())
        _checkpoint(held)
        if self._mark() != self._first:
            # Another process still reads the earlier contents, or opens the file too: the log must
            # have the following mark to belong to the file.
            self._first = _write_mark(held, lambda _: following(self._mark() or 0))
        # A mark in the log too, so that the log always has one.
        self._last, self._seen = _write_mark(held, following), self._mark() or 0
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX):
            if (status := present(beside(self._file, suffix))) is not None:
                self._beside[beside(self._file, suffix)] = _place(status)
        event.listen(engine, "begin", _begun)
        event.listen(engine, "commit", self._committing)
        event.listen(engine, "close", self._closing)

    def _tell_of_losses(self, mark: int) -> None:
        """Log how many transactions of the log come after ``mark``, the last that SQLite found."""
        # One transaction may have been cut off by a crash before it was reported as done.
        if self._logged and 1 < (lost := _steps(mark, self._logged[-1])) <= len(self._logged):
            LOG.error(
                "%s: the log of the store %s is damaged: the last %d transactions in it are lost; "
                "compare agent claims with what runs here, and check the disk",
                self._location.option,
                self._location,
                lost,
            )

    def check_room(self) -> None:
        """Check that the file system has more room than the little that a transaction may reuse.

        :raises OSError: it is full or read-only.
        """
        found = os.statvfs(self._file.parent)
        if found.f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._file.parent))
        # Blocks reserved for root count only for root.
        if (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize < ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file.parent))

    @staticmethod
    def mark(connection: Connection) -> None:
        """Have the transaction write its mark even if it changes nothing."""
        connection.info["changes"] = -1

    def check(self) -> None:
        """Check that the opened file still stands at its path.

        :raises StoreError: it was moved, deleted, replaced or overwritten, so that writes to it
            may be lost.
        """
        wrong = self._wrong()
        if wrong is None:
            wrong = next(
                (
                    f"{file.name} was removed or replaced"
                    for file, place in self._beside.items()
                    if not _stands(file, place)
                ),
                None,
            )
        if wrong is not None:
            what = (
                f"{self._location.option}: the store {self._location} cannot be used: {wrong} "
                "while the agent runs"
            )
            raise StoreError(what, REMEDY, place=str(self._location))

    def close(self) -> None:
        """Close the file."""
        try:
            if self._held is not None:
                self._closing(self._held, None)
                self._held.close()
        finally:
            self._held = None
            os.close(self._descriptor)

    def _wrong(self) -> str | None:
        """Return what happened to the file itself, ``None`` if it is unchanged."""
        status = present(self._file)
        if status is None:
            return "it was moved away or removed"
        if _place(status) != self._place:
            return "another file was put in its place"
        with self._looking:
            for _ in range(READINGS):
                mark = self._mark()
                if mark == self._seen:
                    return None
                log = self._log_header()
                if mark is not None and (
                    _steps(self._first, mark) <= _steps(self._first, self._last)
                    or self._is_continued(mark)
                ):
                    # From now on the file cannot have an earlier mark.
                    self._first = self._seen = mark
                    return None
                if (mark, log) == (self._mark(), self._log_header()):
                    break
            return "it was overwritten"

    def _is_continued(self, mark: int) -> bool:
        """Return whether the log belongs to a file with this mark, because another process wrote
        to the file meanwhile.
        """
        found = marks_of_log(beside(self._file, LOG_SUFFIX))
        if found.belong_to(Header(mark, ours=True, has_log=True)):
            self._last = mark
            return True
        # Otherwise the other process may be opening the file at this moment.
        return not (found.marks or found.has_contents)

    def _mark(self) -> int | None:
        """Return the mark in the file, which is not later than that of the log; ``None`` if the
        file is not a store any more.
        """
        found = header(os.pread(self._descriptor, HEADER_SIZE, 0))
        return found.mark if found is not None and found.ours else None

    def _log_header(self) -> bytes:
        """Return the first bytes of the log, which change whenever SQLite begins the log anew; none
        if there is no log.
        """
        try:
            with beside(self._file, LOG_SUFFIX).open("rb") as log:
                return log.read(LOG_HEADER_SIZE)
        except FileNotFoundError:
            return b""

    def _committing(self, connection: Connection) -> None:
        # Only if the transaction changed something, because a mark costs a write to the disk.
        if _changes(connection) != connection.info["changes"]:
            raw = _raw(connection)
            self._last = _leave(raw, following(_current(raw)))

    def _closing(self, raw: Any, _record: object) -> None:
        # Closing the last connection would write the log's contents into the file that replaced
        # this one.
        if self._wrong() is not None:
            raw.interrupt()


def _checkpoint(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _current(connection: sqlite3.Connection) -> int:
    mark: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return mark


def _write_mark(connection: sqlite3.Connection, next_mark: Callable[[int], int]) -> int:
    """Write the mark computed from the current one, in a transaction of its own. Return it."""
    # The lock is taken before reading, because another process may open the store at the same time.
    connection.execute("BEGIN IMMEDIATE")
    try:
        mark = _leave(connection, next_mark(_current(connection)))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return mark


def _leave(connection: sqlite3.Connection, mark: int) -> int:
    connection.execute(f"PRAGMA user_version = {mark}")
    return mark


def _begun(connection: Connection) -> None:
    connection.info["changes"] = _changes(connection)


def _changes(connection: Connection) -> int:
    return _raw(connection).total_changes


def _raw(connection: Connection) -> sqlite3.Connection:
    raw = connection.connection.dbapi_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


def _steps(first: int, mark: int) -> int:
    """Return the number of steps from one mark to another."""
    return (mark - first) % LAST


def _stands(file: Path, place: Place) -> bool:
    status = present(file)
    return status is not None and _place(status) == place


def _place(status: os.stat_result) -> Place:
    return status.st_dev, status.st_ino
