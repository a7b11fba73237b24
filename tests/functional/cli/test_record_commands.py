"""The commands about what is promised to guests: through an agent, and without one from
the store.
"""

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cli.command_table import COMMANDS
from agent.model.devices import DeviceRequest
from agent.model.provider_tree import ProviderTree
from tests.support.local_api import api_here
from tests.support.site import (
    GPUS,
    PMEM_UNIT,
    Body,
    Site,
    allocated,
    claim_body,
    instance_body,
    move_body,
    site_here,
    with_devices,
)
from tests.support.system import AgentHere, Result
from tests.support.tracking import F1, F3, FN, Host, guest, uuid_of
from tests.unit.render.reports import node, report

CLAIM, MOVE = uuid_of("claim-i1"), uuid_of("move-i1")


class Desk:
    """The command line of a host whose agent answers, and files with requests."""

    def __init__(self, folder: Path, site: Site, host: Host) -> None:
        self.folder, self.site, self.host = folder, site, site.serve(host)
        site.api.service.take_report(
            report(nodes=(node(name=host.name, uuid=host.node, state="in-sync", errors=()),)),
            whole=True,
        )
        reserved = {
            "reserved_host_cpus": 1,
            "reserved_host_memory_mb": 512,
            "reserved_host_disk_mb": 2048,
        }
        default = {"host": host.name, "compute_driver": "fake.small", **reserved}
        folder.mkdir(exist_ok=True)
        store = site.world.store.location.file
        assert store is not None
        self.command = AgentHere(
            folder,
            {
                "DEFAULT": default,
                "api": {"socket": site.api.path},
                "store": {"path": store.parent.parent},
            },
        )
        self.run = self.command.run

    def file(self, body: object) -> str:
        """A file with a request."""
        place = self.folder / "request.json"
        place.write_text(body if isinstance(body, str) else json.dumps(body))
        return str(place)

    def alone(self) -> None:
        """No agent runs any more."""
        self.command.configure(
            {
                "DEFAULT": {"host": self.host.name},
                "api": {"socket": self.folder / "nobody.sock"},
                "store": {"path": self.store},
            }
        )

    @property
    def store(self) -> Path:
        assert self.site.world.store.location.file is not None
        return self.site.world.store.location.file.parent.parent


def error_of(result: Result) -> Body:
    """The one error in the document of a command that could not do it."""
    (error,) = result.json["errors"]
    assert (result.code, result.json["exit_code"]) == (1, 1)
    found: Body = error
    return found


@pytest.fixture(scope="module")
def _api():
    with api_here() as found:
        yield found


@pytest.fixture
def site(tmp_path, placement, _api):
    with site_here(tmp_path, placement, _api) as found:
        yield found


@pytest.fixture
def timed_tracker(tmp_path, site):
    return Desk(tmp_path / "cli", site, with_devices(site.world.pmem("HA")))


# --- what a command loads -------------------------------------------------------------------------

# The arguments of each command that asks the daemon. Not of watch, which does not end.
ASKS_THE_DAEMON: dict[tuple[str, ...], tuple[str, ...]] = {
    ("status",): (),
    ("drift",): (),
    ("reload",): (),
    ("tree",): (),
    ("report",): ("page.html",),
    ("resources",): (),
    ("claims",): (),
    ("migrations",): (),
    ("guests", "list"): (),
    ("guests", "import"): ("--dry-run",),
    ("guests", "forget"): (guest("i1"),),
    ("pci", "cleaned"): ("0000:81:00.0",),
    ("claim", "create"): ("request.json",),
    ("claim", "show"): (CLAIM,),
    ("claim", "abort"): (CLAIM,),
    ("migrate", "claim"): ("request.json",),
    ("migrate", "finish"): (MOVE,),
    ("migrate", "confirm"): (MOVE,),
    ("migrate", "revert"): (MOVE,),
    ("migrate", "abort"): (MOVE,),
}
WITHOUT_THE_DAEMON = {("schema",)}
# What an answer of the daemon needs nothing of: a database, requests to other services, schemas,
# drivers, audits, claims.
HEAVY = (
    "agent.audit.node_audit",
    "agent.bootstrap.components",
    "agent.model.facts",
    "agent.store.store",
    "agent.tracker.tracker",
    "jsonschema",
    "keystoneauth1",
    "oslo_log.log",
    "requests",
    "rich",
    "sqlalchemy",
    "urllib3",
)
# What the status does not need either: requests of claims, trees.
HEAVY_FOR_STATUS = (*HEAVY, "agent.model.provider_tree", "msgspec", "yaml")


