"""Inserts of rows that somebody else may insert at the same time, in each database's dialect."""

from collections.abc import Callable

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

DIALECTS: dict[str, Callable[[Table], postgresql.Insert | sqlite.Insert]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}


def insert_once(connection: Connection, table: Table) -> Insert:
    """Return a statement that inserts a row unless one with its key exists."""
    return DIALECTS[connection.dialect.name](table).on_conflict_do_nothing()


def insert_or_update(connection: Connection, table: Table) -> Insert:
    """Return a statement that inserts a row or replaces the one with its key."""
    statement = DIALECTS[connection.dialect.name](table)
    keys = [column.name for column in table.primary_key]
    values = {
        column.name: statement.excluded[column.name]
        for column in table.c
        if column.name not in keys
    }
    return statement.on_conflict_do_update(index_elements=keys, set_=values)
