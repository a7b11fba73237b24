"""A database that is full, that can only be read, or that fails once: real errors of SQLite and
PostgreSQL, for whoever has the store open.
"""

import sqlite3
from typing import Any, Literal

from sqlalchemy import Connection, event

from agent.store.store import Store

Kind = Literal["full", "read-only"]
KINDS: tuple[Kind, ...] = ("full", "read-only")
NO_LIMIT = 2**30
DML = ("INSERT", "UPDATE", "DELETE")


class DatabaseTrouble:
    """``kind``: what every write meets from now on. ``at``: the statement that fails, once, counted
    from 0 from when it was set; reads count too. ``hits``: how often something failed.
    """

    def __init__(self) -> None:
        self.kind: Kind | None = None
        self.at: int | None = None
        self.hits = 0

    def attach(self, store: Store) -> None:
        """Be the trouble of an open store, which keeps it until it is closed."""
        engine = store._engine
        self._sqlite = engine.dialect.name == "sqlite"
        if self._sqlite:
            event.listen(engine, "checkout", self._taken)
        else:
            event.listen(engine, "begin", self._begins)
        for name in ("do_execute", "do_executemany", "do_execute_no_params"):
            event.listen(engine, name, self._executes)

    def _taken(self, raw: Any, *_more: object) -> None:
        # SQLite itself makes it as many pages as there are at least.
        raw.execute(f"PRAGMA max_page_count = {1 if self.kind == 'full' else NO_LIMIT}")
        raw.execute(f"PRAGMA query_only = {'ON' if self.kind == 'read-only' else 'OFF'}")

    def _begins(self, connection: Connection) -> None:
        if self.kind == "read-only":
            raw: Any = connection.connection.dbapi_connection
            raw.execute("SET TRANSACTION READ ONLY")

    def _executes(self, _cursor: object, statement: str, *_more: object) -> None:
        if self.at is not None:
            self.at -= 1
            if self.at < 0:
                self.at = None
                self._fails("disk I/O error", sqlite3.SQLITE_IOERR, "IoError")
        if self.kind == "full" and not self._sqlite and statement.lstrip().startswith(DML):
            self._fails("no space left on device", sqlite3.SQLITE_FULL, "DiskFull")

    def _fails(self, message: str, number: int, name: str) -> None:
        self.hits += 1
        if self._sqlite:
            error = sqlite3.OperationalError(message)
            error.sqlite_errorcode = number
            raise error
        import psycopg

        raise getattr(psycopg.errors, name)(message)
