"""Turns what SQLAlchemy, SQLite and the file system raise into StoreError, naming the place, the option and a remedy."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from agent.errors import StoreError
from agent.model.names import printable
from agent.store.location import Location

START_EMPTY = "restore it from a backup, or move it away to start with an empty store and take the tree over with agent --once --adopt"


@contextmanager
def translated(location: Location, doing: str) -> Iterator[None]:
    """Raise every failure of the database or its files as :class:`StoreError`. ``doing``: opened, read, written."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        reason = original.strerror if isinstance(original, OSError) else str(original).partition("\n")[0]
        raise StoreError(
            f"{location.option}: the store {location} cannot be {doing}: {printable(reason or type(original).__name__)}",
            _remedy(original, location),
            place=str(location),
        ) from error


def damaged(location: Location, reason: str) -> StoreError:
    """The error for a store whose contents make no sense."""
    return StoreError(f"{location.option}: the store {location} is damaged: {printable(reason)}", START_EMPTY, place=str(location))


def folder_unusable(folder: Path, error: OSError) -> StoreError:
    """The error for a ``[store] path`` that cannot be made, entered, read or written."""
    return StoreError(f"[store] path {printable(str(folder))}: {_cause(error)}", _file_remedy(error.errno, "[store] path"), place=str(folder))


def _cause(error: OSError) -> str:
    named = f" ({printable(os.fsdecode(error.filename))})" if isinstance(error.filename, str | bytes) else ""
    return f"{error.strerror}{named}"


def _remedy(error: BaseException, location: Location) -> str:
    if isinstance(error, OSError):
        return _file_remedy(error.errno, location.option)
    if location.file is None:
        return "check the database and the URL in [store] connection"
    # The low byte is the error, the rest says more of it: https://www.sqlite.org/rescode.html
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
        return START_EMPTY
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process has it open for too long; see agent status"
    return _file_remedy(errno.ENOSPC if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) else errno.EACCES, location.option)


def _file_remedy(number: int | None, option: str) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return f"make room on its file system and check its disk, or point {option} elsewhere; what was saved before is still there"
    if number in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        return f"move the file that is in the way, or point {option} to a folder"
    return f"make it readable and writable for uid {os.geteuid()}, or point {option} elsewhere"
