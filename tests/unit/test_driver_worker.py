"""Driver calls with a deadline."""

import threading
import time

import pytest

from agent.driver import worker as calls
from agent.driver.worker import DriverWorker
from agent.errors import DriverCancelled, DriverTimeout


def wait_until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


class Backend:
    """Hangs until it is let go."""

    def __init__(self):
        self.free = threading.Event()

    def hang(self, *_args):
        self.free.wait(30)
        return "late"


@pytest.fixture
def backend():
    backend = Backend()
    yield backend
    backend.free.set()


def test_a_call_past_its_deadline_is_abandoned_and_counted_until_it_comes_back(backend):
    worker = DriverWorker("some")
    begun = time.monotonic()
    with pytest.raises(DriverTimeout) as caught:
        worker.call(backend.hang, deadline=0.1, node="n1")
    assert time.monotonic() - begun < 30
    assert "0.1 s" in caught.value.message
    assert "n1" in caught.value.message
    assert caught.value.data["critical"] is False
    assert worker.stuck == 1
    backend.free.set()
    wait_until(lambda: worker.stuck == 0)


def test_with_too_many_stuck_calls_further_ones_are_refused_at_once_until_one_comes_back(backend):
    worker = DriverWorker("some", max_stuck=2)
    for _ in range(2):
        with pytest.raises(DriverTimeout):
            worker.call(backend.hang, deadline=0.05)
    assert worker.critical
    with pytest.raises(DriverTimeout) as caught:
        worker.call(lambda: pytest.fail("was called"), deadline=5)
    assert caught.value.data["critical"] is True
    backend.free.set()
    wait_until(lambda: not worker.critical)
    assert worker.call(lambda: "well", deadline=5) == "well"


def test_a_shutdown_ends_waiting_at_once(backend):
    cancelled = threading.Event()
    worker = DriverWorker("some", cancelled=cancelled)
    threading.Timer(0.2, cancelled.set).start()
    begun = time.monotonic()
    with pytest.raises(DriverCancelled):
        worker.call(backend.hang, deadline=600)
    assert time.monotonic() - begun < 60
    with pytest.raises(DriverCancelled):
        worker.call(lambda: pytest.fail("was called"), deadline=5)


def test_one_call_after_another_takes_one_thread_and_a_hanging_one_keeps_its_own(backend):
    worker = DriverWorker("some")
    threads = {worker.call(threading.get_ident, deadline=5) for _ in range(3)}
    wait_until(lambda: worker.call(threading.get_ident, deadline=5) in threads)

    hanging = []

    def hang():
        hanging.append(threading.get_ident())
        backend.hang()

    with pytest.raises(DriverTimeout):
        worker.call(hang, deadline=0.05)

    assert worker.call(threading.get_ident, deadline=5) not in hanging


def test_a_thread_without_work_ends(monkeypatch):
    monkeypatch.setattr(calls, "KEPT", 0.01)
    name = "driver that ends"
    DriverWorker("that ends").call(threading.get_ident, deadline=5)
    wait_until(lambda: name not in {thread.name for thread in threading.enumerate()})
