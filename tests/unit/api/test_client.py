"""The client has a method for every operation of the API, and sends what the description allows."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from agent.api.client import ApiAnswer, ApiClient
from tests.support.child import CHECKOUT

PATHS: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    (CHECKOUT / "agent" / "api" / "openapi.yaml").read_text(encoding="utf-8")
)["paths"]
ANSWER = {
    "status": "ready",
    "id": "1",
    "released": 2,
    "failed_builds": 3,
    "next": None,
    **dict.fromkeys(("nodes", "claims", "devices", "instances", "migrations"), ()),
}


class RecordingClient(ApiClient):
    """Records its requests and answers each of them the same."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.sent: list[tuple[str, str, Any]] = []

    def request(
        self,
        method: str,
        target: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        wait: float = 0,
    ) -> ApiAnswer:
        self.sent.append((method, target, body))
        return ApiAnswer(200, {}, json.dumps(ANSWER).encode())


CALLS: list[tuple[str, str, Callable[[ApiClient], object]]] = [
    ("get", "/healthz", lambda client: client.health()),
    ("get", "/readyz", lambda client: client.readiness()),
    ("get", "/metrics", lambda client: client.metrics()),
    ("get", "/v1/nodes", lambda client: list(client.nodes())),
    ("get", "/v1/nodes/{uuid}", lambda client: client.node("u")),
    ("get", "/v1/nodes/{uuid}/tree", lambda client: client.tree("u")),
    ("get", "/v1/report", lambda client: client.report_page(["u"])),
    ("post", "/v1/nodes/{uuid}/builds", lambda client: client.report_build("u", "failed")),
    ("post", "/v1/audits", lambda client: client.request_audit(["u"], dry_run=True)),
    ("get", "/v1/audits/{id}", lambda client: client.audit_report("1")),
    ("post", "/v1/reload", lambda client: client.reload()),
    ("get", "/v1/claims", lambda client: list(client.claims(node="u", instance="i"))),
    ("post", "/v1/claims", lambda client: client.create_claim({})),
    ("get", "/v1/claims/{id}", lambda client: client.claim("1")),
    ("delete", "/v1/claims/{id}", lambda client: client.abort_claim("1")),
    ("post", "/v1/moves", lambda client: client.create_move({})),
    ("get", "/v1/moves/{id}", lambda client: client.move("1")),
    ("patch", "/v1/moves/{id}", lambda client: client.report_progress("1", "running")),
    ("post", "/v1/moves/{id}/drop", lambda client: client.drop_half("1", "old")),
    ("post", "/v1/moves/{id}/confirm", lambda client: client.take_move("1", "confirm")),
    ("post", "/v1/moves/{id}/revert", lambda client: client.take_move("1", "revert")),
    ("post", "/v1/moves/{id}/abort", lambda client: client.take_move("1", "abort")),
    ("post", "/v1/moves/{id}/finish", lambda client: client.take_move("1", "finish")),
    ("get", "/v1/devices", lambda client: list(client.devices())),
    ("post", "/v1/devices/cleaned", lambda client: client.report_cleaned_device("a", "u")),
    ("post", "/v1/devices/claims", lambda client: client.create_device_claim({})),
    ("delete", "/v1/devices/claims", lambda client: client.release_devices("i", "claimed")),
    ("delete", "/v1/devices/claims/{id}", lambda client: client.release_device_claim("1")),
    ("post", "/v1/devices/claims/{id}/allocate", lambda client: client.allocate_devices("1")),
    ("get", "/v1/guests", lambda client: client.guests()),
    ("post", "/v1/guests/import", lambda client: client.import_guests(["u"])),
    ("delete", "/v1/guests/{uuid}", lambda client: client.forget_guest("i")),
    ("get", "/v1/instances", lambda client: list(client.instances())),
    ("get", "/v1/instances/{uuid}", lambda client: client.instance("i")),
    ("patch", "/v1/instances/{uuid}", lambda client: client.update_instance("i", 1, {})),
    (
        "delete",
        "/v1/instances/{uuid}/allocation",
        lambda client: client.remove_allocation("i", "node", "u"),
    ),
    ("get", "/v1/migrations", lambda client: list(client.migrations())),
]


@pytest.mark.parametrize(
    ("method", "path", "call"), CALLS, ids=[f"{method} {path}" for method, path, _ in CALLS]
)
def test_a_method_sends_the_operation_that_the_description_has(
    method: str, path: str, call: Callable[[ApiClient], object]
) -> None:
    client = RecordingClient()
    call(client)
    [(sent, target, body)] = client.sent
    assert sent == method.upper()
    where = urlsplit(target)
    filled = where.path.split("/")
    assert len(filled) == len(path.split("/"))
    for given, part in zip(filled, path.split("/"), strict=True):
        assert given if part.startswith("{") else given == part
    operation = PATHS[path][method]
    parameters = [*PATHS[path].get("parameters", ()), *operation.get("parameters", ())]
    named = {parameter["name"] for parameter in parameters if parameter.get("in") == "query"}
    assert parse_qs(where.query).keys() <= named
    assert (body is not None) == ("requestBody" in operation)


def test_every_operation_has_a_method() -> None:
    described = {
        (method, path)
        for path, item in PATHS.items()
        for method in item
        if method in {"get", "post", "put", "patch", "delete"}
    }
    # The page of one node is for browsers; a program asks /v1/report for it.
    described.remove(("get", "/v1/nodes/{uuid}/report"))
    assert {(method, path) for method, path, _ in CALLS} == described


def test_the_numbers_of_an_answer_are_returned() -> None:
    assert RecordingClient().release_devices("i", "allocated") == 2
    assert RecordingClient().report_build("u", "succeeded") == 3
