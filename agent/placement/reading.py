"""Reading providers so that contents and generation belong together."""

import logging
from collections.abc import Iterable, Mapping

from agent.errors import GenerationConflict, PlacementRefused
from agent.model.names import ProviderUuid
from agent.model.provider_tree import Provider
from agent.placement.answers import Row
from agent.placement.client import PlacementClient

LOG = logging.getLogger(__name__)
ATTEMPTS = 3


def read_provider(client: PlacementClient, row: Row) -> Provider:
    """Inventory, aggregates and traits of a provider, all three of one generation.

    Three answers of different generations may hide a change between them: storing the newest generation beside an
    older inventory would let a later guarded write overwrite that change.

    :raises GenerationConflict: it changed under every attempt, or went away.
    """
    for _ in range(ATTEMPTS):
        try:
            at_inventory, inventory = client.inventories(row.uuid)
            at_aggregates, aggregates = client.aggregates(row.uuid)
            at_traits, traits = client.traits(row.uuid)
        except PlacementRefused as error:
            if error.status != 404:
                raise
            raise GenerationConflict(f"provider {row.uuid} went away while it was read") from error
        if at_inventory == at_aggregates == at_traits:
            return Provider(row.uuid, row.name, at_traits, row.parent_uuid, inventory, traits, aggregates)
        LOG.debug("provider %s changed while it was read", row.uuid)
    raise GenerationConflict(f"provider {row.uuid} changed every time it was read", "it is read again in the next pass")


def read_providers(client: PlacementClient, rows: Iterable[Row]) -> Mapping[ProviderUuid, Provider]:
    """Many providers, as many at once as may be in flight."""
    return {one.uuid: one for one in client.exchange.each(lambda row: read_provider(client, row), rows)}