def test_a_command_that_the_daemon_answers_loads_nothing_for_other_work(timed_tracker):
    assert {command.words for command in COMMANDS if command.local} == {
        *ASKS_THE_DAEMON,
        *WITHOUT_THE_DAEMON,
    }
    host, tree = timed_tracker.host, ProviderTree()
    tree.new_root(host.name, host.node)
    seen = node(name=host.name, uuid=host.node, state="in-sync", errors=(), tree=tree)
    timed_tracker.site.api.service.take_report(report(nodes=(seen,)), whole=True)
    timed_tracker.file(claim_body(host, "i1"))
    # All in one process, because each start takes a while: the first one that loads it is told.
    script = f"""
import contextlib, io, json, sys
from agent.cli.main import run
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as answer:
        code = run(words)
    loaded = [name for name in {HEAVY} if name in sys.modules]
    if loaded or "api.unreachable" in answer.getvalue():
        sys.exit(f"{{words}} -> {{code}}: {{loaded}} {{answer.getvalue()}}")
"""
    config = ["--config-file", str(timed_tracker.command.config_file), "--format", "json"]
    lines = [[*config, *words, *more] for words, more in ASKS_THE_DAEMON.items()]
    # Without a daemon's loop, a reload and an audit would be waited for until the command gives up.
    with timed_tracker.site.api.answering():
        done = subprocess.run(
            [sys.executable, "-c", script, json.dumps(lines)],
            capture_output=True,
            text=True,
            check=False,
            cwd=timed_tracker.folder,
        )
    assert done.returncode == 0, done.stderr


def test_the_status_in_text_loads_nothing_that_only_terminals_and_other_commands_need(
    timed_tracker,
):
    script = f"""
import sys
from agent.cli.main import run
code = run(sys.argv[1:])
sys.exit(str([name for name in {HEAVY_FOR_STATUS} if name in sys.modules] or ""))
"""
    config = ["--config-file", str(timed_tracker.command.config_file)]
    with timed_tracker.site.api.answering():
        done = subprocess.run(
            [sys.executable, "-c", script, *config, "status"],
            capture_output=True,
            text=True,
            check=False,
            cwd=timed_tracker.folder,
        )
    assert timed_tracker.host.name in done.stdout
    assert done.stderr.strip() == ""


# --- claims ---------------------------------------------------------------------------------------


def test_a_claim_is_made_shown_and_given_back(timed_tracker):
    body = claim_body(
        timed_tracker.host, "i1", allocations=allocated(timed_tracker.host, **PMEM_UNIT)
    )
    made = timed_tracker.run("claim", "create", timed_tracker.file(body))
    assert (made.code, made.stderr) == (0, "")
    assert made.stdout.splitlines() == [
        f"{CLAIM}  held  instance",
        f"  instance {guest('i1')} · node HA ({timed_tracker.host.node})",
        "  2048 MiB memory · 1 CPU · 20480 MiB disk · units ns_0",
    ]
    again = timed_tracker.run("claim", "create", timed_tracker.file(body))
    assert (again.code, again.stdout.splitlines()[-1]) == (
        0,
        "it was done before; nothing has changed",
    )
    assert timed_tracker.run("claim", "show", CLAIM).stdout == made.stdout
    gone = timed_tracker.run("claim", "abort", CLAIM, "--format", "json")
    assert (
        gone.code,
        gone.json["schema"],
        gone.json["claim"]["state"],
        gone.json["claim"]["repeated"],
    ) == (0, "compute-node-agent/claim/1", "released", False)
    assert timed_tracker.run("claim", "abort", CLAIM, "--format", "json").json["claim"]["repeated"]
    assert timed_tracker.host.usage == "512/1/2048"


def test_a_request_without_id_and_node_gets_both(timed_tracker, monkeypatch):
    body = claim_body(timed_tracker.host, "i1")
    del body["id"], body["node"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(body).encode())))
    claim = timed_tracker.run("claim", "create", "-", "--format", "json").json["claim"]
    assert (claim["node"], claim["instance"]) == (timed_tracker.host.node, guest("i1"))
    assert timed_tracker.run("claim", "show", claim["id"]).code == 0


