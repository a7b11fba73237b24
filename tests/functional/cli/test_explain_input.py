"""``agent explain``: files and arguments that are no request, and a Placement that answers oddly."""

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drivers.fake.catalogue import FakeDriver
from tests.functional.cli.setups import on
from tests.support import faults
from tests.support.agent import new_uuid
from tests.support.http_placement import HttpPlacement
from tests.support.placement import Placement
from tests.support.proxy import FaultProxy
from tests.support.system import AgentCommand, AgentHere, Result

SMALL = ("--vcpus", "1", "--ram", "512")
CLIENTS: dict[str, Any] = {
    "OS-FLV-DISABLED:disabled": False,
    "OS-FLV-EXT-DATA:ephemeral": 0,
    "access_project_ids": None,
    "description": None,
    "disk": 1,
    "id": "1",
    "name": "m1.tiny",
    "os-flavor-access:is_public": True,
    "properties": {"hw:cpu_policy": "shared"},
    "ram": 512,
    "rxtx_factor": 1.0,
    "swap": "",
    "vcpus": 1,
}
"""As ``openstack flavor show -f json`` prints a flavor."""


@pytest.fixture
def host(tmp_path: Path) -> AgentHere:
    """An agent whose Placement is not there, because nothing is asked."""
    return AgentHere(
        tmp_path / "agent",
        {
            "DEFAULT": {"compute_driver": "fake", "host": "node-a"},
            "placement": {"auth_type": "none", "endpoint": "http://127.0.0.1:1/"},
        },
    )


def error_of(result: Result) -> str:
    """The only error of a refused request, which is shown as text too."""
    assert result.code == 1, result
    assert "unexpected error" not in result.stderr, result
    assert "Traceback" not in result.stderr
    (error,) = result.json["errors"]
    assert error["remedy"]
    message: str = error["message"]
    assert "\x1b" not in message
    return message


def refused(agent: AgentHere, *arguments: str) -> str:
    return error_of(agent.run("explain", *arguments, "--format", "json"))


# --- files ----------------------------------------------------------------------------------------

NO_DOCUMENTS = {
    "empty": b"",
    "half": b'{"vcpus": 1',
    "binary": b"\xff\xfe\x00\x1b[2J",
    "twice": b'{"vcpus": 1, "vcpus": 2}',
    "deep": b'{"a": ' + b"[" * 20_000,
    "infinite": b'{"vcpus": 1e999}',
    "list": b"[]",
    "text": b'"flavor"',
    "digits": b'{"vcpus": ' + b"9" * 10_000 + b"}",
    "values": b'{"a": [' + b"1," * 30_000 + b"1]}",
    "huge": b'{"name": "' + b"x" * 2_000_000 + b'"}',
}


@pytest.mark.parametrize(
    ("flag", "name"), [*(("--flavor", name) for name in NO_DOCUMENTS), ("--claim", "half")]
)
def test_a_file_without_a_document_is_refused_by_its_name(
    host: AgentHere, flag: str, name: str
) -> None:
    file = host.folder / f"{name}\x1b[2J"
    file.write_bytes(NO_DOCUMENTS[name])
    assert refused(host, flag, str(file)).startswith(f"{host.folder}/{name}\\x1b[2J: ")


@pytest.mark.parametrize("flag", ["--flavor", "--claim"])
def test_what_is_no_file_is_refused_by_its_name(host: AgentHere, flag: str) -> None:
    loop = host.folder / "loop"
    loop.symlink_to(loop)
    for path in (host.folder, host.folder / "none", loop, "/dev/zero", "/dev/null", ""):
        assert refused(host, flag, str(path)).startswith(f"{path}: ")


