"""The mapping between frozen dataclasses and rows: the columns of a table follow from the fields of
its dataclass, so that a field is written once, in the model.

Values that no column holds are JSON text.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    Dialect,
    Double,
    ForeignKey,
    MetaData,
    String,
    Text,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator, TypeEngine

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