def test_a_request_without_a_node_is_refused_where_there_are_several(timed_tracker):
    several = (node(name="HA", uuid=timed_tracker.host.node), node(name="HB", uuid=uuid_of("HB")))
    timed_tracker.site.api.service.take_report(report(nodes=several), whole=True)
    body = claim_body(timed_tracker.host, "i1")
    del body["node"]
    result = timed_tracker.run("claim", "create", timed_tracker.file(body))
    assert (result.code, result.stdout) == (1, "")
    assert "it names no node, and the agent has 2 nodes" in result.stderr


def test_a_refusal_is_told_with_every_reason_and_its_code(timed_tracker):
    body = claim_body(timed_tracker.host, "i1", limits={"memory_mb": 1, "vcpus": 1})
    result = timed_tracker.run("claim", "create", timed_tracker.file(body))
    assert (result.code, result.stdout) == (1, "")
    assert "memory: 2560 MiB would be used" in result.stderr
    assert "vcpus: 2 would be used" in result.stderr
    assert "[resources.unavailable]" in result.stderr
    assert (
        error_of(
            timed_tracker.run("claim", "create", timed_tracker.file(body), "--format", "json")
        )["code"]
        == "resources.unavailable"
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", "request.not-json"),
        ("[]", "request.unreadable"),
        ('{"instance": {}}', "request.invalid"),
    ],
)
def test_a_file_without_a_request_is_refused(timed_tracker, content, code):
    error = error_of(
        timed_tracker.run("claim", "create", timed_tracker.file(content), "--format", "json")
    )
    assert error["code"] == code
    assert error["remedy"]


def test_a_file_that_cannot_be_read_is_named(timed_tracker):
    for missing in (timed_tracker.folder / "none.json", timed_tracker.folder):
        result = timed_tracker.run("claim", "create", str(missing))
        assert (result.code, result.stdout) == (1, "")
        assert str(missing) in result.stderr


# --- moves ----------------------------------------------------------------------------------------


def test_a_move_goes_its_way(timed_tracker):
    timed_tracker.run("claim", "create", timed_tracker.file(claim_body(timed_tracker.host, "i1")))
    made = timed_tracker.run(
        "migrate", "claim", timed_tracker.file(move_body(timed_tracker.host, "i1", "resize", F3))
    )
    assert (made.code, made.stderr) == (0, "")
    lines = made.stdout.splitlines()
    assert lines[:2] == [
        f"{MOVE}  resize  pre-migrating",
        f"  instance {guest('i1')} · HA → HA · flavor f1 → f3",
    ]
    assert f"  {CLAIM}  held  instance, the old half" in lines
    assert f"  {MOVE}  held  move, the new half" in lines
    assert timed_tracker.run("migrations").stdout.splitlines() == lines[:2]
    for word, status in (("finish", "finished"), ("confirm", "confirmed")):
        move = timed_tracker.run("migrate", word, MOVE, "--format", "json").json["move"]
        assert (move["migration"]["status"], move["repeated"]) == (status, False)
        assert (
            timed_tracker.run("migrate", word, MOVE).stdout.splitlines()[-1]
            == "it was done before; nothing has changed"
        )
    assert timed_tracker.run("migrations").stdout == "no migrations\n"
    assert [
        one["uuid"]
        for one in timed_tracker.run("migrations", "--all", "--format", "json").json["migrations"]
    ] == [MOVE]


@pytest.mark.parametrize(("word", "status"), [("abort", "cancelled"), ("revert", "reverted")])
def test_a_move_is_taken_back(timed_tracker, word, status):
    timed_tracker.run("claim", "create", timed_tracker.file(claim_body(timed_tracker.host, "i1")))
    timed_tracker.run(
        "migrate", "claim", timed_tracker.file(move_body(timed_tracker.host, "i1", "resize", F3))
    )
    if word == "revert":
        timed_tracker.run("migrate", "finish", MOVE)
        assert (
            error_of(timed_tracker.run("migrate", "revert", MOVE, "--format", "json"))["code"]
            == "state.wrong"
        )
        timed_tracker.host.update("i1", task_state="resize_reverting")
    assert (
        timed_tracker.run("migrate", word, MOVE, "--format", "json").json["move"]["migration"][
            "status"
        ]
        == status
    )
    assert timed_tracker.host.usage == "2560/2/22528"


