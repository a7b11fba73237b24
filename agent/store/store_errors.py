"""The translation of the errors of SQLAlchemy, of databases and of the file system into StoreError
with place, option and remedy.
"""

import errno
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from agent.errors import RecordConflict, StoreError
from agent.model.names import printable
from agent.model.node_records import DamagedRecord
from agent.store.engines import Location

# What SQLite says of a file system that refuses locks.
LOCK_FAILURES = frozenset(
    {
        sqlite3.SQLITE_IOERR_LOCK,
        sqlite3.SQLITE_IOERR_RDLOCK,
        sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK,
        sqlite3.SQLITE_IOERR_SHMLOCK,
    }
)
REPORT = "report it, with the log: no such record should ever be written"
# https://www.sqlite.org/rescode.html and
# https://www.postgresql.org/docs/current/errcodes-appendix.html
CONFLICTS = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
        sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY,
        "23505",
        "23503",  # unique, foreign key
        "40001",
        "40P01",  # serialization, deadlock
    }
)
# Raised for values that no database stores: unpaired surrogates, integers beyond 64 bits.
NO_VALUE = (UnicodeError, OverflowError)
MAX_REASON = 300
# The remedy for an error without SQLSTATE: the connection failed.
CHECK_URL = (
    "check that the database server runs, and server, user, password and database in [store] "
    "connection"
)
# Parts of messages without SQLSTATE from a server that has no connection left; a server with
# another language has other messages.
_NO_ROOM = ("too many clients", "too many connections", "remaining connection slots")
NO_CONNECTION_LEFT = (
    "the database server has no connection left: close some, or raise its max_connections or the "
    "limit of the user or database"
)
SERVER_REMEDIES = {
    "53300": NO_CONNECTION_LEFT,
    "42501": (
        "grant the user of [store] connection the right to create and use tables in the database"
    ),
    "25006": "name the primary server in [store] connection; this one is a standby",
    "53": (
        "make room or raise the limits on the database server; what was saved before is still there"
    ),
    "55P03": "another agent has the same records locked for too long; see there: agent status",
    "22": REPORT,
    "23": REPORT,
    "54": REPORT,
}
START_EMPTY = (
    "restore it from a backup: agent db restore FILE; or move it away, which tells what follows: "
    "agent db set-aside"
)
# For a store of another version.
SET_ASIDE = "move it away, which tells what follows: agent db set-aside"
ANOTHER_DATABASE = (
    "name an empty database in [store] connection; then take the tree over: agent --once --adopt; "
    "then have the guests recorded: agent guests import"
)
_SQLITE_REMEDIES = {
    sqlite3.SQLITE_CONSTRAINT: REPORT,
    sqlite3.SQLITE_MISMATCH: REPORT,
    sqlite3.SQLITE_TOOBIG: REPORT,
    sqlite3.SQLITE_NOTADB: START_EMPTY,
    sqlite3.SQLITE_CORRUPT: START_EMPTY,
    sqlite3.SQLITE_ERROR: START_EMPTY,
    sqlite3.SQLITE_BUSY: "another process has it open for too long; see which: agent status",
    sqlite3.SQLITE_LOCKED: "another process has it open for too long; see which: agent status",
}
_FILE_REMEDIES: Sequence[tuple[Collection[int], str]] = (
    (
        {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO},
        "make room on its file system and check its disk, or point {option} elsewhere; what was "
        "saved before is still there",
    ),
    (
        {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP},
        "its file system has no locks, which the agent needs: start its service for locks (NFS: "
        "rpc.statd), or point {option} to a local disk",
    ),
    (
        {errno.ENOTDIR, errno.EEXIST, errno.EISDIR},
        "move the file that is in the way, or point {option} to a folder",
    ),
)


