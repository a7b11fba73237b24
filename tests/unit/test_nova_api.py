"""The client of nova's API bounds and checks every answer; nova is asked no more often than it has to
be.
"""

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from agent.audit.remembered import AskedNova
from agent.http.bounded import MIB, bounded_session
from agent.http.nova_api import NovaApi, NovaNotAsked
from agent.model.facts import Domain
from agent.model.finding import Drift
from agent.model.names import ConsumerUuid
from agent.model.nova_answers import NovaAnswers, NovaServer
from agent.placement import clock
from agent.service import log_writer
from agent.service.log_writer import LogWriter
from agent.tracker.domains import WITHOUT_DOMAIN
from agent.tracker.observed_share import ObservedShare
from tests.support.scripted_nova import Answer, Scripted, said, server

A, B, C = (ConsumerUuid(f"00000000-0000-4000-8000-00000000000{one}") for one in "abc")


def api(nova: Scripted, seconds: float = 10) -> NovaApi:
    session = Session(auth=Token(nova.url, "token"), session=bounded_session(MIB, {}))
    return NovaApi(Adapter(session, service_type="compute"), seconds)


@pytest.fixture
def nova() -> Iterator[Scripted]:
    found = Scripted()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ((200, b"<html>"), "-> 200"),
        ((200, b"[" * 100_000), "-> 200"),
        (said([]), "-> 200"),
        (said({"servers": {}}), "no list of servers"),
        (said({"servers": ["x"]}), "no list of servers"),
        (said({"servers": [{"id": A}]}), "does not see the hosts"),
        (said({"servers": [server("../x")]}), "-> 200"),
        (said({"servers": [{"id": []}, {"id": {}}]}), "-> 200"),
        (said({"servers": [server(A, **{"OS-EXT-SRV-ATTR:host": 5})]}), "is no text"),
        (said({"servers": [server(A, **{"OS-EXT-SRV-ATTR:host": ""})]}), "is no text"),
        (said({"servers": [server(A, status=["ACTIVE"])]}), "status is no text"),
        (said({"servers": [server(A, **{"OS-EXT-STS:task_state": 1})]}), "is no text"),
        (said({"servers": [server(A)], "servers_links": [1]}), "-> 200"),
        (said({"forbidden": {"message": "no\x1b[1m"}}, 403), r"-> 403: no\x1b[1m"),
        (said({"computeFault": 1}, 500), "-> 500"),
        ((200, b" " * 2 * MIB), "longer than 1 MiB"),
    ],
)
def test_an_answer_that_cannot_be_used_is_told(nova: Scripted, answer: Answer, what: str) -> None:
    nova.answers["/servers/detail"] = lambda: answer
    with pytest.raises(NovaNotAsked) as refused:
        api(nova).answers("node-a", [A])
    assert what in refused.value.message
    assert refused.value.remedy


def test_lists_that_lack_a_cell_do_not_say_that_a_migration_is_unknown(nova: Scripted) -> None:
    nova.answers["/servers/detail"] = lambda: said({"servers": []})
    nova.answers["/os-migrations"] = lambda: said({"migrations": []})
    gone = said({"itemNotFound": {"code": 404}}, 404)
    nova.answers[f"/servers/{A}"] = lambda: gone
    # As nova 34 answers while the database of the server's cell is away.
    nova.answers[f"/servers/{B}"] = lambda: said({"computeFault": {"message": "Cell x"}}, 500)
    with pytest.raises(NovaNotAsked, match="-> 500: Cell x"):
        api(nova).answers("node-a", [A], [B])
    nova.answers[f"/servers/{B}"] = lambda: said({"server": server(B)})
    with pytest.raises(NovaNotAsked, match="lacks server"):
        api(nova).answers("node-a", [A], [B])
    # A guest that somebody started by hand.
    nova.answers[f"/servers/{B}"] = lambda: gone
    assert api(nova).answers("node-a", [A], [B]).unknown == {A}


def test_text_of_an_answer_is_printable_and_short(nova: Scripted) -> None:
    status = "A\nCTIVE\x1b[1m" + "x" * 100_000
    nova.answers["/servers/detail"] = lambda: said({"servers": [server(A, status=status)]})
    told = api(nova).answers("node-a", [A]).servers[A].status
    assert told.startswith("A CTIVE\\x1b[1mxxx")
    assert len(told) < 250


