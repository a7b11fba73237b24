"""Every exception of keystoneauth has a kind, a text for the operator, and a word on what became of a write."""

import socket

import pytest
from keystoneauth1 import exceptions as ksa

from agent.placement.unreachable import unreachable

URL = "http://placement.test"
IDENTITY = "http://identity.test/v3/auth/tokens"
WAITED = "5 s for a connection and 60 s for an answer"
CATALOG = "no placement endpoint for region north, interface internal in the service catalog"


def meaning(error):
    return unreachable(error, URL, "north", "internal", WAITED)


@pytest.mark.parametrize(
    ("error", "kind", "message", "fatal"),
    [
        (ksa.EndpointNotFound(), "catalog", CATALOG, False),
        (ksa.EmptyCatalog(), "catalog", CATALOG, False),
        (ksa.MissingAuthPlugin(), "credentials", "no credentials configured in section [placement]", True),
        (ksa.Unauthorized("wrong password", url=IDENTITY), "credentials", f"credentials for placement refused by identity at {IDENTITY}: wrong password", True),
        (ksa.AuthorizationFailure("no project"), "credentials", "credentials incomplete or contradictory: no project", True),
        (ksa.InternalServerError("500", url=IDENTITY), "identity", f"identity service at {IDENTITY} failed: 500", False),
        (ksa.ServiceUnavailable("503", url=IDENTITY), "identity", f"identity service at {IDENTITY} failed: 503", False),
        (ksa.GatewayTimeout("504", url=IDENTITY), "identity", f"identity service at {IDENTITY} failed: 504", False),
        (ksa.DiscoveryFailure("no versions"), "discovery", f"version discovery at {URL} failed: no versions", False),
        (ksa.VersionNotAvailable("no version 1"), "discovery", f"version discovery at {URL} failed: no version 1", False),
        (ksa.SSLError("self-signed"), "tls", f"certificate of {URL} not accepted: self-signed", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_nothing_was_sent(error, kind, message, fatal):
    failure = meaning(error)
    assert failure.kind == kind
    assert failure.message.startswith(message)
    assert (failure.fatal, failure.outcome_unknown) == (fatal, False)
    assert failure.remedy


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ksa.ConnectTimeout("late"), "timeout", f"no answer from {URL} in time; waited up to {WAITED}"),
        (ksa.ConnectFailure("closed"), "connect", f"cannot connect to {URL}: closed"),
        (ksa.UnknownConnectionError("odd", OSError()), "broken", f"connection to {URL} broken: odd"),
        (ksa.RetriableConnectionFailure("odd"), "broken", f"connection to {URL} broken: odd"),
        (ksa.ClientException("odd"), "broken", f"connection to {URL} broken: odd"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_write_may_have_been_applied(error, kind, message):
    failure = meaning(error)
    assert failure.kind == kind
    assert failure.message == message
    assert (failure.fatal, failure.outcome_unknown) == (False, True)
    assert failure.remedy


def test_the_innermost_reason_is_told():
    error = ksa.ConnectFailure("Unable to establish connection to http://placement.test: HTTPConnectionPool(...)")
    error.__cause__ = RuntimeError("wrapped")
    error.__cause__.__context__ = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert meaning(error).message == f"cannot connect to {URL}: Name or service not known"


def test_a_reason_is_one_line_without_control_characters():
    assert meaning(ksa.ConnectFailure("two\nlines \x1b[31m")).message == f"cannot connect to {URL}: two lines \\x1b[31m"
