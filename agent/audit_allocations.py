"""The allocations of a node under audit: read where they may have changed, judged by the records, what is over planned to go."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from agent.errors import AgentError
from agent.model.facts import HostFacts
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import AllocationOperation, Reshape
from agent.model.provider_tree import ProviderTree
from agent.model.report import Drift
from agent.placement import clock
from agent.placement.client import Client
from agent.placement.notebook import Notebook
from agent.placement.plan import Plan
from agent.tracker.allocation_drift import drift
from agent.tracker.allocations import Holding, judge, operations
from agent.tracker.consumer_book import ConsumerBook
from agent.tracker.node_view import NodeView


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of it. ``errors``: why it could not be done; the audit goes on without."""

    operations: tuple[AllocationOperation, ...] = ()
    drift: tuple[Drift, ...] = ()
    errors: tuple[AgentError, ...] = ()

    def added_to(self, plan: Plan) -> Plan:
        """``plan`` with this at its end. Not beside a reshape, which may be about the same consumers: then the next pass removes."""
        removals = () if any(isinstance(one, Reshape) for one in plan.operations) else self.operations
        return replace(plan, operations=(*plan.operations, *removals), drift=(*plan.drift, *self.drift))


@dataclass(frozen=True, slots=True)
class NodeAllocations:
    """The allocations of one node. ``view``: what was counted of it; ``purge_after``: as the judgement takes it."""

    notebook: Notebook
    book: ConsumerBook
    view: NodeView
    purge_after: float | None = None

    def judged(self, client: Client, owned: Collection[str], facts: HostFacts, tried: Collection[ConsumerUuid]) -> Judged:
        """Judge every consumer of the providers that are ``owned``. ``tried``: those that this pass could not remove before."""
        try:
            if not self.book.needed(self.view, purging=self.purge_after is not None):
                return Judged()
            return self._judged(client, owned, facts, tried)
        except AgentError as error:
            return Judged(errors=(error,))

    def _judged(self, client: Client, owned: Collection[str], facts: HostFacts, tried: Collection[ConsumerUuid]) -> Judged:
        tree = self.notebook.own_tree()
        ours = [uuid for uuid in tree.get_provider_uuids() if uuid in owned and tree.has_inventory(uuid)]
        if not ours:
            return Judged()
        consumers = self.notebook.consumers(client, ours)
        records = self.book.records(self.view, {consumer for held in consumers.values() for consumer in held})
        holding = Holding(self.view.node, consumers, _offered(self.notebook.view.tree, ours), _running(facts))
        verdicts = judge(holding, records, self.notebook.view.unknown_since, clock.now(), self.purge_after)
        self.notebook.unknown(verdicts.unknown_since)
        removals = [one for one in verdicts.removals if one.consumer not in tried]
        # Read again, because what moved no generation may be over already.
        found = self.notebook.allocations(client, [one.consumer for one in removals])
        return Judged(tuple(operations(removals, found, tree.get_provider_uuids())), (*verdicts.drift, *drift(holding, records)))


def _offered(tree: ProviderTree, ours: Collection[ProviderUuid]) -> frozenset[str]:
    """The classes that only ``ours`` have, here and on what shares with the tree."""
    having = {True: set[str](), False: set[str]()}
    for one in tree.providers():
        having[one.uuid in ours] |= one.inventory.keys()
    return frozenset(having[True] - having[False])


def _running(facts: HostFacts) -> frozenset[ConsumerUuid] | None:
    """The guests that the hypervisor shows; ``None`` where it should and could not. One that never does leaves it to the records."""
    return frozenset(one.uuid for one in facts.domains or ()) if facts.complete("domains") else None
