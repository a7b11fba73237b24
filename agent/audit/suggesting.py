"""Suggestions for a request that does not fit a node. Each is tested where that is possible: by a
query to Placement, limited to the tree of one node and at most :data:`MOST_QUERIES` in all, and by
a claim on the host.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import os_traits

from agent.errors import PlacementUnreachable
from agent.explain.constraints import Constraint, ProviderRoom, TreeView, without_constraints
from agent.explain.explanation import (
    NEEDS_CLEANING,
    ExplainedRequest,
    NodeExplanation,
    fewer_devices,
)
from agent.explain.host_answer import (
    STRICT,
    BudgetSpent,
    HostCondition,
    host_answer,
    host_conditions,
    relax,
    try_claim,
)
from agent.explain.reasons import (
    Suggestion,
    free_together,
    guests_to_move,
    largest,
    meets,
    ratio_needed,
    smaller_claims,
    smaller_query,
    without_guest,
)
from agent.explain.scheduler_query import scheduler_query
from agent.model.names import AGENT_MARK, ConsumerUuid, ProviderUuid, name_first
from agent.model.provider_tree import Provider
from agent.placement.allocations.candidates import (
    AllocationRequest,
    CandidateQuery,
    Candidates,
    candidates,
)
from agent.placement.allocations.checks import BadRequest, CandidatesFailed
from agent.placement.client import PlacementClient
from agent.placement.mirror import read_providers
from agent.tracker.errors import InvalidTrackerRequest
from agent.tracker.node_state import NodeState
from agent.tracker.nova_commands import migrate
from agent.tracker.stored_state import InstanceClaim, PlannedChange, Resources

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


NOT_ASKED = "Placement was not asked, because no more queries may be sent"
ONLY_PLACEMENT = "only Placement was asked without it"
LOWERED = frozenset({"resource", "alias", "root-forbidden"})
"""The kinds of constraints that a smaller request or an option meets."""


@dataclass(frozen=True, slots=True)
class Suggester:
    """What is known of the request and of the node."""

    state: NodeState
    request: ExplainedRequest
    queries: CandidateQueries
    view: TreeView
    """The node's tree in figures, with the consumers; empty if Placement has candidates."""
    offered: Sequence[Resources]
    """The candidates that Placement has."""
    now: float
    devices_in_placement: bool

    def suggestions(self, explained: NodeExplanation) -> Iterator[Suggestion]:
        """Yield the suggestions, those that change the least first."""
        lacking = [
            reason.constraint
            for reason in (explained.placement.lacking if explained.placement else ())
        ]
        yield from self._devices(explained)
        yield from self._options(explained, lacking)
        yield from self._guests(lacking)
        yield from self._changed(explained)
        yield from self._smaller(lacking, explained)

    # --- tests ------------------------------------------------------------------------------------

    def _fits(self, claim: InstanceClaim) -> bool | None:
        """Return whether another claim fits, by Placement and by the host; None if Placement cannot
        be asked any more.
        """
        try:
            asked = scheduler_query(
                claim,
                self.state.host.aliases,
                devices_in_placement=self.devices_in_placement,
            )
            found = self.queries.ask_further(asked.query)
        except (InvalidTrackerRequest, BadRequest, CandidatesFailed):
            return False
        except BudgetSpent:
            return None
        return self._granted(claim, found.requests)

    def _granted(self, claim: InstanceClaim, offered: Sequence[AllocationRequest]) -> bool:
        return any(
            isinstance(try_claim(self.state, claim, request.resources, self.now), PlannedChange)
            for request in offered
        )

    def _query_fits(self, query: CandidateQuery) -> bool | None:
        try:
            return self.queries.has_candidates(replace(query, limit=1))
        except BudgetSpent:
            return None

    def _host_grants(self, state: NodeState) -> bool:
        """Return whether the host grants the guest in this state with what Placement offers."""
        claim = self.request.claim
        return claim is None or (
            host_answer(state, claim, self.offered, self.now).granted is not None
        )

    # --- kinds of suggestions ---------------------------------------------------------------------

    def _devices(self, explained: NodeExplanation) -> Iterator[Suggestion]:
        dirty = [use.address for use in explained.devices if use.state == NEEDS_CLEANING]
        if not dirty:
            return
        cleaned = {
            address: replace(device, used=False) if address in dirty else device
            for address, device in self.state.devices.items()
        }
        claim = self.request.claim
        assert claim is not None
        changed = replace(self.state, devices=cleaned)
        if isinstance(try_claim(changed, claim, {}, self.now), PlannedChange):
            guess = (
                ""
                if self.offered
                else ("the reserved amount in Placement falls with the next audit")
            )
            yield Suggestion(
                "device", f"clean, then: agent pci cleaned {name_first(dirty, 4)}", guess
            )

    def _options(
        self, explained: NodeExplanation, lacking: Sequence[Constraint]
    ) -> Iterator[Suggestion]:
        if any(constraint.name == os_traits.COMPUTE_STATUS_DISABLED for constraint in lacking):
            yield Suggestion(
                "option",
                "enable the compute service in nova, or set [DEFAULT] enabled = true",
                "whether the host is meant to take guests",
            )
        for constraint in lacking:
            if (ratio := ratio_needed(constraint, self.view)) is not None:
                option, value = ratio
                yield Suggestion(
                    "option",
                    f"[DEFAULT] {option} = {value}",
                    "whether the host bears more overcommitment",
                )
        if any(self._splits(constraint, explained) for constraint in lacking):
            yield Suggestion(
                "option",
                "[compute] tree_layout = flat",
                "the host grants the guest then; the tree in Placement changes with the option",
            )
        for some in explained.host.excluded_by.sets if explained.host else ():
            if any(condition.name == STRICT for condition in some) and len(some) == 1:
                yield Suggestion(
                    "option",
                    "[compute] numa_mode = mixed",
                    "the host grants the guest then; the tree in Placement changes with the option",
                )

    def _guests(self, lacking: Sequence[Constraint]) -> Iterator[Suggestion]:
        """Yield guests to move away: those without which the host grants the guest and each
        constraint is met, by the figures of Placement.
        """
        claims = self.state.claims.values()
        order = {
            instance.uuid: instance.flavor.memory_mb for instance in self.state.instances.values()
        }
        here = {claim.instance for claim in claims}
        beside = {consumer for provider in self.view.providers for consumer in provider.holders}
        guests = sorted(here | beside, key=lambda guest: (order.get(guest, 0), guest))
        # Where Placement's figures do not say what excludes the guest, nothing can be computed.
        if not self.offered and not lacking:
            return

        def fits_without(gone: Sequence[ConsumerUuid]) -> bool:
            view, state = self.view, self.state
            for guest in gone:
                state = without_guest(state, guest, self.now)
                view = view.after(guest)
            query = self.request.query.query
            met = all(meets(constraint, query, view) for constraint in lacking)
            return met and self._host_grants(state)

        for some in guests_to_move(guests, fits_without):
            yield Suggestion(
                "guests",
                self._ways_to_end(some),
                ""
                if self.offered
                else "computed from what Placement has; Placement itself was not asked",
            )

    def _ways_to_end(self, consumers: Sequence[ConsumerUuid]) -> str:
        """Return how to have the node without the consumers. What no record and no hypervisor knows
        is no guest that could be moved.
        """
        node, shown = self.state.node.uuid, self.state.host.guests or ()
        guests = {guest.uuid for guest in shown} | self.state.instances.keys()
        moved = [one for one in consumers if one in guests]
        ways = [f"move away {' and '.join(moved)}: {' && '.join(map(migrate, moved))}"] * bool(
            moved
        )
        ways += [
            f"if nova has no server or migration {one}, end what it holds: agent allocation "
            f"remove-tree {one} {node}"
            for one in consumers
            if one not in guests
        ]
        return "; ".join(ways)

    def _changed(self, explained: NodeExplanation) -> Iterator[Suggestion]:
        """Yield the parts of the request without which the node would do."""
        placement, host = explained.placement, explained.host
        without_aliases = []
        for some in placement.excluded_by.sets if placement else ():
            constraints = [reason.constraint for reason in some]
            kinds = {constraint.kind for constraint in constraints}
            if kinds == {"alias"}:
                without_aliases.append(self._alias_conditions(constraints))
            elif not kinds <= LOWERED and (fits := self._fits_without(constraints)) is not False:
                text = " and ".join(sorted(constraint.text for constraint in constraints))
                yield Suggestion("request", f"ask without: {text}", "" if fits else ONLY_PLACEMENT)
        of_host = host.excluded_by.sets if host else ()
        for conditions in dict.fromkeys([*without_aliases, *of_host]):
            yield from self._without(conditions)

    def _alias_conditions(self, constraints: Sequence[Constraint]) -> frozenset[HostCondition]:
        """Return the same aliases as conditions of the host."""
        claim = self.request.claim
        names = {constraint.alias for constraint in constraints}
        return frozenset(
            condition
            for condition in (host_conditions(self.state, claim) if claim is not None else ())
            if condition.kind == "alias" and condition.name.partition(":")[0].strip() in names
        )

    def _fits_without(self, constraints: Sequence[Constraint]) -> bool | None:
        """Return whether the host grants the guest with what Placement offers without these; None
        if it cannot be asked, because that would be another guest.
        """
        claim = self.request.claim
        if claim is None:
            return True
        query = without_constraints(self.request.query.query, constraints)
        if query is None or any(constraint.kind in LOWERED for constraint in constraints):
            return None
        try:
            offered = self.queries.ask_further(query).requests
        except BudgetSpent:
            return None
        except (BadRequest, CandidatesFailed):
            return False
        return self._granted(claim, offered)

    def _without(self, conditions: frozenset[HostCondition]) -> Iterator[Suggestion]:
        claim = self.request.claim
        if claim is None or any(condition.kind == "option" for condition in conditions):
            return
        _, relaxed = relax(self.state, claim, conditions)
        fits = self._fits(relaxed)
        if fits is not False:
            text = " and ".join(sorted(condition.text for condition in conditions))
            yield Suggestion("request", f"ask without: {text}", "" if fits else NOT_ASKED)

    def _splits(self, constraint: Constraint, explained: NodeExplanation) -> bool:
        """Return whether the host would put on several cells what Placement has to give of one."""
        return (
            explained.host is not None
            and explained.host.alone
            and free_together(constraint, self.view) is not None
        )

    def _smaller(
        self, lacking: Sequence[Constraint], explained: NodeExplanation
    ) -> Iterator[Suggestion]:
        claim = self.request.claim
        if claim is None:
            found = smaller_query(self.request.query.query, lacking, self.view)
            if found is not None and (fits := self._query_fits(found[1])) is not False:
                yield Suggestion("request", f"ask for {found[0]}", "" if fits else NOT_ASKED)
            return
        offered = {one.alias: largest(one, self.view) for one in lacking if one.kind == "alias"}
        specs = fewer_devices(self.state, claim, offered)
        sizes = smaller_claims(claim, specs, lacking, self.view) if specs is not None else ()
        for text, smaller in sizes:
            fits = self._fits(smaller)
            if fits is not False:
                yield Suggestion("request", f"ask for {text}", "" if fits else NOT_ASKED)
                return
        for constraint in lacking:
            if self._splits(constraint, explained) and (most := largest(constraint, self.view)):
                yield Suggestion(
                    "request",
                    f"ask for at most {most} {constraint.name}, which one cell has",
                    "the guest's own cells have to become smaller too",
                )
