"""Tables of records with versions: reading and writing, many records with one statement."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    Connection,
    Executable,
    Row,
    Table,
    bindparam,
    delete,
    insert,
    select,
    tuple_,
    update,
)

from agent.errors import RecordConflict
from agent.model.node_records import DamagedRecord
from agent.store.mapping import METADATA, Mapper


class Versioned(Protocol):
    """A record with a version."""

    @property
    def version(self) -> int:
        """The version; 0 before the record is written for the first time."""


Record = TypeVar("Record", bound=Versioned)
Values = Mapping[str, Any]
# The errors that invalid rows cause in the functions that convert them.
NONSENSE = (ValueError, TypeError, KeyError, AttributeError)


class RecordBatch(NamedTuple, Generic[Record]):
    """The valid and the invalid records that a statement found."""

    records: tuple[Record, ...]
    """The valid records."""
    damaged: tuple[DamagedRecord, ...] = ()
    last: str = ""
    """The key of the last row, which is the marker for the next page."""


class RecordTable(Generic[Record]):
    """A table of the versioned records of one dataclass."""

    def __init__(
        self,
        name: str,
        kind: type[Record],
        *checks: CheckConstraint,
        key: Sequence[str],
        references: Mapping[str, str] | None = None,
        not_negative: Collection[str] = (),
        spread: Collection[str] = (),
    ) -> None:
        """``key``: the columns of the primary key. ``references``, ``spread``: see
        :class:`~agent.store.mapping.Mapper`.
        """
        self._mapper = Mapper(kind, spread)
        bounds = [CheckConstraint(f"{column} >= 0", name=column) for column in not_negative]
        columns = self._mapper.columns(key, references)
        self.table = table = Table(name, METADATA, *columns, *bounds, *checks)
        self._keys = [table.c[column] for column in key]
        self._positions = [self._mapper.names.index(column) for column in key]
        # The parameters of the key in a condition, apart from those of the values to write.
        self._parameters = [f"the_{column}" for column in key]
        same = [
            column == bindparam(parameter)
            for column, parameter in zip(self._keys, self._parameters, strict=True)
        ]
        expected = table.c.version == bindparam("expected")
        # Built once, because building a statement costs more than executing it.
        self._insert, self._update, self._delete = (
            insert(table),
            update(table).where(*same, expected),
            delete(table).where(*same, expected),
        )
        self.all = select(*table.c)
        self.one = self.all.where(self._keys[0] == bindparam("key"))
        """The record of a key of one column."""

    def read(
        self, connection: Connection, statement: Executable, values: Values | None = None
    ) -> RecordBatch[Record]:
        """Return the records that a statement based on :attr:`all` finds."""
        records, damaged, row = [], [], None
        for row in connection.execute(statement, values or {}):
            try:
                records.append(self._mapper.value(row))
            except NONSENSE as error:
                why = f"{type(error).__name__}: {error}"
                damaged.append(DamagedRecord(self.table.name, self._key_text(row), why))
        last = "" if row is None else self._key_text(row)
        return RecordBatch(tuple(records), tuple(damaged), last)

    def page(
        self, connection: Connection, marker: str, limit: int, *conditions: ColumnElement[bool]
    ) -> RecordBatch[Record]:
        """Return at most ``limit`` records that meet the conditions, in the order of their keys,
        after the key ``marker``.
        """
        keys, parts = self._keys, marker.split("/", len(self._keys) - 1)
        after = tuple_(*keys) > tuple_(*parts, *[""] * (len(keys) - len(parts)))
        return self.read(
            connection, self.all.where(after, *conditions).order_by(*keys).limit(limit)
        )

    def write(self, connection: Connection, records: Iterable[Record]) -> None:
        """Insert records with version 0, update the others; each has the next version afterwards.

        :raises RecordConflict: somebody else wrote one of them meanwhile.
        """
        # In the same order everywhere, so that two writers do not deadlock.
        ordered = sorted(records, key=self._key)
        new = [
            {**self._mapper.row(record), "version": 1} for record in ordered if record.version == 0
        ]
        old = [record for record in ordered if record.version]
        if new:
            connection.execute(self._insert, new)
        if old:
            self._execute_guarded(
                connection, self._update, [self._update_values(record) for record in old]
            )

    def delete(self, connection: Connection, records: Sequence[Record]) -> None:
        """Delete records.

        :raises RecordConflict: somebody else wrote or deleted one of them meanwhile.
        """
        if records:
            ordered = sorted(records, key=self._key)
            guards = [self._guard_values(record) for record in ordered]
            self._execute_guarded(connection, self._delete, guards)

    def _execute_guarded(
        self, connection: Connection, statement: Executable, values: Sequence[Values]
    ) -> None:
        if connection.execute(statement, values).rowcount != len(values):
            raise RecordConflict(
                f"a record of {self.table.name} was changed by somebody else meanwhile",
                table=self.table.name,
            )

    def _key(self, record: Record) -> tuple[str, ...]:
        return tuple(getattr(record, column.name) for column in self._keys)

    def _guard_values(self, record: Record) -> dict[str, Any]:
        key = zip(self._parameters, self._key(record), strict=True)
        return {**dict(key), "expected": record.version}

    def _update_values(self, record: Record) -> dict[str, Any]:
        row = self._mapper.row(record)
        for column in self._keys:
            del row[column.name]
        return {**row, **self._guard_values(record), "version": record.version + 1}

    def _key_text(self, row: Row[Any]) -> str:
        return "/".join(str(row[position]) for position in self._positions)
