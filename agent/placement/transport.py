"""The way to Placement: built from the options of [placement], found in the catalog of the identity
service, its outages logged; and each failure of it raised as one exception.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from keystoneauth1 import adapter as ksa_adapter
from keystoneauth1 import exceptions as ksa
from keystoneauth1.identity.base import BaseIdentityPlugin
from oslo_config import cfg

from agent.conf.default import only_observes
from agent.deadline import DeadlinePassed, within
from agent.errors import CLOSED, ConfigError, PlacementUnreachable
from agent.http.bounded import MIB, close_idle_connections
from agent.http.session import service_adapter, session_problems
from agent.model.names import masked, printable
from agent.placement import clock
from agent.placement.unreachable import unreachable

LOG = logging.getLogger(__name__)

CATALOG_PAUSE = 60.0
# The kinds of failures that no other endpoint would end.
OF_THE_ACCOUNT = frozenset({"credentials", "identity"})
FAILURES_A_LINE = 10
SECONDS_A_LINE = 300.0


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


@dataclass(slots=True)
class _Kind:
    """The log state of one kind of failure."""

    logged_at: float
    """When it was last logged."""
    suppressed: int = 0
    """How many cycles failed since without a log line."""
    cycle: str = ""


class OutageLog:
    """The log of outages, one per process.

    A kind of failure is logged at once, then once in ten failed cycles or five minutes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}
        self._since = 0.0
        self._lock = threading.Lock()

    def record_failure(self, kind: str, text: str, cycle: str = "") -> None:
        """Record a request without an answer, or with one that reports an outage.

        All failures of one ``cycle`` count once.
        """
        with self._lock:
            now = self._clock()
            if not self._kinds:
                self._since = now
            known = self._kinds.get(kind)
            if known is None:
                self._kinds[kind] = _Kind(now, cycle=cycle)
                LOG.warning("placement unreachable: %s", text)
                return
            if cycle and cycle == known.cycle:
                return
            known.cycle = cycle
            known.suppressed += 1
            if known.suppressed >= FAILURES_A_LINE or now - known.logged_at >= SECONDS_A_LINE:
                LOG.warning("placement unreachable: %s (suppressed %s)", text, known.suppressed - 1)
                known.logged_at, known.suppressed = now, 0

    def record_answer(self) -> None:
        """Record an answer of Placement: the outage is over."""
        if not self._kinds:
            return
        with self._lock:
            if self._kinds:
                LOG.info("placement reachable again after %.0f s", self._clock() - self._since)
            self._kinds.clear()


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
        self.observe: Callable[[str, int | None, float], None] = lambda *_: None
        self._endpoint = ""
        # When each thread that waits for an answer began to, in seconds since the epoch.
        self._waits: dict[int, float] = {}
        # The last answer of identity that did not come in time, and when.
        self._hung: PlacementUnreachable | None = None
        self._hung_at = 0.0
        self._catalog_renewed = -CATALOG_PAUSE
        self._renewing = threading.Lock()

    @property
    def endpoint(self) -> str:
        """The URL of Placement, from the options or the service catalog.

        :raises PlacementUnreachable: the catalog has no endpoint, or identity does not answer.
        """
        if not self._endpoint:
            if self._hung is not None and time.monotonic() - self._hung_at < self.timeouts.connect:
                # Who asks in the same pass does not wait as long once more.
                raise self._hung
            try:
                with self.waiting(), within(self.timeouts.whole):
                    found = self.adapter.get_endpoint()
            except MemoryError:
                raise
            except Exception as error:
                # Libraries below raise many types: an OSError for a missing certificate, a
                # ValueError for a malformed URL.
                failure = self._record_failure(error, "the identity service")
                if failure.kind == "timeout":
                    self._hung, self._hung_at = failure, time.monotonic()
                raise failure from error
            if not found:
                raise self._record_failure(ksa.EndpointNotFound(), "")
            # Only for messages and to tell one Placement from another: requests are sent to the
            # endpoint that the adapter finds.
            self._endpoint = masked(str(found)).rstrip("/")
        return self._endpoint

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Note that this thread waits for an answer while the block runs."""
        self._waits[threading.get_ident()] = clock.now()
        try:
            yield
        finally:
            self._waits.pop(threading.get_ident(), None)

    def awaited(self, seconds: float = 0.0) -> str:
        """Return who is waited for since ``seconds`` or longer, and since when; empty if nobody
        is.
        """
        until = clock.now() - seconds
        if not (waits := [since for since in self._waits.copy().values() if since <= until]):
            return ""
        place = f"Placement at {self._endpoint}" if self._endpoint else "the identity service"
        since = time.strftime("%H:%M:%S", time.localtime(min(waits)))
        return f"{printable(place)}, since {since}"

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
        if failure.kind not in (*OF_THE_ACCOUNT, CLOSED):
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
        return next(session_problems(session, "placement"), None)

    def _record_failure(self, error: Exception, url: str) -> PlacementUnreachable:
        failure = self.failure(error, url)
        self.outages.record_failure(failure.kind, failure.message)
        return failure


def uses_embedded(conf: cfg.ConfigOpts, *, daemon: bool) -> bool:
    """Return whether the embedded Placement is to be used: if configured, or outside of a daemon
    if there are no credentials.

    :raises ConfigError: a daemon has no credentials, or an agent that only observes is to use the
        embedded Placement, which no other program writes to.
    """
    backend = conf.placement.backend
    configured = bool(
        conf.placement.auth_type or conf.placement.auth_section or conf.placement.endpoint_override
    )
    embedded = not configured if backend == "auto" else bool(backend == "embedded")
    if embedded and only_observes(conf):
        raise ConfigError(
            "--observe, or [DEFAULT] mode = observe, with the embedded Placement: nothing is there "
            "to be observed",
            "give the [placement] section of nova-compute: --config-file /etc/nova/nova.conf",
        )
    if embedded and backend == "auto" and daemon:
        raise ConfigError(
            "no credentials in section [placement]",
            "set auth_type and its options, as in nova.conf, or backend = embedded",
        )
    return embedded


def timeouts_of(conf: cfg.ConfigOpts) -> Timeouts:
    """Return the timeouts of [placement]."""
    options = conf.placement
    return Timeouts(options.connect_timeout, options.read_timeout, options.reshape_timeout)


def connect_http(conf: cfg.ConfigOpts, cancelled: threading.Event) -> Transport:
    """Return a transport to the Placement that [placement] describes. Nothing is sent.

    :raises ConfigErrors: the authentication plugin, its options or the certificates are wrong; all
        errors are listed.
    """
    options, timeouts = conf.placement, timeouts_of(conf)
    adapter = service_adapter(conf, "placement", options.max_answer * MIB)
    # The identity service is asked through the same session; without a timeout a hanging one would
    # block for ever.
    adapter.session.timeout = adapter.session.timeout or timeouts.read
    return Transport(
        adapter,
        timeouts=timeouts,
        max_in_flight=options.max_in_flight,
        cancelled=cancelled,
        read_only=only_observes(conf),
    )


def _first(interface: str | list[str] | None) -> str | None:
    return ", ".join(interface) if isinstance(interface, list) else interface
