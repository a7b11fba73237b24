"""One way to send a request to Placement: counted, traced, with every failure one of two
exceptions.
"""

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from keystoneauth1 import adapter as ksa_adapter
from keystoneauth1 import exceptions as ksa
from retrying import RetryError

from agent.conf.placement import GROUP
from agent.deadline import DeadlinePassed, held, left
from agent.errors import ConfigError, PlacementRefused, PlacementUnreachable
from agent.http.session import CertificateFiles, file_problems
from agent.model.names import masked, printable
from agent.placement.answers import Errors, NotDocumented, decoded
from agent.placement.codes import OUTAGE_STATUSES
from agent.placement.retry import read_policy
from agent.placement.unreachable import NOT_PLACEMENTS_REMEDY, OutageLog, unreachable

LOG = logging.getLogger(__name__)

CATALOG_PAUSE = 60.0
LONGEST_PATH = 300
LONGEST_ID = 100
# What checks tokens, and how long a body may be, answers in a form of its own.
REFUSED_BEFORE_PLACEMENT = frozenset({401, 413})
_OWNER = re.compile(r"((?:project|user)_id=)[^&]*")

Item = TypeVar("Item")
Result = TypeVar("Result")
Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for a connection, for an answer, and for the answer to a reshape."""

    connect: float = 5
    read: float = 60
    reshape: float = 300


@dataclass(frozen=True, slots=True)
class PlacementAnswer:
    """What ``endpoint`` said. ``content`` is the body as it came, after decompression."""

    endpoint: str
    method: str
    path: str
    status: int
    content: bytes
    request_id: str

    @property
    def error(self) -> Mapping[str, Any]:
        """The first error of the body; empty for anything that does not look like Placement's own
        error.
        """
        with suppress(NotDocumented):
            return decoded(self.content, Errors).errors[0]
        return {}

    @property
    def own(self) -> bool:
        """Whether an error is told in the form in which Placement tells its errors, so that it was
        Placement that refused the request.
        """
        return self.error.get("status") == self.status

    @property
    def code(self) -> str:
        """Placement's error code, empty if it gave none."""
        return printable(str(self.error.get("code") or ""))

    def refusal(self, remedy: str = "") -> PlacementRefused:
        """The answer as an exception."""
        # What checks tokens, inside Placement too, has a form of its own for its refusals.
        detail = self.error.get(
            "detail", "" if self.status == 401 else "an answer that is not Placement's own"
        )
        detail = printable(" ".join(str(detail).split()))
        said = f"{self.status} {self.code}".strip()
        message = f"placement {self.method} {_brief(self.path)} -> {said} from {self.endpoint}" + (
            f": {detail}" if detail else ""
        )
        return PlacementRefused(
            message,
            remedy or _remedy(self.status),
            status=self.status,
            placement_code=self.code,
            request_id=self.request_id,
        )


def _brief(path: str) -> str:
    """``path`` for a line of a log; a query may hold a hundred names, and whose usages it asks for
    is nobody's concern.
    """
    shown = _OWNER.sub(r"\1...", printable(path))
    return shown if len(shown) <= LONGEST_PATH else f"{shown[:LONGEST_PATH]}..."


def _remedy(status: int) -> str:
    if status == 401:
        return "check the credentials in section [placement]"
    if status == 403:
        return (
            "give the account in [placement] what it lacks; reshapes need the role service "
            "(openstack role add)"
        )
    if status in (404, 406):
        return "check that [placement] endpoint_override or the catalog names a Placement service"
    if status in OUTAGE_STATUSES or status >= 500:
        return "see the log of Placement, or of what stands in front of it"
    return ""


def _observe_nothing(_method: str, _status: int | None, _seconds: float) -> None:
    """Default observer."""


class Transport:
    """A keystoneauth adapter seen as Placement. Safe to share between threads.

    ``cancelled`` ends waiting between retries; ``max_in_flight`` bounds the requests under way at
    once, of all threads.
    """

    def __init__(
        self,
        adapter: ksa_adapter.Adapter,
        *,
        timeouts: Timeouts,
        max_in_flight: int,
        cancelled: threading.Event,
    ) -> None:
        self.adapter = adapter
        self.timeouts = timeouts
        self.max_in_flight = max_in_flight
        self.cancelled = cancelled
        self.slots = threading.BoundedSemaphore(max_in_flight)
        self.outages = OutageLog()
        # Called with the method of each request, the status of its answer, None if none came, and
        # the seconds that it took.
        self.observe: Callable[[str, int | None, float], None] = _observe_nothing
        self._endpoint = ""
        self._catalog_renewed = -CATALOG_PAUSE

    @property
    def endpoint(self) -> str:
        """The URL of Placement, from the options or the service catalog.

        :raises PlacementUnreachable: the catalog has none, or identity does not answer.
        """
        if not self._endpoint:
            try:
                found = self.adapter.get_endpoint()
            except MemoryError:
                raise
            except Exception as error:
                # Whatever a library below raises: an OSError for a certificate that is missing, a
                # ValueError for a URL that is none.
                raise self._failed(error, "the identity service") from error
            if not found:
                raise self._failed(ksa.EndpointNotFound(), "")
            # Only to be shown and to tell one Placement from another: requests are sent to what the
            # adapter finds.
            self._endpoint = masked(str(found)).rstrip("/")
        return self._endpoint

    def failure(
        self, error: Exception, url: str, timeout: float | None = None
    ) -> PlacementUnreachable:
        """``error`` as callers see it; ``timeout`` for an answer, if not the usual one.

        A catalog without the endpoint is fetched anew, at most once a minute.
        """
        waited = (
            f"{self.timeouts.connect:g} s for a connection and "
            f"{self.timeouts.read if timeout is None else timeout:.3g} s for an answer"
        )
        failure = unreachable(
            error, url, self.adapter.region_name, _first(self.adapter.interface), waited
        )
        if (
            failure.kind in ("tls", "broken", "connect")
            and (own := self._own_files_problem()) is not None
        ):
            # What a library says of its own files that somebody changed while the agent runs leads
            # astray.
            failure = PlacementUnreachable(
                f"cannot ask {printable(url)} over TLS: {own.message}",
                own.remedy,
                kind="tls",
                fatal=True,
            )
        if failure.kind == "catalog":
            self._endpoint = ""
            if time.monotonic() - self._catalog_renewed >= CATALOG_PAUSE:
                self._catalog_renewed = time.monotonic()
                self.adapter.invalidate()
        return failure

    def _own_files_problem(self) -> ConfigError | None:
        """What keeps the certificates that the session uses from being used now."""
        return next(file_problems(CertificateFiles.of_session(self.adapter.session), GROUP), None)

    def _failed(self, error: Exception, url: str) -> PlacementUnreachable:
        failure = self.failure(error, url)
        self.outages.failed(failure.kind, failure.message)
        return failure

    def exchange(self, request_id: str) -> "Exchange":
        """A series of requests under one global request id, with a count of its own."""
        return Exchange(self, request_id)


