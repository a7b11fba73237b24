"""Threads for work that may hang. They do not keep the process from ending, as the threads of an
executor do.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

# In seconds: how long a thread without work is kept.
KEPT = 5.0

T = TypeVar("T")


def start_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Run ``work`` in a new thread, and return the future of its result.

    :raises RuntimeError: no thread could be started.
    """
    future: Future[T] = Future()
    threading.Thread(target=_settle, args=(future, work), name=name, daemon=True).start()
    return future


class CallThreads:
    """Threads that make one call after another, because a new thread costs more than most calls.
    A call that hangs keeps its thread, and the next call gets another one.

    ``name``: of all threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        # The inboxes of the threads without work.
        self._idle: list[SimpleQueue[Callable[[], None]]] = []

    def start(self, work: Callable[[], T]) -> Future[T]:
        """Run ``work`` in a thread that does nothing else meanwhile, and return the future of its
        result.

        :raises RuntimeError: a thread is needed, and none could be started.
        """
        future: Future[T] = Future()

        def call() -> None:
            _settle(future, work)

        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is not None:
            inbox.put(call)
            return future
        inbox = SimpleQueue()
        inbox.put(call)
        threading.Thread(
            target=self._make_calls, args=(inbox,), name=self._name, daemon=True
        ).start()
        return future

    def _make_calls(self, inbox: SimpleQueue[Callable[[], None]]) -> None:
        """Make the calls that come into the thread's inbox, until none has come for ``KEPT``
        seconds.
        """
        while True:
            try:
                call = inbox.get(timeout=KEPT)
            except Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                # A call was handed over at the last moment.
                continue
            call()
            # Neither the call nor its result is kept while the thread waits.
            del call
            with self._lock:
                self._idle.append(inbox)


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    """Give the future the result of ``work``, or the exception that it raised."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again where the result is taken
        future.set_exception(error)
