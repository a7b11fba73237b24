"""Deleting providers that nobody uses. What cannot go is told, not forced."""

import logging
from collections.abc import Collection, Mapping, Sequence

from agent.errors import PlacementError, PlacementRefused
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.placement import codes
from agent.placement.allocations.errors import ForeignProvider, ProviderInUse
from agent.placement.answers import Row
from agent.placement.client import PlacementClient

LOG = logging.getLogger(__name__)


def delete_unused(
    client: PlacementClient, rows: Sequence[Row], owned: Collection[str] | None, staying: Mapping[ProviderUuid, Sequence[ConsumerUuid]]
) -> tuple[list[ProviderUuid], dict[ProviderUuid, PlacementError]]:  # fmt: skip
    """Delete what can go, children first. Returns what is gone, in the order sent, and why the rest is not.

    ``rows``: parents before their children. ``owned``: the providers that may be deleted, ``None`` for all; ``staying``: who uses each.
    """
    deleted, kept = list[ProviderUuid](), dict[ProviderUuid, PlacementError]()
    parents: set[ProviderUuid | None] = set()
    for row in reversed(rows):
        error = _obstacle(row, owned, staying[row.uuid], row.uuid in parents) or _refusal(client, row)
        if error is None:
            deleted.append(row.uuid)
            continue
        kept[row.uuid] = error
        parents.add(row.parent_uuid)
    return deleted, kept


def _obstacle(row: Row, owned: Collection[str] | None, consumers: Sequence[ConsumerUuid], is_parent: bool) -> PlacementError | None:
    """Why the provider has to stay, ``None`` if nothing is known against it."""
    name = f"provider {printable(row.name)} ({row.uuid})"
    if owned is not None and row.uuid not in owned:
        return ForeignProvider(f"{name} was made by somebody else", "have it deleted by whoever made it", provider=row.uuid)
    if consumers:
        others = f" and {len(consumers) - 1} more" if len(consumers) > 1 else ""
        return ProviderInUse(f"{name} is in use by consumer {consumers[0]}{others}", "move or delete what is there", provider=row.uuid)
    if is_parent:
        return ProviderInUse(f"{name} has children that stay", "see why they stay", provider=row.uuid)
    return None


def _refusal(client: PlacementClient, row: Row) -> PlacementError | None:
    """Delete the provider. ``None`` if it is gone, else why it is not."""
    name = f"provider {printable(row.name)} ({row.uuid})"
    try:
        _delete(client, row.uuid)
    except PlacementRefused as error:
        if codes.is_in_use(error):
            return ProviderInUse(f"{name} is in use by somebody who came meanwhile", "do the same again", provider=row.uuid)
        if error.placement_code == codes.HAS_CHILDREN:
            return ProviderInUse(f"{name} got a child meanwhile", "do the same again", provider=row.uuid)
        return error
    except PlacementError as error:
        return error
    LOG.info("deleted %s", name)
    return None


def _delete(client: PlacementClient, uuid: ProviderUuid) -> None:
    try:
        client.delete_provider(uuid)
    except PlacementError as error:
        if not codes.may_be_applied(error):
            raise
        # That it is gone by now is as good.
        client.delete_provider(uuid)
