"""One compute node of nova-compute: its mirror, and the way of a changed tree to Placement."""

import logging
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from agent.errors import ReshapeConflict, ReshapeFailed
from agent.model.allocation import Allocation, Holdings, Resources
from agent.model.inventory import changed, completed
from agent.model.mirror import Journal, Ownership
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.provider import Provider
from agent.model.provider_tree import PresentTree, ProviderTree, TargetTree
from agent.placement import clock
from agent.placement.client import PlacementClient, ProviderHolding
from agent.placement.flush import FlushContext, FlushResult, flush
from agent.placement.merge import Target
from agent.placement.mirror import Freshness
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import make_plan
from agent.placement.reshaping import AllocationMove
from agent.placement.server import Server

LOG = logging.getLogger(__name__)


class LazyAllocations(UserDict[str, dict[str, Any]]):
    """A dictionary of the form that drivers edit, by consumer. ``read`` returns the allocations; it
    is called when the dictionary is first looked at, which most passes never do.
    """

    def __init__(self, read: Callable[[], Mapping[ConsumerUuid, Allocation]]) -> None:
        # Without UserDict's constructor, which would set ``data``.
        self._read = read
        self._data: dict[str, dict[str, Any]] | None = None
        self.shown: Mapping[ConsumerUuid, Allocation] | None = None
        """The allocations as they were read; None if nobody looked."""

    @property
    def data(self) -> dict[str, dict[str, Any]]:  # type: ignore[override]
        """The dictionary."""
        if self._data is None:
            self.shown = self._read()
            self._data = {
                uuid: allocation.as_driver_dict() for uuid, allocation in self.shown.items()
            }
        return self._data


@dataclass(frozen=True, slots=True)
class _Held:
    """What the consumers of a provider held when the provider had ``generation``."""

    generation: int | None
    read_at: float
    """Seconds since the epoch."""
    consumers: Mapping[ConsumerUuid, ProviderHolding]


