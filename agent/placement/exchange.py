"""The requests of one cycle: counted, traced, repeated where that is safe, each failure raised as
one of two exceptions. And the waits between attempts: exponential with jitter and a cap, and
interrupted by a shutdown.
"""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from typing import Any, TypeVar

from retrying import RetryError, Retrying

from agent.deadline import DeadlinePassed, held, left, within
from agent.errors import (
    CLOSED,
    FRONT_STATUSES,
    OUTAGE_STATUSES,
    GenerationConflict,
    ObservesOnly,
    PlacementUnreachable,
)
from agent.http.bounded import LastCalls
from agent.model.names import number_of, printable
from agent.placement.answers import NotDocumented, PlacementAnswer, age_of, brief, decode
from agent.placement.transport import OF_THE_ACCOUNT, Transport
from agent.placement.unreachable import NOT_PLACEMENTS_REMEDY, refusal_remedy, through_proxy

LOG = logging.getLogger(__name__)

MAX_ATTEMPTS = 4
LEAST_WAIT = 0.1
LONGEST_WAIT = 2.0
LEAST_READ_WAIT = 0.05
LONGEST_READ_WAIT = 0.2
# The maximum wait before each repetition of an operation on allocations, in seconds.
REPETITION_WAITS = (0.5, 1.0, 2.0)
LONGEST_ID = 100
# The statuses of addresses and of headers that are too long for a server.
TOO_LONG = frozenset({414, 431})
# Those that a server may give for one, too.
UNCLEAR = TOO_LONG | OUTAGE_STATUSES | {400, 500}
# Bytes of an address that every server answers.
SHORT_PATH = 1000

Item = TypeVar("Item")
Result = TypeVar("Result")
Body = TypeVar("Body")


class MirrorInsufficient(Exception):
    """A node cannot be audited on its mirror alone: Placement has to be asked."""


