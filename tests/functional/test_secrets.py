"""A password in a URL, or in an option, is in nothing that the agent says or keeps."""

import contextlib
import json
import logging
import re
import sqlite3

import pytest
import requests
from sqlalchemy import create_engine

from agent.api.socket_file import UnixConnection
from agent.cli.logs import Masking
from agent.errors import AgentError
from agent.model.names import masked
from tests.functional.test_daemon import HOST, Host
from tests.support.daemon_host import ROOT
from tests.support.placement import PROJECT, USER
from tests.support.system import AgentHere

SECRET = "hunter2-Zq"
NOWHERE = f"http://agent:{SECRET}@127.0.0.1:1"
BY_TOKEN = f"http://{SECRET}@127.0.0.1:1"
COMMANDS = (("--once", "--debug"), ("config", "check", "--format", "json"))
OTHERS = (
    ("--once", "--format", "json"),
    ("tree",),
    ("claims", "--offline"),
    ("identity", "show"),
    ("db", "upgrade"),
    ("pci", "check"),
    ("guests", "list"),
)


class Said:
    """What has to be free of the secrets; of ``SECRET`` unless others are given."""

    def __init__(self, *secrets: str) -> None:
        self.secrets = secrets or (SECRET,)
        self.faults: list[str] = []

    def look(self, where: str, what: str | bytes) -> None:
        text = what.decode("utf-8", "replace") if isinstance(what, bytes) else what
        for line in text.splitlines():
            if any(secret in line for secret in self.secrets):
                self.faults.append(f"{where}: {line[:400]}")


def keystone_there(url: str) -> dict[str, object]:
    return {
        "auth_type": "password",
        "auth_url": url,
        "username": "agent",
        "password": SECRET,
        "project_name": "service",
        "user_domain_id": "default",
        "project_domain_id": "default",
    }


SETUPS = {
    "an identity service that is away": {"placement": keystone_there(f"{NOWHERE}/v3")},
    "a Placement that is away": {
        "placement": {
            "auth_type": "admin_token",
            "endpoint": f"{NOWHERE}/placement",
            "token": SECRET,
        }
    },
    "another address of Placement": {
        "placement": {
            **keystone_there("http://127.0.0.1:1/v3"),
            "endpoint_override": f"{NOWHERE}/placement",
        }
    },
    "a Placement that is away, with a token": {
        "placement": {
            "auth_type": "admin_token",
            "endpoint": f"{BY_TOKEN}/placement",
            "token": SECRET,
        }
    },
    "an identity service that is away, with a token": {
        "placement": keystone_there(f"{BY_TOKEN}/v3")
    },
    "a database that is away": {
        "store": {
            "connection": f"postgresql://agent:{SECRET}@127.0.0.1:1/nova?connect_timeout=2&password={SECRET}"
        }
    },
    "no URL of a database": {
        "store": {"connection": f"postgresql:/agent:{SECRET}@127.0.0.1:x/nova"}
    },
    "another kind of database": {
        "store": {"connection": f"mysql+pymysql://agent:{SECRET}@127.0.0.1/nova"}
    },
    "a libvirt that is away": {
        "DEFAULT": {"compute_driver": "libvirt"},
        "libvirt": {"connection_uri": f"qemu+tcp://agent:{SECRET}@127.0.0.1:1/system"},
    },
    "a libvirt of no kind": {
        "DEFAULT": {"compute_driver": "libvirt"},
        "libvirt": {"connection_uri": f"nonesuch://agent:{SECRET}@127.0.0.1:1/system"},
    },
    "an ironic that is away": {
        "DEFAULT": {"compute_driver": "ironic"},
        "compute": {"start_deadline": 2, "nodes_deadline": 2},
        "ironic": keystone_there(f"{NOWHERE}/v3"),
    },
    "an option that is none": {
        "placement": {
            "auth_type": "admin_token",
            "endpoint": NOWHERE,
            "token": SECRET,
            "passwort": SECRET,
        }
    },
    "a number that is none": {
        "placement": {
            "auth_type": "admin_token",
            "endpoint": NOWHERE,
            "token": SECRET,
            "read_timeout": f"{NOWHERE}/x",
        }
    },
}


