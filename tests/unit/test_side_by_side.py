"""Jobs side by side: one thread for those that compute, more for those that wait."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.audit import fleet
from agent.audit.fleet import results_side_by_side

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
