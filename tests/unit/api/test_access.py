"""Who may do what."""

import grp
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

import agent.api.problem
import agent.tracker.errors
from agent import deadline, errors
from agent.api.access import Access, peer_of
from agent.api.client import ApiAnswer, ApiClient
from agent.api.metrics import Metrics, NodeFigures
from agent.api.node_documents import stats
from agent.api.openapi import METHODS, read
from agent.api.problem import (
    KINDS,
    REFUSALS,
    Busy,
    Fault,
    InvalidApiRequest,
    WaitLimit,
    phrase,
    problem_of,
)
from agent.api.service import Service
from agent.cli.command import Options, Override, Source
from agent.cli.configuration import load
from agent.errors import AgentError, ConfigErrors
from agent.model.finding import Drift
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid
from tests.support.child import CHECKOUT
from tests.unit.render.reports import node, report

READERS, WRITERS = 501, 502


def options(**given):
    return load(
        Options(
            sources=(Source(Path(os.devnull)),),
            overrides=tuple(Override("api", *one) for one in given.items()),
        ),
        {},
    )


def test_groups_are_named_or_numbered():
    name = grp.getgrgid(os.getegid()).gr_name
    assert Access.from_options(options(read_group=name, write_group="4711")) == Access(
        os.geteuid(), os.getegid(), 4711
    )
    assert Access.from_options(options()) == Access(os.geteuid(), None, None)


def test_all_groups_that_do_not_exist_are_told_at_once():
    with pytest.raises(ConfigErrors) as found:
        Access.from_options(
            options(group="nobody here", read_group="99999999999", write_group="-1")
        )
    assert [error.message.partition(" =")[0] for error in found.value.errors] == [
        "[api] group",
        "[api] read_group",
        "[api] write_group",
    ]


def test_who_accepts_a_connection_asks_no_directory_of_users(monkeypatch):
    """It may be far, and would keep everybody from connecting."""
    asked = []
    monkeypatch.setattr(os, "getgrouplist", lambda *account: asked.append(account) or [54_321])
    near, far = socket.socketpair()
    with near, far:
        found = peer_of(near)
        assert not asked
        assert 54_321 in found.groups
        assert found.groups
        assert len(asked) == 1


# --- everything that a request may hold has a largest size in openapi.yaml ---


DOCUMENT = read()
BOUNDED = ("enum", "const", "maxLength")


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = DOCUMENT
    if "$ref" not in schema:
        return schema
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return resolved(found)


def unbounded(schema: Mapping[str, Any], where: str, seen: tuple[int, ...] = ()) -> Iterator[str]:
    """What of a schema may be of any size."""
    schema = resolved(schema)
    if id(schema) in seen:
        return
    seen = (*seen, id(schema))
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    if "string" in kinds and not any(bound in schema for bound in BOUNDED):
        yield f"{where}: no maxLength"
    if "array" in kinds and "maxItems" not in schema:
        yield f"{where}: no maxItems"
    if (
        "object" in kinds
        and schema.get("additionalProperties", True) is not False
        and "maxProperties" not in schema
    ):
        yield f"{where}: no maxProperties"
    if (
        "object" in kinds
        and schema.get("additionalProperties", True) is not False
        and "maxLength" not in resolved(schema.get("propertyNames", {}))
    ):
        yield f"{where}: no propertyNames with maxLength"
    for key, inner in schema.get("properties", {}).items():
        yield from unbounded(inner, f"{where}/{key}", seen)
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(key), Mapping) and not (
            key == "propertyNames" and "type" not in resolved(schema[key])
        ):
            yield from unbounded(schema[key], f"{where}/{key}", seen)
    for key in ("oneOf", "anyOf", "allOf", "prefixItems"):
        for place, inner in enumerate(schema.get(key, ())):
            yield from unbounded(inner, f"{where}/{key}/{place}", seen)


