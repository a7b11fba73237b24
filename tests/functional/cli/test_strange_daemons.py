"""What listens at the socket is another program, or a daemon of another version: each command says
so, in one error without a traceback.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from tests.functional.cli.setups import on
from tests.support.placement import Placement
from tests.support.system import AgentHere, Result

NODE = {
    "name": "node-a",
    "uuid": "11111111-2222-4333-8444-555555555555",
    "state": "hibernating\x1b[31m",
    "driver": "fake.numa",
    "audited_at": 1.0,
    "last_good_audit_at": 1.0,
    "providers": 1,
    "usage": None,
    "drift": 0,
    "drift_warnings": 0,
    "drift_kinds": {},
    "errors": [],
}
CLAIM = {
    "id": "22222222-2222-4333-8444-555555555555",
    "instance": "33333333-2222-4333-8444-555555555555",
    "node": NODE["uuid"],
    "half": "only",
    "purpose": "build",
    "state": "parked\x1b[31m",
    "amounts": {"vcpus": 1, "memory_mb": 1, "disk_mb": 0},
    **{key: [] for key in ("cells", "devices", "units", "mdevs")},
}
ALL_LISTS = ("nodes", "claims", "instances", "migrations", "devices")
COMMANDS = (("status",), ("drift",), ("tree",), ("resources",), ("claims",), ("guests", "list"))


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        pass

    def _answer(self) -> None:
        status, body = self.server.answer_to(self.path)  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def address_string(self) -> str:
        return "here"


@contextmanager
def _listening(path: Path, answer_to: Callable[[str], tuple[int, bytes]]) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadingUnixStreamServer(str(path), _Handler) as server:
        server.answer_to = answer_to  # type: ignore[attr-defined]
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def agent(http_placement: Placement, tmp_path: Path) -> AgentHere:
    return AgentHere(tmp_path, on(http_placement))


def _told(result: Result) -> str:
    """The only error, which is shown as text too."""
    assert "Traceback" not in result.stderr, result
    (error,) = result.json["errors"]
    assert (result.code, error["code"]) == (1, "api.answer_unknown"), result
    assert error["remedy"]
    message: str = error["message"]
    return message


ANSWERS = {
    "html": (b"<html>\x1b[31m", "is no JSON"),
    "cut": (b'{"a', "is no JSON"),
    "binary": (b"\xff\xfe", "is no JSON"),
    "deep": (b"[" * 200_000, "is no JSON"),
    "list": (b"[]", "is no JSON object"),
    "null": (b"null", "is no JSON object"),
    "empty": (b"{}", "has no field"),
    "no-lists": (
        json.dumps({"status": "ready", **dict.fromkeys(ALL_LISTS)}).encode(),
        "has no list",
    ),
    "no-marker": (
        json.dumps(
            {"status": "ready", "next": 7, **{key: [{"name": "a"}] for key in ALL_LISTS}}
        ).encode(),
        "has no ",
    ),
}


# All answers to one command, and the ones with the form of an answer to all.
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        *((("status",), answer) for answer in ANSWERS),
        *((words, answer) for words in COMMANDS[1:] for answer in ("empty", "no-marker")),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_answer_that_is_none_of_an_agent_is_told_in_one_error(agent, words, answer):
    body, what = ANSWERS[answer]
    with _listening(agent.socket, lambda _path: (200, body)):
        message = _told(agent.run(*words, "--format", "json"))
    assert message.startswith(f"{agent.socket}: GET /")
    assert what in message


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        json.dumps({"detail": "no", "errors": 7, "reasons": None, "status": "x"}).encode(),
        json.dumps({"detail": "no", "errors": [7, None], "reasons": [7]}).encode(),
    ],
    ids=["deep", "no-lists", "lists-of-others"],
)
@pytest.mark.parametrize("words", [("drift",), ("claims",), ("reload",)], ids=" ".join)
def test_a_refusal_that_is_none_of_an_agent_is_an_error_too(agent, words, body):
    with _listening(agent.socket, lambda _path: (500, body)):
        result = agent.run(*words, "--format", "json")
    assert "Traceback" not in result.stderr, result
    (error,) = result.json["errors"]
    assert (result.code, error["code"]) == (1, "api.problem")


@pytest.mark.parametrize("words", [("status",), ("status", "--format", "yaml"), ("drift",)])
def test_a_state_that_only_a_newer_daemon_knows_is_shown_escaped(agent, words):
    def answer_to(path: str) -> tuple[int, bytes]:
        found = {"status": "ready"} if path == "/readyz" else {"nodes": [NODE], "next": None}
        return 200, json.dumps(found).encode()

    with _listening(agent.socket, answer_to):
        result = agent.run(*words)
    assert (result.code, result.stderr) == (0, ""), result
    assert "hibernating" in result.stdout or "no drift" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_claim_whose_state_only_a_newer_daemon_knows_is_shown_escaped(agent):
    page = json.dumps({"claims": [CLAIM], "damaged": [], "next": None}).encode()
    with _listening(agent.socket, lambda _path: (200, page)):
        result = agent.run("claims")
    assert (result.code, result.stderr) == (0, ""), result
    assert "parked" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_list_without_an_end_is_told(agent):
    page = json.dumps({"claims": [CLAIM], "damaged": [], "next": "again"}).encode()
    with _listening(agent.socket, lambda _path: (200, page)):
        message = _told(agent.run("claims", "--format", "json"))
    assert message.endswith("the answer leads to a page that was there before")
