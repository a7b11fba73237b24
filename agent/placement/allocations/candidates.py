"""Candidates: the ways in which Placement could place a guest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.errors import PlacementRefused
from agent.model.names import ProviderUuid
from agent.placement.allocations.candidate_query import CandidateQuery
from agent.placement.allocations.checks import refuse
from agent.placement.allocations.errors import CandidatesFailed
from agent.placement.allocations.request import AllocationRequest
from agent.placement.answers import Summary
from agent.placement.client import CANDIDATES, PlacementClient


@dataclass(frozen=True, slots=True)
class ProviderSummary:
    """A provider of a tree that a candidate is in. ``capacity`` and ``used`` are by class."""

    capacity: Mapping[str, int]
    used: Mapping[str, int]
    traits: frozenset[str]
    parent_uuid: ProviderUuid | None
    root_uuid: ProviderUuid


@dataclass(frozen=True, slots=True)
class Candidates:
    """The ways there are, none if no host fits; and every provider of their trees."""

    requests: Sequence[AllocationRequest]
    summaries: Mapping[ProviderUuid, ProviderSummary]
    version: str


def candidates(client: PlacementClient, query: CandidateQuery) -> Candidates:
    """What Placement answers to ``query``. That nothing fits is an answer too.

    :raises BadRequest: the query makes no sense.
    :raises CandidatesFailed: Placement refused it; an unknown class or trait, for example.
    """
    refuse(query.problems())
    try:
        body = client.candidates(query.encoded())
    except PlacementRefused as error:
        if error.status != 400:
            raise
        raise CandidatesFailed(f"no candidates: {error.message}", "correct the query") from error
    requests = tuple(AllocationRequest(one, CANDIDATES) for one in body.allocation_requests)
    return Candidates(requests, {uuid: _summary(entry) for uuid, entry in body.provider_summaries.items()}, CANDIDATES)


def _summary(entry: Summary) -> ProviderSummary:
    return ProviderSummary(
        {name: one.capacity for name, one in entry.resources.items()}, {name: one.used for name, one in entry.resources.items()},
        entry.traits, entry.parent_provider_uuid, entry.root_provider_uuid,
    )  # fmt: skip