def test_everything_that_a_request_may_hold_has_a_largest_size() -> None:
    found = []
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS:
            if method not in item:
                continue
            for one in (*item.get("parameters", ()), *item[method].get("parameters", ())):
                parameter = resolved(one)
                found += unbounded(
                    parameter["schema"], f"{method} {path} {parameter['in']} {parameter['name']}"
                )
            if "requestBody" in item[method]:
                found += unbounded(
                    item[method]["requestBody"]["content"]["application/json"]["schema"],
                    f"{method} {path} body",
                )
    assert not found, "\n".join(sorted(set(found)))


# --- errors become problems by one table ---


SERVERS_OWN = {
    "agent.error",
    "usage.invalid",
    "output.failed",
    "driver.failed",
    "driver.cancelled",
    "reshape.needed",
    "reshape.failed",
    "store.locked",
    "identity.mismatch",
    "placement.error",
    "placement.name-conflict",
    "placement.identity-conflict",
    "tree.invalid",
    "tree.not-adopted",
    "api.socket",
    "api.metrics-address",
    "agent.already-told",
    "fit.undecided",
}
"""Codes of errors that no request can bring about, or that are nobody's fault but the agent's."""


def everything(kind=AgentError):
    yield kind
    for one in kind.__subclasses__():
        yield from everything(one)


@pytest.mark.parametrize(
    "module", [agent.api.problem, agent.tracker.errors, errors], ids=lambda module: module.__name__
)
def test_every_error_that_a_request_may_meet_has_a_status_of_its_own(module):
    codes = {one.code for one in everything() if one.__module__ == module.__name__} - {None}
    assert codes - SERVERS_OWN <= KINDS.keys()


def test_no_code_stands_in_the_table_for_nothing():
    known = {one.code for one in everything()} | {code for code, _ in REFUSALS.values()}
    assert KINDS.keys() <= known


@pytest.mark.parametrize("code", KINDS)
def test_every_status_is_an_http_error(code):
    status, title = KINDS[code]
    assert 400 <= status < 600
    assert title
    assert phrase(status) == f"{status} {HTTPStatus(status).phrase}"


def test_all_faults_of_a_request_are_listed():
    found = problem_of(
        InvalidApiRequest([Fault("body", "/a", "is bad"), Fault("query", "/b", "is worse")])
    )
    assert found["errors"] == [
        {"in": "body", "pointer": "/a", "detail": "is bad"},
        {"in": "query", "pointer": "/b", "detail": "is worse"},
    ]
    many = problem_of(InvalidApiRequest([Fault("body", f"/{n}", "is bad") for n in range(1000)]))
    assert len(many["detail"]) < 300
    assert len(many["errors"]) == 1000


# --- the numbers of a node ---


def guest(number, **more):
    return Instance(
        uuid=ConsumerUuid(f"i{number}"),
        project_id=more.pop("project_id", "p1"),
        user_id="u",
        flavor=Flavor("1", "F1", 1, 64),
        **more,
    )


def test_an_empty_node_has_no_guests_and_no_load():
    assert stats([], 0) == {
        "uptime": None,
        "num_instances": 0,
        "io_workload": 0,
        "failed_builds": 0,
    }


def test_guests_are_counted_by_state_task_system_and_project():
    found = stats(
        [
            guest(1, vm_state="active", os_type="linux"),
            guest(2, vm_state="active", task_state="resize_prep", os_type="linux", project_id="p2"),
            guest(3, vm_state="building", task_state="spawning", os_type="windows"),
        ],
        2,
    )
    assert found == {
        "uptime": None,
        "failed_builds": 2,
        "num_instances": 3,
        "io_workload": 2,
        "num_vm_active": 2,
        "num_vm_building": 1,
        "num_task_None": 1,
        "num_task_resize_prep": 1,
        "num_task_spawning": 1,
        "num_os_type_linux": 2,
        "num_os_type_windows": 1,
        "num_proj_p1": 2,
        "num_proj_p2": 1,
    }


def test_what_takes_nothing_of_the_node_is_not_counted():
    gone = [
        guest(1, vm_state="deleted"),
        guest(2, vm_state="shelved_offloaded"),
        guest(3, vm_state="active", deleted=True),
    ]
    assert stats(gone, 0)["num_instances"] == 0
    returning = guest(4, vm_state="shelved_offloaded", task_state="spawning")
    assert stats([returning], 0)["num_instances"] == 1


