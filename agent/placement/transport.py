"""Sending requests to Placement: counted, traced, every failure raised as one of two exceptions."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from keystoneauth1 import adapter as ksa_adapter
from keystoneauth1 import exceptions as ksa
from keystoneauth1.identity.base import BaseIdentityPlugin
from retrying import RetryError

from agent.conf.placement import GROUP
from agent.deadline import DeadlinePassed, held, left, within
from agent.errors import ConfigError, ObservesOnly, PlacementUnreachable
from agent.http.bounded import close_idle_connections
from agent.http.last_calls import LastCalls
from agent.http.session import CertificateFiles, file_problems
from agent.model.names import masked, number_of, printable
from agent.placement.answers import NotDocumented, PlacementAnswer, age_of, brief, decode
from agent.placement.codes import OUTAGE_STATUSES
from agent.placement.retry import read_policy
from agent.placement.unreachable import (
    NOT_PLACEMENTS_REMEDY,
    OutageLog,
    refusal_remedy,
    through_proxy,
    unreachable,
)

LOG = logging.getLogger(__name__)

CATALOG_PAUSE = 60.0
# The kinds of failures of which an endpoint that moved may be the cause.
MAY_HAVE_MOVED = frozenset(
    (
        "catalog",
        "discovery",
        "connect",
        "timeout",
        "broken",
        "tls",
        "redirect",
        "too-long",
        "not-placement",
    )
)
LONGEST_ID = 100
# The statuses of refusals in another form than Placement's: by what checks tokens (401, also inside
# Placement's process) and by what limits the length of a body (413).
# The statuses of addresses and of headers that are too long for a server.
TOO_LONG = frozenset({414, 431})
# Those that a server may give for one, too.
UNCLEAR = TOO_LONG | OUTAGE_STATUSES | {400, 500}
# Bytes of an address that every server answers.
SHORT_PATH = 1000
REFUSED_BEFORE_PLACEMENT = frozenset({401, 413})

Item = TypeVar("Item")
Result = TypeVar("Result")
Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of requests, in seconds."""

    connect: float = 5
    read: float = 60
    reshape: float = 300
    """The wait for the answer to a reshape, which takes longer than any other request."""

    @property
    def whole(self) -> float:
        """The time for everything that a request needs: connections, tokens, answers."""
        return self.connect + self.read


def _observe_nothing(_method: str, _status: int | None, _seconds: float) -> None:
    """Ignore a request: the default observer."""


class Transport:
    """A keystoneauth adapter for Placement. Safe to share between threads.

    ``cancelled`` ends the waits between retries; ``max_in_flight`` bounds the number of concurrent
    requests of all threads together; ``read_only`` refuses every request that is not a GET.
    """

    def __init__(
        self,
        adapter: ksa_adapter.Adapter,
        *,
        timeouts: Timeouts,
        max_in_flight: int,
        cancelled: threading.Event,
        read_only: bool = False,
    ) -> None:
        self.adapter = adapter
        self.read_only = read_only
        self.timeouts = timeouts
        self.max_in_flight = max_in_flight
        self.cancelled = cancelled
        self.slots = threading.BoundedSemaphore(max_in_flight)
        self.outages = OutageLog()
        # Called with the method of each request, the status of its answer (None if none came) and
        # its duration in seconds.
        self.observe: Callable[[str, int | None, float], None] = _observe_nothing
        self._endpoint = ""
        self._catalog_renewed = -CATALOG_PAUSE
        self._renewing = threading.Lock()

    @property
    def endpoint(self) -> str:
        """The URL of Placement, from the options or the service catalog.

        :raises PlacementUnreachable: the catalog has no endpoint, or identity does not answer.
        """
        if not self._endpoint:
            try:
                with within(self.timeouts.whole):
                    found = self.adapter.get_endpoint()
            except MemoryError:
                raise
            except Exception as error:
                # Libraries below raise many types: an OSError for a missing certificate, a
                # ValueError for a malformed URL.
                raise self._record_failure(error, "the identity service") from error
            if not found:
                raise self._record_failure(ksa.EndpointNotFound(), "")
            # Only for messages and to tell one Placement from another: requests are sent to the
            # endpoint that the adapter finds.
            self._endpoint = masked(str(found)).rstrip("/")
        return self._endpoint

    def close_surplus_connections(self) -> None:
        """Close the connections that no request uses, but the last used one to each server."""
        session = self.adapter.session
        # Inside nova-compute, nova has the session.
        if session is not None:
            close_idle_connections(session.session, 1)

    def failure(
        self, error: Exception, url: str, timeout: float | None = None
    ) -> PlacementUnreachable:
        """Return ``error`` as the exception that callers see, see also :meth:`renew_catalog`.
        ``timeout`` is the read timeout of the request, if not the default.
        """
        waited = (
            f"{self.timeouts.connect:g} s for a connection and "
            f"{self.timeouts.read if timeout is None else timeout:.3g} s for an answer"
        )
        session = self.adapter.session
        # Inside nova-compute, nova has the session.
        auth = session and (self.adapter.auth or session.auth)
        failure = unreachable(
            error, url, self.adapter.region_name, _first(self.adapter.interface), waited, auth
        )
        if (
            failure.kind in ("tls", "broken", "connect")
            and (own := self._own_files_problem()) is not None
        ):
            # The library's own message about a file that was changed while the agent runs is
            # misleading.
            failure = PlacementUnreachable(
                f"cannot ask {printable(url)} over TLS: {own.message}",
                own.remedy,
                kind="tls",
                fatal=True,
            )
        if failure.kind in MAY_HAVE_MOVED:
            self.renew_catalog()
        return failure

    def renew_catalog(self) -> None:
        """Ask the identity service for a new token with its catalog, at most once a minute, because
        the endpoint may have moved. Without an answer the present token stays.
        """
        session = self.adapter.session
        # Inside nova-compute, nova has the session.
        auth = session and (self.adapter.auth or session.auth)
        # Without a token, the next request asks for one.
        if not isinstance(auth, BaseIdentityPlugin) or auth.auth_ref is None:
            return
        if self.adapter.endpoint_override:
            return
        with self._renewing:
            now = time.monotonic()
            if now - self._catalog_renewed < CATALOG_PAUSE:
                return
            self._catalog_renewed = now
        try:
            with within(self.timeouts.whole):
                auth.auth_ref = auth.get_auth_ref(session)
        except (ksa.ClientException, OSError, DeadlinePassed) as error:
            LOG.debug("the catalog was not read again: %s", type(error).__name__)
            return
        self._endpoint = ""

    def _own_files_problem(self) -> ConfigError | None:
        """Return the first problem of the session's certificate files, ``None`` without one."""
        session = self.adapter.session
        # Inside nova-compute, nova has the session.
        if session is None:
            return None
        return next(file_problems(CertificateFiles.of_session(session), GROUP), None)

    def _record_failure(self, error: Exception, url: str) -> PlacementUnreachable:
        failure = self.failure(error, url)
        self.outages.record_failure(failure.kind, failure.message)
        return failure

    def exchange(self, request_id: str) -> "Exchange":
        """Start a series of requests under one global request id, with its own request count."""
        return Exchange(self, request_id)


