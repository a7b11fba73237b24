"""The rows of the capabilities of each Placement server."""

from typing import Any

from sqlalchemy import Connection, select

from agent.model.mirror import ServerCapabilities
from agent.store.schema import ENDPOINT
from agent.store.texts import mapping_reader, mapping_text, names_of, names_text
from agent.store.upsert import insert_or_update


def load(connection: Connection, endpoint: str) -> ServerCapabilities | None:
    """Return the capabilities of a server, ``None`` if there are none.

    :raises ValueError: the row is invalid.
    """
    found = connection.execute(
        select(ENDPOINT).where(ENDPOINT.c.endpoint == endpoint)
    ).one_or_none()
    if found is None:
        return None
    traits, classes, unknown = (
        names_of(found.traits),
        names_of(found.classes),
        mapping_reader()(found.unknown_traits),
    )
    return ServerCapabilities(
        found.endpoint, found.max_version, traits, classes, unknown, found.can_reshape
    )


def save(connection: Connection, capabilities: ServerCapabilities) -> None:
    """Write the row of a server."""
    connection.execute(insert_or_update(connection, ENDPOINT), _row(capabilities))


def _row(capabilities: ServerCapabilities) -> dict[str, Any]:
    return {
        "endpoint": capabilities.endpoint,
        "max_version": capabilities.max_version,
        "can_reshape": capabilities.can_reshape,
        "traits": names_text(capabilities.traits),
        "classes": names_text(capabilities.classes),
        "unknown_traits": mapping_text(capabilities.unknown_traits),
    }