@pytest.mark.parametrize("setup", SETUPS)
def test_no_command_says_a_password(setup, tmp_path, monkeypatch):
    base = {
        "DEFAULT": {"compute_driver": "fake", "host": "node-a", "state_path": "/nonexistent"},
        "placement": {
            "auth_type": "admin_token",
            "endpoint": "http://127.0.0.1:1/placement",
            "token": SECRET,
        },
    }
    config = {
        group: {**base.get(group, {}), **options}
        for group, options in (base | SETUPS[setup]).items()
    }
    command, said = AgentHere(tmp_path / "agent", config), Said()
    proxies = (
        {
            "http_proxy": f"http://proxy:{SECRET}@127.0.0.1:1",
            "https_proxy": f"http://proxy:{SECRET}@127.0.0.1:1",
        }
        if "away" in setup
        else {}
    )
    logging.getLogger().setLevel(logging.WARNING)
    for arguments in (
        *COMMANDS,
        *(
            OTHERS
            if setup in ("an identity service that is away", "a database that is away")
            else ()
        ),
    ):
        result = command.run(*arguments, env=proxies)
        said.look(f"{' '.join(arguments)}: stdout", result.stdout)
        said.look(f"{' '.join(arguments)}: stderr", result.stderr)
    for file in command.store.rglob("*"):
        if file.is_file():
            said.look(str(file), file.read_bytes())
    assert said.faults == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("user", "shown"),
    [(f"agent:{SECRET}", "agent:***"), (SECRET, "***")],
    ids=["a password", "a token"],
)
def test_no_daemon_keeps_or_tells_the_password_in_the_address_of_its_placement(
    user, shown, http_placement, tmp_path
):
    host, said = (
        Host(tmp_path / "agent", http_placement.url.replace("http://", f"http://{user}@")),
        Said(),
    )
    host.set("DEFAULT", debug=True)
    with host.service.running() as service:
        service.wait_for("READY", "1")
        for target in (
            "/v1/nodes",
            f"/v1/nodes/{ROOT}",
            f"/v1/nodes/{ROOT}/tree",
            "/metrics",
            "/readyz",
        ):
            connection = UnixConnection(host.command.socket, 30)
            connection.request("GET", target)
            answer = connection.getresponse()
            assert answer.status == 200, target
            said.look(target, answer.read())
            connection.close()
        for arguments in (
            ["status"],
            ["tree"],
            ["tree", "--format", "json"],
            ["--once", "--dry-run", "--debug"],
            ["--once", "--dry-run", "--format", "json"],
        ):
            result = host.command.run(*arguments)
            said.look(f"{' '.join(arguments)}: stdout", result.stdout)
            said.look(f"{' '.join(arguments)}: stderr", result.stderr)
        http_placement.kill()
        service.wait_for("STATUS", "cannot connect to")
        said.look("status", service.status)
        service.stop()
        said.look("log", service.log)
        assert f"cannot connect to http://{shown}@127.0.0.1:" in service.log
    for line in ["tree", "--offline"], ["tree", "--offline", "--format", "json"]:
        said.look(" ".join(line), host.command.run(*line).stdout)
    for file in host.command.store.rglob("*"):
        if file.is_file():
            said.look(str(file), file.read_bytes())
    with contextlib.closing(sqlite3.connect(host.command.store / "database/store.sqlite")) as store:
        assert [row[0] for row in store.execute("SELECT endpoint FROM endpoint")] == [
            http_placement.url.replace("http://", f"http://{shown}@")
        ]
    assert said.faults == []


# Three providers with inventory, which are written by a reshape.
CELLS = "".join(
    f"- name: $NODE_NUMA{cell}\n  inventories:\n    PCPU: {{total: 4}}\n" for cell in (1, 2)
)
FIELDS = re.compile(
    r"[\"'](resource_providers|parent_provider_uuid|inventories|max_unit|traits|allocations|"
    r"resource_provider_generation|consumer_generation|project_id|user_id|usages)[\"']"
)


