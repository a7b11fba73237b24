"""Bad input: whatever is wrong with Placement, identity, configuration, files or folders."""

import errno
import fcntl
import json
import os
import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.model.names import child_uuid
from tests.functional.cli.refusals import contents, refused, the_only
from tests.functional.cli.setups import from_file, host_file, merged, on, towards
from tests.support import faults
from tests.support.faults import Action, Loss
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config, Value
from tests.support.keystone import AGENT, Keystone
from tests.support.proxy import FaultProxy
from tests.support.system import AgentCommand, AgentHere
from tests.unit.store.ordinary_user import as_ordinary_user

# Seconds to wait for an answer that comes, on a machine that is very busy, and for one that does
# not come.
PATIENT, BRIEF = 120, 8
UUID = "0d4f1d6a-5e0d-4a5e-9c4e-6f9b3a0f7f1c"


def identified(agent: AgentHere, *, connected: bool = True) -> AgentHere:
    """The agent after a run that came to nothing: its node has its identity, and everything is
    still to be done.
    """
    arguments = (
        ["--node", "nobody"] if connected else ["--placement-endpoint", "http://127.0.0.1:1/"]
    )
    assert agent.run("--once", *arguments).code == 1
    assert sorted(contents(agent.store)) == ["compute_id.proposed", "database/store.sqlite"]
    return agent


# --- Placement ------------------------------------------------------------------------------------

WRONG_ANSWERS = {
    "401": (faults.answer(401), "placement.refused", "401", "credentials"),
    "403": (faults.answer(403), "placement.refused", "403", "role"),
    "404": (faults.answer(404), "placement.refused", "404", "endpoint_override"),
    "406": (faults.answer(406), "placement.refused", "406", "endpoint_override"),
    "500": (faults.answer(500), "placement.refused", "500", "log"),
    "503": (faults.answer(503), "placement.refused", "503", "log"),
    "429": (faults.answer(429), "placement.refused", "429", "log"),
    "another service": (
        Action(
            "json",
            reply=faults.Reply(
                200,
                b'{"versions": [{"id": "v2.1", "version": "2.79", "min_version": "2.1"}]}',
                {"Content-Type": "application/json"},
            ),
        ),
        "placement.unreachable",
        "with something that is not Placement's",
        "endpoint_override",
    ),
    "HTML with 200": (faults.html(200), "placement.unreachable", "not Placement's", "login page"),
    "HTML with 401": (faults.html(401), "placement.refused", "401", "credentials"),
    "HTML with 404": (
        faults.html(404),
        "placement.unreachable",
        "404 in a form that is not Placement's",
        "endpoint_override",
    ),
    "HTML with 502": (
        faults.html(502),
        "placement.refused",
        "not Placement's own",
        "in front of it",
    ),
    "101 headers": (
        faults.many_headers(),
        "placement.unreachable",
        "not Placement's: HTTPException: got more than 100 headers",
        "endpoint_override",
    ),
    "cut off": (faults.cut(), "placement.unreachable", "closed connection", "reached"),
    "half an answer": (faults.half_answer(), "placement.unreachable", "IncompleteRead", "between"),
    "no answer": (faults.read_timeout(), "placement.unreachable", "no answer", "read_timeout"),
}


@pytest.fixture
def disturbed(agent: AgentHere, http_placement: HttpPlacement, proxy: FaultProxy) -> AgentHere:
    """An agent that reaches Placement through the proxy."""
    return through(proxy, agent, http_placement, PATIENT)


