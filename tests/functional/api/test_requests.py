"""What is wrong with a request is told, each in its own way, with where it is."""

import json
from dataclasses import replace

import pytest

from tests.unit.render.reports import report

NODE = "2f0c1a5e-9b1d-4a9c-8a0e-0d6b6c1f7a11"
NOBODY = "00000000-0000-4000-8000-000000000000"
JSON = {"Content-Type": "application/json"}


def test_the_views_show_the_node(api):
    (summary,) = api.call("GET", "/v1/nodes").json["nodes"]
    node = api.call("GET", f"/v1/nodes/{NODE}").json
    tree = api.call("GET", f"/v1/nodes/{NODE}/tree").json
    assert (summary["name"], summary["state"]) == (node["name"], node["state"])
    assert tree["tree"] == node["tree"]
    assert summary["providers"] == len(tree["tree"]) > 1
    assert node["operations"]


@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("GET", "/", 404, "request.path"),
        ("GET", "/v1/nonsense", 404, "request.path"),
        ("GET", "/v1/nodes/", 400, "request.invalid"),
        ("GET", "/v1/%2e%2e/healthz", 404, "request.path"),
        ("GET", "/healthz%00", 404, "request.path"),
        ("GET", "/%ff%fe", 404, "request.path"),
        ("GET", "/v1/nodes/%0a", 400, "request.invalid"),
        ("GET", f"/v1/nodes/{NODE.upper()}", 400, "request.invalid"),
        ("GET", f"/v1/nodes/{NODE}%0a", 400, "request.invalid"),
        ("GET", f"/v1/nodes/{NOBODY}", 404, "node.unknown"),
        ("GET", f"/v1/nodes/{NOBODY}/tree", 404, "node.unknown"),
        ("GET", f"/v1/audits/{NOBODY}", 404, "audit.unknown"),
        ("DELETE", "/v1/nodes", 405, "request.method"),
        ("PUT", "/healthz", 405, "request.method"),
        ("TRACE", "/healthz", 405, "request.method"),
        ("BREW", "/healthz", 405, "request.method"),
        ("GET", "/v1/nodes?limit=0", 400, "request.invalid"),
        ("GET", "/v1/nodes?limit=1001", 400, "request.invalid"),
        ("GET", "/v1/nodes?limit=x", 400, "request.invalid"),
        ("GET", "/v1/nodes?limit=", 400, "request.invalid"),
        ("GET", "/v1/nodes?limit=1&limit=2", 400, "request.invalid"),
        ("GET", "/v1/nodes?limit=%D9%A1", 400, "request.invalid"),
        ("GET", "/v1/nodes?marker=x", 400, "request.invalid"),
        ("GET", "/v1/nodes?colour=red", 400, "request.invalid"),
        ("GET", "/v1/nodes?" + "&".join(f"a{n}=1" for n in range(100)), 400, "request.invalid"),
        ("GET", "/healthz?x=1", 400, "request.invalid"),
    ],
)
def test_a_bad_path_method_or_query_is_a_problem_of_its_own(api, method, target, status, code):
    answer = api.call(method, target, checked=code not in ("request.path", "request.method"))
    assert (answer.status, answer.code) == (status, code)
    if status == 405:
        assert answer.headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{", JSON, 400, "request.not-json"),
        (b"\xff\xfe", JSON, 400, "request.not-json"),
        (b"{} {}", JSON, 400, "request.not-json"),
        (b'{"dry_run": NaN}', JSON, 400, "request.not-json"),
        (b'{"dry_run": Infinity}', JSON, 400, "request.not-json"),
        (b'{"dry_run": 1e999}', JSON, 400, "request.invalid"),
        (b'{"nodes": ["\\ud800"]}', JSON, 400, "request.not-json"),
        (b"[" * 10_000, JSON, 400, "request.invalid"),
        (b"9" * 100_000, JSON, 400, "request.invalid"),
        (b"null", JSON, 400, "request.invalid"),
        (b"[]", JSON, 400, "request.invalid"),
        (b'"x"', JSON, 400, "request.invalid"),
        (b'{"nodes": []}', JSON, 400, "request.invalid"),
        (b'{"nodes": ["a\\u0000"]}', JSON, 400, "request.invalid"),
        (b'{"nodes": ["a\\n"]}', JSON, 400, "request.invalid"),
        (b'{"nodes": ["' + b"a" * 201 + b'"]}', JSON, 400, "request.invalid"),
        (b'{"dry_run": "yes"}', JSON, 400, "request.invalid"),
        (b'{"dry_run": 1}', JSON, 400, "request.invalid"),
        (b'{"x": 1}', JSON, 400, "request.invalid"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "request.media-type"),
        (b"{}", {"Content-Type": ""}, 415, "request.media-type"),
        (b"a=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "request.media-type"),
        (b"{}", {"Content-Type": "application/json-patch+json"}, 415, "request.media-type"),
        (b" " * (1024 * 1024 + 1), JSON, 413, "request.too-large"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_bad_body_is_a_problem_of_its_own_and_nothing_is_asked_for(
    api, body, headers, status, code
):
    answer = api.call("POST", "/v1/audits", body, headers)
    assert (answer.status, answer.code) == (status, code)
    assert not api.service.audits.waiting


@pytest.mark.parametrize(
    ("target", "body", "place", "pointer"),
    [
        ("/v1/audits", {"nodes": ["ok", "", 7], "dry_run": 0}, "body", "/nodes/1"),
        ("/v1/audits", {"more/of~it": 1}, "body", ""),
        ("/v1/audits?a=1", {"nodes": [7]}, "query", ""),
        ("/v1/audits", [], "body", ""),
    ],
)
def test_the_first_fault_is_told_with_where_it_is(api, target, body, place, pointer):
    (fault,) = api.call("POST", target, body).json["errors"]
    assert (fault["in"], fault["pointer"]) == (place, pointer)
    assert fault["detail"]


def test_a_long_bad_value_is_not_repeated_in_full(api):
    answer = api.call("POST", "/v1/audits", {"dry_run": "x" * 100_000})
    assert len(answer.body) < 2000


def test_a_charset_beside_the_media_type_is_fine(api):
    answer = api.call(
        "POST", "/v1/audits", b"{}", {"Content-Type": 'Application/JSON; charset="utf-8"'}
    )
    assert answer.status == 202


def test_a_body_where_none_is_expected_is_refused(api):
    assert api.call("GET", "/v1/nodes", b"{}").code == "request.invalid"
    assert api.call("POST", "/v1/reload", b"{}").code == "request.invalid"


def test_pages_follow_each_other_without_a_gap(api):
    one = report().nodes[0]
    nodes = [
        replace(one, name=f"node-{n}", uuid=f"{n:08x}-0000-4000-8000-000000000000")
        for n in range(7)
    ]
    api.service.take_report(replace(report(), nodes=nodes), whole=True)
    seen, marker, pages = [], "", 0
    while marker is not None:
        page = api.call("GET", "/v1/nodes?limit=3" + (f"&marker={marker}" if marker else "")).json
        seen += [node["name"] for node in page["nodes"]]
        marker, pages = page["next"], pages + 1
    assert (seen, pages) == ([f"node-{n}" for n in range(7)], 3)
    assert [node["name"] for node in api.client.nodes()] == seen


def test_an_unexpected_error_is_a_bug_and_the_next_request_is_answered(api, monkeypatch, caplog):
    def fail():
        raise RuntimeError("boom \x1b[31m")

    monkeypatch.setattr(api.service, "nodes", fail)
    answer = api.call("GET", "/v1/nodes")
    assert (answer.status, answer.code) == (500, "agent.bug")
    assert "\\x1b" in answer.json["detail"]
    assert "boom" in caplog.text
    assert api.call("GET", "/healthz").status == 200


# --- below the API: what is no request at all -----------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"GARBAGE\r\n\r\n", 400, "request.malformed"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400, "request.malformed"),
        (b"get /healthz HTTP/1.1\r\n\r\n", 400, "request.malformed"),
        (b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n", 400, "request.malformed"),
        (b"POST /v1/audits HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400, "request.malformed"),
        *(
            (
                b"POST /v1/audits HTTP/1.1\r\nContent-Type: application/json\r\n"
                + lengths
                + b"\r\n\r\n{}",
                400,
                "request.malformed",
            )
            for lengths in (
                b"Content-Length: -5",
                b"Content-Length: +2",
                b"Content-Length: 0_2",
                b"Content-Length:",
                b"Content-Length: 2, 2",
                b"Content-Length: 0x2",
                b"Content-Length: 2\r\nContent-Length: 2",
                b"Content-Length: 2\r\ncontent-length: 1",
                b"Content-Length : 2",
                b"Content-Length: \xb2",
            )
        ),
        (b"POST /v1/audits HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 411, "request.length"),
        (
            b"POST /v1/audits HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n",
            413,
            "request.too-large",
        ),
        (
            b"POST /v1/audits HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            413,
            "request.too-large",
        ),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 33_000, 413, "request.too-large"),
        (b"GET /healthz HTTP/1.1\r\n" + b"X: a\r\n" * 6_000 + b"\r\n", 413, "request.too-large"),
        (b"GET /" + b"a" * 33_000, 413, "request.too-large"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_request_is_refused_with_a_problem_and_the_connection_is_closed(
    api, data, status, code
):
    head, _, body = api.raw(data).partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status, head
    assert b"application/problem+json" in head
    problem = json.loads(body)
    assert (problem["code"], problem["status"]) == (code, status)
    assert problem["remedy"]


def test_of_requests_one_behind_the_other_the_first_is_answered_and_the_connection_closed(api):
    one = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"POST /v1/audits HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    answer = api.raw(one + one + last)
    assert answer.count(b"HTTP/1.1 ") == answer.count(b"HTTP/1.1 200 ") == 1
    assert b"Connection: close" in answer
    assert not api.service.audits.waiting


def test_a_body_in_chunks_is_read_as_any_other(api):
    head = b"POST /v1/audits HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    answer = api.raw(head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 202 ")
