"""One way to send a request to Placement: counted, traced, with every failure one of two exceptions."""

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

from agent.errors import PlacementRefused, PlacementUnreachable
from agent.model.names import printable
from agent.placement.codes import OUTAGE_STATUSES
from agent.placement.outage_log import OutageLog
from agent.placement.retry import read_policy
from agent.placement.unreachable import unreachable

LOG = logging.getLogger(__name__)

CATALOG_PAUSE = 60.0
LONGEST_PATH = 300
_OWNER = re.compile(r"((?:project|user)_id=)[^&]*")

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for a connection, for an answer, and for the answer to a reshape."""

    connect: float = 5
    read: float = 60
    reshape: float = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """What ``endpoint`` said. ``body`` is the parsed JSON, ``None`` if there was none or it was no JSON."""

    endpoint: str
    method: str
    path: str
    status: int
    body: Any
    request_id: str

    @property
    def error(self) -> Mapping[str, Any]:
        """The first error of the body; empty for anything that does not look like Placement's own error."""
        with suppress(KeyError, IndexError, TypeError):
            first = self.body["errors"][0]
            return first if isinstance(first, Mapping) else {}
        return {}

    @property
    def code(self) -> str:
        """Placement's error code, empty if it gave none."""
        return printable(str(self.error.get("code") or ""))

    def refusal(self, remedy: str = "") -> PlacementRefused:
        """The answer as an exception."""
        # What checks tokens, inside Placement too, has a form of its own for its refusals.
        detail = self.error.get("detail", "" if self.status == 401 else "an answer that is not Placement's own")
        detail = printable(" ".join(str(detail).split()))
        said = f"{self.status} {self.code}".strip()
        message = f"placement {self.method} {_brief(self.path)} -> {said} from {self.endpoint}" + (f": {detail}" if detail else "")
        return PlacementRefused(message, remedy or _remedy(self.status), status=self.status, placement_code=self.code, request_id=self.request_id)


def _brief(path: str) -> str:
    """``path`` for a line of a log; a query may hold a hundred names, and whose usages it asks for is nobody's concern."""
    shown = _OWNER.sub(r"\1...", printable(path))
    return shown if len(shown) <= LONGEST_PATH else f"{shown[:LONGEST_PATH]}..."


def _remedy(status: int) -> str:
    if status == 401:
        return "check the credentials in section [placement]"
    if status == 403:
        return "the account in [placement] lacks the role that this call needs; reshapes need the role service"
    if status in (404, 406):
        return "check that [placement] endpoint_override or the catalog names a Placement service"
    if status in OUTAGE_STATUSES or status >= 500:
        return "see the log of Placement, or of what stands in front of it"
    return ""