def through(
    proxy: FaultProxy, agent: AgentHere, http_placement: HttpPlacement, read_timeout: int
) -> AgentHere:
    """The agent, which waits so many seconds for an answer from now on."""
    agent.configure(
        on(
            http_placement,
            "fake.numa",
            {"placement": {"endpoint": proxy.url, "read_timeout": read_timeout}},
        )
    )
    return agent


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "connected"),
    # The connection itself is asked for once, everything else each time: both must tell the same.
    [
        *((fault, True) for fault in WRONG_ANSWERS),
        *((fault, False) for fault in ("403", "HTML with 200", "another service", "cut off")),
    ],
)
def test_placement_answers_wrongly(
    disturbed: AgentHere,
    http_placement: HttpPlacement,
    proxy: FaultProxy,
    fault: str,
    connected: bool,
) -> None:
    action, code, what, remedy = WRONG_ANSWERS[fault]
    identified(disturbed, connected=connected)
    through(proxy, disturbed, http_placement, BRIEF if fault == "no answer" else PATIENT)
    rule = proxy.faults.add(action, times=None)
    problem = the_only(refused(disturbed, http_placement))
    assert rule.hits >= 2
    assert problem["code"] == code
    assert proxy.url in problem["message"]
    assert what in problem["message"]
    assert remedy in problem["remedy"]


def test_nobody_listens(
    disturbed: AgentHere, http_placement: HttpPlacement, proxy: FaultProxy
) -> None:
    identified(disturbed)
    with proxy.down():
        problem = the_only(refused(disturbed, http_placement))
    assert problem["code"] == "placement.unreachable"
    assert f"cannot connect to {proxy.url}" in problem["message"]
    assert "Connection refused" in problem["message"]


@pytest.mark.parametrize("endpoint", ["nonsense", "ftp://placement.test/", "http://[::1/"])
def test_an_endpoint_that_is_no_url(
    disturbed: AgentHere, http_placement: HttpPlacement, endpoint: str
) -> None:
    identified(disturbed)
    problem = the_only(refused(disturbed, http_placement, "--placement-endpoint", endpoint))
    assert endpoint.rstrip("/") in problem["message"]


@pytest.mark.long
@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize(
    "action",
    [faults.html(200), faults.read_timeout(), faults.cut(), faults.answer(403), faults.answer(503)],
    ids=lambda one: one.name,
)
def test_writes_that_fail_are_told_and_tried_again(
    disturbed: AgentHere,
    http_placement: HttpPlacement,
    proxy: FaultProxy,
    action: Action,
    method: str,
) -> None:
    through(
        proxy, disturbed, http_placement, BRIEF if action.loss is Loss.READ_TIMEOUT else PATIENT
    )
    proxy.faults.add(action, method=method, times=None)
    result = disturbed.run("--once", "--format", "json")
    # What came before the failure is done, if there was anything.
    assert result.code == (1 if method == "POST" else 3)
    (node,) = result.json["nodes"]
    assert node["state"] == "degraded"
    problem = the_only(node["errors"])
    assert proxy.url in problem["message"]
    assert problem["remedy"]
    assert "Traceback" not in result.stderr
    proxy.faults.clear()
    through(proxy, disturbed, http_placement, PATIENT)
    assert disturbed.run("--once").code == 0
    assert disturbed.run("--once", "--format", "json").json["nodes"][0]["state"] == "in-sync"
    assert len(http_placement.dump()["providers"]) == 5


@pytest.mark.long
@pytest.mark.parametrize("arguments", [[], ["--dry-run"]], ids=["run", "dry run"])
def test_a_placement_that_is_too_old(tmp_path: Path, arguments: list[str]) -> None:
    old = HttpPlacement(tmp_path, max_version="1.29")
    old.start()
    try:
        agent = identified(AgentHere(tmp_path / "agent", on(old)), connected=False)
        problem = the_only(refused(agent, old, *arguments))
        assert (problem["code"], "upgrade" in problem["remedy"]) == ("placement.too-old", True)
        assert f"needs placement 1.30, server offers 1.29 ({old.url})" in problem["message"]
        assert old.lines() == ["GET / -> 200", "GET / -> 200"]
    finally:
        old.stop()


# --- keystone -------------------------------------------------------------------------------------


@pytest.fixture
def through_keystone(
    keystone: Keystone, keystone_placement: HttpPlacement, tmp_path: Path
) -> Callable[..., AgentHere]:
    """Configures one agent with credentials for ``keystone``, some of them wrong."""
    agent = AgentHere(tmp_path / "agent")

    def configured(**wrong: Value) -> AgentHere:
        options = {**keystone.credentials(), "max_in_flight": 1, **wrong}
        agent.configure(
            {
                "DEFAULT": {
                    "compute_driver": "fake.numa",
                    "host": "node-a",
                    "state_path": "/nonexistent",
                },
                "placement": options,
            }
        )
        return agent

    identified(configured())
    return configured