def test_a_pipe_that_nobody_writes_is_refused_in_a_moment(
    host: AgentHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.cli.request_file.SILENCE", 0.5)
    pipe = host.folder / "pipe"
    os.mkfifo(pipe)
    begun = time.monotonic()
    assert refused(host, "--claim", str(pipe)) == f"{pipe}: nothing to read for 0.5 s"
    assert time.monotonic() - begun < 30


def test_a_pipe_is_read_to_its_end(agent: AgentHere) -> None:
    pipe = agent.folder / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        time.sleep(0.2)
        with pipe.open("w") as opened:
            for part in ('{"vcpus": 1, "ram"', ": 512}"):
                opened.write(part)
                opened.flush()
                time.sleep(0.2)

    writer = threading.Thread(target=write)
    writer.start()
    result = agent.run("explain", "--flavor", str(pipe), "--format", "json")
    writer.join()
    assert "resources=MEMORY_MB:512,VCPU:1" in result.json["query"]["words"], result


def written(agent: AgentHere, content: Any) -> str:
    file = agent.folder / "given.json"
    file.write_text(json.dumps(content))
    return str(file)


def test_all_that_is_wrong_with_a_flavor_is_told_with_file_and_key(host: AgentHere) -> None:
    flavor = {
        "vcpus": -1,
        "ram": "much",
        "memory_mb": 4,
        "disk": 2.5,
        "swap": [],
        "ephemeral": True,
        "id": {},
        "vcpu": 2,
        "\x1b[2J": 1,
        "extra_specs": {"hw:cpu_policy": ["dedicated"], "long\n": "x" * 5000, "none": None},
        "properties": "a='b'",
    }
    file = written(host, flavor)
    message = refused(host, "--flavor", file)
    assert message.startswith(f"{file}: ")
    assert set(message.removeprefix(f"{file}: ").split("; ")) == {
        "vcpu is no key of a flavor: did you mean vcpus?",
        "\\x1b[2J is no key of a flavor",
        "id: an object is no text",
        "vcpus: -1 is no whole number of at least 0",
        "ram: 'much' is no whole number of at least 0",
        "memory_mb and ram name the same amount and differ",
        "disk: 2.5 is no whole number of at least 0",
        "swap: a list is no whole number of at least 0",
        "ephemeral: True is no whole number of at least 0",
        "extra_specs: hw:cpu_policy: a list is no text",
        "extra_specs: long\\n: a value of more than 4096 characters",
        "extra_specs: none: None is no text",
        "properties: \"a='b'\" is no object",
        "extra_specs and properties name the same and differ",
    }


@pytest.mark.parametrize(
    ("flavor", "why"),
    [
        ({}, "the flavor has no CPUs or no memory"),
        ({"vcpus": 1, "ram": 0}, "the flavor has no CPUs or no memory"),
        ({"vcpus": 10**12, "ram": 1}, "vcpus: 1000000000000 is more than 65536"),
        ({"flavor": []}, "flavor is no key of a flavor"),
        ({"flavor": {"vcpus": "x", "ram": 1}}, "vcpus: 'x' is no whole number of at least 0"),
        ({"flavor": {}, "vcpus": 1, "ram": 1}, "flavor is no key of a flavor"),
        ({"vcpus": "१", "ram": 1}, "vcpus: '१' is no whole number of at least 0"),
    ],
)
def test_a_flavor_that_is_none_is_refused(
    host: AgentHere, flavor: dict[str, Any], why: str
) -> None:
    file = written(host, flavor)
    assert refused(host, "--flavor", file) == f"{file}: {why}"


@pytest.mark.parametrize("shape", [CLIENTS, {"flavor": CLIENTS}], ids=["client", "nova"])
def test_a_flavor_as_clients_show_it_is_taken(agent: AgentHere, shape: dict[str, Any]) -> None:
    result = agent.run("explain", "--flavor", written(agent, shape), "--format", "json")
    assert result.json["query"]["words"] == [
        "limit=1000",
        "resources=DISK_GB:1,MEMORY_MB:512,VCPU:1",
        "root_required=!COMPUTE_STATUS_DISABLED",
    ]


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"node": 7}, "/node"),
        ({"colour": "red"}, "colour"),
        ({"evil\x1b": 1}, "evil\\x1b"),
        ({"limits": {"vcpus": "many"}}, "/limits/vcpus"),
        ({"allocations": {"no-uuid": {}}}, "/allocations"),
    ],
)
def test_what_is_wrong_with_a_claim_is_told_with_file_and_key(
    host: AgentHere, part: dict[str, object], told: str
) -> None:
    file = written(host, part)
    message = refused(host, "--claim", file)
    assert message.startswith(f"{file}: ")
    assert told in message


# --- arguments ------------------------------------------------------------------------------------


def test_all_that_is_wrong_with_arguments_is_told(host: AgentHere) -> None:
    message = refused(
        host,
        *("--vcpus", "one", "--ram=-5", "--disk", "", "--extra-spec", "a=1", "--extra-spec", "a=2"),
        *("--extra-spec", "b", "--image-property", "=c", "--image-property", f"d={'9' * 5000}"),
    )
    for part in ("--vcpus: 'one'", "--ram: '-5'", "--disk: ''", "a is given twice",
                 "--extra-spec b: no KEY=VALUE", "--image-property =c: no KEY=VALUE",
                 "more than 4096 characters"):  # fmt: skip
        assert part in message