class Exchange:
    """The requests of one cycle, under one global request id.

    ``sends`` False: nothing is sent, and each request raises :class:`MirrorInsufficient`.
    """

    def __init__(self, transport: Transport, request_id: str, *, sends: bool = True) -> None:
        self.transport = transport
        self.request_id = request_id
        self._sends = sends
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many requests of each method were sent, retries included."""
        with self._lock:
            return dict(self._counts)

    def _count(self, method: str, how_many: int) -> None:
        with self._lock:
            self._counts[method] += how_many

    def send(
        self,
        method: str,
        path: str,
        version: str | None,
        good: Collection[int] = (200,),
        body: Any = None,
        timeout: float | None = None,
        *,
        patient: bool = False,
    ) -> PlacementAnswer:
        """Send one request, and return its answer with one of the statuses ``good``.

        A GET is repeated once if the service could not answer, a ``patient`` one up to three times.

        :raises PlacementRefused: the answer has another status.
        :raises PlacementUnreachable: no answer came, or the agent is stopping and nothing was sent.
        :raises ObservesOnly: the request would write, and the transport is read-only.
        :raises MirrorInsufficient: nothing may be sent.
        """
        outages = self.transport.outages
        if self.transport.read_only and method != "GET":
            raise ObservesOnly(f"placement {method} {brief(path)} was not sent")
        try:
            answer = (
                self._send_get(path, version, timeout, patient)
                if method == "GET"
                else self.send_once(method, path, version, body, timeout)
            )
        except PlacementUnreachable as failure:
            if failure.kind != "cancelled":
                self._check_length(path)
                outages.record_failure(failure.kind, failure.message, self.request_id)
            raise
        if answer.status in UNCLEAR and not answer.own:
            self._check_length(path, known=answer.status in TOO_LONG)
        if answer.status in OUTAGE_STATUSES:
            if not answer.own:
                self.transport.renew_catalog()
            line = f"{answer.line} {self._trace(answer.request_id)}"
            outages.record_failure(f"status {answer.status}", line, self.request_id)
        elif 400 <= answer.status < 500 and not answer.own and answer.status not in FRONT_STATUSES:
            raise self.foreign_answer(answer)
        elif answer.status != 200:
            outages.record_answer()
        if answer.status not in good:
            raise answer.refusal() if answer.status >= 400 else self.foreign_answer(answer)
        return answer

    def _check_length(self, path: str, *, known: bool = False) -> None:
        """Check whether a request was not answered because its address is too long: a short one is
        answered then.

        :param known: the answer to the request says so.
        :raises PlacementUnreachable: it is too long.
        """
        if not known:
            if len(path) <= SHORT_PATH:
                return
            try:
                known = self.send_once("GET", "/", None, None, None).status in (200, 300)
            except PlacementUnreachable:
                return
        if known:
            raise PlacementUnreachable(
                f"{self.transport.endpoint} answers short requests, but none with an address of "
                f"{number_of(len(path), 'byte')}, {brief(path)}",
                "raise what limits the length of a request there: buffer-size of uWSGI (4096 by "
                "default, where an address counts twice), large_client_header_buffers of nginx, "
                "LimitRequestLine of Apache",
                kind="request-length",
            )

    def decode(self, answer: PlacementAnswer, kind: type[Body]) -> Body:
        """Return the decoded body of an answer.

        :raises PlacementUnreachable: the body is not what Placement documents, so that the outcome
            of the request is unknown.
        """
        try:
            body = decode(answer.content, kind)
        except NotDocumented as error:
            raise self.foreign_answer(answer, str(error)) from error
        self.transport.outages.record_answer()
        return body

    def foreign_answer(self, answer: PlacementAnswer, fault: str = "") -> PlacementUnreachable:
        """Return the error for an answer that is not Placement's.

        Such an answer says nothing about the request, nor about the state of Placement.
        """
        with_what = f"{answer.status} in a form" if answer.status >= 400 else "something"
        message, remedy = through_proxy(
            answer.endpoint,
            f"{answer.endpoint} answered {answer.method} {brief(answer.path)} with {with_what} "
            "that is not Placement's" + (f": {fault}" if fault else ""),
            refusal_remedy(answer.endpoint, answer.status, NOT_PLACEMENTS_REMEDY),
        )
        failure = PlacementUnreachable(
            message,
            remedy,
            kind="not-placement",
            outcome_unknown=True,
        )
        self.transport.renew_catalog()
        self.transport.outages.record_failure(failure.kind, failure.message, self.request_id)
        return failure

    def _send_get(
        self, path: str, version: str | None, timeout: float | None, patient: bool
    ) -> PlacementAnswer:
        try:
            answer: PlacementAnswer = read_policy(self.transport.cancelled, patient=patient).call(
                self.send_once, "GET", path, version, None, timeout
            )
        except RetryError as exhausted:
            answer = exhausted.last_attempt.value
        return answer

    def _trace(self, server_id: str) -> str:
        return f"[global {self.request_id}, server {server_id}]"

    def send_once(
        self, method: str, path: str, version: str | None, body: Any, timeout: float | None
    ) -> PlacementAnswer:
        """Send one request, without repetition, and return whatever answer comes.

        :raises PlacementUnreachable: none came.
        """
        if not self._sends:
            raise MirrorInsufficient(f"{method} {brief(path)}")
        transport, answers = self.transport, []
        timeout, begun = left(timeout or transport.timeouts.read), time.monotonic()
        options: dict[str, Any] = {} if body is None else {"json": body}
        try:
            with held(transport.slots, "a connection to Placement"):
                begun = time.monotonic()
                # Checked after the wait for a slot: a request that waited while the agent began to
                # stop is not sent either.
                if transport.cancelled.is_set():
                    raise PlacementUnreachable(
                        f"placement {method} {brief(path)} was not sent: the agent is stopping",
                        kind="cancelled",
                    )
                # A token may be needed first, and again once it was refused.
                with transport.waiting(), within(transport.timeouts.connect + timeout):
                    response = transport.adapter.request(
                        path,
                        method,
                        raise_exc=False,
                        microversion=version,
                        headers={"Accept": "application/json"},
                        global_request_id=self.request_id,
                        timeout=(transport.timeouts.connect, timeout),
                        # keystoneauth's own semaphore limits nothing by default, but it uses the
                        # wall clock: after the clock was set back it would hold every request until
                        # the old time is reached again.
                        rate_semaphore=nullcontext(),
                        connect_retries=0,
                        status_code_retries=0,
                        log=False,
                        hooks={
                            "response": lambda answer, *_args, **_kwargs: answers.append(answer)
                        },
                        **options,
                    )
        except (PlacementUnreachable, DeadlinePassed, MemoryError):
            raise
        except Exception as error:
            failure = transport.failure(error, transport.endpoint, timeout)
            self._record_failure(method, path, failure, begun)
            raise failure from error
        self._count(method, max(1, len(answers)))
        transport.observe(method, response.status_code, time.monotonic() - begun)
        request_id = printable(response.headers.get("x-openstack-request-id", "no request id"))[
            :LONGEST_ID
        ]
        answer = PlacementAnswer(
            transport.endpoint,
            method,
            path,
            response.status_code,
            response.content or b"",
            request_id,
            age_of(response.headers),
        )
        trace = self._trace(request_id)
        level = logging.WARNING if answer.status == 500 else logging.DEBUG
        LOG.log(level, "%s %s", answer.line, trace)
        return answer

    def _record_failure(
        self, method: str, path: str, failure: PlacementUnreachable, begun: float
    ) -> None:
        """Count, observe and log a request without an answer; requests that were never sent, for
        lack of an endpoint or of a token, are only logged.
        """
        if failure.kind not in (*OF_THE_ACCOUNT, "catalog"):
            self._count(method, 1)
            self.transport.observe(method, None, time.monotonic() - begun)
        LOG.debug(
            "placement %s %s: %s [global %s]",
            method,
            brief(path),
            failure.message,
            self.request_id,
        )

    def each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Call ``function`` for every item, concurrently within ``max_in_flight``; return the
        results in order.

        The first exception ends the call: calls under way are finished, no other is started, and
        no result is returned. A caller that needs the other results passes a function that returns
        its errors.
        """
        work, transport = list(items), self.transport
        if transport.max_in_flight == 1 or len(work) < 2:
            return [function(item) for item in work]
        # The calls around this one go on with what it leaves.
        close = (lambda: None) if LastCalls.in_one() else transport.close_surplus_connections
        calls = LastCalls(len(work), close)
        with ExitStack() as stack:
            stack.callback(close)
            pool = ThreadPoolExecutor(transport.max_in_flight, thread_name_prefix="placement")
            stack.enter_context(pool)
            return list(pool.map(lambda item: calls.run(lambda: function(item)), work))


