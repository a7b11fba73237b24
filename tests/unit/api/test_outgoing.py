"""What clients do not take is sent as they take it, for a while, and never more of it than may be
kept.
"""

import socket
import threading

import pytest

from agent.api import send_buffer
from agent.api.send_buffer import SendBuffer, Sender

LARGE = bytes(range(256)) * 4096


class Client:
    """A client of which the server's end has so much to say; ``ended`` is set when that is over."""

    def __init__(self, said=LARGE):
        self.socket, self.end = socket.socketpair()
        self.socket.settimeout(60)
        self.end.settimeout(60)
        self.wfile, self.ended = SendBuffer(self.socket), threading.Event()
        self.wfile.write(said)

    def read(self):
        found = b""
        while part := self.end.recv(65536):
            found += part
            if len(found) == len(LARGE):
                break
        return found


@pytest.fixture
def client():
    opened = []

    def new(*arguments):
        opened.append(Client(*arguments))
        return opened[-1]

    yield new
    for one in opened:
        one.socket.close()
        one.end.close()


def test_a_slow_client_gets_everything(client):
    slow, sender = client(), Sender(60)
    assert 0 < slow.wfile.left < len(LARGE)
    sender.take(slow, slow.ended.set)
    assert slow.read() == LARGE
    assert slow.ended.wait(60)
    assert slow.wfile.left == 0


def test_what_is_written_behind_a_rest_comes_behind_it(client):
    slow = client(LARGE[:-10])
    slow.wfile.write(LARGE[-10:])
    sender = Sender(60)
    sender.take(slow, slow.ended.set)
    assert slow.read() == LARGE


def test_a_client_that_takes_nothing_is_given_up_in_time(client):
    silent, sender = client(), Sender(0.2)
    sender.take(silent, silent.ended.set)
    assert silent.ended.wait(60)
    assert silent.wfile.left == 0
    assert len(silent.read()) < len(LARGE)


def test_a_client_that_goes_away_is_given_up_at_once(client):
    gone, sender = client(), Sender(600)
    gone.end.close()
    sender.take(gone, gone.ended.set)
    assert gone.ended.wait(60)
    assert gone.wfile.left == 0
    with pytest.raises(OSError):
        gone.wfile.write(b"more")
    assert gone.wfile.left == 0


@pytest.mark.parametrize("bound", ["MOST_ANSWERS", "MOST_UNSENT"])
def test_of_more_than_may_be_kept_the_oldest_go(client, monkeypatch, bound):
    clients, sender = [client() for _ in range(5)], Sender(600)
    monkeypatch.setattr(send_buffer, bound, 2 if bound == "MOST_ANSWERS" else 2 * len(LARGE))
    for one in clients:
        sender.take(one, one.ended.set)
    for one in clients[:3]:
        assert one.ended.wait(60)
        assert len(one.read()) < len(LARGE)
    for one in clients[3:]:
        assert one.read() == LARGE


def test_one_answer_is_kept_however_large_it_is(client, monkeypatch):
    monkeypatch.setattr(send_buffer, "MOST_UNSENT", 1)
    slow, sender = client(), Sender(600)
    sender.take(slow, slow.ended.set)
    assert slow.read() == LARGE


def test_a_stop_is_kept_up_by_nobody(client):
    before, after, sender = client(), client(), Sender(600)
    sender.take(before, before.ended.set)
    sender.stop(0.2)
    sender.take(after, after.ended.set)
    assert before.ended.wait(60)
    assert after.ended.wait(60)


def test_a_failure_with_one_client_is_none_of_the_others(client, caplog):
    broken, other, sender = client(), client(), Sender(600)

    def fails():
        raise KeyError("a bug")

    broken.end.close()
    sender.take(broken, fails)
    sender.take(other, other.ended.set)
    assert other.read() == LARGE
    assert other.ended.wait(60)
    assert "a connection to the local API is dropped" in caplog.text
    assert broken.socket.fileno() == -1


def test_a_connection_is_sent_to_again_and_again_by_a_thread_that_ends_between(client):
    slow, sender = client(), Sender(600)
    for _ in range(3):
        sender.take(slow, slow.ended.set)
        assert slow.read() == LARGE
        assert slow.ended.wait(60)
        slow.ended.clear()
        slow.wfile.write(LARGE)


def test_what_waits_is_sent_with_what_follows(client, monkeypatch):
    sent, write = [], send_buffer.os.write
    monkeypatch.setattr(send_buffer.os, "write", lambda *given: sent.append(given) or write(*given))
    taker = client(b"")
    taker.wfile.holds = True
    taker.wfile.write(b"head ")
    assert not sent
    taker.wfile.holds = False
    taker.wfile.write(b"body")
    assert [bytes(data) for _, data in sent] == [b"head body"]
    assert taker.end.recv(100) == b"head body"


def test_a_large_text_follows_what_waits(client):
    taker = client(b"")
    taker.wfile.holds = True
    taker.wfile.write(LARGE[:10])
    taker.wfile.holds = False
    taker.wfile.write(LARGE[10:])
    sender = Sender(60)
    sender.take(taker, taker.ended.set)
    assert taker.read() == LARGE
