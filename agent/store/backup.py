"""Backups of a store in SQLite: made also while the daemon runs, restored while it is stopped."""

import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.errors import StoreError
from agent.model.names import printable
from agent.store.database_file import make_aside, move_logs, set_aside_orphans, snapshot
from agent.store.engines import Location, in_file
from agent.store.lock import prepare, present, sync
from agent.store.store import Store, check_former, usable
from agent.store.store_errors import damaged_store, not_a_file, translate_errors

SERVERS_OWN = "use the server's own tools, for example pg_dump and pg_restore"


def back_up(folder: Path, location: Location, target: Path) -> None:
    """Copy the store at one moment into a new file.

    :raises StoreError: the store cannot be read, is damaged or on a database server, or the file
        exists or cannot be created.
    """
    if location.file is None:
        raise not_a_file(location, SERVERS_OWN)
    check_former(location)
    try:
        room = tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise _no_target(target, error) from error
    with room as name:
        copy = Path(name) / target.name
        with translate_errors(location, "backed up"):
            _copy(folder, location, copy)
        _place(copy, target)


def _copy(folder: Path, location: Location, into: Path) -> None:
    copied = snapshot(folder, location, partial(sqlite3.connect, into))
    if copied is None:
        raise StoreError(
            f"{location.option}: there is no store {location} yet",
            "check [store] path and [store] connection",
            place=str(location),
        )
    with closing(copied):
        found = copied.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise damaged_store(location, str(found))


def _place(finished: Path, target: Path) -> None:
    """Rename the finished file to ``target``, which must not exist."""
    try:
        finished.chmod(0o600)
        sync(finished)
        # Without a hard link, because file systems for backups often lack them.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        finished.replace(target)
        sync(target.parent)
    except OSError as error:
        raise _no_target(target, error) from error


def _no_target(target: Path, error: OSError) -> StoreError:
    remedy = (
        "name a file that there is not"
        if isinstance(error, FileExistsError)
        else "name a file in a folder that there is and that can be written"
    )
    return StoreError(
        f"{printable(str(target))} cannot be made: {error.strerror}", remedy, place=str(target)
    )


def restore(
    location: Location, source: Path, check: Callable[[Store], object], *, dry_run: bool
) -> Path | None:
    """Replace the store by a backup. Return the folder in which the previous store is kept.

    The caller holds the run lock.

    :param check: called with the backup, opened as a store, before anything is replaced.
    :raises StoreError: the backup is not a store of this agent, was made by another version, is
        damaged, or cannot be put in place; nothing is changed then.
    """
    if location.file is None:
        raise not_a_file(location, SERVERS_OWN)
    check_former(location)
    if not dry_run and location.former is not None:
        prepare(location.file.parent)
    with tempfile.TemporaryDirectory(
        prefix=".restore-", dir=None if dry_run else location.file.parent
    ) as room:
        copy = Path(room) / location.file.name
        # Errors name the given file, not its copy.
        backup = replace(in_file(copy, "FILE"), shown=source)
        with translate_errors(backup, "read"):
            copied = snapshot(None, replace(backup, file=source), partial(sqlite3.connect, copy))
            if copied is None:
                raise StoreError(
                    f"there is no file {printable(str(source))}",
                    "name a file that agent db backup has made",
                    place=str(source),
                )
            copied.close()
            with Store(usable(backup), backup) as store:
                check(store)
        with translate_errors(location, "restored"):
            return None if dry_run else _put_in_place(copy, location.file)


def _put_in_place(finished: Path, file: Path) -> Path | None:
    """Give the finished file the store's name.

    After a crash at any moment a complete store has that name, if one had it before, and no log of
    another one is beside it.
    """
    sync(finished)
    set_aside_orphans(file)
    kept = None
    if present(file):
        kept = make_aside(file, "before-restore", file.parent)
        # SQLite moves the contents of the log into the file when its last connection is closed,
        # unless the file is damaged.
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        move_logs(file, kept)
        (kept / file.name).hardlink_to(file)
        sync(kept)
    finished.replace(file)
    sync(file.parent)
    return kept
