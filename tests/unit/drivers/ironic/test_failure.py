"""What ironic says of its refusals, in the forms of its releases, and nothing of what stands in
front of it.
"""

import json

import pytest
from keystoneauth1 import exceptions as ksa
from requests import Response

from drivers.ironic.failure import CREDENTIALS, not_ready, refused


def answer(status, body):
    made = Response()
    made.status_code, made._content = (
        status,
        body.encode() if isinstance(body, str) else json.dumps(body).encode(),
    )
    return made


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {
                "error_message": json.dumps(
                    {"faultcode": "Client", "faultstring": "No such\nnode", "debuginfo": None}
                )
            },
            ": No such node",
        ),
        ({"error_message": {"faultstring": "No such node"}}, ": No such node"),
        (
            {
                "error_message": json.dumps(
                    {"code": 406, "title": "Not Acceptable", "description": "Version 1.999"}
                )
            },
            ": Version 1.999",
        ),
        ({"error_message": "plain text"}, ": plain text"),
        ({"error_message": "{no json"}, ""),
        ({"error_message": None}, ""),
        ({}, ""),
        ([], ""),
        ("<html>Bad Gateway</html>", ""),
        ("", ""),
        ({"error_message": "x" * 1000}, f": {'x' * 300}..."),
        ({"error_message": "\x1b[31mred"}, ": \\x1b[31mred"),
    ],
    ids=[
        "json in json",
        "json",
        "description",
        "text",
        "broken",
        "null",
        "nothing",
        "list",
        "page",
        "empty",
        "long",
        "control",
    ],
)
def test_ironics_own_words_are_told_and_nobody_elses(body, said):
    error = refused(answer(409, body), "GET /v1/nodes")
    assert error.message == f"ironic GET /v1/nodes -> 409{said}"


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "credentials"),
        (403, "role"),
        (404, "endpoint_override"),
        (406, "endpoint_override"),
        (503, "log of ironic"),
    ],
)
def test_each_status_has_its_remedy(status, remedy):
    assert remedy in refused(answer(status, {}), "GET /v1").remedy


@pytest.mark.parametrize(
    ("error", "what", "kind"),
    [
        (ksa.EndpointNotFound(), "the service catalog has no bare-metal endpoint", "catalog"),
        (ksa.Unauthorized(), "identity refuses the credentials", CREDENTIALS),
        (ksa.MissingAuthPlugin(), "there are no credentials", CREDENTIALS),
        (ksa.SSLError("self-signed"), "its certificate is not accepted", "tls"),
        (ksa.ServiceUnavailable(), "identity failed", "identity"),
        (ksa.ConnectTimeout("late"), "no answer in time", "timeout"),
        (ksa.ConnectFailure("refused"), "no connection", "connect"),
        (ksa.UnknownConnectionError("cut", OSError("cut")), "the connection broke", "broken"),
    ],
    ids=["catalog", "refused", "missing", "tls", "identity", "timeout", "connect", "broken"],
)
def test_a_lost_connection_is_told_by_what_it_means(error, what, kind):
    found = not_ready(error, "http://ironic.test/v1")
    assert found.message.startswith(f"ironic at http://ironic.test/v1: {what}")
    assert (found.data["kind"], bool(found.remedy)) == (kind, True)
