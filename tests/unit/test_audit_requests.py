"""Audits that are asked for: one for many, none twice, none for ever."""

import time

import pytest

from agent.api.problem import TooManyAudits
from agent.service.audit_queue import KEPT, AuditRequests


@pytest.fixture
def asked():
    requests = AuditRequests(lambda: requests.woken.append(True))
    requests.woken = []
    return requests


def test_each_is_taken_once_and_where_it_belongs(asked):
    whole = asked.request([], dry_run=False)
    others = [asked.request(["a"], dry_run=False), asked.request([], dry_run=True)]
    assert [one.id for one in asked.take(whole=True)] == [whole]
    assert [one.id for one in asked.take(whole=False)] == others
    assert asked.take(whole=True) == asked.take(whole=False) == []


def test_it_is_queued_then_running_then_done(asked):
    audit = asked.request([], dry_run=False)
    states = [asked.wait_for(audit, 0)]
    taken = asked.take(whole=True)
    states.append(asked.wait_for(audit, 0))
    asked.answer(taken, b"{}")
    states.append(asked.wait_for(audit, 0))
    assert [(one.state, one.report) for one in states] == [
        ("queued", None),
        ("running", None),
        ("done", b"{}"),
    ]


def test_whoever_waits_long_enough_hears_how_it_stands(asked):
    audit = asked.request([], dry_run=False)
    begun = time.monotonic()
    assert asked.wait_for(audit, 0.2).state == "queued"
    assert time.monotonic() - begun >= 0.2


def test_what_waits_is_not_dropped_for_what_comes(asked):
    for number in range(KEPT):
        asked.request([f"node-{number}"], dry_run=False)
    with pytest.raises(TooManyAudits):
        asked.request([], dry_run=False)
    assert len(asked.take(whole=False)) == KEPT
