"""The client of nova's API bounds and checks every answer; nova is asked no more often than it has to
be.
"""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from agent.audit.asked_nova import AskedNova
from agent.http.bounded import MIB, bounded_session
from agent.http.nova_api import NovaApi, NovaNotAsked
from agent.model.names import ConsumerUuid
from agent.model.nova_answers import NovaAnswers
from agent.model.report import Drift
from agent.placement import clock
from agent.tracker.observed_share import ObservedShare

A, B, C = (ConsumerUuid(f"00000000-0000-4000-8000-00000000000{one}") for one in "abc")
Answer = tuple[int, bytes]


def server(uuid: str, **more: Any) -> dict[str, Any]:
    return {"id": uuid, "status": "ACTIVE", "OS-EXT-SRV-ATTR:host": "node-a", **more}


def said(document: Any, status: int = 200) -> Answer:
    return status, json.dumps(document).encode()


class Scripted:
    """A server that answers each path as a test says."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[], Answer]] = {}
        self.requests: list[str] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                scripted.requests.append(self.path)
                status, body = scripted.answers[self.path.partition("?")[0]]()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def api(self, seconds: float = 10) -> NovaApi:
        session = Session(auth=Token(self.url, "token"), session=bounded_session(MIB, {}))
        return NovaApi(Adapter(session, service_type="compute"), seconds)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


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
        (said({"servers": [server(A)], "servers_links": [1]}), "-> 200"),
        (said({"forbidden": {"message": "no\x1b[1m"}}, 403), r"-> 403: no\x1b[1m"),
        (said({"computeFault": 1}, 500), "-> 500"),
        ((200, b" " * 2 * MIB), "longer than 1 MiB"),
    ],
)
def test_an_answer_that_cannot_be_used_is_told(nova: Scripted, answer: Answer, what: str) -> None:
    nova.answers["/servers/detail"] = lambda: answer
    with pytest.raises(NovaNotAsked) as refused:
        nova.api().answers("node-a", [A])
    assert what in refused.value.message
    assert refused.value.remedy


def test_a_proxys_page_does_not_say_that_a_server_is_unknown(nova: Scripted) -> None:
    nova.answers["/servers/detail"] = lambda: said({"servers": []})
    nova.answers["/os-migrations"] = lambda: said({"migrations": []})
    nova.answers[f"/servers/{A}"] = lambda: (404, b"not found")
    with pytest.raises(NovaNotAsked):
        nova.api().answers("node-a", [A])
    nova.answers[f"/servers/{A}"] = lambda: said({"itemNotFound": {"code": 404}}, 404)
    assert nova.api().answers("node-a", [A]) == NovaAnswers(unknown=frozenset({A}))


def test_all_requests_of_a_question_share_one_deadline(nova: Scripted) -> None:
    held = threading.Event()

    def slowly() -> Answer:
        held.wait(0.3)
        uuid = f"00000000-0000-4000-8000-{len(nova.requests):012}"
        return said({"servers": [server(uuid)], "servers_links": [1]})

    nova.answers["/servers/detail"] = slowly
    with pytest.raises(NovaNotAsked):
        nova.api(seconds=1).answers("node-a", [A])
    assert len(nova.requests) <= 5


class Counting:
    """A nova that counts how often it is asked, and answers nothing of use if it is to fail."""

    def __init__(self) -> None:
        self.asked: list[frozenset[str]] = []
        self.fails = False

    def answers(self, _host: str, consumers: set[ConsumerUuid]) -> NovaAnswers:
        self.asked.append(frozenset(consumers))
        if self.fails:
            raise NovaNotAsked("it hangs", "start it")
        return NovaAnswers(unknown=frozenset(consumers))


def drift(*consumers: ConsumerUuid) -> list[Drift]:
    return [Drift("orphaned-allocation", "warning", "x", "y", consumer=one) for one in consumers]


def test_the_same_drift_is_asked_about_no_more_often_than_holders_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, counting, share = [1000.0], Counting(), cast(ObservedShare, None)
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


def test_a_nova_that_fails_is_left_alone_until_holders_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, counting, share = [1000.0], Counting(), cast(ObservedShare, None)
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