# --- lists ----------------------------------------------------------------------------------------


def test_claims_are_listed_by_the_agent_and_from_the_store(timed_tracker):
    for name in ("i1", "i2"):
        timed_tracker.host.claim(name, F1)
    shown = timed_tracker.run("claims")
    assert (shown.code, len(shown.stdout.splitlines())) == (0, 6)
    offline = timed_tracker.run("claims", "--offline")
    assert offline.stdout.splitlines() == [
        "the daemon was not asked; this is what the store knows",
        *shown.stdout.splitlines(),
    ]
    listed = timed_tracker.run("claims", "--instance", guest("i1"), "--format", "json").json
    assert (listed["schema"], listed["source"], [one["id"] for one in listed["claims"]]) == (
        "compute-node-agent/claims/1",
        "daemon",
        [CLAIM],
    )
    timed_tracker.alone()
    assert timed_tracker.run("claims", "--instance", guest("i1"), "--format", "json").json == {
        **listed,
        "source": "store",
    }
    assert (
        timed_tracker.run("claim", "show", CLAIM, "--format", "json").json["claim"]
        == listed["claims"][0]
    )


@pytest.mark.parametrize("asked", [(), ("--offline",)], ids=["the agent", "the store"])
def test_claims_of_an_instance_that_has_none_are_an_error_that_says_where_the_others_are(
    timed_tracker, asked
):
    assert timed_tracker.run("claims", *asked).code == 0
    for name in ("i1", "i2"):
        timed_tracker.host.claim(name, F1)
    timed_tracker.host.abort("i2")
    for name in ("i2", "i9"):
        refused = timed_tracker.run("claims", "--instance", guest(name), *asked)
        assert (refused.code, refused.stdout) == (1, "")
        assert f"--instance {guest(name)}: this instance has no open claim" in refused.stderr
        assert "see the open claims" in refused.stderr
        error = error_of(
            timed_tracker.run("claims", "--instance", guest(name), *asked, "--format", "json")
        )
        assert (error["code"], error["remedy"]) == (
            "config.invalid",
            "see the open claims, with their instances: agent claims",
        )
    assert timed_tracker.run("claims", "--instance", guest("i1"), *asked).code == 0


def test_what_changes_something_needs_an_agent(timed_tracker):
    timed_tracker.host.claim("i1", F1)
    timed_tracker.alone()
    for words in (
        ("claim", "abort", CLAIM),
        ("migrate", "finish", MOVE),
        ("claim", "create", timed_tracker.file(claim_body(timed_tracker.host, "i2"))),
    ):
        assert error_of(timed_tracker.run(*words, "--format", "json"))["code"] == "api.unreachable"
    assert timed_tracker.host.usage == "2560/2/22528"


def test_more_claims_than_a_page_are_all_listed(timed_tracker, monkeypatch):
    monkeypatch.setattr("agent.api.record_views.PAGE", 2)
    for number in range(5):
        timed_tracker.host.claim(f"i{number}", F1)
    for words in ((), ("--offline",)):
        assert len(timed_tracker.run("claims", "--format", "json", *words).json["claims"]) == 5


def test_a_record_that_makes_no_sense_is_named_and_the_others_are_listed(timed_tracker):
    for name in ("i1", "i2"):
        timed_tracker.host.claim(name, F1)
    with timed_tracker.site.world.store.writing() as connection:
        connection.exec_driver_sql("UPDATE claim SET cells = 'nonsense' WHERE id = ?", (CLAIM,))
    result = timed_tracker.run("claims")
    assert (
        result.code,
        len([line for line in result.stdout.splitlines() if line.startswith("  instance")]),
    ) == (3, 1)
    assert f"claim {CLAIM}" in result.stdout
    (error,) = timed_tracker.run("claims", "--format", "json").json["errors"]
    assert error["code"] == "record.damaged"


def test_without_records_there_is_nothing_to_list(timed_tracker):
    assert [timed_tracker.run(name).stdout for name in ("claims", "migrations")] == [
        "no claims\n",
        "no migrations\n",
    ]


