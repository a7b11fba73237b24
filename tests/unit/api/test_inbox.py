"""Requests are handed on whole, however they arrive."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.api.receive_buffer import MAX_BODY, MAX_HEAD, MAX_WASTE, ReceiveBuffer
from agent.api.send_buffer import SendBuffer


@pytest.fixture
def ends():
    near, far = socket.socketpair()
    near.settimeout(5)
    with near, far:
        yield near, far


def test_nothing_there_is_not_waited_for(ends):
    inbox = ReceiveBuffer(ends[0])
    assert inbox.receive()
    assert (inbox.empty, inbox.has_data()) == (True, False)


def test_the_end_shows(ends):
    inbox = ReceiveBuffer(ends[0])
    ends[1].sendall(b"GET / HT")
    ends[1].shutdown(socket.SHUT_WR)
    assert not inbox.receive()
    assert not inbox.has_data()


def test_a_whole_request_counts_even_if_nothing_more_will_come(ends):
    inbox = ReceiveBuffer(ends[0])
    ends[1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    ends[1].close()
    assert inbox.receive()
    assert inbox.has_data()


@given(st.lists(st.integers(1, 40), max_size=12), st.integers(0, 50))
def test_it_is_whole_with_its_last_byte_and_not_before_whatever_the_pieces(sizes, length):
    request = (
        b"POST / HTTP/1.1\r\nA: b\r\ncontent-LENGTH : %d\r\nC: d\r\n\r\n" % length + b"x" * length
    )
    near, far = socket.socketpair()
    near.settimeout(5)
    with near, far:
        inbox, sent = ReceiveBuffer(near), 0
        for size in [*sizes, len(request)]:
            piece = request[sent : sent + size]
            far.sendall(piece)
            sent += len(piece)
            assert inbox.receive()
            assert inbox.has_data() == (sent == len(request))
        assert inbox.read() == request


def test_what_belongs_to_the_next_request_stays(ends):
    inbox = ReceiveBuffer(ends[0])
    ends[1].sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\n\r\nGET")
    inbox.receive()
    assert [inbox.readline() for _ in range(3)] == [
        b"POST / HTTP/1.1\r\n",
        b"Content-Length: 2\r\n",
        b"\r\n",
    ]
    assert inbox.read(2) == b"{}"
    assert inbox.has_data()
    assert (inbox.readline(5), inbox.readline(), inbox.readline()) == (
        b"GET /",
        b" HTTP/1.1\r\n",
        b"\r\n",
    )
    assert (inbox.has_data(), inbox.empty) == (False, False)


@pytest.mark.parametrize(
    "head",
    [
        b"A" * MAX_HEAD,
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\n\n",
        b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
    ],
    ids=["too long", "chunked", "no CR", "no length"],
)
def test_what_is_refused_however_it_goes_on_is_not_waited_for(ends, head):
    inbox = ReceiveBuffer(ends[0])
    ends[1].sendall(head)
    inbox.receive()
    assert inbox.has_data()


def test_a_body_that_is_too_large_is_taken_and_thrown_away(ends):
    inbox = ReceiveBuffer(ends[0])
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 10)
    ends[1].sendall(head)
    for left in range(MAX_BODY + 10, 0, -65536):
        inbox.receive()
        assert not inbox.has_data()
        ends[1].sendall(b"x" * min(left, 65536))
    inbox.receive()
    assert inbox.has_data()
    assert inbox.read() == head


def test_a_client_that_asks_first_hears_at_once_that_its_body_is_too_large(ends):
    inbox = ReceiveBuffer(ends[0])
    ends[1].sendall(
        b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (MAX_WASTE * 2)
    )
    inbox.receive()
    assert inbox.has_data()


def test_a_closed_one_has_nothing(ends):
    inbox = ReceiveBuffer(ends[0])
    ends[1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    inbox.receive()
    inbox.close()
    assert (inbox.closed, inbox.has_data(), inbox.read()) == (True, False, b"")


def test_what_is_written_arrives_whole(ends):
    outbox = SendBuffer(ends[0])
    assert outbox.write(b"a" * 1000) == 1000
    assert ends[1].recv(2000) == b"a" * 1000


def test_a_client_that_does_not_read_is_not_waited_for(ends):
    ends[0].setblocking(False)
    outbox = SendBuffer(ends[0])
    outbox.write(b"a" * 10_000_000)
    assert 0 < outbox.left < 10_000_000
    arrived = 0
    while arrived < 10_000_000:
        arrived += len(ends[1].recv(1_000_000))
        outbox.send()
    assert outbox.left == 0
