"""Audits that are asked for: one for many, none twice, none for ever."""

import threading
import time

import pytest

from agent.api.problem import Stopping, TooManyAudits, UnknownAudit
from agent.service.audit_queue import KEPT, AuditRequests


@pytest.fixture
def asked():
    requests = AuditRequests(lambda: requests.woken.append(True))
    requests.woken = []
    return requests


def test_the_same_that_waits_serves_everybody(asked):
    first = asked.request(["b", "a"], dry_run=False)
    assert asked.request(["a", "b", "a"], dry_run=False) == first
    assert (
        len(
            {
                first,
                asked.request([], dry_run=False),
                asked.request(["a", "b"], dry_run=True),
                asked.request(["a"], dry_run=False),
            }
        )
        == 4
    )
    assert len(asked.woken) == 4, "who was served already needs no wake"


def test_one_that_has_begun_serves_nobody_else(asked):
    first = asked.request([], dry_run=False)
    (taken,) = asked.take(whole=True)
    assert (taken.id, asked.waiting) == (first, False)
    assert asked.request([], dry_run=False) != first
    assert asked.waiting


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


def test_whoever_waits_hears_at_once_when_it_is_done(asked):
    audit = asked.request([], dry_run=False)
    threading.Timer(0.1, lambda: asked.answer(asked.take(whole=True), b"{}")).start()
    begun = time.monotonic()
    assert asked.wait_for(audit, 300).state == "done"
    assert time.monotonic() - begun < 60


def test_whoever_waits_long_enough_hears_how_it_stands(asked):
    audit = asked.request([], dry_run=False)
    begun = time.monotonic()
    assert asked.wait_for(audit, 0.2).state == "queued"
    assert time.monotonic() - begun >= 0.2


def test_the_last_hundred_are_kept(asked):
    ids = []
    for number in range(KEPT + 5):
        ids.append(asked.request([], dry_run=False))
        asked.answer(asked.take(whole=True), b"%d" % number)
    for gone in ids[:5]:
        with pytest.raises(UnknownAudit):
            asked.wait_for(gone, 0)
    assert asked.wait_for(ids[5], 0).report == b"5"
    assert asked.wait_for(ids[-1], 0).report == b"%d" % (KEPT + 4)


def test_what_waits_is_not_dropped_for_what_comes(asked):
    for number in range(KEPT):
        asked.request([f"node-{number}"], dry_run=False)
    with pytest.raises(TooManyAudits):
        asked.request([], dry_run=False)
    assert len(asked.take(whole=False)) == KEPT


def test_when_nobody_answers_any_more_everybody_is_told(asked):
    done = asked.request([], dry_run=False)
    asked.answer(asked.take(whole=True), b"{}")
    waiting = asked.request([], dry_run=False)
    threading.Timer(0.1, asked.close).start()
    begun = time.monotonic()
    with pytest.raises(Stopping):
        asked.wait_for(waiting, 300)
    assert time.monotonic() - begun < 60
    with pytest.raises(Stopping):
        asked.request([], dry_run=False)
    assert asked.wait_for(done, 0).report == b"{}", "what is done stays to be seen"
