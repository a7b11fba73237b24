"""What a thread waits for, it waits for no longer than its work may take."""

import math
import socket
import threading
import time

import pytest
import requests

from agent import deadline
from agent.deadline import DeadlinePassed
from agent.http.bounded import bounded_session
from agent.tracker.node_entry import FairLock


def test_without_a_deadline_nothing_is_bounded():
    assert deadline.left() == math.inf
    assert deadline.left(5) == 5


def test_the_innermost_deadline_makes_none_longer_and_ends_with_its_block():
    with deadline.within(10):
        with deadline.within(100):
            assert deadline.left() <= 10
        with deadline.within(0):
            assert deadline.left() == 0
        assert 0 < deadline.left(5) <= 5
    assert deadline.left() == math.inf


def test_other_threads_have_deadlines_of_their_own():
    found = []
    with deadline.within(1):
        thread = threading.Thread(target=lambda: found.append(deadline.left()))
        thread.start()
        thread.join()
    assert found == [math.inf]


@pytest.mark.parametrize("lock", [threading.Lock(), threading.BoundedSemaphore(1)])
def test_a_lock_that_others_keep_is_waited_for_until_the_deadline(lock):
    with deadline.held(lock, "the store"):
        begun = time.monotonic()
        with (
            pytest.raises(DeadlinePassed, match="the store could not be had"),
            deadline.within(0.1),
            deadline.held(lock, "the store"),
        ):
            pass
        assert time.monotonic() - begun >= 0.1
    with deadline.within(10), deadline.held(lock, "the store"):
        pass


def test_who_gave_up_waiting_for_a_fair_lock_is_not_handed_it():
    lock, order = FairLock(), []

    def patient():
        with lock:
            order.append("patient")

    with lock:
        with pytest.raises(DeadlinePassed), deadline.within(0.05), lock:
            pass
        thread = threading.Thread(target=patient)
        thread.start()
    thread.join(60)
    with lock:
        order.append("again")
    assert order == ["patient", "again"]


@pytest.mark.parametrize("timeout", [None, 600, (600, 600)])
def test_a_server_that_does_not_answer_is_waited_for_until_the_deadline(timeout):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with deadline.within(0.2), pytest.raises(requests.exceptions.ReadTimeout):
            bounded_session().get(url, timeout=timeout)
        with (
            deadline.within(0),
            pytest.raises(requests.exceptions.ConnectTimeout, match="no time left"),
        ):
            bounded_session().get(url, timeout=timeout)