def test_what_the_identity_service_refuses(
    through_keystone: Callable[..., AgentHere],
    keystone: Keystone,
    keystone_placement: HttpPlacement,
) -> None:
    for wrong in ({"password": "wrong"}, {"username": "nobody"}, {"project_name": "nothing"}):
        problem = the_only(refused(through_keystone(**wrong), keystone_placement))
        assert (
            f"credentials for placement refused by identity at {keystone.url}" in problem["message"]
        )
        assert "[placement]" in problem["remedy"]
        assert "wrong" not in problem["message"]
    assert keystone_placement.count() == 1, "the first connection, and nothing without credentials"


def test_what_the_catalog_lacks(
    through_keystone: Callable[..., AgentHere],
    keystone: Keystone,
    keystone_placement: HttpPlacement,
) -> None:
    problem = the_only(refused(through_keystone(region_name="Elsewhere"), keystone_placement))
    assert (
        "no placement endpoint for region Elsewhere, interface internal, public in the service "
        "catalog"
    ) in problem["message"]
    assert "[placement] region_name" in problem["remedy"]
    problem = the_only(refused(through_keystone(valid_interfaces="admin"), keystone_placement))
    assert "interface admin" in problem["message"]
    keystone.unregister_placement()
    problem = the_only(refused(through_keystone(), keystone_placement))
    assert "no placement endpoint for region any" in problem["message"]


@pytest.mark.long
def test_an_identity_service_that_is_not_there(
    through_keystone: Callable[..., AgentHere],
    keystone: Keystone,
    keystone_placement: HttpPlacement,
) -> None:
    problem = the_only(
        refused(through_keystone(auth_url="http://127.0.0.1:1/v3"), keystone_placement)
    )
    assert "cannot connect to http://127.0.0.1:1/v3" in problem["message"]
    problem = the_only(
        refused(through_keystone(auth_url=keystone_placement.url), keystone_placement)
    )
    assert "auth_url" in problem["message"]
    keystone.suspend()
    try:
        problem = the_only(refused(through_keystone(read_timeout=1), keystone_placement))
    finally:
        keystone.resume()
    assert f"no answer from {keystone.url}" in problem["message"]


@pytest.mark.long
def test_a_user_that_is_disabled_and_enabled_again(
    through_keystone: Callable[..., AgentHere],
    keystone: Keystone,
    keystone_placement: HttpPlacement,
) -> None:
    keystone.disable(AGENT)
    assert (
        "refused by identity"
        in the_only(refused(through_keystone(), keystone_placement))["message"]
    )
    keystone.enable(AGENT)
    assert through_keystone().run("--once", "--dry-run").code == 0


# --- identity and names in Placement --------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--adopt"]], ids=" ".join)
def test_the_same_name_with_another_uuid(
    agent: AgentHere, http_placement: HttpPlacement, arguments: list[str]
) -> None:
    identified(agent)
    own = (agent.store / "compute_id.proposed").read_text().strip()
    holder = http_placement.other.create_provider("node-a")
    before = http_placement.dump()
    document = agent.run("--once", "--format", "json", *arguments)
    assert document.code == 1
    (node,) = document.json["nodes"]
    problem = the_only(node["errors"])
    assert problem["code"] == "placement.name-conflict"
    assert own in problem["message"]
    assert holder in problem["message"]
    assert f"agent identity set {holder}" in problem["remedy"]
    assert [(one["kind"], one["severity"]) for one in node["drift"]] == [
        ("name-conflict", "warning")
    ]
    assert http_placement.dump() == before


def test_a_root_that_has_another_name(agent: AgentHere, http_placement: HttpPlacement) -> None:
    identified(agent)
    own = (agent.store / "compute_id.proposed").read_text().strip()
    http_placement.other.create_provider("somebody", own)
    problem = the_only(refused(agent, http_placement))
    assert problem["code"] == "placement.identity-conflict"
    assert own in problem["message"]
    assert "'somebody'" in problem["message"]


