"""The queries that explain a request: a variant that takes too long ends the search, and so does the
time of the whole.
"""

from typing import Any

import pytest

from agent.audit import suggesting
from agent.audit.suggesting import CandidateQueries
from agent.errors import PlacementUnreachable
from agent.explain.host_answer import BudgetSpent
from agent.model.names import ProviderUuid
from agent.placement.allocations.candidates import CandidateQuery, Candidates, parse_query

QUERY = parse_query(["resources=VCPU:1"])


def asking(monkeypatch: pytest.MonkeyPatch, kind: str) -> tuple[CandidateQueries, list[Any]]:
    """Queries of which the second fails, and what was asked."""
    asked: list[Any] = []

    def answer(_client: Any, query: CandidateQuery) -> Candidates:
        asked.append(query)
        if len(asked) == 2:
            raise PlacementUnreachable("no answer", kind=kind)
        return Candidates((), {}, "")

    monkeypatch.setattr(suggesting, "candidates", answer)
    client: Any = None
    return CandidateQueries(client, ProviderUuid("root")), asked


@pytest.mark.parametrize("kind", ["slow", "timeout"])
def test_a_variant_that_takes_too_long_ends_the_search(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    queries, asked = asking(monkeypatch, kind)
    assert not queries.has_candidates(QUERY)
    for _ in range(3):
        with pytest.raises(BudgetSpent):
            queries.has_candidates(QUERY)
    assert len(asked) == queries.asked == 2


def test_another_failure_is_no_end_of_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, _asked = asking(monkeypatch, "connect")
    queries.has_candidates(QUERY)
    with pytest.raises(PlacementUnreachable):
        queries.has_candidates(QUERY)


def test_no_further_query_is_sent_after_the_time_of_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suggesting, "LONGEST_SEARCH", 0.0)
    queries, asked = asking(monkeypatch, "connect")
    queries.ask(QUERY)
    with pytest.raises(BudgetSpent):
        queries.has_candidates(QUERY)
    assert len(asked) == 1