# --- resources ------------------------------------------------------------------------------------


def test_resources_are_shown_by_the_agent_and_from_the_store(timed_tracker):
    timed_tracker.host.claim("i1", F1)
    shown = timed_tracker.run("resources")
    assert shown.code == 0
    assert shown.stdout.splitlines() == [
        f"HA  in-sync  {timed_tracker.host.node}",
        "  not in Placement yet",
        "  on record    used    total  reserved     free",
        "  CPUs            1       32         1       30",
        "  memory MiB   2048    65536       512    62976",
        "  disk MiB    20480  1024000      2048  1001472",
        "  devices: 5 available",
        "  units: 0 of 2 held",
        "  1 instance, 1 claim, 0 migrations",
        "  something has changed that is not in Placement yet",
    ]
    offline = timed_tracker.run("resources", "--offline").stdout.splitlines()
    assert offline == [
        "the daemon was not asked; this is what the store knows",
        f"HA  {timed_tracker.host.node}",
        *shown.stdout.splitlines()[1:],
    ]


def test_resources_show_cells_where_somebody_knows_them(tmp_path, site):
    hn = site.world.numa()
    timed_tracker = Desk(tmp_path / "cli", site, hn)
    hn.claim("n1", FN)
    assert (
        "  cell 0: 4096 of 16384 MiB, 0 guest CPUs on 0-3, pinned 4-5 of 4-7"
        in timed_tracker.run("resources").stdout.splitlines()
    )
    (node,) = timed_tracker.run("resources", "--offline", "--format", "json").json["resources"]
    assert (
        node["records"]["cells"],
        node["records"]["usage"]["memory_mb_used"],
        node["records"]["problems"],
    ) == ([], 4608, [])


@pytest.mark.parametrize("name", ["HA", "H*", uuid_of("HA")])
def test_a_node_is_chosen_by_name_or_uuid(timed_tracker, name):
    assert (
        len(timed_tracker.run("resources", "--node", name, "--format", "json").json["resources"])
        == 1
    )


def test_names_from_outside_are_escaped(timed_tracker):
    body: Body = claim_body(timed_tracker.host, "i1", instance=instance_body("i1"))
    timed_tracker.run("claim", "create", timed_tracker.file(body))
    with timed_tracker.site.world.store.writing() as connection:
        connection.exec_driver_sql(
            "UPDATE claim SET instance = instance, flavor_id = ? WHERE id = ?", ("f\x1b[31m", CLAIM)
        )
        connection.exec_driver_sql("UPDATE compute_node SET name = ?", ("HA\x1b[31m",))
    assert "\x1b" not in timed_tracker.run("resources", "--offline").stdout


# --- devices --------------------------------------------------------------------------------------


def test_a_device_is_told_to_be_clean(timed_tracker):
    for repeated in ([], ["it was done before; nothing has changed"]):
        if not repeated:
            timed_tracker.host.devices = tuple(
                replace(one, one_time_use=True)
                for one in timed_tracker.host.devices
                if one.address == GPUS[0]
            )
            timed_tracker.host.audit()
            timed_tracker.host.claim(
                "i1", F1, devices=(DeviceRequest("gpu", 1, {"address": GPUS[0]}),)
            )
            timed_tracker.host.tracker.abort(CLAIM)
        told = timed_tracker.run("pci", "cleaned", GPUS[0].upper())
        line = (
            f"device {GPUS[0]} of node HA ({timed_tracker.host.node}) is clean; guests can have "
            "it again"
        )
        assert (told.code, told.stdout.splitlines()) == (0, [line, *repeated])
    document = timed_tracker.run("pci", "cleaned", GPUS[0], "--format", "json").json
    assert (document["device"]["address"], document["device"]["repeated"]) == (GPUS[0], True)


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("0000:99:00.0",), 1, "no device 0000:99:00.0 on record"),
        (("gpu",), 1, "'gpu' is not a PCI address"),
        ((GPUS[0], "--node", "HA", "--node", "HB"), 1, "names several nodes"),
    ],
)
def test_only_a_device_that_is_there_is_told_to_be_clean(words, code, error, timed_tracker):
    told = timed_tracker.run("pci", "cleaned", *words)
    assert (told.code, error in told.stderr) == (code, True)