def test_a_child_that_somebody_put_below_another_root_is_put_back(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert agent.run("--once").code == 0
    own = (agent.store / "compute_id").read_text().strip()
    rack = http_placement.other.create_provider("rack")
    cell = child_uuid(own, "_NUMA3")
    http_placement.other.reparent(cell, rack)
    result = agent.run("--once", "--format", "json")
    assert result.code == 0
    (node,) = result.json["nodes"]
    assert node["state"] == "changed"
    (moved,) = [one for one in node["operations"] if one["op"] == "reparent-provider"]
    assert (moved["provider"]["uuid"], moved["before"], moved["after"], moved["status"]) == (
        cell,
        rack,
        own,
        "done",
    )
    assert {one["uuid"]: one["parent"] for one in node["tree"]}[cell] == own
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    assert node["state"] == "in-sync"


# --- configuration --------------------------------------------------------------------------------

BAD_CONFIGURATIONS: dict[str, tuple[Config, list[str]]] = {
    "unknown driver": (
        {"DEFAULT": {"compute_driver": "nonsense"}},
        ["[DEFAULT] compute_driver = nonsense: no such driver"],
    ),
    "not a number": (
        {"compute": {"workers": "many"}},
        ["agent.conf:", "[compute] workers = many", "a whole number from 1 to 64"],
    ),
    "not a choice": (
        {"compute": {"tree_layout": "round"}},
        ["[compute] tree_layout = round", "nested, flat"],
    ),
    "unknown plugin": ({"placement": {"auth_type": "pigeon"}}, ["[placement] auth_type = pigeon"]),
    "credentials without a URL": (
        {"placement": {"auth_type": "password"}},
        ["[placement]", "auth_url"],
    ),
    "credentials with an empty URL": (
        {"placement": {"auth_type": "password", "auth_url": "", "username": "u", "password": "p"}},
        ["auth_url"],
    ),
    "no credentials": (
        {"placement": {"backend": "http", "auth_type": ""}},
        ["no credentials", "[placement]"],
    ),
    "CPU list": ({"compute": {"cpu_shared_set": "4-1"}}, ["[compute] cpu_shared_set = 4-1"]),
    "no CPU left": (
        {"compute": {"cpu_dedicated_set": "0,^0"}},
        ["[compute] cpu_dedicated_set = 0,^0"],
    ),
    "far too many CPUs": (
        {"compute": {"cpu_shared_set": "0-99999999999"}},
        ["[compute] cpu_shared_set"],
    ),
    "overlapping CPU sets": (
        {"compute": {"cpu_shared_set": "0-4", "cpu_dedicated_set": "4-8"}},
        ["cpu_shared_set and cpu_dedicated_set", "CPU 4"],
    ),
    "owner trait": ({"compute": {"owner_trait": "no trait"}}, ["[compute] owner_trait = no trait"]),
    "negative ratio": (
        {"DEFAULT": {"cpu_allocation_ratio": -1}},
        ["[DEFAULT] cpu_allocation_ratio = -1"],
    ),
    "infinite ratio": (
        {"DEFAULT": {"ram_allocation_ratio": "inf"}},
        ["[DEFAULT] ram_allocation_ratio = inf"],
    ),
    "no number as ratio": (
        {"DEFAULT": {"initial_disk_allocation_ratio": "nan"}},
        ["[DEFAULT] initial_disk_allocation_ratio = nan"],
    ),
    "store connection": ({"store": {"connection": "nonsense"}}, ["[store] connection"]),
    "log": ({"DEFAULT": {"default_log_levels": "x"}}, ["log cannot be set up"]),
    "blanks as host": ({"DEFAULT": {"host": '" "'}}, ["[DEFAULT] host", "begins or ends"]),
    "no host": ({"DEFAULT": {"host": ""}}, ["[DEFAULT] host", "0 characters"]),
    "long host": ({"DEFAULT": {"host": "x" * 201}}, ["[DEFAULT] host", "201 characters"]),
    "no host file": ({"DEFAULT": {"compute_driver": "fake.file"}}, ["[fake] host_file"]),
    "missing host file": (
        {
            "DEFAULT": {"compute_driver": "fake.file"},
            "fake": {"host_file": "/nonexistent/host.yaml"},
        },
        ["/nonexistent/host.yaml"],
    ),
    "folder as host file": (
        {"DEFAULT": {"compute_driver": "fake.file"}, "fake": {"host_file": "/usr"}},
        ["/usr"],
    ),
    "no sysfs": (
        {"DEFAULT": {"compute_driver": "host"}, "host": {"sysfs_root": "/nonexistent"}},
        ["[host] sysfs_root = /nonexistent"],
    ),
}


@pytest.mark.parametrize("name", BAD_CONFIGURATIONS)
def test_a_configuration_that_cannot_be_used_leaves_no_trace(
    agent: AgentHere, http_placement: HttpPlacement, name: str
) -> None:
    config, told = BAD_CONFIGURATIONS[name]
    agent.configure(merged(on(http_placement), config))
    problem = the_only(refused(agent, http_placement))
    assert problem["code"] == "config.invalid"
    assert all(text in problem["message"] for text in told), problem
    assert not agent.store.exists()
    assert http_placement.requests == []
    assert agent.run("config", "check", "--format", "json").json["errors"] == [problem]


BAD_FILES = {
    "no assignment": (b"[DEFAULT]\nhost = x\nnonsense\n", "agent.conf:3:"),
    "no section": (b"host = x\n", "agent.conf:1:"),
    "no text": (b"[DEFAULT]\nhost = \xff\xfe\n", "agent.conf: not text in UTF-8, at byte 17"),
    "NUL": (b"[DEFAULT]\nhost = a\0b\n", "agent.conf:2: a NUL byte"),
    "name on two lines": (
        b"[DEFAULT]\nhost = a\n    b\n[placement]\nbackend = embedded\n",
        "[DEFAULT] host = a\\nb",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_configuration_file_that_cannot_be_read(agent: AgentHere, name: str) -> None:
    content, told = BAD_FILES[name]
    agent.config_file.write_bytes(content)
    assert told in the_only(refused(agent, None, "--store-path", str(agent.store)))["message"]
    assert not agent.store.exists()


@pytest.mark.parametrize("option", ["--config-file", "--config-dir"])
def test_a_configuration_that_is_not_there(
    agent: AgentHere, http_placement: HttpPlacement, option: str
) -> None:
    problem = the_only(refused(agent, http_placement, option, "/nonexistent/x"))
    assert problem["message"].startswith(f"{option} /nonexistent/x: No such file")


def test_everything_wrong_is_told_at_once(agent: AgentHere, http_placement: HttpPlacement) -> None:
    file = agent.folder / "host.yaml"
    file.write_text("cpu:\n  online: 0-x\nmemry_mib: 3\n")
    wrong = {
        "compute": {"cpu_shared_set": "4-1", "cpu_dedicated_set": "x"},
        "fake": {"host_file": file},
        "store": {"connection": "x"},
    }
    agent.configure(
        merged(
            on(http_placement, "fake.file", {"DEFAULT": {"host": ""}}),
            wrong,
            {"placement": {"auth_type": "password"}},
        )
    )
    for command in (("--once",), ("config", "check")):
        messages = [
            problem["message"] for problem in refused(agent, http_placement, command=command)
        ]
        for told in (
            "[DEFAULT] host",
            "cpu_shared_set",
            "cpu_dedicated_set",
            "[store] connection",
            "auth_url",
            f"{file}:2:",
            f"{file}:3:",
        ):
            assert len([message for message in messages if told in message]) == 1, (told, messages)
        assert len(messages) == 7


# --- what only the host's facts show --------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "told", "later"),
    [
        (
            {"compute": {"cpu_shared_set": "0-65"}},
            ["[compute] cpu_shared_set: CPUs 64-65 not online, online are 0-63"],
            False,
        ),
        (
            {"compute": {"cpu_dedicated_set": "64"}},
            ["[compute] cpu_dedicated_set: CPUs 64 not online, online are 0-63"],
            True,
        ),
        (
            {"DEFAULT": {"reserved_host_cpus": 65}},
            ["[DEFAULT] reserved_host_cpus: 65 of VCPU reserved, above the total 64 of node-a"],
            False,
        ),
        (
            {"DEFAULT": {"reserved_host_memory_mb": 999999, "reserved_host_disk_mb": 99999999}},
            ["[DEFAULT] reserved_host_memory_mb: 999999", "[DEFAULT] reserved_host_disk_mb: 97657"],
            True,
        ),
    ],
    ids=["shared CPUs", "dedicated CPUs", "reserved CPUs", "reserved memory and disk"],
)
def test_what_does_not_fit_the_host(
    agent: AgentHere, http_placement: HttpPlacement, config: Config, told: list[str], later: bool
) -> None:
    if later:
        assert agent.run("--once").code == 0
    else:
        identified(agent)
    agent.configure(merged(on(http_placement), config))
    problems = refused(agent, http_placement)
    assert [problem["code"] for problem in problems] == ["config.invalid"] * len(told)
    for problem, text in zip(problems, told, strict=True):
        assert text in problem["message"]


def test_a_host_file_that_becomes_wrong(http_placement: HttpPlacement, tmp_path: Path) -> None:
    agent = from_file(http_placement, tmp_path / "agent", {"memory_mib": 4096})
    assert agent.run("--once").code == 0
    file = host_file(agent, {"memory_mib": -1, "cpu": {"online": "0-x"}})
    problems = refused(agent, http_placement)
    assert [problem["message"].split(":")[0] for problem in problems] == [str(file)] * 2
    file.write_text("a: [1,\n")
    assert the_only(refused(agent, http_placement))["message"].startswith(f"{file}:2:")


# --- the store ------------------------------------------------------------------------------------


def test_a_state_path_that_is_no_folder(
    agent: AgentHere, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("somebody's")
    for path in (file, file / "below", Path("/proc/nowhere")):
        problem = the_only(refused(agent, http_placement, "--store-path", str(path)))
        assert (problem["code"], f"[store] path {path}" in problem["message"]) == (
            "store.unusable",
            True,
        )
    assert file.read_text() == "somebody's"


BAD_IDENTITIES = {
    "nonsense": b"no uuid \x1b[31m\n",
    "empty": b"",
    "two": f"{UUID}\n{UUID}\n".encode(),
    "no text": b"\xff\xfe",
}


@pytest.mark.parametrize(
    ("name", "where"), [*((name, "own") for name in BAD_IDENTITIES), ("nonsense", "nova")]
)
def test_an_identity_that_is_none(
    agent: AgentHere, http_placement: HttpPlacement, name: str, where: str
) -> None:
    identified(agent)
    folder = agent.store if where == "own" else agent.folder / "nova"
    folder.mkdir(exist_ok=True)
    (folder / "compute_id").write_bytes(BAD_IDENTITIES[name])
    problem = the_only(refused(agent, http_placement, "--state_path", str(agent.folder / "nova")))
    assert problem["code"] == "identity.mismatch"
    assert str(folder / "compute_id") in problem["message"]
    assert (folder / "compute_id").read_bytes() == BAD_IDENTITIES[name]


def somebody_elses(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE letters (text)")
        database.commit()


def damaged(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096:8192] = os.urandom(4096)
    file.write_bytes(content)


def a_foreign_database(file: Path) -> None:
    file.unlink()
    somebody_elses(file)


def from_the_future(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE compute_node_agent_schema SET version_num = '9999'")
        database.commit()


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda file: file.write_bytes(b"garbage" * 1000), "not a database"),
        (lambda file: file.write_bytes(b""), "is not a store"),
        (a_foreign_database, "is not a store"),
        (damaged, "store.sqlite"),
        (from_the_future, "made by a newer agent"),
    ],
    ids=["garbage", "empty", "somebody else's", "damaged", "from the future"],
)
def test_a_store_that_is_none(
    agent: AgentHere, http_placement: HttpPlacement, spoil: Callable[[Path], object], told: str
) -> None:
    assert agent.run("--once").code == 0
    spoil(agent.store / "database/store.sqlite")
    for arguments in ([], ["--dry-run"]):
        problem = the_only(refused(agent, http_placement, *arguments))
        assert problem["code"] == "store.unusable"
        assert str(agent.store / "database/store.sqlite") in problem["message"]
        assert told in problem["message"]
    # The command that the remedy names ends it, unless the file is somebody else's.
    aside = agent.run("db", "set-aside")
    if spoil is a_foreign_database:
        assert (aside.code, "is not a store of this agent" in aside.stderr) == (1, True)
    else:
        assert aside.code == 0
        assert agent.run("--once", "--adopt").code == 0


def without_permission(path: str | None) -> Callable[[Path], str]:
    """Runs the agent of a folder that may do nothing with ``path`` in it; what it prints."""

    def attempt(folder: Path) -> str:
        agent = AgentHere(folder / "agent")
        agent.store.mkdir()
        (agent.folder / "host.yaml").write_text("memory_mib: 1024")
        if path is not None:
            (agent.store / "database").mkdir()
            (agent.store / "database/store.sqlite").touch()
        options = {"compute_driver": "fake.file", "host": "node-a", "state_path": "/nonexistent"}
        nobody = {"auth_type": "none", "endpoint": "http://127.0.0.1:1"}
        agent.configure(
            {
                "DEFAULT": options,
                "placement": nobody,
                "fake": {"host_file": agent.folder / "host.yaml"},
            }
        )
        if path is not None:
            (agent.folder / path).chmod(0)
        result = agent.run("--once", "--format", "json")
        assert result.code == 1, result
        return result.stdout

    return attempt


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("agent.conf", "--config-file {}: Permission denied"),
        ("host.yaml", "{}: cannot be read: Permission denied"),
        ("store", "[store] path {}"),
        ("store/database/store.sqlite", "the store {} cannot be"),
    ],
)
def test_what_the_user_may_not_read(tmp_path: Path, path: str, told: str) -> None:
    # Once as whoever runs the tests, because somebody else may not even read the modules of that
    # one's Python.
    without_permission(None)(tmp_path)
    said = as_ordinary_user(without_permission(path), lambda _: None)
    problem = the_only(json.loads(said)["errors"])
    before, after = told.split("{}")
    assert re.search(
        rf"{re.escape(before)}\S*/agent/{re.escape(path)}{re.escape(after)}", problem["message"]
    ), problem
    assert problem["remedy"]


