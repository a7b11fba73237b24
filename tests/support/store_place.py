"""A place for a store, in SQLite or PostgreSQL, and what a test does there behind the
store's back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from agent.store import engines
from agent.store.engines import locate
from agent.store.store import Store, open_read_only, open_store


@dataclass(frozen=True)
class Place:
    """``url``: that of the database, None for a file in ``folder``."""

    folder: Path
    url: str | None

    def open(self) -> Store:
        return open_store(self.folder, self.url)

    def open_read_only(self) -> Store:
        return open_read_only(self.folder, self.url)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        made = engines.on_disk(locate(self.folder, self.url))
        yield made
        made.dispose()

    @contextmanager
    def outside(self) -> Iterator[Connection]:
        """A transaction of somebody else's."""
        with self.engine() as engine, engine.begin() as connection:
            yield connection

    def execute(self, statement: str, **values: object) -> None:
        """Do something to the database that no agent would."""
        with self.outside() as connection:
            connection.execute(text(statement), values)

    @contextmanager
    def write_locked(self) -> Iterator[None]:
        """Nobody else can write meanwhile."""
        with self.outside() as connection:
            engines.begin(connection, writes=True)
            if self.url is not None:
                tables = ", ".join(inspect(connection).get_table_names())
                connection.execute(text(f"LOCK TABLE {tables} IN EXCLUSIVE MODE"))
            yield
