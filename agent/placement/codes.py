"""Placement's error codes and their meaning for the agent. Decisions depend on status and code,
never on text.
"""

from agent.errors import PlacementError, PlacementRefused, PlacementUnreachable

CONCURRENT_UPDATE = "placement.concurrent_update"
DUPLICATE_NAME = "placement.duplicate_name"
INVENTORY_IN_USE = "placement.inventory.inuse"
PROVIDER_IN_USE = "placement.resource_provider.inuse"
UNDEFINED = "placement.undefined_code"
HAS_CHILDREN = "placement.resource_provider.cannot_delete_parent"

CLOSED = "closed"
"""The kind of failure of a request on a connection that the server had closed."""
OUTAGE_STATUSES = frozenset({408, 429, 502, 503, 504})


def is_conflict(error: PlacementRefused) -> bool:
    """Return whether somebody else wrote in between, so that the state has to be read again."""
    return error.status == 409 and error.placement_code == CONCURRENT_UPDATE


def is_in_use(error: PlacementRefused) -> bool:
    """Return whether allocations prevent the removal of an inventory or a provider."""
    return error.status == 409 and error.placement_code in (INVENTORY_IN_USE, PROVIDER_IN_USE)


def is_outage(error: PlacementRefused) -> bool:
    """Return whether the service, or something in front of it, cannot answer now."""
    return error.status in OUTAGE_STATUSES


def is_closed(error: PlacementError) -> bool:
    """Return whether the server had closed the connection of the request: it answers on a new one,
    so that the outcome can be asked for at once.
    """
    return isinstance(error, PlacementUnreachable) and error.kind == CLOSED


def may_be_applied(error: PlacementError) -> bool:
    """Return whether Placement may have applied the request although it did not confirm it."""
    if isinstance(error, PlacementUnreachable):
        return error.outcome_unknown
    return isinstance(error, PlacementRefused) and (is_outage(error) or error.status == 500)
