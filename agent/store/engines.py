"""Database engines: the location of the store (a SQLite file, or a database server's URL), how
connections are made and transactions begin.
"""

import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from agent.errors import StoreError
from agent.model.names import printable

# The folder below [store] path that has nothing but the database. A store of an earlier version is
# directly in [store] path.
FOLDER, FILE_NAME = "database", "store.sqlite"
EXAMPLES = (
    "for example sqlite:////var/lib/agent/store.sqlite or "
    "postgresql://user:password@server/database"
)
SQLITE = ("sqlite", "sqlite+pysqlite")
POSTGRESQL = ("postgresql", "postgresql+psycopg")
# Defaults for options of the URL: a server that is gone is noticed within half a minute, also in
# the middle of a statement.
# https://www.postgresql.org/docs/current/libpq-connect.html
CONNECTIONS = {
    "application_name": "compute-node-agent",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a store."""

    url: URL
    option: str
    """The option that determines the location, for messages."""
    file: Path | None
    """The SQLite file; ``None`` for a database server."""
    former: Path | None = None
    """Where an earlier version had the SQLite file."""
    shown: Path | None = None
    """What messages name instead of the file."""

    def __str__(self) -> str:
        # Other options of the connection are not shown, because a password may be among them.
        shown = {
            name: value
            for name, value in self.url.query.items()
            if name in ("host", "port", "service")
        }
        return printable(
            str(
                self.shown
                or self.file
                or self.url.set(query=shown).render_as_string(hide_password=True)
            )
        )


def locate(folder: Path, connection: str | None) -> Location:
    """Return the location of the store in ``folder``, or at the URL ``connection``.

    :raises StoreError: the URL is malformed, is for an unsupported database, or names a database
        that is not in a file.
    """
    if not connection:
        place = in_file(folder / FOLDER / FILE_NAME, "[store] path")
        return replace(place, former=folder / FILE_NAME)
    try:
        url = make_url(connection)
    except (ArgumentError, ValueError) as error:
        # The URL is not quoted, because it may hold a password.
        raise StoreError("[store] connection is not a database URL", EXAMPLES) from error
    if url.drivername in POSTGRESQL:
        missing = {name: value for name, value in CONNECTIONS.items() if name not in url.query}
        named = url.set(drivername="postgresql+psycopg").update_query_dict(missing)
        return Location(named, "[store] connection", None)
    if url.drivername not in SQLITE:
        raise StoreError(
            (
                f"[store] connection {printable(url.drivername)}: the store can only be in SQLite "
                "or PostgreSQL"
            ),
            EXAMPLES,
        )
    if not url.database or url.database.startswith((":", "file:")):
        raise StoreError(
            f"[store] connection {printable(str(url))}: not the path of a file", EXAMPLES
        )
    return in_file(Path(url.database), "[store] connection")


def in_file(file: Path, option: str) -> Location:
    """Return the location of a SQLite file determined by ``option``."""
    return Location(URL.create("sqlite", database=str(file)), option, file)


BUSY_SECONDS = 10
IDLE_SECONDS = 60


def on_disk(location: Location) -> Engine:
    """Return an engine for the store's location. It connects at its first use."""
    if location.file is None:
        # psycopg is an extra: it is imported only where PostgreSQL is used.
        from agent.store.server_connection import connect

        engine = create_engine(location.url, pool_pre_ping=True)
        event.listen(engine, "do_connect", connect)
        event.listen(engine, "connect", _connected_to_server)
        return engine
    # The last connection that was returned is used first, because each one that is used fills a
    # cache of pages and statements: 3 MiB.
    engine = create_engine(location.url, connect_args={"timeout": BUSY_SECONDS}, pool_use_lifo=True)
    return _prepare(engine)


def reader(engine: Engine) -> Engine:
    """Return an engine for transactions that only read, and see the database at one moment."""
    if engine.dialect.name == "sqlite":
        # SQLite always reads like this.
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def begin(connection: Connection, *, writes: bool) -> None:
    """Begin the transaction of a connection to SQLite; a database server's begins by itself."""
    if connection.dialect.name == "sqlite":
        # SQLite's write lock is taken at the start, because a reader that becomes a writer fails at
        # once if another wrote in between. A database server locks rows on request, and then shows
        # what others wrote during the wait. Not by an event of SQLAlchemy: one that listens costs
        # every statement more than its own work.
        how = "BEGIN IMMEDIATE" if writes else "BEGIN"
        cast(Any, connection.connection.driver_connection).execute(how)


def in_memory(connection: sqlite3.Connection) -> Engine:
    """Return an engine for one open connection, which threads use in turn."""
    return _prepare(
        create_engine(
            "sqlite://",
            creator=lambda: connection,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
        )
    )


def memory() -> sqlite3.Connection:
    """Return an empty database in memory, which is deleted with its connection."""
    return sqlite3.connect(":memory:", check_same_thread=False)


def _connected_to_server(raw: Any, _record: object) -> None:
    # Without this, rows that an agent had locked when its host died would stay locked until the
    # server noticed, which takes hours.
    raw.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'")
    raw.execute(f"SET lock_timeout = '{BUSY_SECONDS}s'")
    raw.commit()


def _prepare(engine: Engine) -> Engine:
    event.listen(engine, "connect", _set_up_connection)
    return engine


def _set_up_connection(raw: Any, _record: object) -> None:
    # Without this, the sqlite3 module begins transactions by itself, later than needed and not
    # around DDL.
    raw.isolation_level = None
    try:
        raw.execute("PRAGMA foreign_keys = ON")
        raw.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        # The pool does not know the connection yet, and would leave it open.
        raw.close()
        raise