def test_an_embedded_placement_that_is_none(tmp_path: Path) -> None:
    agent = AgentHere(
        tmp_path / "agent",
        {"DEFAULT": {"compute_driver": "fake", "host": "node-a", "state_path": "/nonexistent"}},
    )
    agent.store.mkdir()
    file = agent.store / "placement.sqlite"
    file.write_bytes(b"garbage" * 1000)
    for arguments in (["--dry-run"], []):
        result = super(AgentHere, agent).run("--once", "--format", "json", *arguments)
        assert result.code == 1
        problem = the_only(result.json["errors"])
        assert problem["code"] == "store.unusable"
        assert str(file) in problem["message"]
        assert "move the file away" in problem["remedy"]
        assert file.read_bytes() == b"garbage" * 1000


@pytest.mark.parametrize(
    ("option", "ratio"),
    [("initial_cpu_allocation_ratio", "0.0"), ("disk_allocation_ratio", "1e-09")],
    ids=["first", "tiny"],
)
def test_a_ratio_that_offers_nothing_is_refused_with_its_line_and_a_higher_one_ends_it(
    option: str, ratio: str, tmp_path: Path
) -> None:
    agent_here = AgentHere(tmp_path / "agent")
    config = {"compute_driver": "fake.small", "host": "node-a"}
    agent_here.configure({"DEFAULT": {**config, option: ratio}})
    lines = agent_here.config_file.read_text().splitlines()
    result = agent_here.run("config", "check")
    assert result.code == 1
    assert f"[DEFAULT] {option} = {ratio}: not above 1e-06" in result.stderr
    assert "give a higher ratio" in result.stderr
    assert f"{agent_here.config_file}:{lines.index(f'{option} = {ratio}') + 1}" in result.stderr
    agent_here.configure({"DEFAULT": {**config, option: "0.5"}})
    assert agent_here.run("config", "check").code == 0