class Exchange:
    """The requests of one cycle."""

    def __init__(self, transport: Transport, request_id: str) -> None:
        self.transport = transport
        self.request_id = request_id
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many requests of each method were sent, repeats included."""
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
        """Send one request; a GET is sent once more if the service could not answer, a ``patient``
        one up to three times.

        :raises PlacementUnreachable: no answer came, or the agent is stopping and nothing was sent.
        """
        outages = self.transport.outages
        try:
            answer = (
                self._repeated(path, version, timeout, patient)
                if method == "GET"
                else self._send(method, path, version, body, timeout)
            )
        except PlacementUnreachable as failure:
            if failure.kind != "cancelled":
                outages.failed(failure.kind, failure.message, self.request_id)
            raise
        if answer.status in OUTAGE_STATUSES:
            outages.failed(f"status {answer.status}", self._line(answer), self.request_id)
        elif (
            400 <= answer.status < 500
            and not answer.own
            and answer.status not in REFUSED_BEFORE_PLACEMENT
        ):
            raise self.foreign(answer)
        elif answer.status != 200:
            outages.answered()
        return answer

    def decoded(self, answer: PlacementAnswer, kind: type[Body]) -> Body:
        """The body of an answer.

        :raises PlacementUnreachable: it is not what Placement documents, so that nobody knows what
            became of the request.
        """
        try:
            body = decoded(answer.content, kind)
        except NotDocumented as error:
            raise self.foreign(answer, str(error)) from error
        self.transport.outages.answered()
        return body

    def foreign(self, answer: PlacementAnswer, fault: str = "") -> PlacementUnreachable:
        """The error for an answer that is not Placement's: it says nothing about the request, nor
        about what Placement has.
        """
        with_what = f"{answer.status} in a form" if answer.status >= 400 else "something"
        failure = PlacementUnreachable(
            (
                f"{answer.endpoint} answered {answer.method} {_brief(answer.path)} with "
                f"{with_what} that is not Placement's"
            )
            + (f": {fault}" if fault else ""),
            NOT_PLACEMENTS_REMEDY,
            kind="not-placement",
            outcome_unknown=answer.method != "GET",
        )
        self.transport.outages.failed(failure.kind, failure.message, self.request_id)
        return failure

    def _repeated(
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
            f"placement {answer.method} {_brief(answer.path)} -> {answer.status} {answer.code} "
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
                # Only now: whoever waited for a slot while the agent began to stop sends nothing
                # either.
                if transport.cancelled.is_set():
                    raise PlacementUnreachable(
                        f"placement {method} {_brief(path)} was not sent: the agent is stopping",
                        kind="cancelled",
                    )
                response = transport.adapter.request(
                    path,
                    method,
                    raise_exc=False,
                    microversion=version,
                    headers={"Accept": "application/json"},
                    global_request_id=self.request_id,
                    timeout=(transport.timeouts.connect, timeout),
                    # keystoneauth's own semaphore, which by default limits nothing, counts by the
                    # wall's clock: after that was set back, it would hold every request until the
                    # clock is where it was.
                    rate_semaphore=nullcontext(),
                    connect_retries=0,
                    status_code_retries=0,
                    log=False,
                    hooks={"response": lambda answer, *_args, **_kwargs: answers.append(answer)},
                    **options,
                )
        except (PlacementUnreachable, DeadlinePassed, MemoryError):
            raise
        except Exception as error:
            failure = transport.failure(error, transport.endpoint, timeout)
            if failure.kind not in ("catalog", "credentials", "identity"):
                self._count(method, 1)
                transport.observe(method, None, time.monotonic() - begun)
            LOG.debug(
                "placement %s %s: %s [global %s]",
                method,
                _brief(path),
                failure.message,
                self.request_id,
            )
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
        )
        LOG.log(logging.WARNING if answer.status == 500 else logging.DEBUG, self._line(answer))
        return answer

    def each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """``function`` of every item, in order, as many at once as may be in flight.

        The first exception ends it: what is under way comes to its end, nothing else is begun, and
        no result is returned. Whoever needs the others' results hands in a function that returns
        its errors.
        """
        work = list(items)
        if self.transport.max_in_flight == 1 or len(work) < 2:
            return [function(item) for item in work]
        with ThreadPoolExecutor(
            self.transport.max_in_flight, thread_name_prefix="placement"
        ) as pool:
            return list(pool.map(function, work))


def _first(interface: str | list[str] | None) -> str | None:
    return ", ".join(interface) if isinstance(interface, list) else interface
