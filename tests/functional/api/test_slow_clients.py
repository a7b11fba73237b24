"""Clients that are slow, silent or many do not keep the API from anybody else."""

import contextlib
import re
import socket
import threading
import time

import pytest

from agent.api import local_api
from agent.tracker.node_entry import FairLock
from tests.support.local_api import api_here
from tests.support.service_manager import until

pytestmark = pytest.mark.long

QUICK = 60.0
"""Seconds within which anybody else is answered, on a machine that is very busy."""


@pytest.fixture(scope="module")
def _api():
    """One that waits for minutes for the rest of a request, so that whoever has to wait for that
    too is seen.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_api, "TIMEOUT", 10 * QUICK)
        with api_here() as api:
            yield api


def answered(api):
    begun = time.monotonic()
    assert api.call("GET", "/healthz").status == 200
    assert time.monotonic() - begun < QUICK


def whole_answer(connection):
    """Reads one answer to its end, in however many pieces it comes."""
    said = b""
    while b"\r\n\r\n" not in said:
        said += piece(connection)
    head, _, body = said.partition(b"\r\n\r\n")
    (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
    while len(body) < int(length):
        body += piece(connection)
    return head + b"\r\n\r\n" + body


def piece(connection):
    received = connection.recv(65536)
    assert received, "closed before the answer was whole"
    return received


@pytest.fixture
def many(api):
    """Open so many connections that have said this much."""
    with contextlib.ExitStack() as stack:

        def open_them(count, said=b""):
            found = []
            for _ in range(count):
                connection = stack.enter_context(api.connect())
                connection.sendall(said)
                found.append(connection)
            return found

        yield open_them


def test_requests_that_come_a_byte_at_a_time_take_no_thread(api, many):
    slow = many(
        3 * local_api.WORKERS,
        b"POST /v1/audits HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
    )
    for connection in slow:
        connection.sendall(b" ")
    answered(api)


def test_of_too_many_connections_the_eldest_without_a_request_is_closed(monkeypatch):
    monkeypatch.setattr(local_api, "MOST_CONNECTIONS", local_api.FEWEST_CONNECTIONS)
    with api_here() as api, contextlib.ExitStack() as stack:
        first = stack.enter_context(api.connect())
        first.sendall(b"GET /hea")
        for _ in range(3 * local_api.FEWEST_CONNECTIONS):
            last = stack.enter_context(api.connect())
        answered(api)
        assert first.recv(1) == b""
        last.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert whole_answer(last).startswith(b"HTTP/1.1 200")


def test_a_connection_that_is_kept_is_closed_when_nothing_more_comes(monkeypatch):
    monkeypatch.setattr(local_api, "TIMEOUT", 1)
    with api_here() as api, api.connect(10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = whole_answer(connection)
        begun = time.monotonic()
        assert answer.startswith(b"HTTP/1.1 200")
        assert connection.recv(1) == b""
        assert time.monotonic() - begun > 0.5


def test_a_client_that_does_not_read_loses_its_connection_and_no_thread(monkeypatch):
    monkeypatch.setattr(local_api, "TIMEOUT", 1)
    with api_here() as api, contextlib.ExitStack() as stack:
        monkeypatch.setattr(api.service, "nodes", lambda: [{"uuid": "a" * 1_000_000}] * 20)
        for _ in range(local_api.WORKERS):
            connection = stack.enter_context(api.connect())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: api.call("GET", "/healthz").status == 200)


def test_clients_that_do_not_read_hold_no_thread_and_get_all_if_they_do_at_last(api, monkeypatch):
    """Its server waits for minutes for a client, so that a thread that did too would be seen."""
    monkeypatch.setattr(api.service, "nodes", lambda: [{"uuid": "a" * 250_000}] * 2)
    with contextlib.ExitStack() as stack:
        unread = [stack.enter_context(api.connect()) for _ in range(local_api.WORKERS + 4)]
        for connection in unread:
            connection.sendall(b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\n\r\n")
        for _ in range(3):
            answered(api)
        for connection in unread:
            assert len(whole_answer(connection)) > 500_000
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert whole_answer(connection).startswith(b"HTTP/1.1 200")


def test_a_request_that_waits_for_others_has_its_answer_in_time(monkeypatch):
    monkeypatch.setattr(local_api, "ANSWER_SECONDS", 0.5)
    lock = FairLock()
    with api_here() as api, lock:

        def nodes():
            with lock:
                raise AssertionError("it is not free")

        monkeypatch.setattr(api.service, "nodes", nodes)
        answer = api.call("GET", "/v1/nodes")
        assert (answer.status, answer.code) == (503, "agent.deadline")
        assert answer.headers["retry-after"] == "1"


def test_waiting_for_audits_leaves_threads_for_others(api):
    threads = [
        threading.Thread(
            target=api.client.request,
            args=("POST", "/v1/audits", {"dry_run": True}, {"Prefer": "wait=60"}),
        )
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    answered(api)
    with api.answering():
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(api):
    import psutil

    answered(api)
    before = psutil.Process().num_fds()
    for said in (
        b"",
        b"GET /hea",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"POST /v1/audits HTTP/1.1\r\nContent-Length: 50\r\n\r\n{",
    ):
        for _ in range(25):
            with api.connect() as connection:
                connection.sendall(said)
    answered(api)
    until(lambda: psutil.Process().num_fds() <= before + 1)
    assert threading.active_count() < 30
