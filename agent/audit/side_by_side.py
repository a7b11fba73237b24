"""Jobs side by side: one after the other as long as they compute, on more threads as soon as they
wait.

Threads of one process share one interpreter lock. Jobs that wait for a server gain from more
threads; jobs that only compute lose by them, because each change of threads costs time.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import TypeVar

T = TypeVar("T")

# In seconds: how often it is decided whether one more thread would help.
LOOK = 0.02
# The part of the time in which a process that only computes uses a CPU, at least.
BUSY = 0.5


def results_side_by_side(jobs: Iterable[Callable[[], T]], most: int, name: str) -> list[T]:
    """Run ``jobs`` in their order on at most ``most`` threads, called ``name`` with a number.
    Return their results in the same order.

    The first exception of a job is raised after all jobs have ended.
    """
    waiting = deque((job, Future[T]()) for job in jobs)
    futures = [future for _, future in waiting]
    ended = Event()
    with ThreadPoolExecutor(most, thread_name_prefix=name) as pool:
        pool.submit(_work, waiting, ended)
        threads = 1
        while waiting and threads < most:
            left, wall, cpu = len(waiting), time.monotonic(), time.process_time()
            ended.wait(LOOK)
            computed = time.process_time() - cpu >= BUSY * (time.monotonic() - wall)
            if waiting and not (computed and len(waiting) < left):
                # Without another thread, those that there are do it all.
                with suppress(RuntimeError):
                    pool.submit(_work, waiting, ended)
                threads += 1
    return [future.result() for future in futures]


def _work(waiting: deque[tuple[Callable[[], T], Future[T]]], ended: Event) -> None:
    """Run waiting jobs until none is left."""
    while True:
        try:
            job, future = waiting.popleft()
        except IndexError:
            ended.set()
            return
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - raised again with the results
            future.set_exception(error)
