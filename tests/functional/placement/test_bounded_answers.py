"""What answers at Placement's address without end, drop by drop, packed a thousandfold, or by
sending the agent elsewhere.
"""

import gzip
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.identity.v3 import Password
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from agent.errors import AgentError, PlacementUnreachable
from agent.http.bounded import bounded_session
from agent.placement.client import PlacementClient
from agent.placement.exchange import Exchange
from agent.placement.transport import Timeouts, Transport

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
MIB = 1024 * 1024
# In seconds: what the agent waits for an answer, and what a test waits for the agent.
READ, GENEROUS = 2, 60

Answering = Callable[[socket.socket, threading.Event], None]


def endless(client: socket.socket, stopped: threading.Event) -> None:
    client.sendall(HEAD + b"\r\n[")
    while not stopped.is_set():
        client.sendall(b"[" * 65536)


def drops_of_the_body(client: socket.socket, stopped: threading.Event) -> None:
    client.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
    while not stopped.wait(0.2):
        client.sendall(b" ")


def drops_in_chunks(client: socket.socket, stopped: threading.Event) -> None:
    client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n")
    while not stopped.wait(0.2):
        client.sendall(b" ")


def drops_of_the_head(client: socket.socket, stopped: threading.Event) -> None:
    client.sendall(HEAD)
    while not stopped.wait(0.2):
        client.sendall(b"X")


@cache
def bomb() -> bytes:
    """64 MiB in 64 KiB."""
    return gzip.compress(b" " * 64 * MIB, 6)


def packed(client: socket.socket, _stopped: threading.Event) -> None:
    body = bomb()
    client.sendall(
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )


def long(client: socket.socket, _stopped: threading.Event) -> None:
    body = b'{"usages": {}, "padding": "' + b"x" * 2 * MIB + b'"}'
    client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def request_of(client: socket.socket) -> bytes:
    """A whole request. Where a part of it were left unread, the end of the connection would be a
    reset, which may reach the agent before the answer does.
    """
    request = b""
    while b"\r\n\r\n" not in request:
        request += received(client)
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
    while length and len(body) < int(length[1]):
        body += received(client)
    return head + b"\r\n\r\n" + body


def received(client: socket.socket) -> bytes:
    if not (part := client.recv(65536)):
        raise ConnectionError("the connection ended within the request")
    return part


class Impostor:
    """A server that reads a request and then does as a function says, for each connection."""

    def __init__(self, answering: Answering) -> None:
        self._answering, self.stopped = answering, threading.Event()
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self.stopped.is_set():
            with suppress(OSError):
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError), closing(client):
            self.asked.append(request_of(client))
            self._answering(client, self.stopped)

    def close(self) -> None:
        self.stopped.set()
        self._listener.close()


Serving = Callable[[Answering], Impostor]


@pytest.fixture
def serving() -> Iterator[Serving]:
    made: list[Impostor] = []

    def serve(answering: Answering) -> Impostor:
        made.append(Impostor(answering))
        return made[-1]

    yield serve
    for one in made:
        one.close()


def client_of(url: str, max_answer: int = MIB) -> PlacementClient:
    session = Session(auth=Token(url, "secret-token"), session=bounded_session(max_answer))
    return client_through(Adapter(session, service_type="placement", endpoint_override=url))


def client_through(adapter: Adapter) -> PlacementClient:
    transport = Transport(
        adapter, timeouts=Timeouts(READ, READ, READ), max_in_flight=1, cancelled=threading.Event()
    )
    return PlacementClient(Exchange(transport, "req-test"))


def client_with_password(url: str) -> PlacementClient:
    """One that asks the identity service at ``url`` for its token."""
    login = Password(
        url, username="agent", password="secret", user_domain_id="default", project_name="service"
    )
    session = Session(auth=login, session=bounded_session(MIB))
    return client_through(Adapter(session, service_type="placement"))


ENDS = {
    "endless": (endless, "too-long"),
    "packed": (packed, "too-long"),
    "long": (long, "too-long"),
    "body in drops": (drops_of_the_body, "timeout"),
    "chunk in drops": (drops_in_chunks, "timeout"),
    "head in drops": (drops_of_the_head, "timeout"),
}


