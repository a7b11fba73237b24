"""Backups of a store in SQLite: made while the daemon runs, put back while it does not."""

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
from agent.store.failure import damaged, translated
from agent.store.folder import present, sync_file, sync_folder
from agent.store.leftovers import ALL, beside, new_mark, set_aside_orphans, unused_name
from agent.store.location import Location, in_file
from agent.store.snapshot import snapshot
from agent.store.store import Store, usable

SERVERS_OWN = "use the server's own tools, for example pg_dump and pg_restore"


def back_up(folder: Path, location: Location, target: Path) -> None:
    """Copy the store, as it is at one moment, into a file that there was not.

    :raises StoreError: the store cannot be read or is damaged, or the file cannot be made.
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
        with translated(location, "backed up"):
            _copy(folder, location, Path(name))
        _place(Path(name), target)
    finally:
        for one in (Path(name), *(beside(Path(name), suffix) for suffix in ALL)):
            one.unlink(missing_ok=True)


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
        # Its own, because what is written to the store from here on is not of this file.
        copied.execute(f"PRAGMA user_version = {new_mark()}")
    if found != "ok":
        raise damaged(location, str(found))


def _place(finished: Path, target: Path) -> None:
    """Give the finished file its name, which nothing may have."""
    try:
        sync_file(finished)
        # Not by a link, which file systems for backups often lack.
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
    """Put a backup in the store's place. What was there is kept under another name, which is
    returned.

    The caller holds the run lock. ``check`` looks at the backup, opened as the store that it is to
    be.

    :raises StoreError: it is no store of this agent, made by a newer one or damaged, or cannot be
        put there; all is as before.
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
        made = Path(room) / location.file.name
        # Errors are of the file that was named, not of its copy.
        backup = replace(in_file(made, "FILE"), file=source)
        with translated(backup, "read"):
            copied = snapshot(None, backup, partial(sqlite3.connect, made, isolation_level=None))
            if copied is None:
                raise StoreError(
                    f"there is no file {printable(str(source))}",
                    "name a file that agent db backup has made",
                    place=str(source),
                )
            copied.close()
            with Store(usable(backup), backup) as store:
                check(store)
            with closing(sqlite3.connect(made, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
                connection.execute(f"PRAGMA user_version = {new_mark()}")
        with translated(location, "restored"):
            return None if dry_run else _put_in_place(made, location.file)


def _put_in_place(finished: Path, file: Path) -> Path | None:
    """Give the finished file the store's name. After a crash at any moment there is a whole store
    of that name, if there was one before.
    """
    sync_file(finished)
    set_aside_orphans(file)
    before = unused_name(file, "before-restore") if present(file) else None
    if before is not None:
        before.hardlink_to(file)
    finished.replace(file)
    if before is not None:
        # From here on nobody takes them for the new file's, by their marks.
        for suffix in (one for one in ALL if present(beside(file, one))):
            beside(file, suffix).rename(beside(before, suffix))
    sync_folder(file.parent)
    return before