@contextmanager
def translate_errors(location: Location, doing: str) -> Iterator[None]:
    """Raise every error of the database or its files as :class:`StoreError`.

    An error that only means that somebody else wrote first is raised as :class:`RecordConflict`.

    :param doing: what fails: opened, read, written and so on.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError, *NO_VALUE) as error:
        original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        message = f"{location.option}: the store {location} cannot be {doing}: {_reason(original)}"
        # SQLite's extended result code, or PostgreSQL's SQLSTATE.
        codes = (getattr(original, name, None) for name in ("sqlite_errorcode", "sqlstate"))
        if not CONFLICTS.isdisjoint(codes):
            raise RecordConflict(message, place=str(location)) from error
        raise StoreError(message, _remedy(original, location), place=str(location)) from error


def _reason(error: BaseException) -> str:
    # Only the primary message of PostgreSQL, because the rest quotes values.
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    said = error.strerror if isinstance(error, OSError) else primary or str(error)
    return printable(" ".join((said or type(error).__name__).split()))[:MAX_REASON]


def damaged_store(location: Location, reason: str) -> StoreError:
    """Return the error for a store with invalid contents."""
    return StoreError(
        f"{location.option}: the store {location} is damaged: {printable(reason)}",
        START_EMPTY,
        place=str(location),
    )


def other_schema(location: Location, found: str, known: str) -> StoreError:
    """Return the error for a store that another version of the agent made; such a store is never
    upgraded.
    """
    when = "a newer" if found > known else "an earlier"
    if location.shown is not None:
        remedy = "name a backup that this version made"
    else:
        other = SET_ASIDE if location.file is not None else ANOTHER_DATABASE
        remedy = f"install that agent again, or {other}"
    return StoreError(
        f"{location.option}: the store {location} has schema {found}, made by {when} agent; this "
        f"one knows {known}",
        remedy,
        place=str(location),
    )


def not_a_file(location: Location, remedy: str) -> StoreError:
    """Return the error for work on a file if the store is on a database server."""
    what = f"{location.option}: the store {location} is on a database server"
    return StoreError(what, remedy, place=str(location))


def damaged_record(location: Location, record: DamagedRecord) -> StoreError:
    """Return the error for one invalid record."""
    what = (
        f"{location.option}: in the store {location} the {record.table} {printable(record.key)} "
        f"is damaged: {printable(record.why)}"
    )
    return StoreError(
        what,
        "restore the store: agent db restore FILE; or remove the record",
        place=str(location),
        table=record.table,
        key=record.key,
    )


def folder_unusable(folder: Path, error: OSError) -> StoreError:
    """Return the error for a ``[store] path`` that cannot be created, entered, read or written."""
    named = (
        f" ({printable(os.fsdecode(error.filename))})"
        if isinstance(error.filename, str | bytes)
        else ""
    )
    return StoreError(
        f"[store] path {printable(str(folder))}: {error.strerror}{named}",
        _file_remedy(error.errno, "[store] path"),
        place=str(folder),
    )


def _remedy(error: BaseException, location: Location) -> str:
    if isinstance(error, OSError):
        return _file_remedy(error.errno, location.option)
    if isinstance(error, NO_VALUE):
        return REPORT
    return _server_remedy(error) if location.file is None else _sqlite_remedy(error, location)


def _server_remedy(error: BaseException) -> str:
    state = str(getattr(error, "sqlstate", None) or "")
    if not state and any(words in str(error) for words in _NO_ROOM):
        return NO_CONNECTION_LEFT
    return SERVER_REMEDIES.get(state) or SERVER_REMEDIES.get(state[:2]) or CHECK_URL


def _sqlite_remedy(error: BaseException, location: Location) -> str:
    # The low byte is the result code, the rest the extended code.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _SQLITE_REMEDIES:
        return _SQLITE_REMEDIES[code]
    if getattr(error, "sqlite_errorcode", 0) in LOCK_FAILURES:
        return _file_remedy(errno.ENOLCK, location.option)
    return _file_remedy(
        errno.ENOSPC if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) else errno.EACCES,
        location.option,
    )


def _file_remedy(number: int | None, option: str) -> str:
    remedy = next(
        (remedy for numbers, remedy in _FILE_REMEDIES if number in numbers),
        "make it readable and writable for uid {uid}, or point {option} elsewhere",
    )
    return remedy.format(option=option, uid=os.geteuid())
