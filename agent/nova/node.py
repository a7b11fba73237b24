"""One compute node of nova-compute: its mirror, and the way of a changed tree to Placement."""

import logging
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.errors import PlacementError, ReshapeConflict
from agent.model.inventory import Allocation, Resources
from agent.model.mirror import Held, Journal, Ownership, join_held
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.operation import DeleteProvider, Reshape, SetInventory
from agent.model.provider_tree import PresentTree, Provider, ProviderTree, TargetTree
from agent.nova.ownership import as_written, is_device, next_journal, novas_classes, of_others
from agent.placement import clock
from agent.placement.answers import HeldByConsumer
from agent.placement.client import PlacementClient
from agent.placement.flush import Flush, FlushResult
from agent.placement.merge import Target, Usages, Use, uses_of
from agent.placement.mirror import Freshness
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import make_plan
from agent.placement.reshaping import AllocationMove
from agent.placement.server import Server

LOG = logging.getLogger(__name__)

STAYS = (
    "the driver does not list %s of provider %s, which stays because %s; if nobody needs it, "
    "remove it (Placement refuses while it is used): openstack --os-placement-api-version 1.28 "
    "resource provider inventory delete %s --resource-class %s"
)


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
    consumers: Mapping[ConsumerUuid, HeldByConsumer]