def test_what_nova_would_ignore_is_told(host: AgentHere) -> None:
    specs = ("hw:cpu_polcy=dedicated", "resources:VCPU=abc", "hw:mem_page_size=large")
    words = [word for spec in specs for word in ("--extra-spec", spec)]
    message = refused(host, *SMALL, *words, "--image-property", "hw_cpu_polcy=dedicated")
    assert message.count("did you mean") == 2
    assert "resources:VCPU=abc: no whole number" in message
    assert "mem_page_size" not in message


def test_what_nova_would_ignore_is_told_of_a_claim_too(host: AgentHere) -> None:
    claim = {
        "instance": {"uuid": new_uuid(), "project_id": new_uuid(), "user_id": new_uuid()},
        "flavor": {
            "id": "1",
            "name": "small",
            "vcpus": 1,
            "memory_mb": 512,
            "root_gb": 1,
            "ephemeral_gb": 0,
            "swap_mb": 0,
            "extra_specs": {"hw:cpu_polcy": "dedicated"},
        },
    }
    assert "did you mean hw:cpu_policy?" in refused(host, "--claim", written(host, claim))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--claim", "x", "--flavor", "y"),
        ("--claim", "x", *SMALL),
        ("--claim", "x", "resources=VCPU:1"),
        ("--flavor", "", "resources=VCPU:1"),
        ("--volume-backed", "resources=VCPU:1"),
    ],
)
def test_two_requests_contradict_each_other(host: AgentHere, arguments: tuple[str, ...]) -> None:
    assert refused(host, *arguments) == "more than one request to explain"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("resources=VCPU:-1",), "no whole number"),
        (("resources=VCPU:1", "required=A,!A"), "both required and forbidden"),
        ((*SMALL, "--extra-spec", "trait:A=forbidden", "--image-property", "trait:A=required"),
         "both required and forbidden"),
        ((*SMALL, "--extra-spec", "resources1:VGPU=1", "--extra-spec", "resources2:VGPU=1"),
         "need a group_policy"),
        ((*SMALL, "--extra-spec", "hw:mem_encryption=1", "--image-property",
          "hw_mem_encryption=0"), "hw_mem_encryption = 0: the flavor says 1"),
        ((*SMALL, "--extra-spec", "hw:tpm_version=9\x1b"), "hw:tpm_version = 9\\x1b: not known"),
        ((*SMALL, "--extra-spec", f"resources:PCPU={'9' * 4000}"), "the guest needs 1"),
    ],
)  # fmt: skip
def test_what_no_node_could_grant_is_refused(
    agent: AgentHere, arguments: tuple[str, ...], why: str
) -> None:
    assert why in refused(agent, *arguments)


# --- Placement ------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Iterator[HttpPlacement]:
    server = HttpPlacement(tmp_path, max_version="1.30")
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("more", [(), ("--anywhere",)])
def test_an_old_placement_is_named(
    tmp_path: Path, old: HttpPlacement, more: tuple[str, ...]
) -> None:
    agent = AgentHere(tmp_path / "agent", on(old))
    result = agent.run("explain", *SMALL, *more, "--format", "json")
    assert result.code == 1, result
    errors = [
        *result.json["errors"],
        *(error for node in result.json["nodes"] for error in node["errors"]),
    ]
    assert "placement.too-old" in [error["code"] for error in errors], result


