"""Queries for allocation candidates to explain a request: limited to the tree of one node, counted,
and at most :data:`MOST_QUERIES` in all; and the reading of the node's tree with its usages.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from agent.errors import PlacementUnreachable
from agent.explain.constraints import ProviderRoom, TreeView
from agent.explain.host_answer import BudgetSpent
from agent.model.names import AGENT_MARK, ConsumerUuid, ProviderUuid
from agent.model.provider import Provider
from agent.placement.allocations.candidates import (
    CandidateQuery,
    Candidates,
    candidates,
)
from agent.placement.allocations.checks import BadRequest, CandidatesFailed
from agent.placement.client import PlacementClient
from agent.placement.mirror import read_providers

MOST_QUERIES = 40
LONGEST_SEARCH = 120.0
"""Seconds after which no further query is sent."""
TOO_SLOW = ("slow", "timeout")
"""The failures of a query that takes too long, and whose variants would too."""


class CandidateQueries:
    """The queries for one node, or for all nodes."""

    def __init__(self, client: PlacementClient, root: ProviderUuid | None) -> None:
        """``root``: the node's root provider; None for all nodes."""
        self._client, self._root = client, root
        self.asked = 0
        self._until = time.monotonic() + LONGEST_SEARCH
        self._shared: frozenset[str] = frozenset()
        self._marks: frozenset[str] = frozenset()

    def count_shared(self, view: TreeView) -> frozenset[str]:
        """Count from now on what providers outside of the tree share with it. Return the classes
        that they have.

        ``view``: the node's tree, and the providers that share with it.
        """
        root = view.root_provider
        self._shared = view.shared_classes()
        self._marks = frozenset(
            trait for trait in (root.traits if root else ()) if trait.startswith(AGENT_MARK)
        )
        return self._shared

    def ask(self, query: CandidateQuery) -> Candidates:
        """Return the candidates that use a provider of the node's tree.

        :raises BudgetSpent: no more queries may be sent.
        :raises BadRequest: the query is invalid, for example a group of traits without resources.
        :raises CandidatesFailed: Placement refuses the query, for example for an unknown trait.
        """
        if self.asked >= MOST_QUERIES:
            raise BudgetSpent
        self.asked += 1
        if self._root is None:
            return candidates(self._client, query)
        limited = limit_to_tree(query, self._root)
        if self._shared & {*classes_of(query)}:
            # Limited to a tree, Placement leaves out what is shared with it. So all trees of this
            # agent are asked for; the first candidates may be those of its other nodes.
            limited = replace(query, root_required=query.root_required | self._marks, limit=None)
        found = candidates(self._client, limited)
        here = {
            uuid for uuid, summary in found.summaries.items() if summary.root_uuid == self._root
        }
        mine = [request for request in found.requests if here & request.resources.keys()]
        return replace(found, requests=mine)

    def ask_further(self, query: CandidateQuery) -> Candidates:
        """Return the candidates of a variant of the query, as :meth:`ask` does. One that takes too
        long ends the search, because each further one would.

        :raises BudgetSpent: no more queries may be sent.
        :raises BadRequest: the query is invalid.
        :raises CandidatesFailed: Placement refuses the query.
        """
        if time.monotonic() >= self._until:
            raise BudgetSpent
        try:
            return self.ask(query)
        except PlacementUnreachable as error:
            if error.kind not in TOO_SLOW:
                raise
            self._until = time.monotonic()
            raise BudgetSpent from error

    def has_candidates(self, query: CandidateQuery | None) -> bool:
        """Return whether there is a candidate. A query that cannot be asked has none.

        :raises BudgetSpent: no more queries may be sent.
        """
        if query is None:
            return False
        try:
            return bool(self.ask_further(query).requests)
        except (BadRequest, CandidatesFailed):
            return False


def limit_to_tree(query: CandidateQuery, root: ProviderUuid) -> CandidateQuery:
    """Return the query for one node's tree alone, without what others share with it."""
    groups = tuple(replace(group, in_tree=group.in_tree or root) for group in query.groups)
    return replace(query, groups=groups)


def read_tree_view(
    client: PlacementClient,
    root: ProviderUuid,
    classes: Collection[str],
    *,
    with_holders: bool = False,
) -> TreeView:
    """Read the node's tree and the providers that share with it. Usages, and with ``with_holders``
    consumers, are read of the providers that have one of ``classes``.
    """
    rows = client.tree(root)
    tree = read_providers(client, rows)
    aggregates = frozenset[str]().union(*(provider.aggregates for provider in tree.values()))
    sharing = read_providers(
        client, [row for row in client.sharing(aggregates) if row.uuid not in tree]
    )
    providers = {**tree, **sharing}
    asked = [
        uuid for uuid, provider in providers.items() if provider.inventory.keys() & set(classes)
    ]
    usages = dict(zip(asked, client.exchange.each(client.usages, asked), strict=True))
    holders: dict[ProviderUuid, Mapping[ConsumerUuid, Mapping[str, int]]] = {}
    if with_holders:
        read = client.exchange.each(client.consumers, asked)
        holders = dict(zip(asked, read, strict=True))
    return TreeView(
        root,
        tuple(
            _room(provider, usages.get(uuid, {}), holders.get(uuid, {}), sharing=uuid in sharing)
            for uuid, provider in sorted(providers.items(), key=lambda pair: pair[1].name)
        ),
    )


def _room(
    provider: Provider,
    used: Mapping[str, int],
    holders: Mapping[ConsumerUuid, Mapping[str, int]],
    *,
    sharing: bool,
) -> ProviderRoom:
    return ProviderRoom(
        provider.uuid,
        provider.name,
        provider.inventory,
        used,
        frozenset(provider.traits),
        sharing,
        holders,
    )


def classes_of(query: CandidateQuery) -> Sequence[str]:
    """Return all classes that the query requests."""
    return sorted({name for group in query.groups for name in group.resources})
