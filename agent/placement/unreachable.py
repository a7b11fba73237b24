"""The meaning of keystoneauth's exceptions: kind of failure, text for the operator, and whether a
write may have been applied.
"""

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.client import (
    BadStatusLine,
    HTTPException,
    LineTooLong,
    RemoteDisconnected,
    UnknownProtocol,
    UnknownTransferEncoding,
)
from urllib.parse import urlsplit

import requests
import urllib3.exceptions
from keystoneauth1 import exceptions as ksa
from keystoneauth1.identity.v3 import ApplicationCredentialMethod

from agent.errors import PlacementUnreachable
from agent.http.bounded import AnswerTooLong, ClosedUnused, Redirected
from agent.http.session import tls_remedy
from agent.model.names import masked, printable
from agent.placement import codes

LOG = logging.getLogger(__name__)

FAILURES_A_LINE = 10
SECONDS_A_LINE = 300.0


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


NOT_PLACEMENTS_REMEDY = (
    "check that [placement] endpoint_override or the catalog names Placement itself, and what "
    "stands in front of it: a proxy, a login page"
)
_WITH_CERTIFICATE = (
    "if the server wants a client's certificate, set [placement] certfile and keyfile"
)
_LONGEST_FAULT = 300
# The answer is not valid HTTP. An answer that breaks off is not in this list, because it may have
# been valid.
_MALFORMED = (
    BadStatusLine,
    LineTooLong,
    UnknownProtocol,
    UnknownTransferEncoding,
    urllib3.exceptions.InvalidChunkLength,
    urllib3.exceptions.DecodeError,
    urllib3.exceptions.InvalidHeader,
)
# A server that wants a certificate of its client ends the connection without another word, also
# when its alert is lost.
_ENDED = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)
_OF_CONNECTIONS = frozenset({"connect", "timeout", "broken", "not-placement"})
_NEVER_SENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The meaning of one class of exceptions.

    ``message`` and ``remedy`` are templates, filled in by :func:`unreachable`.
    """

    errors: type[BaseException]
    kind: str
    message: str
    remedy: str
    fatal: bool = False
    sent: bool = False
    """Whether the request may have left the host."""


_NO_VERSIONS = (
    "check that [placement] auth_url is that of the identity service, with its version "
    "(http://HOST:5000/v3), and what stands in front of it: a proxy, a login page"
)
_CREDENTIALS_GONE = (
    "check the user, password and project in [placement], or the application credential, which "
    "somebody may have deleted; and that [placement] auth_url is that of the identity service"
)

# Exceptions of the session itself, wherever they stand in the chain of causes.
_BOUNDS = (
    _Meaning(
        ClosedUnused,
        codes.CLOSED,
        "{url} closed a connection that had been used before, and gave no answer",
        "nothing to do: it is asked again on a new connection",
        sent=True,
    ),
    _Meaning(
        AnswerTooLong,
        "too-long",
        "{url} gave an answer that was not read to its end: {bound}",
        "check that it is Placement; if it is, raise [placement] max_answer",
        sent=True,
    ),
    _Meaning(
        Redirected,
        "redirect",
        (
            "{url} redirects to another place, where the agent does not follow with its "
            "credentials: {bound}"
        ),
        (
            "set [placement] endpoint_override (or auth_url) to the place itself if it is right, "
            "or mend the catalog"
        ),
        sent=True,
    ),
)
_MALFORMED_ANSWER = _Meaning(
    HTTPException,
    "not-placement",
    "{call} with something that is not {whose}: {fault}",
    "{malformed}",
    sent=True,
)
# The first match counts, so subclasses precede their bases.
_MEANINGS = (
    _Meaning(
        ksa.EmptyCatalog,
        "catalog",
        "the token for placement has no service catalog, because it is for no project",
        (
            "name the project in [placement] (project_name, project_domain_name), and see that the "
            "user has a role in it, or set endpoint_override"
        ),
    ),
    _Meaning(
        ksa.CatalogException,
        "catalog",
        "no placement endpoint for region {region}, interface {interface} in the service catalog",
        (
            "check [placement] region_name, valid_interfaces and service_type, or set "
            "endpoint_override"
        ),
    ),
    _Meaning(
        ksa.MissingAuthPlugin,
        "credentials",
        "no credentials configured in section [placement]",
        "set auth_type and its options, as in nova.conf",
        fatal=True,
    ),
    _Meaning(
        ksa.Unauthorized,
        "credentials",
        "credentials for placement refused by identity at {url}: {reason}",
        "{account}; and see that [placement] auth_url is that of the identity service",
        fatal=True,
    ),
    _Meaning(
        ksa.AuthorizationFailure,
        "credentials",
        "credentials incomplete or contradictory: {reason}",
        "check section [placement]",
        fatal=True,
    ),
    _Meaning(
        ksa.SSLError, "tls", "certificate of {url} not accepted: {reason}", "{tls}", fatal=True
    ),
    _Meaning(
        ksa.NotFound,
        "credentials",
        "identity at {url} does not know the credentials for placement: {reason}",
        _CREDENTIALS_GONE,
        fatal=True,
    ),
    _Meaning(
        ksa.HttpError,
        "identity",
        "identity service at {url} failed: {reason}",
        "nothing to do if it comes back; it is asked again",
    ),
    _Meaning(
        ksa.DiscoveryFailure,
        "discovery",
        "version discovery at {url} failed: {reason}",
        _NO_VERSIONS,
    ),
    _Meaning(
        ksa.VersionNotAvailable,
        "discovery",
        "version discovery at {url} failed: {reason}",
        _NO_VERSIONS,
    ),
    _Meaning(
        ksa.ConnectTimeout,
        "timeout",
        "no answer from {url} in time; waited up to {waited}",
        "check the service, or raise [placement] read_timeout",
        sent=True,
    ),
    _Meaning(
        ksa.ConnectFailure,
        "connect",
        "cannot connect to {url}: {reason}",
        "check that it runs and can be reached from here",
        sent=True,
    ),
    _Meaning(
        Exception,
        "broken",
        "connection to {url} broken: {reason}",
        "check what stands between this host and Placement",
        sent=True,
    ),
)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes, and the errors that urllib3 keeps in ``args`` and ``reason``."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        pending += [current.__cause__, current.__context__]
        pending += [
            cause
            for cause in (*current.args, getattr(current, "reason", None))
            if isinstance(cause, BaseException)
        ]


def _reason(error: BaseException) -> str:
    """Return the innermost informative text of the chain, in one line."""
    texts = [text for cause in _chain(error) if (text := _text_of(cause))]
    return printable(" ".join((texts or [str(error)])[-1].split()))


def _text_of(error: BaseException) -> str:
    """Return the text of an OS or HTTP error, empty for an error that only wraps another."""
    if isinstance(error, OSError):
        first = error.args[0] if error.args else None
        return error.strerror or (first if isinstance(first, str) else "")
    return str(error) if isinstance(error, HTTPException) else ""


def _url(error: BaseException, default: str) -> str:
    """Return the URL that was requested: the identity service's if that one failed."""
    if isinstance(error, ksa.HttpError) and error.url:
        return str(error.url)
    requests = (getattr(cause, "request", None) for cause in _chain(error))
    asked = [str(url) for request in requests if (url := getattr(request, "url", None))]
    return asked[0].partition("?")[0] if asked else default


