"""How long the retry policy waits: any time up to a longest."""

import dataclasses

from agent.errors import GenerationConflict
from agent.placement import exchange
from agent.placement.exchange import conflict_policy, conflict_wait
from tests.support.service_manager import Waits


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


def test_waits_between_attempts_grow_up_to_two_seconds():
    for attempt, longest in ((1, 0.4), (2, 1.6), (3, 2.0), (50, 2.0)):
        waits = Waits()
        assert [conflict_wait(attempt, waits) for _ in range(200)] == [False] * 200
        assert all(exchange.LEAST_WAIT <= one <= longest for one in waits.seconds)
        assert max(waits.seconds) > longest * 0.8
        assert len(set(waits.seconds)) > 100


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