def test_a_token_that_an_answer_quotes_is_masked(nova: Scripted) -> None:
    quoted = {"fault": {"message": "GET with X-Auth-Token: token failed"}}
    nova.answers["/servers/detail"] = lambda: said(quoted, 500)
    with pytest.raises(NovaNotAsked) as refused:
        api(nova).answers("node-a", [A])
    assert refused.value.message.endswith("-> 500: GET with X-Auth-Token: *** failed")


@pytest.mark.parametrize("endpoint", ["http://[x", "http://user:secret@127.0.0.1:1/", "http://..x"])
def test_an_endpoint_that_cannot_be_used_is_told_without_its_password(endpoint: str) -> None:
    session = Session(auth=Token(endpoint, "token"), session=bounded_session(MIB, {}))
    with pytest.raises(NovaNotAsked) as refused:
        NovaApi(Adapter(session, service_type="compute"), 10).answers("node-a", [A])
    assert "secret" not in refused.value.message


def test_a_proxys_page_does_not_say_that_a_server_is_unknown(nova: Scripted) -> None:
    nova.answers["/servers/detail"] = lambda: said({"servers": []})
    nova.answers["/os-migrations"] = lambda: said({"migrations": []})
    nova.answers[f"/servers/{A}"] = lambda: (404, b"not found")
    with pytest.raises(NovaNotAsked):
        api(nova).answers("node-a", [A])
    nova.answers[f"/servers/{A}"] = lambda: said({"itemNotFound": {"code": 404}}, 404)
    assert api(nova).answers("node-a", [A]) == NovaAnswers(unknown=frozenset({A}))


class Counting:
    """A nova that counts how often it is asked, and answers nothing of use if it is to fail."""

    def __init__(self) -> None:
        self.asked: list[frozenset[str]] = []
        self.fails = False

    def answers(
        self, _host: str, consumers: set[ConsumerUuid], _guests: Collection[ConsumerUuid]
    ) -> NovaAnswers:
        self.asked.append(frozenset(consumers))
        if self.fails:
            raise NovaNotAsked("it hangs", "start it")
        return NovaAnswers(unknown=frozenset(consumers))


class NoGuests:
    guests: Mapping[ConsumerUuid, Domain] = {}
    host = "node-a"

    def moves(self) -> Mapping[ConsumerUuid, ConsumerUuid]:
        return {}

    def is_elsewhere(self, _consumer: ConsumerUuid) -> bool:
        return False


SHARE = cast(ObservedShare, NoGuests())


def drift(*consumers: ConsumerUuid) -> list[Drift]:
    return [Drift("orphaned-allocation", "warning", "x", "y", consumer=one) for one in consumers]


def test_the_same_drift_is_asked_about_no_more_often_than_holders_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, counting, share = [1000.0], Counting(), SHARE
    monkeypatch.setattr(clock, "now", lambda: now[0])
    asked = AskedNova(cast(NovaApi, counting), "node-a", refresh=600)
    assert asked.explained([], share) == ()
    assert asked.explained([Drift("overcommitted", "warning", "x", "y")], share)
    assert counting.asked == []
    for _ in range(3):
        (found,) = asked.explained(drift(A), share)
        assert "nova knows neither" in found.detail
    assert counting.asked == [{A}]
    # What is new is asked about at once, with the rest.
    asked.explained(drift(A, B), share)
    asked.explained(drift(B), share)
    assert counting.asked == [{A}, {A, B}]
    now[0] += 600
    asked.explained(drift(B), share)
    assert counting.asked == [{A}, {A, B}, {B}]