def _fault(chain: Iterable[BaseException]) -> str:
    """Return what is malformed in an answer, in one line; empty if nothing is."""
    # http.client's exception for too many headers has no class of its own.
    found = [
        cause
        for cause in chain
        if type(cause) is HTTPException
        or (isinstance(cause, _MALFORMED) and not isinstance(cause, RemoteDisconnected))
    ]
    if not found:
        return ""
    first = found[-1].args[0] if found[-1].args else None
    text = first if isinstance(first, str) else str(found[-1])
    return printable(" ".join(f"{type(found[-1]).__name__}: {text}"[:_LONGEST_FAULT].split()))


def _call(chain: Iterable[BaseException], url: str) -> tuple[str, bool]:
    """Return a text with the answering service and the call, and whether the call went to ``url``
    and not to the identity service.
    """
    request = next(
        (found for cause in chain if (found := getattr(cause, "request", None)) is not None), None
    )
    if request is None:
        return f"{printable(url)} answered", True
    asked = masked(str(request.url)).partition("?")[0]
    own = asked.startswith(url)
    return printable(
        f"{url} answered {request.method} {asked.removeprefix(url) or '/'}"
        if own
        else f"{asked} answered {request.method}"
    ), own


def _account(auth: object) -> str:
    """Return what to check of the account of keystoneauth's plugin ``auth``."""
    # A plugin for any version keeps that of the version that it found.
    auth = getattr(auth, "_plugin", None) or auth
    ways = getattr(auth, "auth_methods", ())
    if any(isinstance(way, ApplicationCredentialMethod) for way in ways):
        return (
            "check id and secret of the application credential in [placement], and that it has not "
            "expired: openstack application credential list; if it has, make a new one"
        )
    scope = "project PROJECT"
    if getattr(auth, "system_scope", None):
        scope = "system all"
    elif getattr(auth, "domain_id", None) or getattr(auth, "domain_name", None):
        scope = "domain DOMAIN"
    kind = scope.partition(" ")[0]
    return (
        f"check the user, password and {kind} in [placement], and that the user has a role in that "
        f"{kind}: openstack role assignment list --user USER --{scope} --names"
    )