class MirrorInsufficient(Exception):
    """A node cannot be audited on its mirror alone: Placement has to be asked."""


class Exchange:
    """The requests of one cycle, under one global request id."""

    def __init__(self, transport: Transport, request_id: str) -> None:
        self.transport = transport
        self.request_id = request_id
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
        body: Any = None,
        timeout: float | None = None,
        *,
        patient: bool = False,
    ) -> PlacementAnswer:
        """Send one request.

        A GET is repeated once if the service could not answer, a ``patient`` one up to three times.

        :raises PlacementUnreachable: no answer came, or the agent is stopping and nothing was sent.
        :raises ObservesOnly: the request would write, and the transport is read-only.
        """
        outages = self.transport.outages
        if self.transport.read_only and method != "GET":
            raise ObservesOnly(f"placement {method} {brief(path)} was not sent")
        try:
            answer = (
                self._send_get(path, version, timeout, patient)
                if method == "GET"
                else self._send(method, path, version, body, timeout)
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
            outages.record_failure(f"status {answer.status}", self._line(answer), self.request_id)
        elif (
            400 <= answer.status < 500
            and not answer.own
            and answer.status not in REFUSED_BEFORE_PLACEMENT
        ):
            raise self.foreign_answer(answer)
        elif answer.status != 200:
            outages.record_answer()
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
                known = self._send("GET", "/", None, None, None).status in (200, 300)
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
            outcome_unknown=answer.method != "GET",
        )
        self.transport.renew_catalog()
        self.transport.outages.record_failure(failure.kind, failure.message, self.request_id)
        return failure

    def _send_get(
        self, path: str, version: str | None, timeout: float | None, patient: bool
    ) -> PlacementAnswer:
        try:
            answer: PlacementAnswer = read_policy(self.transport.cancelled, patient=patient).call(
                self._send, "GET", path, version, None, timeout
            )
        except RetryError as exhausted:
            answer = exhausted.last_attempt.value
        return answer

    def _line(self, answer: PlacementAnswer) -> str:
        trace = f"[global {self.request_id}, server {answer.request_id}]"
        return (
            f"placement {answer.method} {brief(answer.path)} -> {answer.status} {answer.code} "
            f"{trace}"
        )

    def _send(
        self, method: str, path: str, version: str | None, body: Any, timeout: float | None
    ) -> PlacementAnswer:
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
                with within(transport.timeouts.connect + timeout):
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
        LOG.log(logging.WARNING if answer.status == 500 else logging.DEBUG, self._line(answer))
        return answer

    def _record_failure(
        self, method: str, path: str, failure: PlacementUnreachable, begun: float
    ) -> None:
        """Count, observe and log a request without an answer; requests that were never sent, for
        lack of an endpoint or of a token, are only logged.
        """
        if failure.kind not in ("catalog", "credentials", "identity"):
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


class NoExchange(Exchange):
    """An exchange that sends nothing."""

    def send(
        self,
        method: str,
        path: str,
        version: str | None,  # noqa: ARG002 - no request is sent
        body: Any = None,  # noqa: ARG002 - no request is sent
        timeout: float | None = None,  # noqa: ARG002 - no request is sent
        *,
        patient: bool = False,  # noqa: ARG002 - no request is sent
    ) -> PlacementAnswer:
        """Refuse the request.

        :raises MirrorInsufficient: always.
        """
        raise MirrorInsufficient(f"{method} {brief(path)}")


def _first(interface: str | list[str] | None) -> str | None:
    return ", ".join(interface) if isinstance(interface, list) else interface
