"""Requests without a usable answer, as one table: what happened, whether a write may have been
applied, and the remedy.
"""

import ssl
from collections.abc import Iterator, Sequence
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

from agent.errors import CLOSED, PlacementUnreachable
from agent.http.bounded import AnswerTooLong, ClosedUnused, Redirected
from agent.http.session import tls_remedy
from agent.model.names import masked, printable

NOT_PLACEMENTS_REMEDY = (
    "check that [placement] endpoint_override or the catalog names Placement itself, and what "
    "stands in front of it: a proxy, a login page"
)
_NOT_IDENTITYS_REMEDY = (
    "check [placement] auth_url, and what stands in front of it: a proxy, a login page"
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
class _Failure:
    """One row of the table.

    ``message`` and ``remedy`` are templates, filled in by :func:`unreachable`.
    """

    errors: type[BaseException] | tuple[type[BaseException], ...]
    kind: str
    message: str
    remedy: str
    sent: bool = True
    """Whether the request may have left the host, so that a write may have been applied."""
    fatal: bool = False


# Exceptions of the session itself, wherever they stand in the chain of causes.
_BOUNDS = (
    _Failure(
        ClosedUnused,
        CLOSED,
        "{url} closed a connection that had been used before, and gave no answer",
        "nothing to do: it is asked again on a new connection",
    ),
    _Failure(
        AnswerTooLong,
        "too-long",
        "{url} gave an answer that was not read to its end: {bound}",
        "check that it is Placement; if it is, raise [placement] max_answer",
    ),
    _Failure(
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
    ),
)
_MALFORMED_ANSWER = _Failure(
    HTTPException,
    "not-placement",
    "{call} with something that is not {whose}: {fault}",
    "{malformed}",
)
# The first match counts, so subclasses precede their bases.
_FAILURES = (
    _Failure(
        ksa.EmptyCatalog,
        "catalog",
        "the token for placement has no service catalog, because it is for no project",
        (
            "name the project in [placement] (project_name, project_domain_name), and see that the "
            "user has a role in it, or set endpoint_override"
        ),
        sent=False,
    ),
    _Failure(
        ksa.CatalogException,
        "catalog",
        "no placement endpoint for region {region}, interface {interface} in the service catalog",
        (
            "check [placement] region_name, valid_interfaces and service_type, or set "
            "endpoint_override"
        ),
        sent=False,
    ),
    _Failure(
        ksa.InvalidResponse,
        "identity",
        "{call} with something that is not {whose}: {reason}",
        "{malformed}",
        sent=False,
    ),
    _Failure(
        (ksa.Unauthorized, ksa.NotFound),
        "credentials",
        "credentials for placement refused by identity at {url}: {reason}",
        "{account}",
        sent=False,
        fatal=True,
    ),
    _Failure(
        (ksa.AuthorizationFailure, ksa.MissingAuthPlugin),
        "credentials",
        "credentials incomplete or contradictory: {reason}",
        "check section [placement]: auth_type and its options, as in nova.conf",
        sent=False,
        fatal=True,
    ),
    _Failure(
        ksa.SSLError,
        "tls",
        "certificate of {url} not accepted: {reason}",
        "{tls}",
        sent=False,
        fatal=True,
    ),
    _Failure(
        ksa.HttpError,
        "identity",
        "identity service at {url} failed: {reason}",
        "nothing to do if it comes back; it is asked again",
        sent=False,
    ),
    _Failure(
        ksa.DiscoveryFailure,
        "discovery",
        "version discovery at {url} failed: {reason}",
        (
            "check that [placement] auth_url is that of the identity service, with its version "
            "(http://HOST:5000/v3), and what stands in front of it: a proxy, a login page"
        ),
        sent=False,
    ),
    _Failure(
        ksa.ConnectTimeout,
        "timeout",
        "no answer from {url} in time; waited up to {waited}",
        "check the service, or raise [placement] read_timeout",
    ),
    _Failure(
        ksa.ConnectFailure,
        "connect",
        "cannot connect to {url}: {reason}",
        "check that it runs and can be reached from here",
    ),
    _Failure(
        Exception,
        "broken",
        "connection to {url} broken: {reason}",
        "check what stands between this host and Placement",
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


def _reason(chain: Sequence[BaseException]) -> str:
    """Return the innermost informative text of the chain, in one line."""
    texts = [text for cause in chain if (text := _text_of(cause))]
    return printable(" ".join((texts or [str(chain[0])])[-1].split()))


def _text_of(error: BaseException) -> str:
    """Return the text of an OS or HTTP error, empty for an error that only wraps another."""
    if isinstance(error, OSError):
        first = error.args[0] if error.args else None
        return error.strerror or (first if isinstance(first, str) else "")
    return str(error) if isinstance(error, HTTPException) else ""


def _fault(chain: Sequence[BaseException]) -> str:
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


def _refused(error: Exception, auth: object) -> str:
    """Return the remedy for an account that was refused. The identity service answers in JSON: what
    answers otherwise does not know the account.
    """
    answer, account = getattr(error, "response", None), _account(auth)
    if answer is not None and "json" not in answer.headers.get("Content-Type", ""):
        return f"{_NOT_IDENTITYS_REMEDY}; if they are right: {account}"
    return f"{account}; and see that [placement] auth_url is that of the identity service"


def _account(auth: object) -> str:
    """Return what to check of the account of keystoneauth's plugin ``auth``."""
    # A plugin for any version keeps that of the version that it found.
    auth = getattr(auth, "_plugin", None) or auth
    ways = getattr(auth, "auth_methods", ())
    if any(isinstance(way, ApplicationCredentialMethod) for way in ways):
        return (
            "check id and secret of the application credential in [placement], that nobody deleted "
            "it, and that it has not expired: openstack application credential list; if it has, "
            "make a new one"
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
    fault = _fault(chain)
    failure, cause = _failure_of(chain, malformed=bool(fault))
    method, asked = _request_of(chain)
    of_placement = not asked or asked.startswith(url)
    called = f"{url} answered {method} {asked.removeprefix(url) or '/'}"
    message = failure.message.format(
        url=printable(asked or url),
        reason=_reason(chain),
        region=region or "any",
        interface=interface or "any",
        waited=waited,
        bound=printable(str(cause)),
        call=printable(
            f"{url} answered"
            if not asked
            else called
            if of_placement
            else f"{asked} answered {method}"
        ),
        fault=fault,
        whose="Placement's" if of_placement else "an identity service's",
    )
    remedy = failure.remedy.format(
        tls=tls_remedy(reversed(chain), "placement"),
        malformed=NOT_PLACEMENTS_REMEDY if of_placement else _NOT_IDENTITYS_REMEDY,
        account=_refused(error, auth),
    )
    if (asked or url).startswith("https:") and any(isinstance(one, _ENDED) for one in chain):
        remedy = f"{remedy}; {_WITH_CERTIFICATE}"
    if failure.kind in _OF_CONNECTIONS:
        message, remedy = through_proxy(asked or url, message, remedy)
    never_sent = any(isinstance(one, _NEVER_SENT) for one in chain)
    return PlacementUnreachable(
        message,
        remedy,
        kind=failure.kind,
        outcome_unknown=failure.sent and not never_sent,
        fatal=failure.fatal,
    )


def _failure_of(
    chain: Sequence[BaseException], *, malformed: bool
) -> tuple[_Failure, BaseException]:
    """Return the row of the table, and the exception that it is about.

    :param chain: an error and its causes.
    :param malformed: whether an answer came that is not valid HTTP.
    """
    for cause in chain:
        for failure in _BOUNDS:
            if isinstance(cause, failure.errors):
                return failure, cause
    error = chain[0]
    if malformed:
        return _MALFORMED_ANSWER, error
    # requests refuses a missing certificate bundle before it sends anything.
    missing = isinstance(error, OSError) and "certificate" in str(error)
    kind = ksa.SSLError if missing else type(error)
    return next(row for row in _FAILURES if issubclass(kind, row.errors)), error


def _request_of(chain: Sequence[BaseException]) -> tuple[str, str]:
    """Return method and masked URL, without its query, of the request that failed: one to the
    identity service if that failed. Both are empty if they are not known.
    """
    error = chain[0]
    if isinstance(error, ksa.HttpError) and error.url:
        return str(error.method), masked(str(error.url)).partition("?")[0]
    requested = (
        getattr(cause, "request", None)
        or getattr(getattr(cause, "response", None), "request", None)
        for cause in chain
    )
    return next(
        (
            (str(request.method), masked(str(request.url)).partition("?")[0])
            for request in requested
            if request is not None and request.url
        ),
        ("", ""),
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