class MirroredNode:
    """The mirror of one compute node. nova holds its own lock while it updates a node, so that one
    thread at a time uses it.

    Every provider of the tree is nova's to write, as it is for nova's own report: what it leaves as
    it was stays. A class that the driver has never listed since the mirror began is another
    writer's.
    """

    def __init__(self, server: Server, uuid: ProviderUuid, freshness: Freshness) -> None:
        self._server, self.uuid, self._freshness = server, uuid, freshness
        self._state = NodePlacementState(server, uuid, "", journaled=False)
        # Whether the mirror was refreshed in this period, for a question before the update.
        self._fresh = False
        # The consumers of each provider, and the whole allocation of each consumer.
        self._held: dict[ProviderUuid, _Held] = {}
        self._known: Mapping[ConsumerUuid, Allocation] = {}
        self._listed: Journal | None = None
        # What could not be removed because it was in use: when (seconds since the epoch), and who
        # used which classes of each provider.
        self._refused: dict[ProviderUuid, tuple[float, Mapping[str, Use]]] = {}
        self._told: frozenset[tuple[ProviderUuid, str]] = frozenset()
        self.started = False
        """Whether nova was told of one write of this process that it succeeded."""

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
                    newest.get(consumer, (-1.0, 0)), (held.read_at, holding.consumer_generation)
                )
        # A consumer that released everything and allocates again begins with a generation that it
        # may have had before.
        known = {
            uuid: allocation
            for uuid, (_, generation) in newest.items()
            if (allocation := self._known.get(uuid)) is not None
            and allocation.generation == generation
            and {
                provider: resources
                for provider, resources in allocation.resources.items()
                if tree.exists(provider)
            }
            == here[uuid]
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
        client, present = self._server.client(), PresentTree(self._state.view.tree)
        move = self._move(client, moved) if moved is not None else None
        others = of_others(tree, present, novas_classes(self._journal(), present))
        in_use = {uuid: frozenset(uses) for uuid, uses in self._not_tried_again().items()}
        stays, errors = join_held(others, in_use), list[PlacementError]()
        while True:
            flushed = self._sent(client, as_written(tree, self._state.view.tree, stays), move)
            errors += flushed.errors
            if flushed.conflict is not None or flushed.outage is not None:
                break
            held = self._note_in_use(client, flushed)
            if not held:
                break
            # The rest of an inventory does not wait for what is in use.
            stays = join_held(stays, held)
            if any(isinstance(one.operation, Reshape) for one in flushed.outcomes):
                # It is done, or would have ended the flush.
                move = None
        flushed.errors = errors
        self._keep_journal(tree)
        self._tell(others)
        if move is not None and flushed.conflict is not None:
            conflict = flushed.conflict
            raise ReshapeConflict(
                conflict.message, conflict.remedy, outcome_unknown=conflict.outcome_unknown
            )
        return flushed

    def _sent(
        self, client: PlacementClient, tree: TargetTree, move: AllocationMove | None
    ) -> FlushResult:
        """Plan and send the way from the mirror to ``tree``, without the deletions that Placement
        refused of late.
        """
        state = self._state
        uuids = {*state.view.tree.get_provider_uuids(), *tree.get_provider_uuids()}
        owned = {ProviderUuid(uuid): Ownership() for uuid in uuids}
        target = Target(tree, Journal(owned, adopted=True), (), ())
        plan = make_plan(state.view, target, state.capabilities, self.uuid, move, with_sharing=True)
        kept = self._not_tried_again()
        operations = tuple(
            operation
            for operation in plan.operations
            if not (isinstance(operation, DeleteProvider) and operation.provider.uuid in kept)
        )
        plan = replace(plan, operations=operations)
        flushed = Flush(client, plan, state.view, state.capabilities, self.uuid, clock.now()).run()
        state.record(plan, flushed)
        if flushed.failed is not None:
            raise flushed.failed
        return flushed

    # --- what stays -------------------------------------------------------------------------------

    def _journal(self) -> Journal:
        """Return which classes the driver listed, and which of them are still there."""
        if self._listed is None:
            self._listed = self._server.storage.journal(self.uuid)
        return self._listed

    def _keep_journal(self, tree: ProviderTree) -> None:
        before = self._journal()
        after = next_journal(before, tree, self._state.view.tree)
        if after.providers != before.providers:
            self._listed = self._server.storage.save_journal(self.uuid, after)

    def _not_tried_again(self) -> Usages:
        """Return the classes, by provider, of which Placement said of late that they are in use."""
        now, interval = clock.now(), self._freshness.consumers
        self._refused = {
            uuid: (at, uses) for uuid, (at, uses) in self._refused.items() if now - at < interval
        }
        return {uuid: uses for uuid, (_, uses) in self._refused.items()}

    def _note_in_use(self, client: PlacementClient, flushed: FlushResult) -> Held:
        """Note what could not be removed because it is in use. Return the classes without which
        an inventory can be written after all.
        """
        found: dict[ProviderUuid, frozenset[str]] = {}
        for uuid, classes in flushed.held.items():
            uses = {
                name: use
                for name, use in uses_of(client.consumers(uuid)).items()
                if name in classes
            }
            found[uuid] = frozenset(uses)
            self._refused[uuid] = clock.now(), uses
        inventories = {
            outcome.operation.provider.uuid
            for outcome in flushed.outcomes
            if isinstance(outcome.operation, SetInventory)
        }
        return {
            uuid: classes
            for uuid, classes in found.items()
            if classes
            and uuid in inventories
            and not is_device(self._state.view.tree.provider(uuid))
        }

    def _tell(self, others: Held) -> None:
        """Warn once of each class that stays although the driver does not list it."""
        tree = self._state.view.tree
        used = self._not_tried_again()
        foreign = {
            uuid: dict.fromkeys(classes, "somebody else put it there")
            for uuid, classes in others.items()
        }
        stays = {
            (uuid, name): why
            for kept in (used, foreign)
            for uuid, reasons in kept.items()
            if tree.exists(uuid)
            for name, why in reasons.items()
        }
        for (uuid, name), why in stays.items():
            if (uuid, name) not in self._told:
                LOG.warning(STAYS, name, printable(tree.name_of(uuid)), why, uuid, name)
        self._told = frozenset(stays)

    def refuses_start(self) -> bool:
        """Return whether nova-compute must not start, as with nova's own report: a device is in use
        as another kind than the driver has now.
        """
        tree = self._state.view.tree
        return not self.started and any(
            tree.exists(uuid) and is_device(tree.provider(uuid)) for uuid in self._refused
        )

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