@pytest.mark.long
@pytest.mark.parametrize("how", ENDS)
def test_an_answer_is_bounded_in_size_and_in_time_as_a_whole(how: str, serving: Serving) -> None:
    answering, kind = ENDS[how]
    bomb()
    impostor, started = serving(answering), time.monotonic()
    with pytest.raises(PlacementUnreachable) as failed:
        client_of(impostor.url).set_traits("5f9c2a34-7d1e-4a8b-9c46-000000000001", 1, [])
    assert (failed.value.kind, failed.value.outcome_unknown) == (kind, True)
    assert time.monotonic() - started < GENEROUS
    assert failed.value.remedy


MALFORMED = {
    "101 headers": (
        b"HTTP/1.1 200 OK\r\n"
        + b"".join(b"X-%d: 1\r\n" % number for number in range(101))
        + b"\r\n",
        "got more than 100 headers",
    ),
    "a header of 70 KB": (
        HEAD + b"X: " + b"x" * 70_000 + b"\r\n\r\n",
        "LineTooLong: got more than 65536 bytes when reading header line",
    ),
    "a status line of 70 KB": (
        b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n",
        "LineTooLong: got more than 65536 bytes when reading status line",
    ),
    "another protocol": (
        b"220 mail.example.org \x1b[31mESMTP\r\n",
        "BadStatusLine: 220 mail.example.org \\x1b[31mESMTP",
    ),
    "a line without end": (b"220 " + b"x" * 60_000 + b"\r\n", "BadStatusLine: 220 xxx"),
    "another version": (b"HTTP/9 200 OK\r\n\r\n", "UnknownProtocol: HTTP/9"),
    "a chunk of no size": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "InvalidChunkLength",
    ),
    "not gzip": (
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        "content-encoding: gzip, but failed to decode it",
    ),
    "packed fifty times": (
        HEAD + b"Content-Encoding: " + b"gzip, " * 50 + b"gzip\r\nContent-Length: 2\r\n\r\n{}",
        "Too many content encodings",
    ),
    "two lengths": (
        HEAD + b"Content-Length: 2, 3\r\n\r\n{}",
        "Content-Length contained multiple unmatching values",
    ),
}


@pytest.mark.parametrize("how", MALFORMED)
def test_an_answer_that_is_no_http_is_told_as_one_that_is_not_placements(
    how: str, serving: Serving
) -> None:
    answer, fault = MALFORMED[how]
    impostor = serving(lambda client, _stopped: client.sendall(answer))
    with pytest.raises(PlacementUnreachable) as failed:
        client_of(impostor.url).set_traits("5f9c2a34-7d1e-4a8b-9c46-000000000001", 1, [])
    assert (failed.value.kind, failed.value.outcome_unknown) == ("not-placement", True)
    call = (
        f"{impostor.url} answered PUT "
        "/resource_providers/5f9c2a34-7d1e-4a8b-9c46-000000000001/traits"
    )
    assert failed.value.message.startswith(f"{call} with something that is not Placement's: ")
    assert fault in failed.value.message
    assert len(failed.value.message) < 700
    assert "endpoint_override" in failed.value.remedy


CUT = {
    "the head": b"",
    "the body": HEAD + b"Content-Length: 100\r\n\r\n{}",
    "a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
    "the chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
}


@pytest.mark.parametrize("before", CUT)
def test_an_answer_that_breaks_off_is_told_as_a_broken_connection(
    before: str, serving: Serving
) -> None:
    with pytest.raises(PlacementUnreachable) as failed:
        client_of(serving(lambda client, _stopped: client.sendall(CUT[before])).url).set_traits(
            "5f9c2a34-7d1e-4a8b-9c46-000000000001", 1, []
        )
    assert (failed.value.kind, failed.value.outcome_unknown) == (
        "connect" if before == "the head" else "broken",
        True,
    )