def test_guests_of_which_nothing_is_wrong_are_asked_about_once_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, counting, share = [10_000.0], Counting(), NoGuests()
    monkeypatch.setattr(clock, "now", lambda: now[0])
    monkeypatch.setattr(
        counting, "answers", lambda *told: counting.asked.append(told[1]) or NovaAnswers()
    )
    asked = AskedNova(cast(NovaApi, counting), "node-a", refresh=600)
    share.guests = {A: cast(Domain, None)}
    for _ in range(6):
        assert asked.explained([], cast(ObservedShare, share)) == ()
        now[0] += 599
    assert counting.asked == [{A}]
    now[0] += 6
    asked.explained([], cast(ObservedShare, share))
    assert counting.asked == [{A}, {A}]
    # A new guest is asked about at once; one that is gone changes nothing.
    for guests in ({A, B}, {B}):
        share.guests = dict.fromkeys(guests, cast(Domain, None))
        asked.explained([], cast(ObservedShare, share))
    assert counting.asked == [{A}, {A}, {A, B}]


def test_a_nova_that_fails_is_left_alone_until_holders_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, counting, share = [1000.0], Counting(), SHARE
    monkeypatch.setattr(clock, "now", lambda: now[0])
    asked, counting.fails = AskedNova(cast(NovaApi, counting), "node-a", refresh=60), True
    for consumers in ((A,), (A, B), (C,)):
        *_, warning = asked.explained(drift(*consumers), share)
        assert warning.detail == (
            "nova was not asked: it hangs; what is told rests on the hypervisor alone"
        )
    assert len(counting.asked) == 1
    now[0], counting.fails = now[0] + 60, False
    assert [one.kind for one in asked.explained(drift(C), share)] == ["orphaned-allocation"]
    assert counting.asked[-1] == {C}


@pytest.mark.parametrize("task", sorted(WITHOUT_DOMAIN))
def test_a_server_without_a_domain_for_a_while_is_at_work(task: str) -> None:
    assert NovaServer("node-a", "ACTIVE", task).moving


# --- more ---


class Held(logging.Handler):
    """A place that takes lines only while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.lines = threading.Event(), list[str]()
        self.taking = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.taking.set()
        self.open.wait()
        self.lines.append(record.getMessage())


@contextmanager
def log_to(
    place: Held, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[logging.Logger, LogWriter]]:
    """A logger that writes to one place, by a writer whose queue is short."""
    log = logging.getLogger("anything")
    with monkeypatch.context() as patch:
        patch.setattr(log_writer, "MOST_WAITING", 10)
        patch.setattr(log_writer, "END_SECONDS", 60)
        # Neither these lines nor those of other tests' threads go elsewhere.
        patch.setattr(logging.getLogger(), "handlers", [])
        for one in (log, log_writer.LOG):
            patch.setattr(one, "handlers", [place])
            patch.setattr(one, "propagate", False)
            patch.setattr(one, "level", logging.INFO)
            one.manager._clear_cache()
        writer = LogWriter()
        writer.take_over()
        try:
            yield log, writer
        finally:
            place.open.set()
            writer.finish()
    log.manager._clear_cache()


def test_lines_that_nobody_takes_are_dropped_and_their_number_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held()
    with log_to(held, monkeypatch) as (log, writer):
        held.open.set()
        log.info("the first")
        assert writer.finish()
        held.open.clear()
        held.taking.clear()
        log.info("line 0")
        # From here on nobody takes a line from the queue.
        assert held.taking.wait(60)
        for number in range(1, 100):
            log.info("line %d", number)
        with monkeypatch.context() as patch:
            patch.setattr(log_writer, "END_SECONDS", 0.1)
            assert not writer.finish()
        held.open.set()
        # What is told of them is queued behind what was waiting.
        assert writer.finish()
        assert writer.finish()
    kept = [line for line in held.lines if line.startswith("line ")]
    assert kept == [f"line {number}" for number in range(len(kept))]
    told = [line for line in held.lines if "dropped" in line]
    assert told == [f"{100 - len(kept)} lines of the log were dropped, because nobody took them"]
    # The one that was being written, and those that waited.
    assert len(kept) == 1 + 10


def test_a_line_is_as_it_was_when_it_was_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    held, values = Held(), ["before"]
    with log_to(held, monkeypatch) as (log, writer):
        # As after a reload.
        writer.take_over()
        log.info("%s", values)
        values[0] = "after"
        held.open.set()
        assert writer.finish()
    assert held.lines == ["['before']"]
