"""The store: a database with the mirror, the ownership journal and the node's identity."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine, delete, false, insert, select
from sqlalchemy.exc import NoSuchModuleError

from agent.deadline import held
from agent.errors import StoreError
from agent.model.mirror import Journal, PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid
from agent.store import engines, journal_rows, leftovers, lock, mirror_rows
from agent.store.engines import Location, damaged_store, locate, translate_errors
from agent.store.migration import check_sound, upgrade, version
from agent.store.open_file import OpenFile
from agent.store.schema import APPLICATION_ID, IDENTITY, VERSION
from agent.store.snapshot import snapshot

Loaded = TypeVar("Loaded")


class Store:
    """An open store, which threads may share. Its user holds the run lock, unless the store is
    read-only.
    """

    def __init__(
        self,
        engine: Engine,
        location: Location,
        read_only: bool = False,
        file: OpenFile | None = None,
    ) -> None:
        self._engine, self._file = engine, file
        self._reader, self._writer = engines.reader(engine), engines.writer(engine)
        # Threads wait here, because SQLite's own wait is by sleeping and not fair.
        self._queue = threading.Lock() if location.file is not None else None
        self._read_only = read_only
        self.location = location
        # The contents of the database as far as they were loaded or saved: nobody else writes it
        # while the run lock is held.
        self._capabilities: dict[str, ServerCapabilities] = {}
        self._journals: dict[ProviderUuid, Journal] = {}

    def capabilities(self, endpoint: str) -> ServerCapabilities | None:
        """Return the saved capabilities of a server, ``None`` if it was never asked."""
        found = self._load(lambda connection: mirror_rows.load_capabilities(connection, endpoint))
        if found is not None:
            self._capabilities[endpoint] = found
        return found

    def save_capabilities(self, capabilities: ServerCapabilities) -> None:
        """Save the capabilities of a server, unless they are equal to the saved ones."""
        if self._capabilities.get(capabilities.endpoint) == capabilities:
            return
        with self.writing() as connection:
            mirror_rows.save_capabilities(connection, capabilities)
        self._capabilities[capabilities.endpoint] = capabilities

    def view(self, endpoint: str, root: ProviderUuid) -> PlacementView | None:
        """Return the saved view of a node, ``None`` if there is none."""
        return self._load(lambda connection: mirror_rows.load_view(connection, endpoint, root))

    def views(self) -> list[tuple[str, ProviderUuid]]:
        """Return the server's endpoint and the node's root of every saved view."""
        return self._load(mirror_rows.list_views)

    def save_view(
        self, endpoint: str, root: ProviderUuid, old: PlacementView | None, new: PlacementView
    ) -> None:
        """Save a view; only what differs from ``old``, the view saved before, is written."""
        if old is not None and not mirror_rows.view_differs(old, new):
            return
        with self.writing() as connection:
            mirror_rows.save_view(connection, endpoint, root, old, new)

    def journal(self, root: ProviderUuid) -> Journal:
        """Return the journal of a node, empty if there is none."""
        self._journals[root] = found = self._load(
            lambda connection: journal_rows.load(connection, root)
        )
        return found

    def roots(self, host: str) -> frozenset[ProviderUuid]:
        """Return the nodes whose journal is not empty, without those that are recorded as another
        host's.
        """
        return self._load(lambda connection: journal_rows.roots(connection, host))

    def save_journal(self, root: ProviderUuid, journal: Journal) -> Journal:
        """Save a journal, writing only what differs from the saved one. Return it as saved.

        :raises RecordConflict: the journal is based on an older version than the saved one.
        """
        old = self._journals.get(root)
        if old is None or old.version != journal.version:
            old = self.journal(root)
        if old == journal:
            return old
        if old.version != journal.version:
            raise journal_rows.journal_conflict(root)
        # Not cached until the end, because a commit that failed may have been applied.
        self._journals.pop(root, None)
        with self.writing() as connection:
            journal_rows.save(connection, root, old, journal)
        self._journals[root] = kept = replace(journal, version=old.version + 1)
        return kept

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
            if self._file is not None:
                self._file.close()

    def __enter__(self) -> Self:
        return self

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
        with translate_errors(self.location, "written"), self._turn():
            self._check_file()
            with self._writer.begin() as connection:
                yield connection
            # Again, because the write may have gone to a file that was moved away meanwhile.
            self._check_file()

    def _turn(self) -> AbstractContextManager[object]:
        return nullcontext() if self._queue is None else held(self._queue, f"the store {self}")

    def check_writable(self) -> None:
        """Check that the store can be written, by a minimal write.

        :raises StoreError: it cannot.
        """
        with translate_errors(self.location, "written"):
            if self._file is not None:
                self._file.check_room()
        with self.writing() as connection:
            if self._file is not None:
                self._file.mark(connection)
            else:
                connection.execute(delete(IDENTITY).where(false()))

    def _check_file(self) -> None:
        if self._file is not None:
            self._file.check()


def open_store(path: Path, connection: str | None = None) -> Store:
    """Open the store in the folder ``path``, or at the database URL ``connection``; it is created
    or upgraded if needed.

    The caller holds the folder's run lock.

    :raises StoreError: the store cannot be opened, belongs to somebody else, is damaged, or was
        made by a newer agent; it is left unchanged.
    """
    location = locate(path, connection)
    lock.prepare(path)
    with translate_errors(location, "opened"):
        if location.file is None:
            return Store(usable(location), location)
        leftovers.set_aside_orphans(location.file)
        if lock.present(location.file) is None:
            _create(location, location.file)
        return _open(location)


def open_read_only(path: Path, connection: str | None = None) -> Store:
    """Open the store for reading only: nothing is created, no byte of the folder changes. A store
    that does not exist is empty.

    :raises StoreError: as for :func:`open_store`; and on a database server, for an older schema.
    """
    location = locate(path, connection)
    with translate_errors(location, "read"):
        if location.file is None:
            return _served_read_only(location)
        copied = snapshot(path, location)
        if copied is None:
            return _empty(location)
        return Store(_usable(engines.in_memory(copied), location), location, read_only=True)


def _open(location: Location) -> Store:
    """Open the store in an existing file."""
    opened = OpenFile(location)
    try:
        engine = usable(location)
        try:
            opened.begin(engine)
        except BaseException:
            engine.dispose()
            raise
    except BaseException:
        opened.close()
        raise
    return Store(engine, location, file=opened)


def usable(location: Location) -> Engine:
    """Return the engine of a database after checking that it is a sound store, and upgrading it.

    :raises StoreError: the database belongs to somebody else, is damaged, or was made by a newer
        agent.
    """
    return _usable(_engine(location), location)


def _usable(engine: Engine, location: Location) -> Engine:
    """Return ``engine`` after checking that its database is a sound store, and upgrading it."""
    try:
        found = version(engine, location)
        check_sound(engine, location)
        if found != VERSION:
            upgrade(engine, location)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _empty(location: Location) -> Store:
    engine = engines.in_memory(engines.memory())
    upgrade(engine)
    return Store(engine, location, read_only=True)


def _served_read_only(location: Location) -> Store:
    engine = _engine(location)
    try:
        found = version(engine, location)
    finally:
        # Also after a failure; the returned store opens its own connections.
        engine.dispose()
    if found is None:
        return _empty(location)
    if found != VERSION:
        raise StoreError(
            f"{location.option}: the store {location} has an older schema",
            "run agent db upgrade",
            place=str(location),
        )
    return Store(engine, location, read_only=True)


def _engine(location: Location) -> Engine:
    try:
        return engines.on_disk(location)
    except (NoSuchModuleError, ImportError) as error:
        raise StoreError(
            f"[store] connection {location}: {error}",
            "pip install 'compute-node-agent[postgresql]'",
        ) from error


def _create(location: Location, file: Path) -> None:
    """Create the file under another name first, so that a file with the final name is always a
    complete store.
    """
    unfinished = file.with_name(f"{file.name}.new")
    for leftover in (
        unfinished,
        *(leftovers.beside(unfinished, suffix) for suffix in leftovers.ALL),
    ):
        leftover.unlink(missing_ok=True)
    engine = engines.on_disk(
        Location(location.url.set(database=str(unfinished)), location.option, unfinished)
    )
    try:
        upgrade(engine)
    finally:
        engine.dispose()
    # When the last connection is closed no other file is left beside this one.
    with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
    lock.place(unfinished, file)