def test_only_some_tasks_are_a_load_for_disks_and_networks():
    tasks = (
        "resize_migrating",
        "rebuilding",
        "resize_prep",
        "image_snapshot",
        "image_backup",
        "rescuing",
        "unshelving",
        "rebooting",
        "deleting",
        None,
    )
    assert (
        stats(
            [
                guest(number, vm_state="active", task_state=task)
                for number, task in enumerate(tasks)
            ],
            0,
        )["io_workload"]
        == 7
    )


# --- places run out, and those who wait for one do so only as long as there is hope ---


def test_there_are_as_many_places_as_it_was_made_with():
    room = WaitLimit(2, "others")
    with room.place(), room.place():
        with pytest.raises(Busy, match="others"), room.place():
            pass
        with room.place_if_free() as found:
            assert not found
    with room.place_if_free() as found:
        assert found


def test_a_place_is_waited_for_while_others_leave():
    room, got = WaitLimit(1, "the store", 60), []

    def wait():
        with room.place():
            got.append(1)

    with room.place():
        threads = [threading.Thread(target=wait) for _ in range(5)]
        for thread in threads:
            thread.start()
        assert not got
    for thread in threads:
        thread.join(60)
    assert len(got) == 5


def test_a_place_is_not_waited_for_beyond_the_deadline():
    room = WaitLimit(1, "the store", 600)
    with room.place(), deadline.within(0.1), pytest.raises(Busy), room.place():
        pass


# --- figures are counted from reports ---


class Agent:
    """What the daemon tells of an audit, to those who look and to the figures."""

    def __init__(self):
        self.service, self.metrics = Service(lambda: None), Metrics()
        self.metrics.add(NodeFigures(self.service))

    def audited(self, report, hanging, *, whole):
        self.service.take_report(report, whole=whole)
        self.metrics.count_report(report, hanging, whole=whole)

    def text(self):
        return self.metrics.text()


@pytest.fixture
def metrics():
    agent = Agent()
    yield agent
    agent.service.stop()


def figures(metrics):
    lines = metrics.text().decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def test_how_things_are_is_what_the_last_audit_of_each_node_showed(metrics):
    metrics.audited(report(), 0, whole=True)
    assert figures(metrics)['compute_node_agent_nodes{state="degraded"}'] == 1
    metrics.audited(report(nodes=(node(state="in-sync", drift=()),)), 0, whole=False)
    found = figures(metrics)
    assert (
        found['compute_node_agent_nodes{state="degraded"}'],
        found['compute_node_agent_nodes{state="in-sync"}'],
    ) == (0, 1)
    assert found['compute_node_agent_drift{kind="orphaned-allocation"}'] == 0


def test_what_could_not_be_looked_at_is_as_it_was(metrics):
    metrics.audited(report(), 0, whole=True)
    metrics.audited(report(nodes=(node(state="failed", drift=(), judged=False),)), 0, whole=True)
    found = figures(metrics)
    assert found['compute_node_agent_drift{kind="orphaned-allocation"}'] == 1
    assert (
        found["compute_node_agent_last_good_audit_timestamp_seconds"]
        == 0
        < found["compute_node_agent_last_audit_timestamp_seconds"]
    )
    # A name that somebody else has shows before anything else does, and so does that nobody has it
    # any more.
    conflict = Drift("name-conflict", "warning", "it is held", "")
    metrics.audited(
        report(nodes=(node(state="failed", drift=(conflict,), judged=False),)), 0, whole=True
    )
    metrics.audited(
        report(
            nodes=(
                node(
                    state="failed",
                    drift=(replace(conflict, detail="it is held by another"),),
                    judged=False,
                ),
            )
        ),
        0,
        whole=True,
    )
    assert figures(metrics)['compute_node_agent_drift{kind="name-conflict"}'] == 1
    metrics.audited(report(nodes=(node(state="in-sync", drift=()),)), 0, whole=True)
    assert figures(metrics)['compute_node_agent_drift{kind="orphaned-allocation"}'] == 0


# --- the client has a method for every operation of the API, and sends what the description allows ---


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
