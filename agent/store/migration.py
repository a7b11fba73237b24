"""The version of the store's schema, and the way to the newest. alembic is loaded only when there is something to do."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, insert, inspect, text
from sqlalchemy.exc import DatabaseError

from agent.errors import StoreError
from agent.store.engines import writer
from agent.store.failure import damaged
from agent.store.location import Location
from agent.store.metadata import METADATA
from agent.store.schema import APPLICATION_ID, VERSION, VERSION_TABLE, VERSIONS

if TYPE_CHECKING:
    from alembic.config import Config


def version(engine: Engine, location: Location) -> str | None:
    """The version of the schema, at most this agent's own; None if there are no tables yet. Changes nothing.

    :raises StoreError: the schema is newer, or the database is somebody else's.
    :raises sqlalchemy.exc.SQLAlchemyError: it cannot be read.
    """
    with engine.connect() as connection:
        if location.file is not None and connection.exec_driver_sql("PRAGMA application_id").scalar() != APPLICATION_ID:
            raise _not_ours(location)
        found = _versions(connection)
        if found is None and location.file is not None:
            raise damaged(location, "it has no schema version")
        if found is None and inspect(connection).get_table_names():
            raise _not_ours(location)
    if not found:
        return None
    if len(found) > 1 or not re.fullmatch(r"\d{4}", found[0]):
        raise damaged(location, f"its schema version is {', '.join(map(repr, found))}")
    if found[0] > VERSION:
        raise StoreError(
            f"{location.option}: the store {location} has schema {found[0]}, made by a newer agent; this one knows {VERSION} and older",
            "install the newer agent again, or move the store away to start with an empty one",
            place=str(location),
        )
    return found[0]


def check_sound(engine: Engine, location: Location) -> None:
    """Look through a SQLite file; about a millisecond a MiB.

    :raises StoreError: it is damaged.
    :raises sqlalchemy.exc.SQLAlchemyError: it cannot be read.
    """
    if location.file is not None:
        with engine.connect() as connection:
            # A record in a state that is unknown here is no reason to refuse the others: it is set aside when it is read.
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
        if found != "ok":
            raise damaged(location, str(found))


def _versions(connection: Connection) -> list[str] | None:
    """What the version table holds, None if there is no such table."""
    stored = text(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608
    try:
        return list(connection.execute(stored).scalars())
    except DatabaseError:
        connection.rollback()
        if not inspect(connection).has_table(VERSION_TABLE):
            return None
        # Another agent made it just now, or it is not the table that is missing: then the failure is raised by this.
        return list(connection.execute(stored).scalars())


def upgrade(engine: Engine) -> None:
    """Bring the schema to the newest version, in one transaction.

    An empty database gets all tables at once, because alembic costs a daemon that starts for the first time 11 MB for good.
    """
    with writer(engine).begin() as connection:
        if connection.dialect.name == "postgresql":
            # Else agents that start at the same time would make the same tables.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": APPLICATION_ID})
        if inspect(connection).has_table(VERSION_TABLE):
            from alembic import command

            command.upgrade(config(connection), "head")
        else:
            METADATA.create_all(connection)
            VERSIONS.create(connection)
            connection.execute(insert(VERSIONS).values(version_num=VERSION))


def config(connection: Connection) -> "Config":
    """alembic's configuration, for a connection with a transaction begun."""
    from alembic.config import Config

    made = Config()
    # A percent sign would be read as the start of a variable.
    made.set_main_option("script_location", str(Path(__file__).parent / "alembic").replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def _not_ours(location: Location) -> StoreError:
    return StoreError(f"{location.option}: {location} is not a store of this agent", f"move it away, or point {location.option} elsewhere", place=str(location))
