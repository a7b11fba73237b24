"""Taking some of a node's providers out of Placement, told by their trait; those in use stay."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.errors import PlacementError
from agent.model.names import ProviderUuid
from agent.placement.allocations.deleting import delete_unused
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.mirror import below


@dataclass(frozen=True, slots=True)
class Retired:
    """``found``: all that were meant, parents before their children; ``deleted`` in the order sent; ``kept`` with the reason."""

    found: Sequence[Row]
    deleted: Sequence[ProviderUuid]
    kept: Mapping[ProviderUuid, PlacementError]


def retire(client: PlacementClient, root: ProviderUuid, trait: str, named: Callable[[str], bool]) -> Retired:
    """Delete the providers below ``root`` that carry ``trait`` and whose name is ``named``, as far as nobody uses them."""
    rows = [row for row in below(client.tree(root), root) if named(row.name)]
    traits = client.exchange.each(lambda row: client.traits(row.uuid)[1], rows)
    meant = [row for row, has in zip(rows, traits, strict=True) if trait in has]
    held = client.exchange.each(lambda row: sorted(client.consumers(row.uuid)), meant)
    staying = {row.uuid: consumers for row, consumers in zip(meant, held, strict=True)}
    return Retired(meant, *delete_unused(client, meant, None, staying))
