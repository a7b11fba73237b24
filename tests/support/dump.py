"""The whole state of a Placement, read from its database, for comparing before and after."""

import sqlite3
from typing import Any

INVENTORY_FIELDS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


def dump(database: sqlite3.Connection) -> dict[str, Any]:
    """Everything that clients can change; two dumps are equal exactly when nothing did.

    ``{"providers": {uuid: {name, parent, generation, inventories: {class: {six fields}}, traits:
    [sorted], aggregates: [sorted]}}, "consumers": {uuid: {generation, project_id, user_id,
    allocations: {provider: {class: n}}}}, "custom_traits": [sorted], "custom_resource_classes":
    [sorted]}``. The database is read rather than the API because the API hides consumers without
    allocations, whose generation nevertheless matters to the next claim.
    """
    providers: dict[str, dict[str, Any]] = {}
    for uuid, name, parent, generation in database.execute(
        "SELECT p.uuid, p.name, parent.uuid, p.generation FROM resource_providers p"
        " LEFT JOIN resource_providers parent ON parent.id = p.parent_provider_id ORDER BY p.name"
    ):
        providers[uuid] = {
            "name": name,
            "parent": parent,
            "generation": generation,
            "inventories": {},
            "traits": [],
            "aggregates": [],
        }
    for uuid, resource_class, *fields in database.execute(
        "SELECT p.uuid, c.name, total, reserved, min_unit, max_unit, step_size, allocation_ratio "
        "FROM inventories i JOIN resource_providers p ON p.id = i.resource_provider_id JOIN "
        "resource_classes c ON c.id = i.resource_class_id"
    ):
        providers[uuid]["inventories"][resource_class] = dict(
            zip(INVENTORY_FIELDS, fields, strict=True)
        )
    for uuid, trait in database.execute(
        "SELECT p.uuid, t.name FROM resource_provider_traits JOIN resource_providers p ON p.id = "
        "resource_provider_id JOIN traits t ON t.id = trait_id ORDER BY t.name"
    ):
        providers[uuid]["traits"].append(trait)
    for uuid, aggregate in database.execute(
        "SELECT p.uuid, a.uuid FROM resource_provider_aggregates JOIN resource_providers p ON "
        "p.id = resource_provider_id"
        " JOIN placement_aggregates a ON a.id = aggregate_id ORDER BY a.uuid"
    ):
        providers[uuid]["aggregates"].append(aggregate)
    return {
        "providers": providers,
        "consumers": _consumers(database),
        "custom_traits": _custom(database, "traits"),
        "custom_resource_classes": _custom(database, "resource_classes"),
    }


def _consumers(database: sqlite3.Connection) -> dict[str, Any]:
    consumers: dict[str, Any] = {}
    for uuid, generation, project, user in database.execute(
        "SELECT c.uuid, generation, projects.external_id, users.external_id FROM consumers c JOIN "
        "projects ON projects.id = c.project_id JOIN users ON users.id = c.user_id ORDER BY c.uuid"
    ):
        consumers[uuid] = {
            "generation": generation,
            "project_id": project,
            "user_id": user,
            "allocations": {},
        }
    for consumer, provider, resource_class, used in database.execute(
        "SELECT a.consumer_id, p.uuid, c.name, used FROM allocations a JOIN resource_providers p "
        "ON p.id = a.resource_provider_id JOIN resource_classes c ON c.id = a.resource_class_id"
    ):
        consumers[consumer]["allocations"].setdefault(provider, {})[resource_class] = used
    return consumers


def _custom(database: sqlite3.Connection, table: str) -> list[str]:
    rows = database.execute(
        f"SELECT name FROM {table} WHERE name LIKE 'CUSTOM\\_%' ESCAPE '\\' ORDER BY name"
    )
    return [name for (name,) in rows]
