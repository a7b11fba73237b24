"""What keystoneauth's exceptions mean: kind, text, and whether a write may have
been applied.
"""

import http.client
import ssl

import pytest
import requests
import urllib3.exceptions as u3
from keystoneauth1 import exceptions as ksa

from agent.placement.unreachable import unreachable

URL = "http://placement:8778"


def told(error, region=None, interface=None):
    return unreachable(error, URL, region, interface, "5 s for a connection and 60 s for an answer")


def caused(error: Exception, *causes: Exception) -> Exception:
    """``error``, raised from the first of ``causes``, that from the next, and so on."""
    below = error
    for cause in causes:
        below.__cause__ = cause
        below = cause
    return error


def new_connection(text="refused"):
    return u3.NewConnectionError(None, f"Failed to establish a new connection: {text}")


CASES = [
    (
        ksa.EndpointNotFound(),
        "catalog",
        False,
        "no placement endpoint for region any, interface any in the service catalog",
    ),
    (ksa.EmptyCatalog(), "catalog", False, "the token for placement has no service catalog"),
    (
        ksa.MissingAuthPlugin(),
        "credentials",
        True,
        "credentials incomplete or contradictory: ",
    ),
    (
        ksa.Unauthorized("wrong password"),
        "credentials",
        True,
        "credentials for placement refused by identity",
    ),
    (
        ksa.AuthorizationFailure("no user"),
        "credentials",
        True,
        "credentials incomplete or contradictory: no user",
    ),
    (
        ksa.SSLError("unknown issuer"),
        "tls",
        True,
        f"certificate of {URL} not accepted: unknown issuer",
    ),
    (
        ksa.NotFound("Could not find Application Credential: x."),
        "credentials",
        True,
        "credentials for placement refused by identity",
    ),
    (ksa.InternalServerError("boom"), "identity", False, "identity service"),
    (ksa.ServiceUnavailable("down"), "identity", False, "identity service"),
    (ksa.GatewayTimeout("slow"), "identity", False, "identity service"),
    (
        ksa.DiscoveryFailure("nothing there"),
        "discovery",
        False,
        f"version discovery at {URL} failed: nothing there",
    ),
    (ksa.VersionNotAvailable("none"), "discovery", False, f"version discovery at {URL} failed"),
    (
        ksa.ConnectTimeout("slow"),
        "timeout",
        False,
        f"no answer from {URL} in time; waited up to 5 s for a connection and 60 s for an answer",
    ),
    (ksa.ConnectFailure("gone"), "connect", False, f"cannot connect to {URL}: gone"),
    (
        ksa.UnknownConnectionError("odd", ValueError()),
        "broken",
        False,
        f"connection to {URL} broken",
    ),
    (
        OSError("Could not find a suitable TLS CA certificate bundle, invalid path: /x"),
        "tls",
        True,
        f"certificate of {URL} not accepted: Could not find",
    ),
    (ValueError("odd"), "broken", False, f"connection to {URL} broken: odd"),
    (ksa.ClientException("anything"), "broken", False, f"connection to {URL} broken: anything"),
]


@pytest.mark.parametrize(("error", "kind", "fatal", "message"), CASES)
def test_every_class_of_failure_has_its_kind_and_text(error, kind, fatal, message):
    failure = told(error)
    assert (failure.kind, failure.fatal) == (kind, fatal)
    assert failure.message.startswith(message)
    assert failure.remedy


