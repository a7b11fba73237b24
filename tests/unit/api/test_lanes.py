"""Health waits for nobody, and small requests do not wait for large ones."""

import queue
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from agent.api.receive_buffer import ReceiveBuffer
from agent.api.server import (
    HEALTH_AT_ONCE,
    LARGE,
    LARGE_AT_ONCE,
    PIPELINED_PAUSE,
    RequestQueues,
)
from tests.support.tracking import Time

END = None


class Served:
    """Threads that take from lanes, and hold what they took until they are let go."""

    def __init__(self, lanes, threads):
        self.lanes, self.taken, self.go_on = lanes, queue.SimpleQueue(), threading.Semaphore(0)
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def _run(self):
        while (one := self.lanes.get()) is not END:
            self.taken.put(one.name)
            self.go_on.acquire()

    def next(self, many):
        return sorted(self.taken.get(timeout=60) for _ in range(many))

    def end(self):
        for _ in self.threads:
            self.lanes.put(END)
        self.go_on.release(1000)
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def new():
    opened = []

    def open_one(name, said=b"GET /v1/nodes HTTP/1.1\r\n\r\n", pipelines=False):
        near, far = socket.socketpair()
        near.setblocking(False)
        far.sendall(said)
        inbox = ReceiveBuffer(near)
        inbox.receive()
        opened.extend((near, far))
        return SimpleNamespace(name=name, rfile=inbox, pipelines=pipelines)

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def serving():
    begun = []

    def begin(threads=4, most=10, clock=time.monotonic):
        lanes = RequestQueues(threads, most, clock)
        begun.append(Served(lanes, threads + 1))
        return lanes, begun[-1]

    yield begin
    for one in begun:
        one.end()


def health(new, name="health", pipelines=False):
    return new(name, b"GET /healthz HTTP/1.1\r\n\r\n", pipelines)


def new_other(new, name, pipelines=False):
    return new(name, pipelines=pipelines)


def large(new, name="large"):
    return new(name, b"POST /v1/audits HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b" " * LARGE)


def test_however_many_are_served_there_is_a_thread_for_health(new, serving):
    lanes, served = serving()
    for number in range(6):
        lanes.put(new(f"other {number}"))
    assert served.next(4) == ["other 0", "other 1", "other 2", "other 3"]
    lanes.put(health(new))
    assert served.next(1) == ["health"]
    assert served.taken.empty()


def test_health_takes_few_threads_from_others(new, serving):
    lanes, served = serving()
    for number in range(5):
        lanes.put(health(new, f"health {number}"))
    assert len(served.next(HEALTH_AT_ONCE)) == HEALTH_AT_ONCE
    lanes.put(new("other"))
    assert served.next(1) == ["other"]


def test_health_is_served_before_requests_that_were_sent_without_waiting_for_answers(new, serving):
    lanes, served = serving()
    for number in range(HEALTH_AT_ONCE):
        lanes.put(health(new, f"first {number}"))
    served.next(HEALTH_AT_ONCE)
    for number in range(3):
        lanes.put(health(new, f"pipelined {number}", pipelines=True))
    lanes.put(health(new, "patient"))
    served.go_on.release()
    assert served.next(1) == ["patient"]
    served.go_on.release(4)
    assert served.next(3) == ["pipelined 0", "pipelined 1", "pipelined 2"]


@pytest.mark.parametrize("of", [health, new_other], ids=["health", "other"])
def test_pipelined_requests_wait_while_connections_are_opened_and_one_is_served_at_each_turn(
    new, of
):
    time = Time()
    lanes = RequestQueues(4, 10, time)
    for number in range(3):
        lanes.put(of(new, f"pipelined {number}", pipelines=True))
    taken = []

    def take():
        found = lanes._next()
        if found is not None:
            taken.append(found[1].name)

    lanes.note_opened()
    take()
    assert taken == []
    time.pass_by(PIPELINED_PAUSE)
    lanes.note_opened()
    take()
    take()
    assert taken == ["pipelined 0"]
    lanes.put(new("patient"))
    lanes.put(health(new, "patient health"))
    for _ in range(3):
        take()
    assert taken[1:] == ["patient health", "patient"]
    time.pass_by(PIPELINED_PAUSE)
    take()
    take()
    assert taken[3:] == ["pipelined 1", "pipelined 2"]


def test_large_requests_leave_threads_to_small_ones_and_are_served_in_the_end(new, serving):
    lanes, served = serving()
    for number in range(4):
        lanes.put(large(new, f"large {number}"))
    assert served.next(LARGE_AT_ONCE) == ["large 0"]
    lanes.put(new("small"))
    assert served.next(1) == ["small"]
    assert served.taken.empty()
    for number in range(1, 4):
        served.go_on.release(2)
        assert served.next(1) == [f"large {number}"]


def test_what_had_to_wait_is_taken_by_an_idle_thread_as_soon_as_it_may(new, serving):
    lanes, served = serving()
    for number in range(2):
        lanes.put(large(new, f"large {number}"))
    assert served.next(1) == ["large 0"]
    lanes.put(health(new, "first"))
    lanes.put(health(new, "second"))
    assert served.next(2) == ["first", "second"]
    lanes.put(health(new, "third"))
    # Whoever is done now takes the third, or the large one; the other goes to another thread. The
    # third may be done too before the first large one is.
    served.go_on.release(4)
    assert served.next(2) == ["large 1", "third"]


def test_more_than_may_wait_are_refused_each_in_its_own_lane(new):
    lanes = RequestQueues(1, 2)
    for name in ("one", "two"):
        lanes.put(new(name))
    with pytest.raises(queue.Full):
        lanes.put(new("three"))
    for _ in range(2):
        lanes.put(health(new, pipelines=True))
    with pytest.raises(queue.Full):
        lanes.put(health(new, pipelines=True))
    lanes.put(health(new))


def test_what_waits_is_served_before_the_end(new, serving):
    lanes, served = serving(threads=1)
    for number in range(5):
        lanes.put(new(f"other {number}"))
    served.end()
    assert served.next(5) == [f"other {number}" for number in range(5)]
