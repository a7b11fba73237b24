"""Tables of records with versions, mapped to frozen dataclasses: reading and writing, many records
with one statement.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec.json import Decoder, Encoder
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    Executable,
    ForeignKey,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator, TypeEngine

from agent.errors import RecordConflict
from agent.model.node_records import DamagedRecord

Value = TypeVar("Value")
# Equal texts return the same object, because hundreds of devices share a few.
TEXTS_KEPT = 2048
METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)
_ESCAPED = re.compile(r"\\(.)")


class _WithoutNul(TypeDecorator[str]):
    """A text type that stores the character NUL, which PostgreSQL's text cannot hold."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else value.replace("\\", r"\\").replace("\0", r"\0")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return (
            None
            if value is None
            else _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], value)
        )


UUID = String(36)
SCALARS: Mapping[object, TypeEngine[Any]] = {
    str: Text().with_variant(_WithoutNul(), "postgresql"),
    int: BigInteger(),
    float: Double(),
    bool: Boolean(),
}


class _Column(NamedTuple):
    """One column: its value in the dataclass, its type, and the converters of its values."""

    get: Callable[[Any], Any]
    type: TypeEngine[Any]
    nullable: bool
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Any] | None = None
    words: frozenset[str] = frozenset()
    """The only texts that are allowed, if there are any."""


def quote(words: Collection[str]) -> str:
    """Return the words as a list for SQL."""
    return ", ".join(f"'{word}'" for word in sorted(words))


def _column(path: str, hint: Any) -> _Column:
    """Return the column of a field. ``path``: from the record to its value."""
    nullable = get_origin(hint) in (Union, UnionType)
    if nullable:
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
    get = attrgetter(path)
    if isinstance(hint, NewType):
        return _Column(get, UUID, nullable)
    if hint in SCALARS:
        return _Column(get, SCALARS[hint], nullable)
    if get_origin(hint) is Literal:
        words = frozenset(get_args(hint))
        return _Column(get, String(32), nullable, partial(_one_of, words=words), None, words)
    return _Column(get, Text(), nullable, lru_cache(TEXTS_KEPT)(Decoder(hint).decode), _to_text)


def _one_of(word: Any, words: Collection[str]) -> Any:
    """Return ``word``, which is one of ``words``, those that this agent knows.

    :raises ValueError: it is not.
    """
    if word not in words:
        raise ValueError(f"{word!r} is none of {', '.join(sorted(words))}")
    return word


_ENCODER = Encoder(enc_hook=dict)


def _to_text(value: Any) -> str:
    return _ENCODER.encode(value).decode()


class Mapper(Generic[Value]):
    """The columns of one frozen dataclass, and the conversion of its values to rows and back."""

    def __init__(self, kind: type[Value], spread: Collection[str] = ()) -> None:
        """``spread``: the fields that are dataclasses whose own fields are columns."""
        self._kind = kind
        self._columns: dict[str, _Column] = {}
        self._spread: dict[str, tuple[type, Sequence[str]]] = {}
        hints = get_type_hints(kind)
        for name in (field.name for field in fields(kind)):  # type: ignore[arg-type] # a dataclass
            if name not in spread:
                self._columns[name] = _column(name, hints[name])
                continue
            parts = get_type_hints(hints[name])
            self._spread[name] = hints[name], tuple(parts)
            for part, hint in parts.items():
                self._columns[part] = _column(f"{name}.{part}", hint)
        self._read = [(name, one.read) for name, one in self._columns.items() if one.read]

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns, in the order of a row."""
        return tuple(self._columns)

    def columns(
        self, key: Collection[str] = (), references: Mapping[str, str] | None = None
    ) -> Iterator[SchemaItem]:
        """Yield the columns for a table, and the constraints that allow only known words, so that
        no agent counts a state that it does not know.

        ``references``: the columns that refer to a column of another table.
        """
        for name, one in self._columns.items():
            to = [ForeignKey(references[name])] if references and name in references else []
            yield Column(name, one.type, *to, primary_key=name in key, nullable=one.nullable)
            if one.words:
                yield CheckConstraint(f"{name} IN ({quote(one.words)})", name=name)

    def row(self, value: Value) -> dict[str, Any]:
        """Return the values of all columns."""
        row = {}
        for name, column in self._columns.items():
            held = column.get(value)
            row[name] = column.write(held) if column.write and held is not None else held
        return row

    def value(self, row: Sequence[Any]) -> Value:
        """Return the value of a row, which has all columns in their order.

        :raises ValueError: the row is invalid.
        """
        values = dict(zip(self._columns, row, strict=True))
        for name, read in self._read:
            if values[name] is not None:
                values[name] = read(values[name])
        for name, (kind, parts) in self._spread.items():
            values[name] = kind(**{part: values.pop(part) for part in parts})
        return self._kind(**values)


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
        :class:`~agent.store.record_table.Mapper`.
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
        return self.batch(connection.execute(statement, values or {}))

    def batch(self, rows: Iterable[Sequence[Any]]) -> RecordBatch[Record]:
        """Return the records of these rows, each with the columns of the table in their order."""
        records, damaged, row = [], [], None
        for row in rows:
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

    def _key_text(self, row: Sequence[Any]) -> str:
        return "/".join(str(row[position]) for position in self._positions)
