"""The schema of a database: whether it is this agent's, and its creation. There is no upgrade."""

import re

from sqlalchemy import Connection, Engine, insert, inspect, select, text

from agent.errors import StoreError
from agent.store.engines import BUSY_SECONDS, Location, writer
from agent.store.mapping import METADATA
from agent.store.store_errors import damaged_store, other_schema
from agent.store.tables import APPLICATION_ID, VERSION, VERSIONS

CREATION_SECONDS = 120
"""How long an agent waits for another one that creates the tables."""


def has_tables(engine: Engine, location: Location) -> bool:
    """Return whether the database has the tables of this agent; false if it is empty. Nothing is
    changed.

    :raises StoreError: it belongs to somebody else, is damaged, or has another schema.
    :raises sqlalchemy.exc.SQLAlchemyError: it cannot be read.
    """
    with engine.connect() as connection:
        _lock(connection, shared=True)
        return _has_tables(connection, location)


def _has_tables(connection: Connection, location: Location) -> bool:
    if (
        location.file is not None
        and connection.exec_driver_sql("PRAGMA application_id").scalar() != APPLICATION_ID
    ):
        raise _not_ours(location)
    inspector = inspect(connection)
    if not inspector.has_table(VERSIONS.name):
        if location.file is not None:
            raise damaged_store(location, "it has no schema version")
        if inspector.get_table_names():
            raise _not_ours(location)
        return False
    found = list(connection.execute(select(VERSIONS.c.version_num)).scalars())
    if not found and location.file is None:
        return False
    if len(found) != 1 or not re.fullmatch(r"\d{4}", str(found[0])):
        raise damaged_store(location, f"its schema version is {', '.join(map(repr, found))}")
    if found[0] != VERSION:
        raise other_schema(location, found[0], VERSION)
    return True


def check_sound(engine: Engine, location: Location) -> None:
    """Check the integrity of a SQLite file, which takes about 30 ms per MiB.

    :raises StoreError: the file is damaged.
    :raises sqlalchemy.exc.SQLAlchemyError: the file cannot be read.
    """
    if location.file is not None:
        with engine.connect() as connection:
            # A record in a state that is unknown here is no reason to refuse the others: it is set
            # aside when it is read.
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            # Not the quick check, which does not notice an index that lacks rows of its table:
            # claims that would not be counted.
            found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
        if found != "ok":
            raise damaged_store(location, str(found))


def create_tables(engine: Engine, location: Location | None = None) -> None:
    """Create all tables, in one transaction.

    :param location: given if others may create them at the same time.
    :raises StoreError: others have created them, with another schema.
    """
    with writer(engine).begin() as connection:
        _lock(connection)
        if location is None or not _has_tables(connection, location):
            METADATA.create_all(connection)
            VERSIONS.create(connection)
            connection.execute(insert(VERSIONS).values(version_num=VERSION))


def _lock(connection: Connection, *, shared: bool = False) -> None:
    """Keep other agents from creating the tables on a database server until the transaction ends;
    ``shared`` lets them look.

    SQLite files are protected by the run lock.
    """
    if connection.dialect.name == "postgresql":
        # Because agents that start at the same time would create the same tables, and see each
        # other's unfinished schema.
        connection.execute(text(f"SET LOCAL lock_timeout = '{CREATION_SECONDS}s'"))
        connection.execute(
            text(f"SELECT pg_advisory_xact_lock{'_shared' if shared else ''}(:key)"),
            {"key": APPLICATION_ID},
        )
        connection.execute(text(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'"))


def _not_ours(location: Location) -> StoreError:
    return StoreError(
        f"{location.option}: {location} is not a store of this agent",
        f"move it away, or point {location.option} elsewhere",
        place=str(location),
    )
