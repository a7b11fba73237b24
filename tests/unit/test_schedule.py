"""When the next audit is due."""

import math

import pytest

from agent.service import audit_queue
from agent.service.audit_queue import DirtyNodes, Schedule


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock; ``clock.now`` sets it."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(audit_queue.time, "monotonic", lambda: Clock.now)
    return Clock


def test_the_first_audit_comes_soon_but_not_with_all_others(clock):
    dues = [Schedule(60).due - clock.now for _ in range(200)]
    assert min(dues) >= 0
    assert max(dues) <= 3
    assert max(dues) - min(dues) > 1


def test_hosts_that_start_together_spread_over_the_whole_interval(clock):
    dues = []
    for _ in range(200):
        one = Schedule(60)
        one.plan_after_success()
        dues.append(one.due - clock.now)
    assert 0 < min(dues) < 10
    assert 50 < max(dues) <= 60


def test_audits_keep_their_place_whatever_they_take(clock):
    one = Schedule(60)
    one.plan_after_success()
    first = one.due
    for late in (0.1, 59.0):
        clock.now = one.due + late
        one.plan_after_success()
    assert one.due == pytest.approx(first + 120)


def test_what_was_missed_is_not_made_up_for(clock):
    one = Schedule(60)
    one.plan_after_success()
    first = one.due
    clock.now = first + 200
    one.plan_after_success()
    assert one.due == pytest.approx(first + 240)


def test_pauses_grow_with_jitter_up_to_the_interval(clock):
    one = Schedule(60)
    pauses = []
    for _ in range(30):
        one.plan_after_failure()
        pauses.append(one.due - clock.now)
    longest = [min(60, 2**number) for number in range(30)]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))
    assert len({round(pause, 3) for pause in pauses[10:]}) > 10


def test_zero_is_the_default_and_minus_one_never(clock):
    assert Schedule(0).due - clock.now <= 3
    never = Schedule(-1)
    assert never.due - clock.now <= 3, "once, at the start"
    never.plan_after_failure()
    assert never.due - clock.now <= 1, "what failed was not that once"
    never.plan_after_success()
    assert never.due == math.inf
    never.at_once()
    assert never.due == clock.now


# --- nodes that have changed ----------------------------------------------------------------------


def test_a_change_is_published_within_a_second(clock):
    nodes = DirtyNodes(lambda: None)
    nodes.add("a")
    assert nodes.due == 1001.0
    clock.now = 1000.5
    nodes.add("b")
    assert nodes.due == 1001.0
    assert nodes.take() == {"a", "b"}
    assert nodes.due == math.inf


def test_a_burst_of_changes_is_published_once_it_is_over(clock):
    nodes = DirtyNodes(lambda: None)
    for _ in range(300):
        nodes.add("a")
        assert nodes.due > clock.now
        clock.now += 0.01
    assert nodes.due == pytest.approx(clock.now - 0.01 + audit_queue.QUIET)


def test_changes_without_end_do_not_put_the_audit_off_for_ever(clock):
    nodes = DirtyNodes(lambda: None)
    while clock.now < 1000.0 + audit_queue.LONGEST:
        nodes.add("a")
        clock.now += 0.01
    assert nodes.due == 1000.0 + audit_queue.LONGEST