def test_no_log_of_passes_has_a_token_an_owner_or_a_body(http_placement, tmp_path):
    host, said = Host(tmp_path / "agent", http_placement.url), Said(SECRET, PROJECT, USER)
    host.set("placement", token=SECRET)
    host.set("DEFAULT", debug=True)
    host.file.write_text(f"{HOST.format(root=ROOT, vcpus=8)}{CELLS}")
    with host.service.running() as service:
        service.wait_for("READY", "1")
        service.stop()
    guest = http_placement.other.claim({ROOT: {"VCPU": 2}})
    passed = host.command.run("--once", "--debug")
    deleted = host.command.run("allocation", "delete", guest, "--debug")
    assert (passed.code, deleted.code) == (0, 0), (passed, deleted)
    logs = {
        "the daemon": (service.log, "POST /reshaper -> 204"),
        "a pass": (passed.stderr, f"GET /resource_providers/{ROOT}/inventories -> 200"),
        "a deletion": (deleted.stderr, f"PUT /allocations/{guest} -> 204"),
    }
    for where, (log, request) in logs.items():
        assert f" placement {request} " in log, f"{where}: the requests themselves are logged"
        said.look(where, log)
        assert FIELDS.findall(log) == [], where
    assert said.faults == []
    sent = [one.body for one in http_placement.requests if one.body]
    assert any(FIELDS.search(json.dumps(body)) and PROJECT in str(body) for body in sent)


def test_a_traceback_in_the_log_has_no_password():
    record = None
    try:
        requests.get(f"{NOWHERE}/x", timeout=1)
    except requests.exceptions.RequestException as error:
        try:
            raise ValueError(f"no good: {error.request.url}") from error
        except ValueError as outer:
            record = logging.LogRecord(
                "n",
                logging.ERROR,
                "f",
                1,
                "asked %s",
                (f"{NOWHERE}/y",),
                (type(outer), outer, outer.__traceback__),
            )
    text = Masking(logging.Formatter("%(message)s")).format(record)
    assert SECRET not in text
    assert "Traceback" in text
    assert text.startswith("asked http://agent:***@127.0.0.1:1/y")


def test_what_a_library_quotes_cannot_move_the_cursor_of_whoever_reads_the_log():
    record = None
    try:
        raise OSError("said \x1b[2J\r and \u202e\nso")
    except OSError as error:
        record = logging.LogRecord(
            "n", logging.ERROR, "f", 1, "lost \x07", (), (type(error), error, error.__traceback__)
        )
    formatter = Masking(logging.Formatter("%(message)s"))
    text = formatter.format(record)
    assert text.startswith("lost \\x07\nTraceback")
    assert text.endswith("OSError: said \\x1b[2J\\r and \\u202e\nso")
    record.color, record.reset_color = "\x1b[31m", "\x1b[00m"
    coloured = Masking(logging.Formatter("%(color)s%(message)s%(reset_color)s")).format(record)
    assert coloured.startswith("\x1b[31mlost \\x07\x1b[00m\nTraceback")
    assert "\x1b[2J" not in coloured


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("http://u:p:q@h", "http://u:***@h"),
        ("http://u:p@q@h/x", "http://u:***@h/x"),
        ("http://:p@h", "http://:***@h"),
        ("http://token@h:80/a@b", "http://***@h:80/a@b"),
        ("http://to@ken@h", "http://***@h"),
        ("http://token:@h", "http://***@h"),
        ("http://u@example.org:p@h/x", "http://u@example.org:***@h/x"),
        ("http://[::1]:80/a@b and http://@h", "http://[::1]:80/a@b and http://@h"),
        ("http://h:80/p?x=y:z@w", "http://h:80/p?x=y:z@w"),
        ("no such://thing", "no such://thing"),
        ("postgresql://h/d?user=u&password=p&x=y", "postgresql://h/d?user=u&password=***&x=y"),
        ("host=h password='p q' user=u", "host=h password=*** user=u"),
        ("a http://u:p@h and ftp://v:q@i/", "a http://u:***@h and ftp://v:***@i/"),
    ],
)
def test_what_is_masked(text, shown):
    assert masked(text) == shown
    assert AgentError(text, text).message == AgentError(text, text).remedy == shown


def test_an_error_of_a_database_has_no_password():
    engine = create_engine(
        f"postgresql+psycopg://agent:{SECRET}@127.0.0.1:1/nova?password={SECRET}"
    )
    with pytest.raises(Exception) as caught:
        engine.connect()
    assert SECRET not in json.dumps(masked(str(caught.value)))
