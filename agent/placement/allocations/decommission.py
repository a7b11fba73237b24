"""Taking a node out of service: its consumers let go of it, its providers go. What cannot go is told, not forced."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.errors import PlacementError
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.placement.allocations.change import remove_from
from agent.placement.allocations.checks import consumer_uuid, provider_uuid
from agent.placement.allocations.deleting import delete_unused
from agent.placement.allocations.errors import ConsumerNotFound
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.mirror import below

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Released:
    """What became of consumers: on how many providers each let go, and why some did not."""

    done: Mapping[ConsumerUuid, int]
    failed: Mapping[ConsumerUuid, PlacementError]


@dataclass(frozen=True, slots=True)
class Decommissioned:
    """``deleted`` in the order sent; ``kept`` with the reason; ``unknown``: consumers there whom nobody named, by provider."""

    released: Released
    deleted: Sequence[ProviderUuid]
    kept: Mapping[ProviderUuid, PlacementError]
    unknown: Mapping[ConsumerUuid, Sequence[ProviderUuid]]

    @property
    def complete(self) -> bool:
        """Whether nothing is left of the node."""
        return not (self.released.failed or self.kept)


def evacuated_cleanup(client: PlacementClient, root: str, consumers: Iterable[str]) -> Released:
    """Have consumers that were evacuated away let go of the tree at and below ``root``; their new hosts they keep.

    They are those of a migration of type evacuation that is done, from this host and node, that do not run here. One
    that cannot does not keep the others; one that holds nothing there is well.

    :raises BadRequest: the input makes no sense.
    """
    top, uuids = provider_uuid(root), [consumer_uuid(one) for one in consumers]
    return _released(client, uuids, below(client.tree(top), top)) if uuids else Released({}, {})


def _released(client: PlacementClient, consumers: Iterable[ConsumerUuid], rows: Sequence[Row]) -> Released:
    each, providers = dict.fromkeys(consumers, 0), frozenset(row.uuid for row in rows)
    if not providers:
        return Released(each, {})
    done, failed = dict[ConsumerUuid, int](), dict[ConsumerUuid, PlacementError]()
    for consumer in each:
        try:
            done[consumer] = remove_from(client, consumer, lambda _held: providers)
        except ConsumerNotFound:
            done[consumer] = 0
        except PlacementError as error:
            LOG.warning("consumer %s did not let go: %s", consumer, error.message)
            failed[consumer] = error
    return Released(done, failed)


def decommission(
    client: PlacementClient, root: str, *, known: Iterable[str], evacuated: Iterable[str] = (), owned: Collection[str] | None = None
) -> Decommissioned:  # fmt: skip
    """Delete the tree at and below ``root``. Once it is gone, the same again is a success.

    ``known``: the consumers that belong to the node, and ``evacuated`` those that did; they keep what they hold elsewhere.
    Any other is told, and stays. ``owned``: the providers that may be deleted, ``None`` for all of them; above one that
    stays nothing is.

    :raises BadRequest: the input makes no sense.
    """
    top = provider_uuid(root)
    ours = [consumer_uuid(one) for some in (known, evacuated) for one in some]
    rows = below(client.tree(top), top)
    held = dict(zip((row.uuid for row in rows), client.exchange.each(lambda row: client.consumers(row.uuid), rows), strict=True))
    released = _released(client, ours, rows)
    staying = {uuid: sorted(consumers.keys() - released.done.keys()) for uuid, consumers in held.items()}
    unknown: dict[ConsumerUuid, list[ProviderUuid]] = {}
    for uuid, consumers in staying.items():
        for consumer in consumers:
            if consumer not in released.failed:
                unknown.setdefault(consumer, []).append(uuid)
    return Decommissioned(released, *delete_unused(client, rows, owned, staying), unknown)