class Transport:
    """A keystoneauth adapter seen as Placement. Safe to share between threads.

    ``cancelled`` ends waiting between retries; ``max_in_flight`` bounds the requests under way at once, of all threads.
    """

    def __init__(self, adapter: ksa_adapter.Adapter, *, timeouts: Timeouts, max_in_flight: int, cancelled: threading.Event) -> None:
        self.adapter = adapter
        self.timeouts = timeouts
        self.max_in_flight = max_in_flight
        self.cancelled = cancelled
        self.slots = threading.BoundedSemaphore(max_in_flight)
        self.outages = OutageLog()
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
            except (ksa.ClientException, ksa.RetriableConnectionFailure) as error:
                raise self._failed(error, "the identity service") from error
            if not found:
                raise self._failed(ksa.EndpointNotFound(), "")
            self._endpoint = str(found).rstrip("/")
        return self._endpoint

    def failure(self, error: Exception, url: str, timeout: float | None = None) -> PlacementUnreachable:
        """``error`` as callers see it; ``timeout`` for an answer, if not the usual one.

        A catalog without the endpoint is fetched anew, at most once a minute.
        """
        waited = f"{self.timeouts.connect:g} s for a connection and {timeout or self.timeouts.read:g} s for an answer"
        failure = unreachable(error, url, self.adapter.region_name, _first(self.adapter.interface), waited)
        if failure.kind == "catalog":
            self._endpoint = ""
            if time.monotonic() - self._catalog_renewed >= CATALOG_PAUSE:
                self._catalog_renewed = time.monotonic()
                self.adapter.invalidate()
        return failure

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

    def send(self, method: str, path: str, version: str | None, body: Any = None, timeout: float | None = None, *, patient: bool = False) -> Answer:
        """Send one request; a GET is sent once more if the service could not answer, a ``patient`` one up to three times.

        :raises PlacementUnreachable: no answer came, or the agent is stopping and nothing was sent.
        """
        outages = self.transport.outages
        try:
            answer = self._repeated(path, version, timeout, patient) if method == "GET" else self._send(method, path, version, body, timeout)
        except PlacementUnreachable as failure:
            if failure.kind != "cancelled":
                outages.failed(failure.kind, failure.message, self.request_id)
            raise
        if answer.status in OUTAGE_STATUSES:
            outages.failed(f"status {answer.status}", self._line(answer), self.request_id)
        else:
            outages.answered()
        return answer

    def _repeated(self, path: str, version: str | None, timeout: float | None, patient: bool) -> Answer:
        try:
            answer: Answer = read_policy(self.transport.cancelled, patient=patient).call(self._send, "GET", path, version, None, timeout)
        except RetryError as exhausted:
            answer = exhausted.last_attempt.value
        return answer

    def _line(self, answer: Answer) -> str:
        trace = f"[global {self.request_id}, server {answer.request_id}]"
        return f"placement {answer.method} {_brief(answer.path)} -> {answer.status} {answer.code} {trace}"

    def _send(self, method: str, path: str, version: str | None, body: Any, timeout: float | None) -> Answer:
        transport, answers = self.transport, []
        options: dict[str, Any] = {} if body is None else {"json": body}
        try:
            with transport.slots:
                # Only now: whoever waited for a slot while the agent began to stop sends nothing either.
                if transport.cancelled.is_set():
                    raise PlacementUnreachable(f"placement {method} {_brief(path)} was not sent: the agent is stopping", kind="cancelled")
                response = transport.adapter.request(
                    path, method, raise_exc=False, microversion=version, headers={"Accept": "application/json"},
                    global_request_id=self.request_id, timeout=(transport.timeouts.connect, timeout or transport.timeouts.read),
                    # keystoneauth's own semaphore, which by default limits nothing, counts by the wall's clock: after
                    # that was set back, it would hold every request until the clock is where it was.
                    rate_semaphore=nullcontext(), connect_retries=0, status_code_retries=0, log=False,
                    hooks={"response": lambda answer, *_args, **_kwargs: answers.append(answer)}, **options,
                )  # fmt: skip
        except (ksa.ClientException, ksa.RetriableConnectionFailure) as error:
            failure = transport.failure(error, transport.endpoint, timeout)
            if failure.kind not in ("catalog", "credentials", "identity"):
                self._count(method, 1)
            LOG.debug("placement %s %s: %s [global %s]", method, _brief(path), failure.message, self.request_id)
            raise failure from error
        self._count(method, max(1, len(answers)))
        request_id = response.headers.get("x-openstack-request-id", "no request id")
        answer = Answer(transport.endpoint, method, path, response.status_code, _json(response), request_id)
        LOG.log(logging.WARNING if answer.status == 500 else logging.DEBUG, self._line(answer))
        return answer

    def each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """``function`` of every item, in order, as many at once as may be in flight.

        The first exception ends it: what is under way comes to its end, nothing else is begun, and no result is returned.
        Whoever needs the others' results hands in a function that returns its errors.
        """
        work = list(items)
        if self.transport.max_in_flight == 1 or len(work) < 2:
            return [function(item) for item in work]
        with ThreadPoolExecutor(self.transport.max_in_flight, thread_name_prefix="placement") as pool:
            return list(pool.map(function, work))


def _first(interface: str | list[str] | None) -> str | None:
    return ", ".join(interface) if isinstance(interface, list) else interface


def _json(response: Any) -> Any:
    """The body as JSON; anything else, like a proxy's HTML, is no body."""
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError:
        return None
