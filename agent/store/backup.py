"""Backups of a store in SQLite: made also while the daemon runs, restored while it is stopped."""

import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.errors import StoreError
from agent.model.names import printable
from agent.store.engines import Location, damaged_store, in_file, translate_errors
from agent.store.leftovers import ALL, beside, new_mark, set_aside_orphans, unused_name
from agent.store.lock import present, sync_file, sync_folder
from agent.store.snapshot import snapshot
from agent.store.store import Store, usable

SERVERS_OWN = "use the server's own tools, for example pg_dump and pg_restore"


def back_up(folder: Path, location: Location, target: Path) -> None:
    """Copy the store at one moment into a new file.

    :raises StoreError: the store cannot be read, is damaged or on a database server, or the file
        exists or cannot be created.
    """
    if location.file is None:
        raise StoreError(
            f"{location.option}: the store {location} is on a database server",
            SERVERS_OWN,
            place=str(location),
        )
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(descriptor)
    except OSError as error:
        raise _no_target(target, error) from error
    try:
        with translate_errors(location, "backed up"):
            _copy(folder, location, Path(name))
        _place(Path(name), target)
    finally:
        for path in (Path(name), *(beside(Path(name), suffix) for suffix in ALL)):
            path.unlink(missing_ok=True)


def _copy(folder: Path, location: Location, into: Path) -> None:
    copied = snapshot(folder, location, partial(sqlite3.connect, into, isolation_level=None))
    if copied is None:
        raise StoreError(
            f"{location.option}: there is no store {location} yet",
            "check [store] path and [store] connection",
            place=str(location),
        )
    with closing(copied):
        found = copied.execute("PRAGMA integrity_check(1)").fetchone()[0]
        # A new mark, because later log files of the store do not belong to the copy.
        copied.execute(f"PRAGMA user_version = {new_mark()}")
    if found != "ok":
        raise damaged_store(location, str(found))


def _place(finished: Path, target: Path) -> None:
    """Rename the finished file to ``target``, which must not exist."""
    try:
        sync_file(finished)
        # Without a hard link, because file systems for backups often lack them.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        finished.replace(target)
        sync_folder(target.parent)
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
    """Replace the store by a backup. Return the name under which the previous store is kept.

    The caller holds the run lock.

    :param check: called with the backup, opened as a store, before anything is replaced.
    :raises StoreError: the backup is not a store of this agent, was made by a newer one, is
        damaged, or cannot be put in place; nothing is changed then.
    """
    if location.file is None:
        raise StoreError(
            f"{location.option}: the store {location} is on a database server",
            SERVERS_OWN,
            place=str(location),
        )
    with tempfile.TemporaryDirectory(
        prefix=".restore-", dir=None if dry_run else location.file.parent
    ) as room:
        copy = Path(room) / location.file.name
        # Errors name the given file, not its copy.
        backup = replace(in_file(copy, "FILE"), file=source)
        with translate_errors(backup, "read"):
            copied = snapshot(None, backup, partial(sqlite3.connect, copy, isolation_level=None))
            if copied is None:
                raise StoreError(
                    f"there is no file {printable(str(source))}",
                    "name a file that agent db backup has made",
                    place=str(source),
                )
            copied.close()
            with Store(usable(backup), backup) as store:
                check(store)
            with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
                connection.execute(f"PRAGMA user_version = {new_mark()}")
        with translate_errors(location, "restored"):
            return None if dry_run else _put_in_place(copy, location.file)


def _put_in_place(finished: Path, file: Path) -> Path | None:
    """Give the finished file the store's name.

    After a crash at any moment a complete store has that name, if one had it before.
    """
    sync_file(finished)
    set_aside_orphans(file)
    before = unused_name(file, "before-restore") if present(file) else None
    if before is not None:
        before.hardlink_to(file)
    finished.replace(file)
    if before is not None:
        # Their marks already keep them from being taken for the new file's.
        for suffix in [suffix for suffix in ALL if present(beside(file, suffix))]:
            beside(file, suffix).rename(beside(before, suffix))
    sync_folder(file.parent)
    return before
