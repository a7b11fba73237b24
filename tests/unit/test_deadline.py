"""What a thread waits for, it waits for no longer than its work may take."""

import math
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import requests

from agent import deadline
from agent.audit import fleet
from agent.audit.fleet import results_side_by_side
from agent.deadline import DeadlinePassed
from agent.driver import worker as calls
from agent.driver.worker import DriverWorker
from agent.errors import DriverCancelled, DriverTimeout
from agent.http.bounded import bounded_session
from agent.service.systemd import RELOAD, STOP, WAKE, Notifier, Signals, watchdog_interval
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
        session = bounded_session()
        with deadline.within(2), pytest.raises(requests.exceptions.ReadTimeout):
            session.get(url, timeout=timeout)
        with (
            deadline.within(0),
            pytest.raises(requests.exceptions.ConnectTimeout, match="no time left"),
        ):
            session.get(url, timeout=timeout)


# --- jobs side by side: one thread for those that compute, more for those that wait ---


PATIENCE = 30
JOBS = 50


def test_jobs_that_compute_share_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    changed = threading.Condition()

    class Look(threading.Event):
        """A look that comes when at least one more job has begun."""

        def wait(self, timeout: float | None = None) -> bool:
            with changed:
                seen = len(done)
                changed.wait_for(lambda: len(done) >= min(seen + 2, JOBS), PATIENCE)
            return self.is_set()

    def job() -> int:
        with changed:
            done.append(threading.get_ident())
            changed.notify_all()
        return done[-1]

    monkeypatch.setattr(fleet, "Event", Look)
    # However little of the time this process gets a CPU.
    monkeypatch.setattr(fleet, "BUSY", 0.0)
    assert len(set(results_side_by_side([job] * JOBS, 4, "audit"))) == 1


def test_jobs_that_wait_for_each_other_get_the_threads_that_they_need() -> None:
    meeting = threading.Barrier(4)
    found = results_side_by_side([lambda: meeting.wait(PATIENCE)] * 4, 4, "audit")
    assert sorted(found) == [0, 1, 2, 3]


def test_there_are_never_more_threads_than_allowed() -> None:
    running, most = set[int](), []
    lock = threading.Lock()

    def job() -> None:
        with lock:
            running.add(threading.get_ident())
            most.append(len(running))
        time.sleep(0.05)
        with lock:
            running.discard(threading.get_ident())

    results_side_by_side([job] * 20, 3, "audit")
    assert max(most) <= 3


def test_the_first_failure_in_order_is_raised_after_all_have_ended() -> None:
    ended: list[int] = []

    def fails(number: int) -> None:
        raise ValueError(number)

    with pytest.raises(ValueError, match=r"^1$"):
        results_side_by_side(
            [lambda: None, lambda: fails(1), lambda: fails(2), lambda: ended.append(3)],
            2,
            "audit",
        )
    assert ended == [3]


def test_one_thread_does_it_all_where_no_other_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit, started = ThreadPoolExecutor.submit, []

    def refuse(self: ThreadPoolExecutor, *args: object, **kwargs: object) -> object:
        started.append(args)
        if len(started) > 1:
            raise RuntimeError("can't start new thread")
        return submit(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    assert results_side_by_side([lambda: time.sleep(0.1)] * 4, 3, "audit") == [None] * 4
    assert len(started) > 1


# --- driver calls with a deadline ---


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


# --- what systemd is told ---


@pytest.fixture
def manager(tmp_path):
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.bind(str(tmp_path / "notify"))
    channel.settimeout(2)
    yield channel
    channel.close()


@pytest.fixture
def notifier(manager):
    return Notifier({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "500000"})


def received(manager):
    return manager.recv(4096).decode().split("\n")


def test_a_status_cannot_smuggle_in_an_assignment(manager, notifier):
    notifier.status("node\nREADY=1")
    assert received(manager) == ["STATUS=node\\nREADY=1"]


def test_the_watchdog_gets_as_much_as_it_needs(manager, notifier, monkeypatch):
    hundredths = iter(range(1000, 1032, 2))
    clock = SimpleNamespace(monotonic=lambda: next(hundredths) / 100)
    monkeypatch.setattr("agent.service.systemd.time", clock)
    for _ in range(16):
        notifier.watchdog()
    notifier.status("end")
    messages = [received(manager)]
    while messages[-1] == ["WATCHDOG=1"]:
        messages.append(received(manager))
    assert messages[-1] == ["STATUS=end"]
    assert messages.count(["WATCHDOG=1"]) == 6


def test_a_manager_that_went_away_is_logged_once(tmp_path, caplog):
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    for _ in range(3):
        notifier.status("unheard")
    assert len([record for record in caplog.records if "NOTIFY_SOCKET" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_interval_is_only_for_the_process_it_is_meant_for(environ, seconds):
    assert watchdog_interval(environ) == seconds


# --- signals are taken when they are asked for, and are lost never ---


@pytest.fixture
def signals():
    with Signals() as signals:
        yield signals


def send(number):
    # to the thread of the tests, because pytest-xdist has one more in this process, and that one
    # does not leave signals to it
    signal.pthread_kill(threading.main_thread().ident, number)


def test_a_second_one_on_the_way_out_does_no_harm_and_all_is_as_before():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with Signals():
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before | STOP | RELOAD | WAKE
        send(signal.SIGTERM)
        send(signal.SIGHUP)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_wake_from_another_thread_ends_a_wait_and_means_nothing_else(signals):
    threading.Timer(0.1, signals.wake).start()
    begun = time.monotonic()
    signals.take(300)
    assert time.monotonic() - begun < 60
    assert not (signals.stop or signals.reload)


def test_a_wake_that_comes_too_late_does_no_harm():
    with Signals() as signals:
        pass
    signals.wake()