def _seconds(attempt: int, least: float, longest: float) -> float:
    return random.uniform(least, min(longest, least * 4**attempt))


def _waits(
    cancelled: threading.Event, seconds: Callable[[int], float]
) -> Callable[[int, int], int]:
    """Return a wait function for ``retrying`` that waits by itself, because the library's sleep
    cannot be interrupted.

    :param seconds: how long to wait after an attempt, by its number from 1.
    """

    def wait(attempt: int, _elapsed_ms: int) -> int:
        cancelled.wait(seconds(attempt))
        return 0

    return wait


def _repetition_seconds(attempt: int) -> float:
    return random.uniform(0, REPETITION_WAITS[attempt - 1])


def conflict_policy(cancelled: threading.Event) -> Retrying:
    """Return the policy for operations on allocations: ``MAX_ATTEMPTS`` in all while generations
    conflict.
    """
    return Retrying(
        stop_max_attempt_number=MAX_ATTEMPTS,
        wait_func=_waits(cancelled, _repetition_seconds),
        wrap_exception=False,
        retry_on_exception=lambda error: isinstance(error, GenerationConflict),
    )


def read_policy(cancelled: threading.Event, *, patient: bool = False) -> Retrying:
    """Return the policy for GETs: one more attempt after a short wait if the service could not
    answer; three more if ``patient``. None after a timeout: who waits has waited long enough.
    """

    def worth_repeating(error: BaseException) -> bool:
        return (
            isinstance(error, PlacementUnreachable)
            and error.kind in (CLOSED, "connect", "broken")
            and not cancelled.is_set()
        )

    return Retrying(
        stop_max_attempt_number=MAX_ATTEMPTS if patient else 2,
        wait_func=_waits(
            cancelled,
            _repetition_seconds
            if patient
            else lambda attempt: _seconds(attempt, LEAST_READ_WAIT, LONGEST_READ_WAIT),
        ),
        retry_on_exception=worth_repeating,
        retry_on_result=lambda answer: answer.status in OUTAGE_STATUSES and not cancelled.is_set(),
        wrap_exception=False,
    )


def conflict_wait(attempt: int, cancelled: threading.Event) -> bool:
    """Wait before attempt number ``attempt`` + 1 of a cycle. Return whether the cycle was cancelled
    meanwhile.
    """
    return cancelled.wait(_seconds(attempt, LEAST_WAIT, LONGEST_WAIT))
