"""Makes the calls of a driver in other threads, each with a deadline, so that a hanging backend
does not block its callers. The threads do not keep the process from ending, as those of an executor
do.
"""

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

from oslo_log import log as logging

from agent.errors import AgentError, DriverCancelled, DriverError, DriverTimeout
from agent.model.names import printable, printable_traceback

LOG = logging.getLogger(__name__)

# Seconds until a waiting caller notices that the agent is stopping.
CANCEL_POLL = 0.2
# How many kinds of exceptions are remembered, so that each is logged with its traceback only once.
KINDS = 1000

Outcome = Literal["done", "failed", "abandoned"]
"""How a call ended."""

T = TypeVar("T")


class DriverWorker:
    """Makes the calls of one driver. Any number of threads may call at the same time.

    :param driver: the driver's name, for messages.
    :param max_stuck: how many abandoned calls may be under way; from then on further calls are
        refused at once, because each would only cost one more thread.
    :param cancelled: once set, waiting calls are abandoned within ``CANCEL_POLL`` seconds and new
        ones refused.
    :param kind: the kind of plug-in, for messages.
    :param late: the remedy for a call that does not return in time, if its deadline is no option of
        ``[compute]``.
    """

    def __init__(
        self,
        driver: str,
        max_stuck: int = 4,
        cancelled: threading.Event | None = None,
        kind: str = "driver",
        *,
        late: str | None = None,
    ) -> None:
        self._driver, self._kind = printable(driver), kind
        self._late = late or (
            f"check that what the {kind} talks to answers, or raise the call's deadline in "
            "[compute]"
        )
        self._max_stuck = max_stuck
        self._threads = CallThreads(f"{kind} {self._driver}")
        self._cancelled = cancelled if cancelled is not None else threading.Event()
        self._lock = threading.Lock()
        self._stuck = 0
        # Called with the name of each call, how it ended, and the seconds that it took.
        self.observe: Callable[[str, Outcome, float], None] = lambda _call, _outcome, _seconds: None
        # Exceptions that were logged: type, file and line.
        self._logged: set[tuple[str, str, int | None]] = set()

    @property
    def stuck(self) -> int:
        """How many abandoned calls have not returned yet."""
        return self._stuck

    @property
    def critical(self) -> bool:
        """Whether so many calls hang that no more are made."""
        return self._stuck >= self._max_stuck

    def call(self, function: Callable[..., T], *args: object, deadline: float, node: str = "") -> T:
        """Return what ``function(*args)``, a method of the driver, returns.

        :param deadline: seconds to wait for it.
        :param node: the name of the node that it is about, for messages.
        :raises DriverTimeout: it did not return in time and was abandoned; or, with ``critical``
            true in the error's data, it was not even called because ``max_stuck`` other calls hang.
        :raises DriverCancelled: the agent is stopping.
        :raises AgentError: the error that the driver itself raised.
        :raises DriverError: the driver raised something else, which is the cause; or no thread
            could be started.
        """
        title = self._describe(function, node)
        data: dict[str, Any] = {
            "driver": self._driver,
            "call": _name(function),
            "node": node,
            "seconds": deadline,
        }
        if self._cancelled.is_set():
            raise DriverCancelled(f"{title} was not called: the agent is stopping", **data)
        if self.critical:
            raise DriverTimeout(
                f"{title} was not called: {self._stuck} earlier calls hang",
                f"restart what the {self._kind} talks to, or the agent",
                critical=True,
                **data,
            )
        begun = time.monotonic()
        future = self._start(lambda: function(*args), title)
        if self._wait(future, deadline) or not self._abandon(future, title):
            failed = future.exception() is not None
            self.observe(_name(function), "failed" if failed else "done", time.monotonic() - begun)
            return self._result(future, title)
        self.observe(_name(function), "abandoned", time.monotonic() - begun)
        if self._cancelled.is_set():
            raise DriverCancelled(f"{title} was abandoned: the agent is stopping", **data)
        raise DriverTimeout(
            f"{title} did not answer within {deadline:g} s and was abandoned",
            self._late,
            critical=False,
            **data,
        )

    def _start(self, function: Callable[[], T], title: str) -> Future[T]:
        try:
            return self._threads.start(function)
        except RuntimeError as error:
            raise DriverError(
                f"{title} was not called: {error}",
                "raise the number of tasks that the service may have: TasksMax in its unit",
            ) from error

    def _wait(self, future: Future[T], deadline: float) -> bool:
        """Return whether the call returned before the deadline and before the agent was told to
        stop.
        """
        end = time.monotonic() + deadline
        while (left := end - time.monotonic()) > 0 and not self._cancelled.is_set():
            with suppress(TimeoutError):
                future.exception(min(left, CANCEL_POLL))
                return True
        return future.done()

    def _abandon(self, future: Future[T], title: str) -> bool:
        """Abandon the call. Return False if it returned at the last moment."""

        def return_late(_future: Future[T]) -> None:
            with self._lock:
                self._stuck -= 1
            LOG.info("%s came back after it had been abandoned", title)

        if future.done():
            return False
        with self._lock:
            self._stuck += 1
        # Called at once if the call has returned meanwhile.
        future.add_done_callback(return_late)
        return True

    def _result(self, future: Future[T], title: str) -> T:
        """Return or raise the result of the call."""
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, AgentError):
            raise error
        # Not in an except block, because there oslo.log adds the exception to the line unescaped.
        # SystemExit too, because it ended the call's own thread only.
        self._log_exception(title, error)
        raise DriverError(
            f"{title} raised {type(error).__name__}: {printable(str(error))}",
            "see the log of the agent",
        ) from error

    def _log_exception(self, title: str, error: BaseException) -> None:
        """Log an exception with its traceback, the first time that one of its type comes from that
        place. The error that callers report has the one-line message.
        """
        frames = traceback.extract_tb(error.__traceback__)
        kind = (
            type(error).__qualname__,
            frames[-1].filename if frames else "",
            frames[-1].lineno if frames else 0,
        )
        with self._lock:
            new = kind not in self._logged and len(self._logged) < KINDS
            if new:
                self._logged.add(kind)
        if new:
            LOG.error(
                "%s raised %s, whose traceback is logged this once:\n%s",
                title,
                type(error).__name__,
                printable_traceback(error),
            )

    def _describe(self, function: Callable[..., object], node: str) -> str:
        about = f" of node {printable(node)}" if node else ""
        return f"{self._kind} {self._driver}: {_name(function)}{about}"


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", type(function).__name__)


# --- threads for work that may hang ---------------------------------------------------------------

# In seconds: how long a thread without work is kept.
KEPT = 5.0


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
