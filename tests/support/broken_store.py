"""A store of records that breaks at a chosen moment of a transaction."""

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import Connection, Engine, event

from agent.errors import RecordConflict, StoreError
from agent.model.names import ProviderUuid
from agent.model.node_records import NodeRecords, RecordChanges
from agent.store.reading import RecordReader
from agent.store.record_table import METADATA
from agent.store.records import Records, Transaction
from agent.store.store import Store
from tests.support.crashes import Crash
from tests.support.tracking import Host

Moment = Literal["begin", "write", "second-device", "commit", "answer"]
"""Before anything; before anything is written; when only one of the devices is; before all is durable; after it."""


class BrokenRecords(Records):
    """Sound until :meth:`break_at`."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.moment: Moment | None = None

    def break_at(self, moment: Moment, happens: Callable[[], object]) -> None:
        """At this moment of the next transaction that comes so far ``happens`` is called, once; it
        may raise.
        """
        self.moment, self._happens = moment, happens

    def reading(self) -> AbstractContextManager[RecordReader]:
        return self._records.reading()

    @contextmanager
    def transaction(self, nodes: Collection[ProviderUuid]) -> Iterator[Transaction]:
        self.meet("begin")
        with self._records.transaction(nodes) as real:
            yield _BrokenTransaction(real, self)  # type: ignore[misc]
            self.meet("commit")
        self.meet("answer")

    def meet(self, moment: Moment) -> None:
        if moment == self.moment:
            self.moment = None
            self._happens()


class _BrokenTransaction:
    def __init__(self, real: Transaction, records: BrokenRecords) -> None:
        self._real, self._records = real, records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def write(self, changes: RecordChanges) -> None:
        self._records.meet("write")
        if self._records.moment == "second-device" and len(changes.devices) > 1:
            self._real.write(replace(changes, devices=changes.devices[:1]))
        self._records.meet("second-device")
        self._real.write(changes)


def breakable(host: Host) -> BrokenRecords:
    """Start the host's agent anew, on a store that can be broken."""
    records = host.records = BrokenRecords(host.records)
    host.restart()
    host.audit(start=True)
    return records


def fail() -> None:
    """What a store does that cannot write."""
    raise StoreError("the disk is full", "make room")


# ---
# A store in which one write goes wrong: before any of its statements, before its commit, or after
# it.


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

    def write(self, write: Any, item: Any) -> None:
        with self.writing() as connection:
            write(connection, [item])

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


# ---
# Records that fail on purpose: a commit that does not come through, a reading that is
# out of date.


class UnsoundRecords(Records):
    """``failures``: so many of the next transactions are undone with an error at their end.

    ``outdated``: what the next transactions see of their node instead of what there is, as if it
    changed after they read it.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.failures = 0
        self.outdated: list[NodeRecords] = []

    @contextmanager
    def transaction(self, nodes: Collection[ProviderUuid]) -> Iterator[Transaction]:
        with super().transaction(nodes) as transaction:
            if self.outdated:
                old = self.outdated.pop(0)
                transaction.load = lambda node: old  # type: ignore[method-assign]
            yield transaction
            if self.failures:
                self.failures -= 1
                raise StoreError("the disk is full", "make room")


# ---
# What is asked of a database, counted: cost without a clock, because a clock measures the machine
# too.


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that are sent to any database inside, and the ends of the store's transactions
    that write, in a list that grows.
    """
    sent: list[str] = []

    def keep(*executed: Any) -> None:
        sent.append(executed[2])

    def commit(connection: Connection) -> None:
        # Without those of a Placement in this process, whose database is in memory.
        if connection.engine.url.database:
            sent.append("COMMIT")

    event.listen(Engine, "before_cursor_execute", keep)
    event.listen(Engine, "commit", commit)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", keep)
        event.remove(Engine, "commit", commit)


@contextmanager
def failing(*beginnings: str, after: int) -> Iterator[list[str]]:
    """The disk fails at the statements that begin so, once it has taken ``after`` of them; in the
    list is what failed.
    """
    failed: list[str] = []
    taken = 0

    def meet(*executed: Any) -> None:
        nonlocal taken
        if executed[2].startswith(beginnings):
            if taken >= after:
                failed.append(executed[2])
                raise sqlite3.OperationalError("disk I/O error")
            taken += 1

    event.listen(Engine, "before_cursor_execute", meet)
    try:
        yield failed
    finally:
        event.remove(Engine, "before_cursor_execute", meet)
