"""The placement state of one node that the agent caches: view and journal, in memory and in the
store.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from agent.model.inventory import Allocation, Resources
from agent.model.mirror import (
    Consumers,
    Held,
    Journal,
    PlacementView,
    ServerCapabilities,
    join_held,
)
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import (
    AllocationOperation,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTrait,
    Operation,
    OperationKey,
)
from agent.model.provider_tree import PresentTree, ProviderTree
from agent.model.report import Outcome
from agent.placement import clock
from agent.placement.answers import Row
from agent.placement.client import ALLOCATIONS, PlacementClient
from agent.placement.consumers import (
    HolderTurns,
    RereadSchedule,
    differing,
    with_allocation,
)
from agent.placement.flush import FlushResult
from agent.placement.merge import Usages, uses_of
from agent.placement.mirror import Freshness, allocations_written, log_losses, refresh_view
from agent.placement.ownership import doubled, named_by_role, with_derived
from agent.placement.plan import Plan
from agent.placement.sending import Contents
from agent.placement.server import Server, with_names

MOST_CONFIRMED = 1000
"""How many confirmed operations are remembered."""


class NodePlacementState:
    """The cached placement state of one node. It has a single writer: the audit of the node.

    ``name``: of the node, whatever its root is called in Placement. ``journaled`` False: nothing in
    the tree is the agent's, whatever it writes there, and no journal is kept.
    """

    def __init__(
        self, server: Server, root: ProviderUuid, name: str, *, journaled: bool = True
    ) -> None:
        self._server, self._root, self._name, self._journaled = server, root, name, journaled
        self._view: PlacementView | None = None
        self._saved: PlacementView | None = None
        self._journal: Journal | None = None
        # The journal as this process read or wrote it last.
        self._kept: Journal | None = None
        self._suspects: frozenset[ProviderUuid] = frozenset()
        self._refused: list[Operation] = []
        # The providers that were the agent's before the plan that is being sent.
        self._known: frozenset[ProviderUuid] = frozenset()
        # The tree that was last searched for children of the agent's that the journal lacks.
        self._searched: ProviderTree | None = None
        # What ``named_view`` was made of, and the result.
        self._named: tuple[PlacementView, Journal, PlacementView] | None = None
        self._takes_over = False
        self.confirmed: dict[OperationKey, int] = {}
        """See :func:`agent.placement.flush.Flush`."""
        # Those of two children of one role that get its name, because only they are in use.
        self._first = frozenset[ProviderUuid]()
        self._turns, self._rereads = HolderTurns(), RereadSchedule()
        # The known holders of the providers that moved, until their holders are read again.
        self._before: Consumers = {}
        # How often others may have allocated from a provider since its consumers were last read.
        self._allocated = Counter[ProviderUuid]()
        # The consumers that may have changed elsewhere: somebody wrote an allocation, and they hold
        # here what they held before.
        self._rewritten = frozenset[ConsumerUuid]()
        # The whole allocations of those of which something is elsewhere.
        self._elsewhere: Mapping[ConsumerUuid, Allocation] = {}
        self.listed = False
        """Whether the last refresh took the node's rows from a list for many nodes."""

    @property
    def view(self) -> PlacementView:
        """Placement as last read or written; at first as saved by an earlier process."""
        if self._view is None:
            self._saved = self._server.storage.view(self._server.transport.endpoint, self._root)
            self._view = self._saved or PlacementView()
        return self._view

    @property
    def journal(self) -> Journal:
        """The ownership journal of the node."""
        if self._journal is None:
            self._journal = self._kept = (
                self._server.storage.journal(self._root) if self._journaled else Journal()
            )
        return self._journal

    @property
    def named_view(self) -> PlacementView:
        """The view with the root called as the node, and the agent's children by their roles: what
        the node's tree is shaped from. The same object as the view if they are called so.
        """
        view, journal = self.view, self.journal
        if not self._journaled:
            return view
        if self._named is None or self._named[0] is not view or self._named[1] is not journal:
            taking_over = self._takes_over or not journal.owns(self._root)
            named = named_by_role(
                view,
                journal,
                self._root,
                self._name,
                taking_over=taking_over,
                first=self._first,
            )
            self._named = view, journal, named
        return self._named[2]

    @property
    def capabilities(self) -> ServerCapabilities:
        """The server's capabilities. They are known once the server is connected."""
        return cast(ServerCapabilities, self._server.capabilities)

    def begin_empty(self) -> None:
        """Take it that nothing of the node is saved, without asking the store."""
        self._view, self._journal = PlacementView(), Journal()
        self._kept = self._journal

    def forget(self) -> None:
        """Drop what is cached, because another agent may have managed the node meanwhile; the next
        use reads the store again.
        """
        self._view = self._saved = self._journal = self._kept = self._searched = None
        self._suspects = frozenset()
        self._refused, self._before, self._allocated = [], {}, Counter()

    def own_tree(self) -> PresentTree:
        """Return a copy of the node's tree alone, named by roles; empty if Placement does not have
        it.
        """
        return self.named_view.subtree(self._root)

    @property
    def mirrored(self) -> bool:
        """Whether the view shows the node, and no write of unknown outcome makes it doubtful."""
        return self.view.tree.exists(self._root) and not self._suspects

    # --- reading ----------------------------------------------------------------------------------

    def refresh(
        self, client: PlacementClient, freshness: Freshness, rows: Sequence[Row] | None
    ) -> None:
        """Bring the view up to date.

        Providers with a write of unknown outcome are read whatever their generation.

        :raises GenerationConflict: a provider changed during every attempt to read it.
        """
        before = self.view
        self._view = refresh_view(
            client,
            before,
            self._root,
            clock.now(),
            freshness,
            self._suspects,
            rows,
            self.journal.providers,
        )
        known = {**before.consumers, **self._before}
        self._before = {
            uuid: held
            for uuid, held in known.items()
            if uuid in self._view.read_at and uuid not in self._view.consumers
        }
        self.listed = rows is not None
        if self._view.tree is not before.tree:
            written = allocations_written(before.tree, self._view.tree)
            self._allocated.update(
                {uuid: times for uuid, times in written.items() if uuid not in self._suspects}
            )
            log_losses(before.tree, self._view.tree, self._root, self.journal, self._suspects)
        if self._journaled and self._view.tree is not self._searched:
            self._searched = self._view.tree
            tree = self._view.subtree(self._root)
            self._journal = with_derived(self.journal, tree, self._root)
        self._suspects = frozenset()
        twice = doubled(self._view.tree, self.journal, self._root, self._name)
        first = frozenset(used for used, other in twice if not client.consumers(other))
        if first != self._first:
            self._first, self._named = first, None

    def adopt(self) -> None:
        """Mark the tree as adopted: from now on the agent may delete and move what is its own."""
        self._takes_over = True
        self._journal = replace(self.journal, adopted=True)

    def hold(self, what: Held) -> None:
        """Mark classes that are in use, but gone from the node, as held until they are free."""
        self._journal = replace(self.journal, held=join_held(self.journal.held, what))

    def held_usages(self, client: PlacementClient) -> Usages:
        """Return the usage of the classes and providers that are held until they are free."""
        waiting = [uuid for uuid in self.journal.held if self.view.tree.exists(uuid)]
        self.read_holders(client, waiting)
        return {uuid: uses_of(self.view.consumers[uuid]) for uuid in waiting}

    def consumers(self, client: PlacementClient, ours: Iterable[ProviderUuid]) -> Consumers:
        """Return the consumers of each of the providers ``ours``.

        They are read where the provider was read anew since they were last known.
        """
        wanted = list(ours)
        self.read_holders(client, [uuid for uuid in wanted if uuid not in self.view.consumers])
        return {uuid: self.view.consumers[uuid] for uuid in wanted}

    def perhaps_held(
        self,
        ours: Iterable[ProviderUuid],
        in_turn: Collection[ProviderUuid],
        within: float,
    ) -> list[ProviderUuid]:
        """Return those of the providers ``ours`` that somebody may hold something of, where nobody
        is known to: those with known consumers, those that others may have allocated from since
        they were last seen, and one of ``in_turn`` whose consumers were never asked for.

        None of a node of a list for many nodes, which costs no request a node.

        :param within: the seconds after which one of ``in_turn`` is asked for, 0 for never.
        """
        if self.listed:
            return []
        known, now = self.view.consumers, clock.now()
        wanted = list(ours)
        found = [uuid for uuid in wanted if known.get(uuid) or uuid in self._allocated]
        unasked = [
            uuid
            for uuid in wanted
            if uuid in in_turn
            and uuid not in known
            and uuid not in found
            and now - self.view.read_at.get(uuid, now) >= within
        ]
        return [*found, *(unasked[:1] if within else ())]

    def consumers_in_turn(
        self,
        client: PlacementClient,
        ours: Iterable[ProviderUuid],
        in_turn: Collection[ProviderUuid],
        within: float,
    ) -> Consumers:
        """Return the consumers of the providers ``ours``, and read one more provider if one is due.

        Due may be a provider of ``in_turn``, or one whose consumers are known to be out of date.
        To be called once a pass.

        :param within: the seconds in which each of them is read again, 0 for never.
        """
        wanted, now, before = list(ours), clock.now(), self.view.consumers
        asked = {
            uuid: self.view.consumers_at.get(uuid, self.view.read_at.get(uuid, now))
            for uuid in wanted
            if uuid in before
        }
        due = self._turns.next(
            {uuid: at for uuid, at in asked.items() if uuid in in_turn or not at}, now, within
        )
        self.read_holders(
            client, [*(uuid for uuid in wanted if uuid not in before), *([due] if due else [])]
        )
        return {uuid: self.view.consumers[uuid] for uuid in wanted}

    def read_holders(self, client: PlacementClient, providers: Sequence[ProviderUuid]) -> None:
        """Read the consumers of ``providers`` and mark those of other providers as out of date.

        A consumer whose allocation on these providers changed may have released resources on
        others, which moves no generation there. If the earlier consumers are not known, because
        the process ended after they were dropped, all others are marked.
        """
        if not providers:
            return
        read = dict(zip(providers, client.exchange.each(client.consumers, providers), strict=True))
        before = {**self.view.consumers, **self._before}
        others = {uuid: held for uuid, held in self.view.consumers.items() if uuid not in read}
        changed = {
            consumer
            for uuid, held in read.items()
            for consumer in differing(before.get(uuid, {}), held)
        }
        stale = [
            uuid
            for uuid, held in others.items()
            if held and (not before.keys() >= read.keys() or not held.keys().isdisjoint(changed))
        ]
        asked = {
            **self.view.consumers_at,
            **dict.fromkeys(providers, clock.now()),
            **dict.fromkeys(stale, 0.0),
        }
        self._view = replace(self.view, consumers={**others, **read}, consumers_at=asked)
        self._rewritten = self._rewritten.union(
            *(self._unchanged(uuid, before.get(uuid), held) for uuid, held in read.items())
        )
        for uuid in read:
            self._allocated.pop(uuid, None)
        self._before = {uuid: held for uuid, held in self._before.items() if uuid not in read}

    def _unchanged(
        self,
        uuid: ProviderUuid,
        before: Mapping[ConsumerUuid, Resources] | None,
        held: Mapping[ConsumerUuid, Resources],
    ) -> Iterable[ConsumerUuid]:
        """Return the consumers of a provider that hold what they held ``before``, if more
        allocations were written than others changed; all if nothing is known of before.
        """
        if before is None:
            return held.keys()
        changed = held.keys() & set(differing(before, held))
        return held.keys() - changed if self._allocated[uuid] > len(changed) else ()

    @property
    def doubted(self) -> frozenset[ConsumerUuid]:
        """The consumers that may hold something elsewhere since they were last asked about, and
        those that were found to.
        """
        return frozenset({*self._rewritten, *self._elsewhere, *self.view.unknown_since})

    @property
    def reported(self) -> frozenset[str]:
        """The subjects about which consumers were last reported."""
        return self._rereads.subjects

    def held_elsewhere(
        self,
        client: PlacementClient,
        consumers: Collection[ConsumerUuid],
        elsewhere: Callable[[Allocation], bool],
    ) -> Mapping[ConsumerUuid, Allocation]:
        """Return those of ``consumers`` of which something is ``elsewhere`` too, as far as known.

        Asked about are those that may have changed elsewhere since they were last asked about, and
        again those that were found, also by an earlier process.
        """
        asked = self.doubted.intersection(consumers)
        written = asked & self._rewritten
        found = {
            **self.allocations(client, sorted(written)),
            **self.reread_allocations(client, asked - written, "place"),
        }
        self._rewritten -= written
        self._elsewhere = {
            uuid: whole
            for uuid, whole in {**self._elsewhere, **found}.items()
            if uuid in asked and elsewhere(whole)
        }
        return self._elsewhere

    def reread_allocations(
        self, client: PlacementClient, consumers: Collection[ConsumerUuid], about: str
    ) -> Mapping[ConsumerUuid, Allocation]:
        """Read the allocations of ``consumers``, which are to be reported ``about`` one subject, as
        far as they are due by :class:`~agent.placement.consumers.RereadSchedule`; return these.
        """
        now = clock.now()
        due = self._rereads.due(self.view.consumers, consumers, about, now)
        found = self.allocations(client, due)
        self._rereads.record(self.view.consumers, due, about, now)
        return found

    def allocations(
        self,
        client: PlacementClient,
        consumers: Sequence[ConsumerUuid],
        version: str = ALLOCATIONS,
    ) -> Mapping[ConsumerUuid, Allocation]:
        """Return all allocations of each of ``consumers`` as they are now; consumers without any
        are left out. ``version``: see :meth:`PlacementClient.allocation`.
        """
        read = client.exchange.each(lambda uuid: client.allocation(uuid, version), consumers)
        found = dict(zip(consumers, read, strict=True))
        known = self.view.consumers
        for consumer, allocation in found.items():
            known = with_allocation(known, consumer, allocation.resources if allocation else {})
        if found:
            self._view = replace(self.view, consumers=known)
        return {
            consumer: allocation for consumer, allocation in found.items() if allocation is not None
        }

    def holders(self, client: PlacementClient) -> Mapping[ConsumerUuid, Allocation]:
        """Return every consumer with an allocation on the node's tree, with all its allocations,
        also on other trees; nothing is taken from the cache.

        A consumer that released everything between the two reads is left out: its record would
        have no owner.
        """
        tree = self.own_tree()
        self._view = replace(self.view, consumers={}, consumers_at={})
        held = self.consumers(
            client, [uuid for uuid in tree.get_provider_uuids() if tree.has_inventory(uuid)]
        )
        return self.allocations(
            client, sorted({consumer for consumers in held.values() for consumer in consumers})
        )

    def remember_unknown(self, since: Mapping[ConsumerUuid, float]) -> None:
        """Remember since when (seconds since the epoch) each consumer has had no record, or that it
        has a share elsewhere.
        """
        if since != self.view.unknown_since:
            self._view = replace(self.view, unknown_since=since)

    # --- writing ----------------------------------------------------------------------------------

    def intend(self, plan: Plan) -> tuple[Plan, list[Outcome]]:
        """Record in the journal what will be the agent's once ``plan`` is sent.

        Return the plan without the operations that Placement refused before, and the outcomes of
        those.
        """
        before = self.journal
        self._known = frozenset(before.providers)
        refused = [operation for operation in plan.operations if operation in self._refused]
        remaining = (operation for operation in plan.operations if operation not in refused)
        plan = replace(plan, operations=tuple(remaining))
        # What is not taken back yet stays the agent's.
        journal = (
            before.union(plan.target.journal)
            if plan.operations or plan.withheld
            else plan.target.journal
        )
        self._keep_journal(journal)
        return plan, [
            Outcome(operation, "skipped", "Placement refused exactly this before")
            for operation in refused
        ]

    def withdraw(self, journal: Journal) -> None:
        """Take ``journal`` for what the store has: the one that was intended after it was not
        written.
        """
        self._journal = self._kept = journal

    def assume(self, plan: Plan) -> None:
        """Treat the names that ``plan`` creates as confirmed, as a dry run does for later nodes."""
        operations = plan.operations
        traits = [change.name for change in operations if isinstance(change, EnsureTrait)]
        classes = [change.name for change in operations if isinstance(change, EnsureResourceClass)]
        self._server.learn(with_names(self.capabilities, traits=traits, classes=classes))

    def record(self, plan: Plan, flushed: FlushResult) -> None:
        """Record the result of ``plan`` in view and journal, and the newest of what Placement
        confirmed.
        """
        if flushed.forgot:
            self._server.forget(flushed.capabilities)
        else:
            self._server.learn(flushed.capabilities)
        self._view = flushed.view
        for outcome in flushed.outcomes:
            operation = outcome.operation
            if outcome.status == "done" and isinstance(
                operation, DeleteProvider | AllocationOperation | Contents
            ):
                uuid, tree = operation.provider.uuid if operation.provider else "", self.view.tree
                generation = tree.provider(uuid).generation if tree.exists(uuid) else 0
                self.confirmed.pop(operation.key, None)
                self.confirmed[operation.key] = generation or 0
        for key in list(self.confirmed)[:-MOST_CONFIRMED]:
            del self.confirmed[key]
        self._suspects |= flushed.doubtful
        self._refused += flushed.refused
        self.save()
        journal = plan.target.journal if flushed.complete and not plan.withheld else self.journal
        # Only the list of all providers of the tree proves that one is deleted: until the list
        # lacks them they stay the agent's.
        missing = {
            uuid: self.journal.of(uuid) for uuid in flushed.missing if self.journal.owns(uuid)
        }
        journal = replace(
            journal,
            providers={**journal.providers, **missing},
            held=join_held(journal.held, flushed.held),
        )
        # What was only intended and turned out to be somebody else's is not the agent's.
        self._keep_journal(journal.without(flushed.strangers - self._known))

    def save(self) -> None:
        """Save the view."""
        if self.view is not self._saved:
            self._server.storage.save_view(
                self._server.transport.endpoint, self._root, self._saved, self.view
            )
            self._saved = self.view

    def doubt(self) -> None:
        """Have the next refresh read the whole tree, because the outcome of a write is unknown."""
        self._suspects = frozenset(self.view.tree.get_provider_uuids())

    def _keep_journal(self, journal: Journal) -> None:
        if self._journaled:
            # Version and names are those of the journal read or written last, whatever the contents
            # come from.
            last = self.journal
            names = last.names | journal.all_names()
            journal = replace(journal, version=last.version, names=names)
            if journal != self._kept:
                self._kept = self._server.storage.save_journal(self._root, journal)
            self._journal = self._kept

    def keeps(self, wanted: Journal) -> bool:
        """Return whether the journal, as it was written last, has the contents of ``wanted``."""
        return not self._journaled or (self.journal == self._kept and wanted == self._kept)