def test_a_missing_endpoint_names_region_and_interface():
    assert told(ksa.EndpointNotFound(), "RegionOne", "internal").message == (
        "no placement endpoint for region RegionOne, interface internal in the service catalog"
    )


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (
            caused(
                ksa.ConnectFailure("x"),
                requests.ConnectionError(
                    u3.ProtocolError("aborted", ConnectionResetError(104, "reset"))
                ),
            ),
            True,
        ),
        (
            caused(
                ksa.ConnectFailure("x"),
                requests.ConnectionError(
                    u3.ProtocolError("aborted", http.client.RemoteDisconnected("closed"))
                ),
            ),
            True,
        ),
        (
            caused(
                ksa.ConnectFailure("x"),
                requests.ConnectionError(u3.MaxRetryError(None, URL, new_connection())),
            ),
            False,
        ),
        (
            caused(
                ksa.ConnectFailure("x"),
                requests.ConnectionError(
                    u3.MaxRetryError(None, URL, u3.NameResolutionError("h", None, OSError()))
                ),
            ),
            False,
        ),
        (
            caused(
                ksa.ConnectTimeout("x"),
                requests.ConnectTimeout(u3.MaxRetryError(None, URL, u3.ConnectTimeoutError())),
            ),
            False,
        ),
        (
            caused(
                ksa.ConnectTimeout("x"),
                requests.ReadTimeout(u3.ReadTimeoutError(None, URL, "read")),
            ),
            True,
        ),
        (ksa.UnknownConnectionError("x", ValueError()), True),
        (ksa.EndpointNotFound(), False),
        (ksa.Unauthorized(), False),
        (ksa.ServiceUnavailable(), False),
        (ksa.SSLError("x"), False),
    ],
)
def test_whether_a_write_may_have_been_applied(error, unknown):
    assert told(error).outcome_unknown is unknown


@pytest.mark.parametrize(
    ("causes", "reason"),
    [
        (
            (
                requests.ConnectionError(new_connection("x")),
                ConnectionRefusedError(111, "Connection refused"),
            ),
            "Connection refused",
        ),
        (
            (
                requests.ConnectionError(
                    u3.ProtocolError("aborted", http.client.RemoteDisconnected("Remote end closed"))
                ),
            ),
            "Remote end closed",
        ),
        (
            (
                requests.exceptions.SSLError(
                    u3.SSLError(ssl.SSLError(1, "self-signed certificate"))
                ),
            ),
            "self-signed certificate",
        ),
    ],
)
def test_the_innermost_text_is_the_reason(causes, reason):
    assert (
        reason
        in told(
            caused(
                ksa.ConnectFailure("Unable to establish connection to http://x: wrapped"), *causes
            )
        ).message
    )


def test_the_url_that_was_asked_is_named_without_its_query():
    asked = requests.ConnectionError(
        request=requests.Request("GET", "http://identity/v3/auth/tokens?name=x").prepare()
    )
    assert (
        told(caused(ksa.ConnectFailure("gone"), asked)).message
        == "cannot connect to http://identity/v3/auth/tokens: gone"
    )


def test_an_answer_of_the_identity_service_that_is_no_http_names_that():
    asked = requests.ConnectionError(
        request=requests.Request("POST", "http://token@identity/v3/auth/tokens?x=y").prepare()
    )
    failure = told(
        caused(
            ksa.ConnectFailure("x"),
            asked,
            u3.ProtocolError("aborted"),
            http.client.BadStatusLine("220 mail"),
        )
    )
    call = "http://***@identity/v3/auth/tokens answered POST"
    assert (
        failure.message
        == f"{call} with something that is not an identity service's: BadStatusLine: 220 mail"
    )
    assert (failure.kind, failure.remedy) == (
        "not-placement",
        "check [placement] auth_url, and what stands in front of it: a proxy, a login page",
    )


@pytest.mark.parametrize(
    "error", [ksa.Unauthorized, ksa.InternalServerError, ksa.ServiceUnavailable, ksa.GatewayTimeout]
)
def test_an_answer_of_the_identity_service_names_that(error):
    identity = "http://identity/v3/auth/tokens"
    assert f"identity at {identity}" in told(error("x", url=identity)).message.replace(
        "service ", ""
    )


def test_a_reason_is_one_printable_line():
    assert (
        told(ksa.ConnectFailure("two\nlines \x1b[31m")).message
        == f"cannot connect to {URL}: two lines \\x1b[31m"
    )


def test_a_chain_of_causes_that_bites_its_tail_ends():
    error, cause = ksa.ConnectFailure("x"), ValueError()
    error.__cause__, cause.__context__ = cause, error
    assert told(error).kind == "connect"
