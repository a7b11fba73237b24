"""One retry policy: how long it waits, what it repeats, and that a shutdown ends it."""

import dataclasses

import pytest

from agent.errors import GenerationConflict, PlacementRefused, PlacementUnreachable
from agent.placement import exchange
from agent.placement.exchange import conflict_policy, conflict_wait, read_policy
from tests.support.waits import Waits


@dataclasses.dataclass
class Said:
    status: int


def calls(*answers):
    """A function that gives or raises one after the other."""
    left = list(answers)

    def call():
        one = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    call.left = left
    return call


def lost(kind):
    return PlacementUnreachable("lost", kind=kind)


def test_waits_between_attempts_grow_up_to_two_seconds():
    for attempt, longest in ((1, 0.4), (2, 1.6), (3, 2.0), (50, 2.0)):
        waits = Waits()
        assert [conflict_wait(attempt, waits) for _ in range(200)] == [False] * 200
        assert all(exchange.LEAST_WAIT <= one <= longest for one in waits.seconds)
        assert max(waits.seconds) > longest * 0.8
        assert len(set(waits.seconds)) > 100


@pytest.mark.parametrize(
    "first",
    [lost("connect"), lost("broken"), *map(Said, (408, 429, 502, 503, 504))],
)
def test_a_read_is_repeated_once_after_a_short_wait(first):
    waits, call = Waits(), calls(first, Said(200))
    assert read_policy(waits).call(call) == Said(200)
    assert len(waits.seconds) == 1
    assert exchange.LEAST_READ_WAIT <= waits.seconds[0] <= exchange.LONGEST_READ_WAIT


@pytest.mark.parametrize(
    "first",
    [
        lost("timeout"),
        lost("tls"),
        lost("catalog"),
        lost("credentials"),
        lost("cancelled"),
        PlacementRefused("no", status=503),
        ValueError("bug"),
    ],
)
def test_what_would_fail_again_is_not_repeated(first):
    call = calls(first, Said(200))
    with pytest.raises(type(first)):
        read_policy(Waits()).call(call)
    assert len(call.left) == 1


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 409, 500])
def test_an_answer_that_is_one_is_not_repeated(status):
    assert read_policy(Waits()).call(calls(Said(status))) == Said(status)


@pytest.mark.parametrize("first", [lost("connect"), Said(503)])
def test_nothing_is_repeated_once_the_agent_is_stopping(first):
    waits, call = Waits(), calls(first, Said(200))
    waits.set()
    try:
        assert read_policy(waits).call(call) is first
    except PlacementUnreachable as failure:
        assert failure is first
    assert (waits.seconds, len(call.left)) == ([], 1)


def test_an_operation_is_repeated_three_times_after_waits_of_any_length_up_to_a_longest():
    seen = []
    for _ in range(200):
        waits, call = Waits(), calls(*[GenerationConflict("changed")] * 3, Said(200))
        assert conflict_policy(waits).call(call) == Said(200)
        seen.append(waits.seconds)
    for place, longest in enumerate((0.5, 1.0, 2.0)):
        mine = [one[place] for one in seen]
        assert 0 <= min(mine) < longest * 0.2
        assert longest * 0.8 < max(mine) <= longest


def test_a_patient_read_is_repeated_three_times_with_the_longer_waits():
    waits = Waits()
    assert read_policy(waits, patient=True).call(
        calls(lost("connect"), Said(503), lost("broken"), Said(200))
    ) == Said(200)
    assert len(waits.seconds) == 3
    with pytest.raises(PlacementUnreachable):
        read_policy(Waits(), patient=True).call(calls(*[lost("connect")] * 4, Said(200)))
