"""The store: a database with the mirror, the ownership journal and the node's identity."""

import shutil
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, delete, false, insert, select, update
from sqlalchemy.exc import NoSuchModuleError

from agent.deadline import held
from agent.errors import StoreError
from agent.model.mirror import Journal, PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid, printable
from agent.model.report import LastFound
from agent.store import database_file, engines, lock, placement_rows
from agent.store.engines import Location, locate
from agent.store.store_errors import SET_ASIDE, damaged_store, translate_errors
from agent.store.tables import (
    APPLICATION_ID,
    IDENTITY,
    VERSIONS,
    check_sound,
    create_tables,
    has_tables,
)
from agent.version import pip_install

Loaded = TypeVar("Loaded")
Item = TypeVar("Item")
Write = Callable[[Connection, Sequence[Item]], None]
"""Writes all items at once. Equal functions write the same kind of items."""
MOVED = (
    "restart the agent, and put another store in its place only while it is stopped: agent db "
    "restore FILE"
)


class Store(AbstractContextManager["Store"]):
    """An open store, which threads may share. Its user holds the run lock, unless the store is
    read-only.
    """

    def __init__(self, engine: Engine, location: Location, read_only: bool = False) -> None:
        self._engine = engine
        # The file that was opened, None if there is none.
        self._file = None if read_only else location.file
        self._place = database_file.place_of(self._file) if self._file is not None else None
        self._reader = engines.reader(engine)
        # Threads wait here, because SQLite's own wait is by sleeping and not fair.
        self._queue = threading.Lock() if location.file is not None else None
        self._read_only = read_only
        # What this thread gathers, see :meth:`together`.
        self._gathered = threading.local()
        self.location = location

    def capabilities(self, endpoint: str) -> ServerCapabilities | None:
        """Return the saved capabilities of a server, ``None`` if it was never asked."""
        return self._load(lambda connection: placement_rows.load_capabilities(connection, endpoint))

    def save_capabilities(self, capabilities: ServerCapabilities) -> None:
        """Save the capabilities of a server, unless they are equal to the saved ones."""
        if self.capabilities(capabilities.endpoint) != capabilities:
            with self.writing() as connection:
                placement_rows.save_capabilities(connection, capabilities)

    def view(self, endpoint: str, root: ProviderUuid) -> PlacementView | None:
        """Return the saved view of a node, ``None`` if there is none."""
        return self._load(lambda connection: placement_rows.load_view(connection, endpoint, root))

    def views(self) -> list[tuple[str, ProviderUuid]]:
        """Return the server's endpoint and the node's root of every saved view."""
        return self._load(placement_rows.list_views)

    def save_view(
        self, endpoint: str, root: ProviderUuid, old: PlacementView | None, new: PlacementView
    ) -> None:
        """Save a view; nothing is written if ``old``, the view saved before, is equal."""
        if old is not None and not placement_rows.view_differs(old, new):
            return
        self.write(placement_rows.save_views, (endpoint, root, new))

    def journal(self, root: ProviderUuid) -> Journal:
        """Return the journal of a node, empty if there is none."""
        return self._load(lambda connection: placement_rows.load_journal(connection, root))

    def roots(self, host: str) -> frozenset[ProviderUuid]:
        """Return the nodes whose journal is not empty, without those that are recorded as another
        host's.
        """
        return self._load(lambda connection: placement_rows.roots(connection, host))

    def save_journal(self, root: ProviderUuid, journal: Journal) -> Journal:
        """Save a journal. Return it as saved.

        :raises RecordConflict: the journal is based on an older version than the saved one.
        """
        self.write(placement_rows.save_journals, (root, journal))
        return replace(journal, version=journal.version + 1)

    def last_found(self, host: str) -> list[LastFound]:
        """Return what the last audits of a host's nodes found."""
        return self._load(lambda connection: placement_rows.load_found(connection, host))

    def save_found(self, host: str, found: Sequence[LastFound], gone: Collection[str]) -> None:
        """Save what the last audits of nodes of a host found, and forget the nodes ``gone``."""
        with self.writing() as connection:
            placement_rows.save_found(connection, host, found, gone)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write what this thread saves inside in one transaction at the end: see :meth:`write`.

        :raises RecordConflict: another agent wrote some of it; none is written.
        :raises StoreError: the store cannot be written.
        """
        gathered: dict[Write[Any], list[Any]] = {}
        self._gathered.items = gathered
        try:
            yield
        finally:
            self._gathered.items = None
        if gathered:
            with self.writing() as connection:
                for write, items in gathered.items():
                    write(connection, items)

    def write(self, write: Write[Item], item: Item) -> None:
        """Have ``write`` write ``item``, with others of its kind if this thread gathers them.

        :raises RecordConflict: another agent wrote it meanwhile.
        :raises StoreError: the store cannot be written.
        """
        gathered = getattr(self._gathered, "items", None)
        if gathered is not None:
            gathered.setdefault(write, []).append(item)
            return
        with self.writing() as connection:
            write(connection, [item])

    def identity(self, host: str) -> ProviderUuid | None:
        """Return the uuid that the host's only node had when the store was last used, ``None`` if
        there is none yet.
        """
        return self._load(
            lambda connection: connection.scalar(
                select(IDENTITY.c.uuid).where(IDENTITY.c.host == host)
            )
        )

    def save_identity(self, host: str, uuid: ProviderUuid) -> None:
        """Save the identity of a host, in place of an older one."""
        with self.writing() as connection:
            connection.execute(delete(IDENTITY).where(IDENTITY.c.host == host))
            connection.execute(insert(IDENTITY), {"host": host, "uuid": uuid})

    def close(self) -> None:
        """Close the database."""
        with translate_errors(self.location, "closed"):
            self._engine.dispose()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self.location)

    def _load(self, load: Callable[[Connection], Loaded]) -> Loaded:
        try:
            with self.reading() as connection:
                return load(connection)
        except (ValueError, TypeError) as error:
            raise damaged_store(self.location, str(error)) from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a connection that shows the database at one moment.

        :raises StoreError: the store cannot be read.
        """
        with translate_errors(self.location, "read"):
            self._check_file()
            with self._reader.connect() as connection:
                engines.begin(connection, writes=False)
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a connection in a write transaction.

        The transaction is durable once the context has ended; an exception rolls it back.
        Contexts must not be nested.

        :raises RecordConflict: somebody else wrote first.
        :raises StoreError: the store cannot be written.
        """
        if self._read_only:
            raise StoreError(
                f"the store {self} is open to be read only",
                "run without --dry-run and --offline to write",
            )
        turn = nullcontext() if self._queue is None else held(self._queue, f"the store {self}")
        with translate_errors(self.location, "written"), turn:
            self._check_file()
            with self._engine.begin() as connection:
                engines.begin(connection, writes=True)
                yield connection
            # Again, because the write may have gone to a file that was moved away meanwhile.
            self._check_file()

    def check_writable(self) -> None:
        """Check that the store can be written, by a minimal write.

        :raises StoreError: it cannot.
        """
        if self._file is not None:
            with translate_errors(self.location, "written"):
                database_file.check_room(self._file)
            minimal = update(VERSIONS).values(version_num=VERSIONS.c.version_num)
        with self.writing() as connection:
            # Hosts that share a database must not wait for each other here.
            nothing = delete(IDENTITY).where(false())
            connection.execute(nothing if self._file is None else minimal)

    def _check_file(self) -> None:
        """Check that the opened file still stands at its path, because writes to a file that was
        moved away would be lost.

        :raises StoreError: it was moved, removed or replaced.
        """
        if self._file is not None and database_file.place_of(self._file) != self._place:
            raise StoreError(
                f"{self.location.option}: the store {self} cannot be used: it was moved, removed "
                "or replaced while the agent runs",
                MOVED,
                place=str(self),
            )


def open_store(path: Path, connection: str | None = None) -> Store:
    """Open the store in the folder ``path``, or at the database URL ``connection``; it is created
    if needed.

    The caller holds the folder's run lock.

    :raises StoreError: the store cannot be opened, belongs to somebody else, is damaged, or was
        made by another version of the agent; it is left unchanged.
    """
    location = locate(path, connection)
    lock.prepare(path)
    with translate_errors(location, "opened"):
        if location.file is not None:
            check_former(location)
            if location.former is not None:
                lock.prepare(location.file.parent)
            database_file.set_aside_orphans(location.file)
            if lock.present(location.file) is None:
                _create(location, location.file)
        return Store(usable(location), location)


def open_read_only(path: Path, connection: str | None = None) -> Store:
    """Open the store for reading only: nothing is created, no byte of the folder changes. A store
    that does not exist is empty.

    :raises StoreError: as for :func:`open_store`.
    """
    location = locate(path, connection)
    with translate_errors(location, "read"):
        if location.file is None:
            engine = _engine(location)
            found = _is_ours(engine, location)
        else:
            check_former(location)
            copied = database_file.snapshot(path, location)
            engine = engines.in_memory(copied or engines.memory())
            found = copied is not None and _is_ours(engine, location)
        if not found:
            engine = engines.in_memory(engines.memory())
            create_tables(engine)
        return Store(engine, location, read_only=True)


def check_former(location: Location) -> None:
    """Check that no earlier version left its store, which would be forgotten silently.

    :raises StoreError: there is one.
    """
    former = location.former
    if former is not None and lock.present(former) is not None:
        raise StoreError(
            f"{location.option}: {printable(str(former))} is the store of an earlier agent, which "
            "this one does not read",
            f"install that agent again, or {SET_ASIDE}",
            place=str(former),
        )


def usable(location: Location) -> Engine:
    """Return the engine of a database after checking that it is a sound store; tables are created
    in an empty one on a server.

    :raises StoreError: the database belongs to somebody else, is damaged, or was made by another
        version of the agent.
    """
    engine = _engine(location)
    try:
        if not _is_ours(engine, location):
            create_tables(engine, location)
        if location.file is not None:
            # A copy that was made with other tools may be in another journal mode. Not before it
            # is known whose file it is.
            with closing(engine.raw_connection()) as raw:
                raw.cursor().execute("PRAGMA journal_mode = WAL").close()
    except BaseException:
        engine.dispose()
        raise
    return engine


def _is_ours(engine: Engine, location: Location) -> bool:
    """Return whether the database is a sound store; false: it is empty."""
    try:
        found = has_tables(engine, location)
        check_sound(engine, location)
    except BaseException:
        engine.dispose()
        raise
    if not found:
        engine.dispose()
    return found


def _engine(location: Location) -> Engine:
    try:
        return engines.on_disk(location)
    except (NoSuchModuleError, ImportError) as error:
        raise StoreError(
            f"[store] connection {location}: {error}",
            f"install its driver: {pip_install('postgresql')}",
        ) from error


def _create(location: Location, file: Path) -> None:
    """Create the file in another folder first, so that a file with the final name is always a
    complete store.
    """
    room = file.parent / f".{file.name}.new"
    shutil.rmtree(room, ignore_errors=True)
    room.mkdir(mode=0o700)
    unfinished = room / file.name
    engine = engines.on_disk(
        Location(location.url.set(database=str(unfinished)), location.option, unfinished)
    )
    try:
        create_tables(engine)
    finally:
        engine.dispose()
    with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    lock.place(unfinished, file)
    room.rmdir()
