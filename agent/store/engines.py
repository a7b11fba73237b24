"""Database engines: how connections are made and transactions begin."""

import sqlite3
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from agent.store.location import Location

BUSY_SECONDS = 10
IDLE_SECONDS = 60


def on_disk(location: Location) -> Engine:
    """Return an engine for the store's location. It connects at its first use."""
    if location.file is None:
        from agent.store.server_connection import connect

        engine = create_engine(location.url, pool_pre_ping=True)
        event.listen(engine, "do_connect", connect)
        event.listen(engine, "connect", _connected_to_server)
        return engine
    engine = create_engine(location.url, connect_args={"timeout": BUSY_SECONDS})
    return _prepare(engine)


def reader(engine: Engine) -> Engine:
    """Return an engine for transactions that only read, and see the database at one moment."""
    if engine.dialect.name == "sqlite":
        # SQLite always reads like this.
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def writer(engine: Engine) -> Engine:
    """Return an engine for transactions that write."""
    # SQLite's write lock is taken at the start, because a reader that becomes a writer fails at
    # once if another wrote in between. A database server locks rows on request, and then shows what
    # others wrote during the wait.
    return engine.execution_options(begin="BEGIN IMMEDIATE")


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
    event.listen(engine, "begin", _begun)
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


def _begun(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