def test_a_name_that_is_too_long_for_its_children_is_told_and_a_shorter_one_ends_it(
    tmp_path: Path, http_placement: HttpPlacement
) -> None:
    agent_here = AgentHere(tmp_path / "agent")
    for length, told in ((195, ["give the host a shorter name: [DEFAULT] host"] * 4), (190, [])):
        agent_here.configure(
            {
                **towards(http_placement),
                "DEFAULT": {"compute_driver": "fake.numa", "host": "n" * length},
            }
        )
        (node,) = agent_here.run("identity", "rename", "--format", "json").json["nodes"]
        assert [one["remedy"] for one in node["errors"]] == told


def test_all_memory_reserved_is_told_and_less_ends_it(
    tmp_path: Path, http_placement: HttpPlacement
) -> None:
    agent_here, reserved = AgentHere(tmp_path / "agent"), 512
    for _ in range(2):
        agent_here.configure(
            {
                **towards(http_placement),
                "DEFAULT": {
                    "compute_driver": "fake.small",
                    "host": "node-a",
                    "reserved_host_memory_mb": reserved,
                },
            }
        )
        (node,) = agent_here.run("--once", "--format", "json").json["nodes"]
        records = [
            one["inventories"]["MEMORY_MB"] for one in http_placement.dump()["providers"].values()
        ]
        reserved = records[0]["total"]
    (drift,) = node["drift"]
    assert drift["kind"] == "disabled"
    assert drift["remedy"] == f"set [DEFAULT] reserved_host_memory_mb to less than {reserved}"
    assert f"reserved_host_memory_mb: all {reserved} of MEMORY_MB are reserved" in drift["detail"]
    agent_here.configure(
        {**towards(http_placement), "DEFAULT": {"compute_driver": "fake.small", "host": "node-a"}}
    )
    assert agent_here.run("--once", "--format", "json").json["nodes"][0]["drift"] == []


