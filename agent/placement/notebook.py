"""What the agent remembers of one node in Placement: view and journal, in memory and in the store."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from agent.model.allocation import Allocation
from agent.model.journal import Configured, Journal, Ownership
from agent.model.mirror import Consumers, Knowledge, View
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.operation import EnsureResourceClass, EnsureTrait, Operation
from agent.model.provider_tree import ProviderTree
from agent.model.report import Outcome
from agent.placement import clock
from agent.placement.client import Client, Row
from agent.placement.flush import Flushed
from agent.placement.known_consumers import holding
from agent.placement.mirror import Freshness, refreshed
from agent.placement.names import with_names
from agent.placement.ownership import Usages, Use
from agent.placement.plan import Plan
from agent.placement.server import Server

LOG = logging.getLogger(__name__)

Held = Mapping[ProviderUuid, frozenset[str]]


class Notebook:
    """One node's page. Has a single writer: the audit of the node."""

    def __init__(self, server: Server, root: ProviderUuid) -> None:
        self._server, self._root = server, root
        self._view: View | None = None
        self._saved: View | None = None
        self._journal: Journal | None = None
        self._suspects: frozenset[ProviderUuid] = frozenset()
        self._refused: list[Operation] = []

    @property
    def view(self) -> View:
        """Placement as last read or written; at first as saved by an earlier process."""
        if self._view is None:
            self._saved = self._server.storage.view(self._server.transport.endpoint, self._root)
            self._view = self._saved or View()
        return self._view

    @property
    def journal(self) -> Journal:
        """What is ours."""
        if self._journal is None:
            self._journal = self._server.storage.journal(self._root)
        return self._journal

    @property
    def knowledge(self) -> Knowledge:
        """What the server offers. Known once the server is connected."""
        return cast(Knowledge, self._server.knowledge)

    def own_tree(self) -> ProviderTree:
        """The node's tree alone, as a copy; empty if Placement does not have it."""
        return self.view.tree.subtree(self._root) if self.view.tree.exists(self._root) else ProviderTree()

    # --- reading ----------------------------------------------------------------------------------------------

    def refresh(self, client: Client, freshness: Freshness, rows: Sequence[Row] | None) -> None:
        """Bring the view up to date. What a write of unknown outcome was about is read whatever its generation says.

        :raises GenerationConflict: a provider changed under every attempt to read it.
        """
        before = self.view
        self._view = refreshed(client, before, self._root, clock.now(), freshness, self._suspects, rows)
        if self._view.tree is not before.tree:
            self._tell_lost_traits(before.tree, self._view.tree, self.journal.providers.keys() - self._suspects)
        self._suspects = frozenset()

    def _tell_lost_traits(self, before: ProviderTree, after: ProviderTree, ours: Iterable[ProviderUuid]) -> None:
        for uuid in ours:
            if before.exists(uuid) and after.exists(uuid):
                lost = self.journal.of(uuid).traits & before.provider(uuid).traits - after.provider(uuid).traits
                if lost:
                    LOG.warning("provider %s lost traits that the agent had set: %s", printable(after.name_of(uuid)), ", ".join(sorted(lost)))

    def adopt(self) -> None:
        """Take the tree over: from now on what is ours may be deleted and moved."""
        self._journal = replace(self.journal, adopted=True)

    def held(self, client: Client) -> Usages:
        """What is used of the classes and providers that only wait to become free; of what is the operator's, by how many too."""
        waiting = [uuid for uuid in self.journal.held if self.view.tree.exists(uuid)]
        return dict(zip(waiting, client.exchange.each(lambda uuid: self._uses(client, uuid), waiting), strict=True))

    def _uses(self, client: Client, uuid: ProviderUuid) -> Mapping[str, Use]:
        if not self.journal.held[uuid] & self.journal.of(uuid).configured.classes:
            return {name: Use(amount) for name, amount in client.usages(uuid).items()}
        amounts: dict[str, list[int]] = {}
        for held in client.consumers(uuid).values():
            for name, amount in held.items():
                amounts.setdefault(name, []).append(amount)
        return {name: Use(sum(several), len(several)) for name, several in amounts.items()}

    def consumers(self, client: Client, ours: Iterable[ProviderUuid]) -> Consumers:
        """Who holds what on each of the providers ``ours``; asked for where the provider was read anew since it was last asked."""
        wanted = list(ours)
        missing = [uuid for uuid in wanted if uuid not in self.view.consumers]
        if missing:
            read = zip(missing, client.exchange.each(client.consumers, missing), strict=True)
            self._view = replace(self.view, consumers={**self.view.consumers, **dict(read)})
        return {uuid: self.view.consumers[uuid] for uuid in wanted}

    def allocations(self, client: Client, consumers: Sequence[ConsumerUuid]) -> Mapping[ConsumerUuid, Allocation]:
        """All that each of ``consumers`` holds now; those that hold nothing any more are left out."""
        found = dict(zip(consumers, client.exchange.each(client.allocation, consumers), strict=True))
        known = self.view.consumers
        for consumer, allocation in found.items():
            known = holding(known, consumer, allocation.resources if allocation else {})
        if found:
            self._view = replace(self.view, consumers=known)
        return {consumer: one for consumer, one in found.items() if one is not None}

    def holders(self, client: Client) -> Mapping[ConsumerUuid, Allocation]:
        """Every consumer with something on the node's tree, with all that it holds, also elsewhere; nothing of it is taken from memory.

        One that let go between the two readings is left out: its record would have no owner.
        """
        tree = self.own_tree()
        self._view = replace(self.view, consumers={})
        held = self.consumers(client, [uuid for uuid in tree.get_provider_uuids() if tree.has_inventory(uuid)])
        return self.allocations(client, sorted({consumer for one in held.values() for consumer in one}))

    def unknown(self, since: Mapping[ConsumerUuid, float]) -> None:
        """Remember since when nobody knows the consumers that nobody knows."""
        if since != self.view.unknown_since:
            self._view = replace(self.view, unknown_since=since)

    # --- writing ----------------------------------------------------------------------------------------------

    def intend(self, plan: Plan) -> tuple[Plan, list[Outcome]]:
        """Write down what will be ours once ``plan`` is sent; what Placement refused before is taken out of it."""
        refused = [one for one in plan.operations if one in self._refused]
        plan = replace(plan, operations=tuple(one for one in plan.operations if one not in refused))
        self._keep_journal(_either(self.journal, plan.target.journal) if plan.operations else plan.target.journal)
        return plan, [Outcome(one, "skipped", "Placement refused exactly this before") for one in refused]

    def assume(self, plan: Plan) -> None:
        """Take it for done, as far as the plans of other nodes depend on it: what a dry run does instead of sending it."""
        traits = [one.name for one in plan.operations if isinstance(one, EnsureTrait)]
        classes = [one.name for one in plan.operations if isinstance(one, EnsureResourceClass)]
        self._server.learned(with_names(self.knowledge, traits=traits, classes=classes))

    def record(self, plan: Plan, flushed: Flushed) -> None:
        """Write down what came of ``plan``."""
        if flushed.forgot:
            self._server.forget(flushed.knowledge)
        else:
            self._server.learned(flushed.knowledge)
        self._view = flushed.view
        self._suspects |= flushed.doubtful
        self._refused += flushed.refused
        self.save()
        journal = plan.target.journal if flushed.complete else self.journal
        self._keep_journal(replace(journal, held=_both(journal.held, flushed.held)))

    def save(self) -> None:
        """Keep the view."""
        if self.view is not self._saved:
            self._server.storage.save_view(self._server.transport.endpoint, self._root, self._saved, self.view)
            self._saved = self.view

    def doubt(self) -> None:
        """Trust no content of the tree, because a write may or may not have come through."""
        self._suspects = frozenset(self.view.tree.get_provider_uuids())

    def _keep_journal(self, journal: Journal) -> None:
        self._server.storage.save_journal(self._root, journal)
        self._journal = journal


def _either(before: Journal, after: Journal) -> Journal:
    """What is ours if any part of the way from ``before`` to ``after`` has been done."""
    providers = {
        uuid: Ownership(
            one.classes | other.classes, one.traits | other.traits, one.aggregates | other.aggregates,
            Configured(one.configured.classes | other.configured.classes, one.configured.traits | other.configured.traits),
        )
        for uuid in (*before.providers, *after.providers)
        for one, other in [(before.of(uuid), after.of(uuid))]
    }
    return Journal(providers, after.adopted, _both(before.held, after.held))


def _both(one: Held, other: Held) -> Held:
    return {uuid: one.get(uuid, frozenset()) | other.get(uuid, frozenset()) for uuid in (*one, *other)}