def test_an_answer_within_its_bounds_is_taken(serving: Serving) -> None:
    assert (
        client_of(serving(long).url, 3 * MIB).usages("5f9c2a34-7d1e-4a8b-9c46-000000000001") == {}
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_with_a_token(status: int, serving: Serving) -> None:
    other = serving(long)

    def elsewhere(client: socket.socket, _stopped: threading.Event) -> None:
        client.sendall(
            b"HTTP/1.1 %d Moved\r\nLocation: %s/x?token=1\r\nContent-Length: 0\r\n\r\n"
            % (status, other.url.encode())
        )

    first = serving(elsewhere)
    with pytest.raises(PlacementUnreachable) as failed:
        client_of(first.url).usages("5f9c2a34-7d1e-4a8b-9c46-000000000001")
    assert failed.value.kind == "redirect"
    assert first.url in failed.value.message
    assert f"{status} to {other.url}/x" in failed.value.message
    assert "endpoint_override" in failed.value.remedy
    assert other.asked == []


def test_a_redirect_to_what_is_no_url_is_told_as_a_redirect(serving: Serving) -> None:
    def elsewhere(client: socket.socket, _stopped: threading.Event) -> None:
        client.sendall(
            b"HTTP/1.1 302 Found\r\nLocation: http://[x\x1b[31m/\r\nContent-Length: 0\r\n\r\n"
        )

    with pytest.raises(PlacementUnreachable) as failed:
        client_of(serving(elsewhere).url).usages("5f9c2a34-7d1e-4a8b-9c46-000000000001")
    assert failed.value.kind == "redirect"
    assert "302 to http://[x\\x1b[31m/" in failed.value.message


# A colour, and a control character of one byte: headers are read as latin-1.
ODD = b"\x1b[31mred\x9b"
REQUEST_ID = b"x-openstack-request-id: " + ODD
ELSEWHERE = b"Location: http://elsewhere.example.org/" + ODD
# Who answers, the status, and the header that reaches a message.
ODD_ANSWERS = {
    "request id": ("placement", b"500 Broken", REQUEST_ID),
    "request id of a refusal": ("placement", b"409 Conflict", REQUEST_ID),
    "place": ("placement", b"302 Found", ELSEWHERE),
    "no header": ("placement", b"500 Broken", ODD),
    "request id of the identity service": ("identity", b"500 Broken", REQUEST_ID),
    "request id of its refusal": ("identity", b"401 Unauthorized", REQUEST_ID),
    "place of the identity service": ("identity", b"302 Found", ELSEWHERE),
}


@pytest.mark.parametrize("name", ODD_ANSWERS)
def test_what_a_header_holds_is_escaped_in_the_log_and_in_the_error(
    name: str, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    who, status, header = ODD_ANSWERS[name]
    # The connection is closed, and must not be taken for one that can be used again.
    rest = b"\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    answer = b"HTTP/1.1 " + status + b"\r\n" + header + rest
    url = serving(lambda client, _stopped: client.sendall(answer)).url
    client = client_of(url) if who == "placement" else client_with_password(url)
    with caplog.at_level("DEBUG"), pytest.raises(AgentError) as failed:
        client.usages("5f9c2a34-7d1e-4a8b-9c46-000000000001")
    error = failed.value
    said = [error.message, error.remedy, *map(str, error.data.values())]
    said += [record.getMessage() for record in caplog.records]
    assert [text for text in said if not text.isprintable()] == []
    assert any("\\x1b[31mred\\x9b" in text for text in said), "nothing says what the header holds"


def test_a_connection_is_used_again_whatever_form_its_answers_have(serving: Serving) -> None:
    answers = [
        HEAD + b"Content-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ]

    def one_after_another(client: socket.socket, _stopped: threading.Event) -> None:
        for number in range(6):
            client.sendall(answers[number % 3])
            client.recv(65536)

    impostor, session = serving(one_after_another), bounded_session()
    assert [session.get(impostor.url, timeout=GENEROUS).content for _ in range(6)] == [
        b"{}",
        b"",
        b"{}",
    ] * 2
    assert len(impostor.asked) == 1
