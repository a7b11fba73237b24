"""Explanation of a request, on one node or on all nodes that Placement has: asks Placement, has the
host judge, and collects suggestions. Writes nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agent.audit.suggesting import (
    CandidateQueries,
    Suggester,
    classes_of,
    read_tree_view,
)
from agent.explain.constraints import Constraint, TreeView, constraints_of, without_constraints
from agent.explain.explanation import (
    AnywhereAnswer,
    CandidateAnswer,
    ExplainedRequest,
    NodeExplanation,
    NodeOffer,
    cell_uses,
    device_uses_of,
)
from agent.explain.host_answer import CorrectionSets, host_answer, smallest_sets
from agent.explain.reasons import Reason, reason_of, unsatisfiable
from agent.explain.scheduler_query import SchedulerQuery
from agent.model.names import ProviderUuid
from agent.model.provider_tree import SHARING_TRAIT
from agent.placement.allocations.candidates import Candidates
from agent.placement.allocations.checks import CandidatesFailed
from agent.placement.client import PlacementClient
from agent.tracker.node_state import NodeState
from agent.tracker.stored_state import Resources

MOST_CANDIDATES = 200
"""So many candidates at most are tried on the host."""
MOST_NODES = 50
"""So many nodes at most are named."""
NO_TREE = TreeView(ProviderUuid(""))


@dataclass(frozen=True, slots=True)
class _Asked:
    """Placement's answer while a node is explained."""

    answer: CandidateAnswer
    offered: Sequence[Resources] = ()
    """The candidates to try on the host."""
    view: TreeView = NO_TREE
    """The tree in figures; empty if there are candidates, so that no figures are needed."""


def explain_node(
    client: PlacementClient,
    state: NodeState,
    request: ExplainedRequest,
    now: float,
    *,
    devices_in_placement: bool,
    with_suggestions: bool = False,
) -> NodeExplanation:
    """Return whether and why the request fits the node. ``now``: seconds since the epoch.

    :raises BadRequest: the query is invalid by itself.
    :raises PlacementRefused, PlacementUnreachable: Placement does not answer.
    """
    queries = CandidateQueries(client, state.node.uuid)
    asked = _ask_placement(client, queries, state.node.uuid, request.query, with_suggestions)
    claim, host = request.claim, None
    if claim is not None:
        offered = [claim.allocations] if claim.allocations else asked.offered
        host = host_answer(state, claim, offered, now)
    explained = NodeExplanation(
        state.node.name,
        state.node.uuid,
        asked.answer,
        host,
        tuple(cell_uses(state)) if claim is not None else (),
        tuple(device_uses_of(state, claim)) if claim is not None else (),
        allocated=claim is not None and bool(claim.allocations),
    )
    if not with_suggestions or explained.fits or not asked.answer.in_placement:
        return explained
    suggester = Suggester(
        state, request, queries, asked.view, asked.offered, now, devices_in_placement
    )
    suggestions = tuple(suggester.suggestions(explained))
    answer = replace(asked.answer, asked=queries.asked)
    return replace(explained, placement=answer, suggestions=suggestions)


def explain_anywhere(client: PlacementClient, query: SchedulerQuery) -> AnywhereAnswer:
    """Return what Placement says of all nodes.

    :raises BadRequest: the query is invalid by itself.
    :raises PlacementRefused, PlacementUnreachable: Placement does not answer.
    """
    queries, refused = CandidateQueries(client, None), ""
    try:
        found = queries.ask(query.query)
    except CandidatesFailed as error:
        found, refused = Candidates((), {}, ""), error.message
    if not found.requests:
        excluded = _excluded_by(queries, query, NO_TREE)
        return AnywhereAnswer(
            CandidateAnswer(excluded_by=excluded, refused=refused, asked=queries.asked)
        )
    nodes = _offers(client, found)
    limited = query.query.limit is not None and len(found.requests) >= query.query.limit
    return AnywhereAnswer(
        CandidateAnswer(len(found.requests), asked=queries.asked), tuple(nodes), limited
    )


def _offers(client: PlacementClient, found: Candidates) -> list[NodeOffer]:
    """Return the nodes of the candidates, those with the most first. The roots of shared storage
    are no nodes.
    """
    counts: Counter[ProviderUuid] = Counter()
    for request in found.requests:
        roots = {
            summary.root_uuid
            for uuid in request.resources
            if (summary := found.summaries.get(uuid)) is not None
            and SHARING_TRAIT not in summary.traits
        }
        counts.update(roots)
    named = [uuid for uuid, _ in counts.most_common(MOST_NODES)]
    names: Mapping[ProviderUuid, str] = {
        row.uuid: row.name for row in client.exchange.each(client.provider, named) if row
    }
    return [NodeOffer(names.get(uuid, ""), uuid, counts[uuid]) for uuid in named]


def _ask_placement(
    client: PlacementClient,
    queries: CandidateQueries,
    root: ProviderUuid,
    query: SchedulerQuery,
    with_holders: bool,
) -> _Asked:
    """Return the candidates of the node's tree; without any, why there are none."""
    found, refused = _candidates(queries, query)
    view = NO_TREE
    if found is None:
        view = read_tree_view(client, root, classes_of(query.query), with_holders=with_holders)
        if queries.count_shared(view) & {*classes_of(query.query)}:
            found, refused = _candidates(queries, query)
    if found is not None:
        offered = [request.resources for request in found.requests[:MOST_CANDIDATES]]
        return _Asked(CandidateAnswer(len(found.requests), asked=queries.asked), offered)
    if view.root_provider is None:
        return _Asked(CandidateAnswer(in_placement=False, refused=refused, asked=queries.asked))
    lacking = [reason_of(constraint, query.query, view) for constraint in _lacking(query, view)]
    excluded = _excluded_by(queries, query, view)
    answer = CandidateAnswer(
        excluded_by=excluded, lacking=tuple(lacking), refused=refused, asked=queries.asked
    )
    return _Asked(answer, view=view)


def _candidates(queries: CandidateQueries, query: SchedulerQuery) -> tuple[Candidates | None, str]:
    """Return the candidates, None if there are none; and why Placement refuses the query."""
    try:
        found = queries.ask(query.query)
    except CandidatesFailed as error:
        return None, error.message
    return (found if found.requests else None), ""


def _lacking(query: SchedulerQuery, view: TreeView) -> list[Constraint]:
    constraints = constraints_of(query.query, query.aliases)
    sets = unsatisfiable(query.query, constraints, view)
    return [constraint for constraint in constraints if any(constraint in some for some in sets)]


def _excluded_by(
    queries: CandidateQueries, query: SchedulerQuery, view: TreeView
) -> CorrectionSets[Reason]:
    """Return the smallest sets of constraints without which Placement has candidates."""
    constraints = constraints_of(query.query, query.aliases)
    known = unsatisfiable(query.query, constraints, view) if view.providers else []
    first = replace(query.query, limit=1)
    found = smallest_sets(
        constraints,
        lambda left_out: queries.has_candidates(without_constraints(first, left_out)),
        known,
    )
    return CorrectionSets(
        tuple(
            frozenset(reason_of(constraint, query.query, view) for constraint in some)
            for some in found.sets
        ),
        found.complete,
    )