def answering(agent: AgentHere, placement: HttpPlacement, proxy: FaultProxy) -> AgentHere:
    """An agent whose tree is in Placement, which it reaches through the proxy."""
    assert agent.run("--once").code == 0
    agent.configure(
        on(placement, "fake.numa", {"placement": {"endpoint": proxy.url, "read_timeout": 2}})
    )
    return agent


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (faults.read_timeout(), "placement.unreachable"),
        (faults.answer(403), "placement.refused"),
        (faults.answer(500), "placement.refused"),
        (faults.html(200), "placement.unreachable"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.parametrize("more", [(), ("--anywhere",)])
def test_a_placement_that_does_not_answer_candidates_is_no_does_not_fit(
    agent: AgentHere,
    http_placement: HttpPlacement,
    proxy: FaultProxy,
    fault: faults.Action,
    code: str,
    more: tuple[str, ...],
) -> None:
    answering(agent, http_placement, proxy)
    rule = proxy.faults.add(fault, path="allocation_candidates", times=None)
    begun = time.monotonic()
    result = agent.run("explain", *SMALL, *more, "--suggest", "--format", "json")
    assert result.code == 1, result
    errors = [
        *result.json["errors"],
        *(error for node in result.json["nodes"] for error in node["errors"]),
    ]
    assert [error["code"] for error in errors] == [code], result
    # A query that hangs is not followed by forty others.
    assert 0 < rule.hits <= 3
    assert time.monotonic() - begun < 60


def test_hostile_names_in_placements_answers_stay_text(
    agent: AgentHere, http_placement: Placement
) -> None:
    assert agent.run("--once").code == 0
    other = http_placement.other
    hostile = "\x1b[2J[red]x[/red]\n\u202e<script>"
    root = next(
        uuid for uuid, found in http_placement.dump()["providers"].items()
        if found["name"] == "node-a"
    )  # fmt: skip
    other.call("PUT", "/resource_classes/CUSTOM_X")
    for parent, name in ((root, hostile), (None, f"{hostile}2")):
        other.set_inventory(other.create_provider(name, parent=parent), {"CUSTOM_X": 2})
    for amount in ("1", "3"):
        query = ("--anywhere", f"resources=CUSTOM_X:{amount}")
        text = agent.run("explain", *query)
        shown = text.stdout + text.stderr
        assert "\\x1b[2J[red]x[/red]\\n\\u202e<script>" in shown, text
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert agent.run("explain", *query, "--format", "json").code == text.code


@pytest.fixture
def many(tmp_path: Path, http_placement: Placement, monkeypatch: pytest.MonkeyPatch) -> AgentHere:
    """An agent of 30 nodes, which are in Placement."""
    names = [f"node-{number}" for number in range(30)]
    monkeypatch.setattr(FakeDriver, "node_names", lambda _driver: names)
    agent = AgentHere(tmp_path / "agent", on(http_placement, "fake.multi_node"))
    assert agent.run("--once").code == 0
    return agent


def test_many_nodes_are_explained_each_with_one_query(
    many: AgentHere, http_placement: HttpPlacement
) -> None:
    http_placement.clear()
    result = many.run("explain", *SMALL, "--format", "json")
    assert result.code == 0, result
    assert len(result.json["nodes"]) == 30
    assert all(node["fits"] for node in result.json["nodes"])
    asked = [line for line in http_placement.lines() if "allocation_candidates" in line]
    assert len(asked) == 30
    only = many.run("explain", *SMALL, "--node", "node-7", "--format", "json").json
    assert [node["name"] for node in only["nodes"]] == ["node-7"]


def test_a_placement_that_hangs_is_waited_for_once_and_not_by_each_node(
    many: AgentHere, http_placement: HttpPlacement, proxy: FaultProxy
) -> None:
    options = {"placement": {"endpoint": proxy.url, "read_timeout": 2}}
    many.configure(on(http_placement, "fake.multi_node", options))
    rule = proxy.faults.add(faults.read_timeout(), path="allocation_candidates", times=None)
    result = many.run("explain", *SMALL, "--format", "json")
    assert result.code == 1, result
    codes = {error["code"] for node in result.json["nodes"] for error in node["errors"]}
    assert (len(result.json["nodes"]), codes) == (30, {"placement.unreachable"})
    assert 0 < rule.hits <= 2


# --- a query that explodes ------------------------------------------------------------------------


@pytest.mark.parametrize("where", [(), ("--anywhere",)])
def test_a_query_with_too_many_combinations_ends_with_an_error(
    tmp_path: Path, where: tuple[str, ...]
) -> None:
    file = tmp_path / "host.yaml"
    cells = [
        {"id": cell, "cpus": f"{80 * cell}-{80 * cell + 79}", "memory_mib": 4096} for cell in (0, 1)
    ]
    file.write_text(
        json.dumps(
            {"name": "node-a", "cpu": {"online": "0-159"}, "memory_mib": 8192, "cells": cells}
        )
    )
    agent = AgentCommand(
        tmp_path / "agent",
        {
            "DEFAULT": {"compute_driver": "fake.file", "host": "node-a"},
            "fake": {"host_file": file},
            "compute": {"cpu_dedicated_set": "0-159", "tree_layout": "nested"},
            "placement": {"backend": "embedded"},
        },
    )
    assert agent.run("--once").code == 0
    # 2 to the power of 53 combinations, none of which fits: 159 of 160 CPUs, in threes of which a
    # cell of 80 takes 26. Placement excludes at once only what is more than all cells have.
    words = [f"resources{number}=PCPU:3" for number in range(53)]
    words += ["group_policy=none", *where, "--placement-read_timeout", "1"]
    result = agent.run("explain", *words, "--format", "json")
    assert result.code == 1, result
    document = result.json
    found = document["errors"] or document["nodes"][0]["errors"]
    (error,) = found
    assert error["code"] == "placement.unreachable"
    assert error["message"].startswith(
        "the embedded Placement did not answer GET /allocation_candi"
    )
