"""Queries for allocation candidates to explain a request: limited to the tree of one node, counted,
and at most :data:`MOST_QUERIES` in all; and the reading of the node's tree with its usages.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from agent.explain.correction_sets import BudgetSpent
from agent.explain.tree_view import ProviderRoom, TreeView
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.provider import Provider
from agent.placement.allocations.candidates import (
    CandidateQuery,
    Candidates,
    RequestGroup,
    candidates,
)
from agent.placement.allocations.checks import BadRequest, CandidatesFailed
from agent.placement.client import PlacementClient
from agent.placement.mirror import read_providers

MOST_QUERIES = 40
SHARED = "_SHARED_"
"""The beginning of the suffix of a group for a class that a sharing provider may give."""


class CandidateQueries:
    """The queries for one node, or for all nodes."""

    def __init__(self, client: PlacementClient, root: ProviderUuid | None) -> None:
        """``root``: the node's root provider; None for all nodes."""
        self._client, self._root = client, root
        self.asked = 0
        self.shared: Collection[str] = ()
        """The classes that providers outside of the tree share with it."""

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
        limited = limit_to_tree(query, self._root, self.shared)
        if all(group.in_tree is None for group in limited.groups):
            # The first candidates may be those of other nodes.
            limited = replace(limited, limit=None)
        found = candidates(self._client, limited)
        here = {
            uuid for uuid, summary in found.summaries.items() if summary.root_uuid == self._root
        }
        mine = [request for request in found.requests if here & request.resources.keys()]
        return replace(found, requests=mine)

    def has_candidates(self, query: CandidateQuery | None) -> bool:
        """Return whether there is a candidate. A query that cannot be asked has none.

        :raises BudgetSpent: no more queries may be sent.
        """
        if query is None:
            return False
        try:
            return bool(self.ask(query).requests)
        except (BadRequest, CandidatesFailed):
            return False


def limit_to_tree(
    query: CandidateQuery, root: ProviderUuid, shared: Collection[str] = ()
) -> CandidateQuery:
    """Return the query for one node's tree. ``shared``: the classes that providers outside of the
    tree share with it; each gets a group of its own, because Placement leaves out sharing
    providers where it is limited to a tree.
    """
    groups: list[RequestGroup] = []
    for group in query.groups:
        apart = () if group.suffix else sorted(set(shared) & group.resources.keys())
        own = {name: amount for name, amount in group.resources.items() if name not in apart}
        if apart and not own:
            # A limit would leave out the only provider.
            groups.append(group)
            continue
        groups.append(replace(group, resources=own, in_tree=group.in_tree or root))
        groups += [
            RequestGroup(f"{SHARED}{name}"[:64], {name: group.resources[name]}) for name in apart
        ]
    suffixed = sum(bool(group.suffix) for group in groups)
    policy = query.policy or ("none" if suffixed > 1 else None)
    return replace(query, groups=tuple(groups), policy=policy)


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