class MirroredNode:
    """The mirror of one compute node. nova holds its own lock while it updates a node, so that one
    thread at a time uses it.

    Every provider of the tree is nova's to write, as it is for nova's own report: what it leaves as
    it was stays.
    """

    def __init__(self, server: Server, uuid: ProviderUuid, freshness: Freshness) -> None:
        self._server, self.uuid, self._freshness = server, uuid, freshness
        self._state = NodePlacementState(server, uuid, "", journaled=False)
        # Whether the mirror was refreshed in this period, for a question before the update.
        self._fresh = False
        # The consumers of each provider, and the whole allocation of each consumer.
        self._held: dict[ProviderUuid, _Held] = {}
        self._known: Mapping[ConsumerUuid, Allocation] = {}

    # --- reading ----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the mirror up to date: one request, and those for what moved.

        :raises AgentError: Placement cannot be read.
        """
        client = self._server.client()
        self._server.connect(client)
        self._state.refresh(client, self._freshness, None)
        self._state.save()
        self._fresh = True

    def tree(self, name: str) -> ProviderTree:
        """Return the node's tree for changes, with a root of that name if Placement has none; the
        mirror is refreshed unless :meth:`holders` just did.
        """
        if not self._fresh:
            self.refresh()
        self._fresh = False
        tree = self._state.view.tree.copy()
        if not tree.exists(self.uuid):
            tree.new_root(name, self.uuid)
        return tree

    def holders(self) -> Mapping[ConsumerUuid, Resources]:
        """Return what each consumer holds of the root; the mirror is refreshed."""
        self.refresh()
        tree, client = self._state.view.tree, self._server.client()
        if not tree.exists(self.uuid):
            return {}
        held = self._held_of(client, tree.provider(self.uuid))
        return {consumer: holding.resources for consumer, holding in held.consumers.items()}

    def _held_of(self, client: PlacementClient, provider: Provider) -> _Held:
        """Return what each consumer holds of a provider, read again if the provider moved or if
        the last read is too old: who releases what he holds does not move it.
        """
        known, now = self._held.get(provider.uuid), clock.now()
        interval = self._freshness.consumers
        if (
            known is None
            or known.generation != provider.generation
            or 0 < interval <= now - known.read_at
        ):
            found = client.holdings(provider.uuid) or {}
            known = self._held[provider.uuid] = _Held(provider.generation, now, found)
        return known

    def note_release(self, consumer: ConsumerUuid) -> None:
        """Note that ``consumer`` holds nothing of the tree any more, because its release moves no
        generation. Any thread may call it.
        """
        for uuid, held in list(self._held.items()):
            if consumer in held.consumers:
                rest = {other: what for other, what in held.consumers.items() if other != consumer}
                self._held[uuid] = replace(held, consumers=rest)

    def allocations(self) -> Mapping[ConsumerUuid, Allocation]:
        """Return the whole allocations of the consumers of the tree; those are read that were
        written since they were read.
        """
        client, tree = self._server.client(), self._state.own_tree()
        newest: dict[ConsumerUuid, tuple[float, int]] = {}
        here: dict[ConsumerUuid, dict[ProviderUuid, Resources]] = {}
        for provider in tree.providers():
            if not provider.inventory:
                continue
            held = self._held_of(client, provider)
            for consumer, holding in held.consumers.items():
                here.setdefault(consumer, {})[provider.uuid] = holding.resources
                newest[consumer] = max(
                    newest.get(consumer, (-1.0, 0)), (held.read_at, holding.generation)
                )
        # A consumer that released everything and allocates again begins with a generation that it
        # may have had before.
        known = {
            uuid: allocation
            for uuid, (_, generation) in newest.items()
            if (allocation := self._known.get(uuid)) is not None
            and allocation.generation == generation
            and _within(allocation, tree) == here[uuid]
        }
        read = self._state.allocations(client, sorted(newest.keys() - known.keys()))
        self._known = {**known, **read}
        return self._known

    # --- writing ----------------------------------------------------------------------------------

    def write(
        self, tree: ProviderTree, moved: LazyAllocations | Mapping[str, Any] | None
    ) -> FlushResult:
        """Write the differences between ``tree`` and Placement. Return the result of the flush.

        ``moved``: the allocations as a reshape leaves them; None without a reshape.

        :raises ReshapeFailed, ReshapeConflict: the reshape was not done.
        :raises AgentError: Placement cannot be asked.
        """
        client = self._server.client()
        present = PresentTree(self._state.view.tree)
        move = self._move(client, moved) if moved is not None else None
        uuids = {*present.get_provider_uuids(), *tree.get_provider_uuids()}
        owned = {ProviderUuid(uuid): Ownership() for uuid in uuids}
        target = Target(_as_written(tree, present), Journal(owned, adopted=True), (), ())
        plan = make_plan(
            self._state.view, target, self._state.capabilities, self.uuid, move, with_sharing=True
        )
        try:
            flushed = flush(
                client,
                plan,
                self._state.view,
                self._state.capabilities,
                self.uuid,
                clock.now(),
                FlushContext(),
            )
        except ReshapeFailed:
            self._state.doubt()
            raise
        self._state.record(plan, flushed)
        if move is not None and flushed.conflict is not None:
            raise ReshapeConflict(flushed.conflict.message, **flushed.conflict.data)
        return flushed

    def _move(self, client: PlacementClient, moved: Mapping[str, Any]) -> AllocationMove:
        """Return the move to what was made of the allocations.

        Allocations that the driver saw are not read again, because Placement refuses the move if
        they changed: a consumer's generation moves with its allocation, a provider's with each new
        consumer. Another attempt reads all of them.
        """
        shown = moved.shown if isinstance(moved, LazyAllocations) else None
        before = self._state.holders(client) if shown is None else shown
        self._held, self._known = {}, {}
        after = {
            uuid: allocation.edited(moved[uuid]) if uuid in moved else allocation
            for uuid, allocation in before.items()
        }
        return AllocationMove(before, after)

    def forget(self) -> None:
        """Drop what is remembered; the next use reads everything."""
        self._state.doubt()
        self._fresh, self._held, self._known = False, {}, {}


def _within(allocation: Allocation, tree: PresentTree) -> Holdings:
    return {
        uuid: resources for uuid, resources in allocation.resources.items() if tree.exists(uuid)
    }


def _as_written(tree: ProviderTree, present: PresentTree) -> TargetTree:
    """Return ``tree`` with whole inventory records: where nova changes the inventory of a provider,
    Placement's defaults stand for what its records lack.
    """
    result = tree.copy()
    for provider in result.providers():
        old = present.provider(provider.uuid).inventory if present.exists(provider.uuid) else {}
        if changed(old, provider.inventory):
            result.update_inventory(
                provider.uuid,
                {name: completed(record) for name, record in provider.inventory.items()},
            )
        elif provider.inventory != old:
            result.update_inventory(provider.uuid, dict(old))
    return cast(TargetTree, result)