def unreachable(
    error: Exception,
    url: str,
    region: str | None,
    interface: str | None,
    waited: str,
    auth: object = None,
) -> PlacementUnreachable:
    """Return the exception that callers see for ``error``, which keystoneauth or a library below
    raised for a request to ``url``. ``auth``: the plugin that the request was sent with.
    """
    chain = [*_chain(error)]
    bound = next(
        (
            (meaning, cause)
            for cause in chain
            for meaning in _BOUNDS
            if isinstance(cause, meaning.errors)
        ),
        None,
    )
    fault = _fault(chain)
    meaning = bound[0] if bound is not None else _MALFORMED_ANSWER if fault else _meaning(error)
    call, own = _call(chain, url)
    never_sent = any(isinstance(cause, _NEVER_SENT) for cause in chain)
    message = meaning.message.format(
        url=printable(_url(error, url)),
        reason=_reason(error),
        region=region or "any",
        interface=interface or "any",
        waited=waited,
        bound=printable(str(bound[1])) if bound is not None else "",
        call=call,
        fault=fault,
        whose="Placement's" if own else "an identity service's",
    )
    of_malformed = (
        NOT_PLACEMENTS_REMEDY
        if own
        else "check [placement] auth_url, and what stands in front of it"
    )
    remedy = meaning.remedy.format(
        tls=tls_remedy(reversed(chain), "placement"), malformed=of_malformed, account=_account(auth)
    )
    asked = _url(error, url)
    if asked.startswith("https:") and any(isinstance(cause, _ENDED) for cause in chain):
        remedy = f"{remedy}; {_WITH_CERTIFICATE}"
    if meaning.kind in _OF_CONNECTIONS:
        message, remedy = through_proxy(asked, message, remedy)
    return PlacementUnreachable(
        message,
        remedy,
        kind=meaning.kind,
        outcome_unknown=meaning.sent and not never_sent,
        fatal=meaning.fatal,
    )


def through_proxy(url: str, message: str, remedy: str) -> tuple[str, str]:
    """Return message and remedy for a request to ``url`` that was not answered as it should be;
    others if the environment has it sent to a proxy.
    """
    try:
        proxy = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))
        host = urlsplit(url).hostname
    except ValueError:
        # It is no URL.
        return message, remedy
    if not proxy:
        return message, remedy
    return (
        f"{message} (through {printable(masked(proxy))}, the proxy of the environment)",
        f"see that this proxy runs and serves {printable(str(host))}; or add it to no_proxy in the "
        "environment of the agent, or take http_proxy, https_proxy and all_proxy out of it",
    )


def refusal_remedy(url: str, status: int, remedy: str) -> str:
    """Return the remedy for an answer that is not Placement's own."""
    # nginx's status for a missing certificate, and that of others.
    wants = url.startswith("https:") and status in (400, 403)
    return f"{remedy}; {_WITH_CERTIFICATE}" if wants else remedy


def _meaning(error: Exception) -> _Meaning:
    # requests refuses a missing certificate bundle before it sends anything.
    kind = (
        ksa.SSLError if isinstance(error, OSError) and "certificate" in str(error) else type(error)
    )
    return next(meaning for meaning in _MEANINGS if issubclass(kind, meaning.errors))
