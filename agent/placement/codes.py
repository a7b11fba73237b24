"""Placement's error codes and what the agent makes of a refusal. Decisions rest on status and code,
never on text.
"""

from agent.errors import PlacementError, PlacementRefused, PlacementUnreachable

CONCURRENT_UPDATE = "placement.concurrent_update"
DUPLICATE_NAME = "placement.duplicate_name"
INVENTORY_IN_USE = "placement.inventory.inuse"
PROVIDER_IN_USE = "placement.resource_provider.inuse"
UNDEFINED = "placement.undefined_code"
HAS_CHILDREN = "placement.resource_provider.cannot_delete_parent"

OUTAGE_STATUSES = frozenset({408, 429, 502, 503, 504})


def is_conflict(error: PlacementRefused) -> bool:
    """Somebody wrote in between: read again, compute again."""
    return error.status == 409 and error.placement_code == CONCURRENT_UPDATE


def is_in_use(error: PlacementRefused) -> bool:
    """Allocations keep an inventory or a provider alive."""
    return error.status == 409 and error.placement_code in (INVENTORY_IN_USE, PROVIDER_IN_USE)


def is_outage(error: PlacementRefused) -> bool:
    """The service, or something in front of it, cannot answer now."""
    return error.status in OUTAGE_STATUSES


def may_be_applied(error: PlacementError) -> bool:
    """Whether Placement may have done what was asked although it did not say so."""
    if isinstance(error, PlacementUnreachable):
        return error.outcome_unknown
    return isinstance(error, PlacementRefused) and (is_outage(error) or error.status == 500)