@pytest.mark.parametrize("what", ["gone", "unknown", "refuses"])
def test_the_proxy_of_the_environment_is_named_and_no_proxy_ends_it(
    what: str, tmp_path: Path, http_placement: HttpPlacement
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
    refusing = FaultProxy(http_placement.url)
    refusing.faults.add(faults.html(403 if what == "refuses" else 503), times=None)
    refusing.start()
    proxy = {
        "gone": gone,
        "unknown": "http://user:word@proxy.invalid:3128",
        "refuses": refusing.url.removesuffix("/placement"),
        "fails": refusing.url.removesuffix("/placement"),
    }[what]
    command = AgentCommand(tmp_path / "agent")
    command.configure(
        {
            "DEFAULT": {"compute_driver": "fake.small", "host": "node-a"},
            "placement": http_placement.credentials(),
        }
    )
    found = command.run("--once", env={"http_proxy": proxy, "NO_PROXY": "", "no_proxy": ""})
    refusing.stop()
    assert found.code == 1
    shown = " ".join(found.stdout.split())
    assert f"through {proxy.replace('word', '***')}, the proxy of the environment" in shown
    assert "see that this proxy runs and serves 127.0.0.1; or add it to no_proxy" in shown
    around = {"http_proxy": proxy, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    assert command.run("--once", env=around).code == 0


def test_a_file_system_without_locks_is_told_as_that(
    tmp_path: Path, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AgentHere(tmp_path / "agent")
    agent.configure(
        {
            "DEFAULT": {"compute_driver": "fake.small", "host": "node-a"},
            "placement": http_placement.credentials(),
        }
    )

    ask = fcntl.fcntl

    def refuse(file: Any, command: int, argument: Any = 0) -> Any:
        if command == fcntl.F_OFD_SETLK:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        return ask(file, command, argument)

    # No file system of this machine is without locks.
    with monkeypatch.context() as without_locks:
        without_locks.setattr(fcntl, "fcntl", refuse)
        found = agent.run("--once")
    assert found.code == 1
    shown = " ".join((found.stdout + found.stderr).split())
    assert "its file system has no locks" in shown
    assert "rpc.statd" in shown
    assert "make it readable" not in shown
    assert agent.run("--once").code == 0
