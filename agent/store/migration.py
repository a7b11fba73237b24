"""The version of the store's schema, and its upgrade. alembic is loaded only for an upgrade of an
existing schema.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, insert, inspect, text

from agent.errors import StoreError
from agent.store.engines import BUSY_SECONDS, Location, damaged_store, writer
from agent.store.metadata import METADATA
from agent.store.schema import APPLICATION_ID, VERSION, VERSION_TABLE, VERSIONS

if TYPE_CHECKING:
    from alembic.config import Config

UPGRADE_SECONDS = 120
"""How long an agent waits for another one that changes the schema."""


def version(engine: Engine, location: Location) -> str | None:
    """Return the version of the schema, at most this agent's own; ``None`` if there are no tables
    yet. Nothing is changed.

    :raises StoreError: the schema is newer, or the database belongs to somebody else.
    :raises sqlalchemy.exc.SQLAlchemyError: the database cannot be read.
    """
    with engine.connect() as connection:
        _lock(connection, shared=True)
        return _version(connection, location)


def _version(connection: Connection, location: Location) -> str | None:
    if (
        location.file is not None
        and connection.exec_driver_sql("PRAGMA application_id").scalar() != APPLICATION_ID
    ):
        raise _not_ours(location)
    found = _versions(connection)
    if found is None and location.file is not None:
        raise damaged_store(location, "it has no schema version")
    if found is None and inspect(connection).get_table_names():
        raise _not_ours(location)
    if not found:
        return None
    if len(found) > 1 or not re.fullmatch(r"\d{4}", str(found[0])):
        raise damaged_store(location, f"its schema version is {', '.join(map(repr, found))}")
    if found[0] > VERSION:
        raise StoreError(
            (
                f"{location.option}: the store {location} has schema {found[0]}, made by a newer "
                f"agent; this one knows {VERSION} and older"
            ),
            "install the newer agent again, or move the store away to start with an empty one",
            place=str(location),
        )
    return found[0]


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


def _versions(connection: Connection) -> list[str] | None:
    """Return the contents of the version table, ``None`` if there is no such table."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return list(connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars())  # noqa: S608 - a constant # nosec B608


def upgrade(engine: Engine, location: Location | None = None) -> None:
    """Upgrade the schema to the newest version, in one transaction.

    An empty database gets all tables directly, because loading alembic costs the daemon 11 MB for
    its whole life.

    :param location: given if others may have changed the database since its version was checked;
        then it is checked again.
    :raises StoreError: the schema is newer by now, or the database belongs to somebody else.
    """
    with writer(engine).begin() as connection:
        _lock(connection)
        if location is not None and _version(connection, location) == VERSION:
            return
        if inspect(connection).has_table(VERSION_TABLE):
            from alembic import command

            command.upgrade(config(connection), "head")
        else:
            METADATA.create_all(connection)
            VERSIONS.create(connection)
            connection.execute(insert(VERSIONS).values(version_num=VERSION))


def _lock(connection: Connection, *, shared: bool = False) -> None:
    """Keep other agents from changing the schema on a database server until the transaction ends;
    ``shared`` lets them read it.

    SQLite files are protected by the run lock.
    """
    if connection.dialect.name == "postgresql":
        # Because agents that start at the same time would create the same tables, and see each
        # other's unfinished schema.
        connection.execute(text(f"SET LOCAL lock_timeout = '{UPGRADE_SECONDS}s'"))
        connection.execute(
            text(f"SELECT pg_advisory_xact_lock{'_shared' if shared else ''}(:key)"),
            {"key": APPLICATION_ID},
        )
        connection.execute(text(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'"))


def config(connection: Connection) -> "Config":
    """Return alembic's configuration for a connection with a begun transaction."""
    from alembic.config import Config

    config = Config()
    # alembic would take a percent sign for the start of a variable.
    config.set_main_option(
        "script_location", str(Path(__file__).parent / "alembic").replace("%", "%%")
    )
    config.attributes["connection"] = connection
    return config


def _not_ours(location: Location) -> StoreError:
    return StoreError(
        f"{location.option}: {location} is not a store of this agent",
        f"move it away, or point {location.option} elsewhere",
        place=str(location),
    )
