"""A store in which one write goes wrong: before any of its statements, before its commit, or after
it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection

from agent.errors import RecordConflict, StoreError
from agent.store.record_table import METADATA
from agent.store.store import Store
from tests.support.crash import Crash

Kind = Literal["crash", "failure", "conflict"]
AFTER_COMMIT = -1
KINDS = {
    "crash": Crash,
    "failure": lambda: StoreError("the disk is gone", "bring it back"),
    "conflict": lambda: RecordConflict("somebody was faster"),
}


@dataclass
class Fault:
    """What happens to the next write: ``kind`` before its statement number ``at``, but before its
    commit at the latest, or after its commit. ``struck``: it has happened.

    A ``crash`` is the end of the process, a ``failure`` an error that it survives, a ``conflict``
    another writer.
    """

    kind: Kind
    at: int
    struck: bool = False

    @property
    def committed(self) -> bool:
        """Whether what was written before it is there."""
        return self.struck and self.at == AFTER_COMMIT

    def strike(self) -> None:
        """Let it happen."""
        self.struck = True
        raise KINDS[self.kind]()


class FaultyStore:
    """As ``store``, but for ``fault``, which happens once; None if nothing does."""

    def __init__(self, store: Store) -> None:
        self._store, self.location = store, store.location
        self.fault: Fault | None = None

    def reading(self) -> AbstractContextManager[Connection]:
        return self._store.reading()

    @contextmanager
    def writing(self) -> Iterator[Any]:
        fault, written = self.fault, 0
        with self._store.writing() as connection:
            counting = _Counting(connection, fault)
            yield counting
            written = counting.written
            if fault is not None and fault.at != AFTER_COMMIT and written and not fault.struck:
                fault.strike()
        if fault is not None and written and not fault.struck:
            fault.strike()

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables."""
        with self._store.reading() as connection:
            return {
                table.name: [
                    tuple(row)
                    for row in connection.execute(table.select().order_by(*table.primary_key))
                ]
                for table in METADATA.sorted_tables
            }

    def empty(self) -> None:
        """Remove all rows."""
        with self._store.writing() as connection:
            for table in reversed(METADATA.sorted_tables):
                connection.execute(table.delete())


class _Counting:
    """A connection that counts the statements that write."""

    def __init__(self, connection: Connection, fault: Fault | None) -> None:
        self._connection, self._fault, self.written = connection, fault, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: Any, *values: Any) -> Any:
        if statement.is_dml:
            fault = self._fault
            if fault is not None and fault.at == self.written and not fault.struck:
                fault.strike()
            self.written += 1
        return self._connection.execute(statement, *values)
