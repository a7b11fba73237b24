"""Statements that are executed for every claim: compiled once, and handed to SQLite's module
directly, because SQLAlchemy takes ten times as long around such a statement as SQLite within it.
"""

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Executable
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql import ClauseElement

DIALECT = sqlite.dialect(paramstyle="qmark")  # type: ignore[no-untyped-call]


class PreparedStatement:
    """A statement with a fixed text, without lists among its parameters. On a database server,
    where the way to the server takes longer than all else, SQLAlchemy executes it.

    ``columns``: of an insert or update, the names of those that are written.
    """

    def __init__(self, statement: Executable, columns: Sequence[str] | None = None) -> None:
        self.statement, self._columns = statement, columns

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the rows of a query, with an attribute for each column."""
        if connection.dialect.name != DIALECT.name:
            yield from connection.execute(self.statement, values)
            return
        make, convert = self._row
        for found in self._executed(connection, values):
            yield make(
                of_column(value) if of_column else value
                for of_column, value in zip(convert, found, strict=True)
            )

    def count(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Execute a statement that writes, and return the number of rows."""
        if connection.dialect.name != DIALECT.name:
            return connection.execute(self.statement, values).rowcount
        return self._executed(connection, values).rowcount

    def _executed(self, connection: Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        if not connection.in_transaction():
            connection.begin()
        raw = connection.connection.dbapi_connection
        assert raw is not None
        text, names, fixed = self._text
        given = [values[name] if name in values else fixed[name] for name in names]
        found: sqlite3.Cursor = raw.execute(text, given)
        return found

    @cached_property
    def _text(self) -> tuple[str, Sequence[str], Mapping[str, Any]]:
        """The text, the names of its parameters in their order, and the values of those that are
        part of the statement.
        """
        assert isinstance(self.statement, ClauseElement)
        compiled: Any = self.statement.compile(dialect=DIALECT, column_keys=self._columns)
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        return str(compiled), compiled.positiontup or (), fixed

    @cached_property
    def _row(self) -> tuple[Callable[[Iterable[Any]], Any], Sequence[Callable[[Any], Any] | None]]:
        """What makes a row of its values, and the conversion of each column's values, if any."""
        columns = self.statement.selected_columns  # type: ignore[attr-defined]
        convert = [
            column.type.dialect_impl(DIALECT).result_processor(DIALECT, None) for column in columns
        ]
        return namedtuple("Row", columns.keys())._make, convert
