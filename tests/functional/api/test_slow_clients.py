"""Clients that are slow, silent or many do not keep the API from anybody else."""

import contextlib
import socket
import threading
import time

import pytest

from agent.api import server
from tests.support.local_api import api_here
from tests.support.service_manager import until

QUICK = 2.0
"""Seconds within which anybody else is answered, on a machine that is busy."""


def answered(api):
    begun = time.monotonic()
    assert api.call("GET", "/healthz").status == 200
    assert time.monotonic() - begun < QUICK


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


def test_more_silent_connections_than_threads_take_none(api, many):
    many(3 * server.WORKERS)
    answered(api)


def test_requests_that_come_a_byte_at_a_time_take_no_thread(api, many):
    slow = many(3 * server.WORKERS, b"POST /v1/audits HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    for connection in slow:
        connection.sendall(b" ")
    answered(api)


def test_of_too_many_connections_the_one_waited_for_longest_is_closed(api, many):
    first = many(1, b"GET /hea")[0]
    others = many(server.MAX_WAITING)
    answered(api)
    assert first.recv(1) == b""
    others[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert others[-1].recv(12) == b"HTTP/1.1 200"


def test_a_request_has_to_come_whole_in_time_however_busy_it_looks(monkeypatch):
    monkeypatch.setattr(server, "TIMEOUT", 1)
    with api_here() as api, api.connect() as connection:
        begun = time.monotonic()
        with pytest.raises(OSError):
            for _ in range(100):
                connection.sendall(b"X")
                time.sleep(0.1)
        assert 0.9 < time.monotonic() - begun < 5


def test_a_connection_that_is_kept_is_closed_when_nothing_more_comes(monkeypatch):
    monkeypatch.setattr(server, "TIMEOUT", 1)
    with api_here() as api, api.connect(10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        begun = time.monotonic()
        assert connection.recv(1) == b""
        assert time.monotonic() - begun > 0.5


def test_a_client_that_does_not_read_loses_its_connection_and_no_thread(monkeypatch):
    monkeypatch.setattr(server, "TIMEOUT", 1)
    with api_here() as api, contextlib.ExitStack() as stack:
        monkeypatch.setattr(api.service, "nodes", lambda: [{"uuid": "a" * 1_000_000}] * 20)
        for _ in range(server.WORKERS):
            connection = stack.enter_context(api.connect())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: api.call("GET", "/healthz").status == 200)


def test_waiting_for_audits_leaves_threads_for_others(api):
    threads = [threading.Thread(target=api.client.request, args=("POST", "/v1/audits", {"dry_run": True}, {"Prefer": "wait=60"})) for _ in range(20)]
    for thread in threads:
        thread.start()
    answered(api)
    with api.answering():
        for thread in threads:
            thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(api):
    import psutil

    answered(api)
    before = psutil.Process().num_fds()
    for said in (b"", b"GET /hea", b"GET /healthz HTTP/1.1\r\n\r\n", b"POST /v1/audits HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"):
        for _ in range(25):
            with api.connect() as connection:
                connection.sendall(said)
    answered(api)
    until(lambda: psutil.Process().num_fds() <= before + 1)
    assert threading.active_count() < 30


def test_many_at_once_are_all_answered(api):
    failures = []

    def ask():
        for _ in range(20):
            try:
                api.client.health()
            except Exception as error:  # noqa: BLE001 - told below
                failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
