"""What the daemon's API hears of the daemon."""

import math
import threading
import time

import pytest

from agent.api import service as module
from agent.api.audit_requests import KEPT, AuditRequests
from agent.api.problem import TooManyAudits, Unready, Unwell
from agent.api.service import Service
from agent.model.finding import Problem
from agent.service import audit_queue
from agent.service.audit_queue import DirtyNodes, Schedule
from tests.unit.render.reports import ROOT, node, report

WELL = report(nodes=(node(state="in-sync", errors=()),))


@pytest.fixture
def service():
    found = Service(lambda: None)
    yield found
    found.stop()


def reasons(service):
    with pytest.raises(Unready) as found:
        service.check_readiness()
    return found.value.data["reasons"]


def test_an_audit_that_could_not_begin_leaves_the_nodes_as_they_were_and_is_a_reason(service):
    service.take_report(WELL, whole=True)
    service.take_report(
        report(nodes=(), errors=(Problem("driver.not-ready", "the backend does not answer", ""),)),
        whole=True,
    )
    assert reasons(service) == ["the backend does not answer"]
    assert [one["uuid"] for one in service.nodes()] == [ROOT]


def test_work_that_gets_nowhere_is_unwell_and_slow_work_is_not(service, monkeypatch):
    monkeypatch.setattr(module, "STALLED", 0.2)
    service.check_health()
    service.begin_work("an audit")
    for _ in range(4):
        time.sleep(0.1)
        service.note_progress()
        service.check_health()
    time.sleep(0.3)
    with pytest.raises(Unwell, match="an audit makes no progress"):
        service.check_health()
    service.end_work()
    service.check_health()


def test_who_asks_while_the_files_are_being_read_gets_a_reading_of_their_own(service):
    heard = []
    threads = [
        threading.Thread(target=lambda: (service.reload(), heard.append(True))) for _ in range(2)
    ]
    threads[0].start()
    while not service.reload_requested:
        time.sleep(0.01)
    service.begin_reload()
    threads[1].start()
    while not service.reload_requested:
        time.sleep(0.01)
    service.end_reload(None)
    threads[0].join(60)
    assert (heard, service.has_requests) == ([True], True)
    service.begin_reload()
    service.end_reload(None)
    threads[1].join(60)
    assert (heard, service.has_requests) == ([True, True], False)


# --- when the next audit is due ---


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


# --- audits that are asked for: one for many, none twice, none for ever ---


@pytest.fixture
def asked():
    requests = AuditRequests(lambda: requests.woken.append(True))
    requests.woken = []
    return requests


def test_what_waits_is_not_dropped_for_what_comes(asked):
    for number in range(KEPT):
        asked.request([f"node-{number}"], dry_run=False)
    with pytest.raises(TooManyAudits):
        asked.request([], dry_run=False)
    assert len(asked.take(whole=False)) == KEPT
