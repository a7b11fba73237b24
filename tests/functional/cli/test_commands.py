"""The commands and flags of the command line, its exit codes, streams and lock."""

import os
import re
import resource
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.cli.folder import all_of
from tests.functional.cli.refusals import DOCUMENT, refused, the_only
from tests.functional.cli.setups import from_file, host_file, merged, on
from tests.support import faults
from tests.support.agent import total
from tests.support.http_placement import HttpPlacement
from tests.support.proxy import FaultProxy
from tests.support.system import AgentCommand, AgentHere, Result
from tests.support.terminal import on_a_terminal

UUID = "0d4f1d6a-5e0d-4a5e-9c4e-6f9b3a0f7f1c"
ESCAPE = "\x1b["
BLADES = [{"name": f"blade-{number}", "memory_mib": 1024} for number in (1, 2, 3)]


def inventories(placement: HttpPlacement) -> dict[str, Any]:
    return {one["name"]: one["inventories"] for one in placement.dump()["providers"].values()}


def only_node(result: Result) -> dict[str, Any]:
    (node,) = result.json["nodes"]
    found: dict[str, Any] = node
    return found


@pytest.fixture
def blades(http_placement: HttpPlacement, tmp_path: Path) -> AgentHere:
    return from_file(http_placement, tmp_path / "agent", {"nodes": BLADES})


@pytest.fixture
def embedded(tmp_path: Path) -> AgentCommand:
    """An agent without credentials, in a process of its own."""
    return AgentCommand(
        tmp_path / "agent",
        {
            "DEFAULT": {
                "compute_driver": "fake.numa",
                "host": "node-a",
                "state_path": "/nonexistent",
            }
        },
    )


# --- the first steps ------------------------------------------------------------------------------


def test_without_credentials_the_first_line_names_the_embedded_placement_and_the_second_run_asks_once(
    embedded: AgentCommand,
) -> None:
    first = embedded.run("--once")
    assert (first.code, first.stderr) == (0, "")
    using = f"using the embedded Placement in {embedded.store / 'placement.sqlite'}"
    assert first.stdout.splitlines()[0] == f"{using}, which was empty"
    assert "✓ node-a  changed" in first.stdout
    assert embedded.run("--once").stdout.splitlines()[0] == using
    second = embedded.run("--once", "--format", "json")
    assert (second.code, second.stderr) == (0, "")
    assert second.json["placement"] == {
        "mode": "embedded",
        "endpoint": "http://placement.embedded",
        "max_version": "1.39",
    }
    node = only_node(second)
    assert (
        node["state"],
        node["operations"],
        node["requests"]["total"],
        second.json["requests"]["total"],
    ) == ("in-sync", [], 1, 0)


def test_without_any_configuration_this_very_machine_is_audited(tmp_path: Path) -> None:
    agent = AgentCommand(tmp_path / "agent")
    result = agent.run("--once", "--host", "here")
    assert result.code == 0, result
    chosen, using = result.stdout.splitlines()[0].split("; ")
    assert chosen == "no [DEFAULT] compute_driver set: auditing this machine with the driver host"
    assert using.startswith("using the embedded Placement in")
    document = agent.run("--once", "--host", "here", "--format", "json")
    online = os.sysconf("SC_NPROCESSORS_ONLN")
    assert only_node(document)["tree"][0]["inventories"]["VCPU"]["total"] == online
    assert (only_node(document)["driver"], only_node(document)["operations"]) == ("host", [])


def test_the_report_has_every_key_of_its_contract(agent: AgentHere) -> None:
    document = agent.run("--once", "--format", "json").json
    assert tuple(document) == DOCUMENT
    assert document["schema"] == "compute-node-agent/report/1"
    assert document["agent"].keys() == {"version", "host"}
    assert document["placement"].keys() == {"mode", "endpoint", "max_version"}
    (node,) = document["nodes"]
    assert list(node) == [
        "name",
        "uuid",
        "driver",
        "state",
        "attempts",
        "operations",
        "drift",
        "tree",
        "usage",
        "requests",
        "seconds",
        "errors",
    ]
    assert {tuple(one) for one in node["operations"]} == {
        ("op", "provider", "before", "after", "reason", "status", "error")
    }
    assert {tuple(row) for row in node["tree"]} == {
        ("uuid", "name", "parent", "generation", "inventories", "traits", "aggregates", "owned")
    }
    assert node["tree"][0]["inventories"]["VCPU"] == {
        **total(64, allocation_ratio=4.0),
        "used": None,
        "in_placement": 0,
    }
    assert node["usage"].keys() == {
        "vcpus_used",
        "memory_mb_used",
        "disk_mb_used",
        "instances",
        "claims",
        "migrations",
    }
    for counted in (node["requests"], document["requests"]):
        assert list(counted) == ["total", "GET", "POST", "PUT", "DELETE"]
        assert counted["total"] == sum(
            counted[method] for method in ("GET", "POST", "PUT", "DELETE")
        )
    assert node["seconds"].keys() == {"facts", "usage", "tree", "plan", "flush", "total"}


def test_requests_are_counted_as_placement_counts_them(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    document = agent.run("--once", "--format", "json").json
    told = {
        method: document["requests"][method] + document["nodes"][0]["requests"][method]
        for method in ("GET", "POST", "PUT", "DELETE")
    }
    assert told == {method: http_placement.count(method) for method in told}


# --- flags of an audit ----------------------------------------------------------------------------


def test_named_nodes_alone_are_audited(blades: AgentHere, http_placement: HttpPlacement) -> None:
    for names, found in [
        (["blade-2"], {"blade-2"}),
        (["blade-[13]"], {"blade-1", "blade-2", "blade-3"}),
    ]:
        result = blades.run("--once", *(word for name in names for word in ("--node", name)))
        assert result.code == 0
        assert set(inventories(http_placement)) == found


def test_a_node_that_is_unknown(blades: AgentHere, http_placement: HttpPlacement) -> None:
    problem = the_only(blades.run("--once", "--node", "nobody", "--format", "json").json["errors"])
    assert problem["message"] == "--node nobody: the driver fake.file has no such node"
    assert problem["remedy"] == "it has blade-1, blade-2, blade-3"
    assert inventories(http_placement) == {}
    both = blades.run("--once", "--node", "nobody", "--node", "blade-1")
    assert (both.code, set(inventories(http_placement))) == (3, {"blade-1"})


def test_a_named_node_does_not_take_the_others_away(
    blades: AgentHere, http_placement: HttpPlacement
) -> None:
    assert blades.run("--once").code == 0
    host_file(blades, {"nodes": BLADES[:2]})
    assert blades.run("--once", "--node", "blade-1").code == 0
    assert set(inventories(http_placement)) == {"blade-1", "blade-2", "blade-3"}
    assert blades.run("--once").code == 0
    assert set(inventories(http_placement)) == {"blade-1", "blade-2"}


def test_an_existing_tree_is_adopted_only_when_asked(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    other = http_placement.other
    root = other.create_provider("node-a")
    other.set_inventory(root, {"VCPU": 64, "MEMORY_MB": 1, "PCPU": 4, "CUSTOM_GOLD": 1})
    other.set_traits(root, ["CUSTOM_RACK7"])
    other.set_inventory(other.create_provider("node-a_NUMA7", parent=root), {"PCPU": 4})
    network = other.create_provider("network agent", parent=root)
    agent.store.mkdir()
    (agent.store / "compute_id").write_text(root)
    agent.configure(on(http_placement, "fake.small", {"compute": {"tree_layout": "flat"}}))
    first = agent.run("--once", "--format", "json", "--detailed-exitcode")
    assert first.code == 2
    assert {(one["kind"], one["severity"]) for one in only_node(first)["drift"]} >= {
        ("adoption-needed", "warning"),
        ("foreign-provider", "info"),
    }
    remedies = {one["remedy"] for one in only_node(first)["drift"]}
    assert "take the tree over: agent --once --adopt" in remedies
    assert "PCPU" in inventories(http_placement)["node-a"]
    # In sync, but the warning stands until somebody decides.
    second = agent.run("--once", "--detailed-exitcode", "--format", "json")
    assert (second.code, only_node(second)["state"]) == (2, "in-sync")
    assert agent.run("--once").code == 0
    assert agent.run("--once", "--adopt").code == 0
    assert set(inventories(http_placement)["node-a"]) == {
        "VCPU",
        "MEMORY_MB",
        "DISK_GB",
        "CUSTOM_GOLD",
    }
    assert "CUSTOM_RACK7" in other.traits(root)
    assert other.provider(network)["parent_provider_uuid"] == root
    third = agent.run("--once", "--detailed-exitcode", "--format", "json")
    assert "adoption-needed" not in {one["kind"] for one in only_node(third)["drift"]}


def test_reading_again_finds_what_no_generation_shows(
    agent: AgentHere, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    """A database from a backup, in which other contents have the same generation."""
    agent.configure(on(http_placement, "fake.small"))
    assert agent.run("--once").code == 0
    (root,) = http_placement.dump()["providers"]
    other = http_placement.other
    http_placement.save(tmp_path / "backup")
    other.set_inventory(root, {**other.inventory(root), "VCPU": 7})
    agent.run("--once")
    http_placement.restore(tmp_path / "backup")
    for total_of_others in (9, 1):
        other.set_inventory(root, {**other.inventory(root), "VCPU": total_of_others})
    assert only_node(agent.run("--once", "--format", "json"))["operations"] == []
    http_placement.clear()
    reread = agent.run("--once", "--reread", "--format", "json")
    assert [one["op"] for one in only_node(reread)["operations"]] == ["set-inventory"]
    assert inventories(http_placement)["node-a"]["VCPU"]["total"] == 2
    assert http_placement.count("GET") == 1 + 1 + 3


def test_usages_are_asked_for_on_request(agent: AgentHere, http_placement: HttpPlacement) -> None:
    agent.configure(on(http_placement, "fake.medium_nested"))
    assert agent.run("--once").code == 0
    uuids = {one["name"]: uuid for uuid, one in http_placement.dump()["providers"].items()}
    http_placement.other.claim(
        {
            uuids["node-a"]: {"VCPU": 3, "MEMORY_MB": 1000},
            uuids["node-a-child"]: {"CUSTOM_MAGIC": 4},
        }
    )
    agent.run("--once")
    http_placement.clear()
    result = agent.run("--once", "--with-usages", "--format", "json")
    used = {
        row["name"]: {name: record["in_placement"] for name, record in row["inventories"].items()}
        for row in only_node(result)["tree"]
    }
    assert used == {
        "node-a": {"VCPU": 3, "MEMORY_MB": 1000, "DISK_GB": 0},
        "node-a-child": {"CUSTOM_MAGIC": 4},
    }
    assert http_placement.count() == 1 + 2
    text = agent.run("--once", "--with-usages").stdout
    assert re.search(r"VCPU +3 +10 ", text)
    without = agent.run("--once", "--format", "json")
    assert {
        record["used"]
        for row in only_node(without)["tree"]
        for record in row["inventories"].values()
    } == {None}


# --- exit codes -----------------------------------------------------------------------------------


@pytest.mark.long
def test_exit_codes(blades: AgentHere, http_placement: HttpPlacement, proxy: FaultProxy) -> None:
    assert blades.run("--once", "--detailed-exitcode").code == 2
    assert blades.run("--once", "--detailed-exitcode").code == 0
    host_file(blades, {"nodes": [{**blade, "memory_mib": 2048} for blade in BLADES]})
    assert blades.run("--once", "--dry-run").code == 0
    assert blades.run("--once", "--dry-run", "--detailed-exitcode").code == 2
    # One of three fails, then all of them.
    (second,) = [
        uuid for uuid, one in http_placement.dump()["providers"].items() if one["name"] == "blade-2"
    ]
    failing = ("--placement-endpoint", proxy.url)
    assert blades.run("--once", *failing).code == 0
    host_file(blades, {"nodes": BLADES})
    proxy.faults.add(faults.answer(500), method="PUT", path=second, times=None)
    partly = blades.run("--once", *failing, "--format", "json", "--detailed-exitcode")
    assert partly.code == partly.json["exit_code"] == 3
    assert {node["name"]: node["state"] for node in partly.json["nodes"]} == {
        "blade-1": "changed",
        "blade-2": "degraded",
        "blade-3": "changed",
    }
    assert blades.run("--once", *failing, "--node", "blade-2").code == 1
    proxy.faults.clear()
    proxy.faults.add(faults.answer(503), times=None)
    assert blades.run("--once", *failing, "--detailed-exitcode").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nonsense"],
        ["nonsense"],
        ["--once", "tree"],
        ["--dry-run"],
        ["tree", "--adopt"],
        ["--once", "--format", "xml"],
        ["config"],
        ["--once", "--node"],
        ["identity", "show", "--node", "x"],
        ["--once", "--dryrun"],
        ["allocation", "show"],
        ["decommission"],
        ["candidates", "--once"],
        ["claim", "abort"],
        ["claims", "x"],
        ["migrate", "away", "x"],
        ["--report", "nodes.html"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_64_and_touches_nothing(
    agent: AgentHere, http_placement: HttpPlacement, arguments: list[str]
) -> None:
    before = all_of(agent.folder)
    text = agent.run(*arguments)
    assert (text.code, text.stdout) == (64, "")
    assert "usage: agent" in text.stderr or text.stderr.startswith("✗ did you mean ")
    document = agent.run(
        *arguments, *(["--format", "json"] if "--format" not in arguments else ["--format=json"])
    )
    assert (document.code, the_only(document.json["errors"])["code"]) == (64, "usage.invalid")
    assert all_of(agent.folder) == before
    assert http_placement.requests == []


# --- other commands -------------------------------------------------------------------------------


def test_the_tree_is_that_of_the_store_and_needs_no_placement(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert agent.run("--once").code == 0
    foreign = http_placement.other.create_provider(
        "network agent", parent=next(iter(http_placement.dump()["providers"]))
    )
    agent.run("--once")
    before = all_of(agent.folder)
    http_placement.clear()
    text = agent.run("tree")
    assert (text.code, text.stderr) == (0, "")
    assert text.stdout.startswith(f"node-a as last seen at {http_placement.url}\n")
    assert "├─ node-a_NUMA0" in text.stdout
    document = agent.run("tree", "--offline", "--node", "node-*", "--format", "json").json
    rows = only_node_of(document)["tree"]
    assert {row["name"] for row in rows} == {
        one["name"] for one in http_placement.dump()["providers"].values()
    }
    assert [row["uuid"] for row in rows if not row["owned"]] == [foreign]
    assert http_placement.requests == []
    assert all_of(agent.folder) == before
    assert agent.run("tree", "--node", "other").code == 1


def only_node_of(document: dict[str, Any]) -> dict[str, Any]:
    (node,) = document["nodes"]
    found: dict[str, Any] = node
    return found


def test_commands_before_the_first_run_say_what_makes_what_they_miss(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    for command in (("tree",), ("identity", "show")):
        problem = the_only(refused(agent, http_placement, command=command))
        assert "agent --once" in problem["remedy"]
    assert not agent.store.exists()
    assert http_placement.requests == []


def test_the_identity_is_shown_from_wherever_it_is(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    nova = agent.folder / "nova"
    nova.mkdir()
    (nova / "compute_id").write_text(UUID.upper())
    shown = agent.run("identity", "show", "--state_path", str(nova))
    assert (shown.code, shown.stdout) == (
        0,
        f"{UUID}\nnova's compute_id: {nova / 'compute_id'}\n",
    )
    assert not agent.store.exists()
    assert agent.run("--once", "--state_path", str(nova)).code == 0
    assert (agent.store / "compute_id").read_text() == f"{UUID}\n"
    (nova / "compute_id").unlink()
    document = agent.run("identity", "show", "--format", "json").json
    assert (document["host"], document["uuid"], document["exit_code"]) == ("node-a", UUID, 0)
    assert (document["source"], document["place"]) == ("store", str(agent.store / "compute_id"))
    (agent.store / "compute_id").unlink()
    assert agent.run("identity", "show").stdout.startswith(f"{UUID}\n"), "the database knows it too"
    # A lost file is written again.
    assert agent.run("--once").code == 0
    assert (agent.store / "compute_id").read_text() == f"{UUID}\n"


def rows(database: Path) -> list[str]:
    """All that is in a database; its header changes with each opening."""
    with closing(sqlite3.connect(database)) as opened:
        return [*opened.iterdump()]


def test_the_store_is_made_and_brought_up_to_date(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    made = agent.run("db", "upgrade")
    assert made.code == 0
    assert str(agent.store / "database/store.sqlite") in made.stdout
    before = rows(agent.store / "database/store.sqlite")
    again = agent.run("db", "upgrade", "--format", "json")
    assert (again.code, again.json["errors"]) == (0, [])
    assert rows(agent.store / "database/store.sqlite") == before
    assert agent.run("--once").code == 0
    assert http_placement.count("POST") == 5


def test_a_check_says_what_a_daemon_lacks_that_a_single_audit_does_not(
    agent: AgentHere,
) -> None:
    agent.config_file.write_text(f"[store]\npath = {agent.store}\n")
    checked = agent.run("config", "check")
    assert checked.code == 0
    lacks = "warning: enough for agent --once, not for the daemon: no"
    driver, credentials = checked.stdout.splitlines()[:2]
    assert driver == f"{lacks} [DEFAULT] compute_driver, unless libvirt answers"
    assert credentials.startswith(f"{lacks} credentials in section [placement]: set auth_type")
    # What only observes needs them for a single audit too.
    with agent.config_file.open("a") as config:
        config.write("[DEFAULT]\nmode = observe\n")
    checked = agent.run("config", "check")
    assert (checked.code, "enough for" in checked.stdout) == (1, False)
    assert "nothing is there to be observed" in checked.stderr


def test_a_configuration_that_is_right(agent: AgentHere, http_placement: HttpPlacement) -> None:
    text = agent.run("config", "check")
    assert (text.code, text.stdout) == (0, f"nothing wrong in {agent.config_file}\n")
    assert agent.run("config", "check", "--format", "json").json == {
        "schema": "compute-node-agent/config-check/1",
        "files": [str(agent.config_file)],
        "errors": [],
        "warnings": [],
        "problems": [],
        "exit_code": 0,
    }
    assert not agent.store.exists()
    assert http_placement.requests == []


def test_yaml_and_json_are_the_same_document_and_a_table_has_a_line_for_each_node(
    blades: AgentHere,
) -> None:
    assert blades.run("--once").code == 0
    for arguments in (
        ["tree", "--offline"],
        ["resources", "--offline"],
        ["identity", "show"],
        ["tree", "--node", "nobody"],
        ["--nonsense"],
    ):
        document, shown = (
            blades.run(*arguments, "--format", "json"),
            blades.run(*arguments, "--format", "yaml"),
        )
        assert (shown.code, shown.stderr.splitlines()[:1]) == (
            document.code,
            document.stderr.splitlines()[:1],
        )
        assert yaml.safe_load(shown.stdout) == document.json


def test_help_and_version(agent: AgentHere) -> None:
    with pytest.raises(SystemExit) as ended:
        agent.run("--help")
    assert ended.value.code == 0
    begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    shown = AgentCommand(agent.folder).run("--once", "--version")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun < 2, (
        "nothing heavy is imported for that"
    )
    assert re.fullmatch(r"agent \d+\.\d+.*\n", shown.stdout)


# --- the lock -------------------------------------------------------------------------------------


def test_one_run_at_a_time(
    agent: AgentHere, http_placement: HttpPlacement, proxy: FaultProxy
) -> None:
    assert agent.run("--once").code == 0
    proxy.faults.add(faults.read_timeout(), times=None)
    first = AgentCommand(
        agent.folder, on(http_placement, "fake.numa", {"placement": {"endpoint": proxy.url}})
    )
    with first.started("--once") as process:
        while not proxy.requests:
            assert process.poll() is None
            time.sleep(0.02)
        agent.configure(on(http_placement))
        for arguments in (["--once"], ["--once", "--adopt"], ["db", "upgrade"]):
            problem = the_only(agent.run(*arguments, "--format", "json").json["errors"])
            assert problem["code"] == "store.locked"
            assert (
                f"[store] path {agent.store} is in use by another run of the agent, pid "
                f"{process.pid}"
            ) in problem["message"]
            assert "agent status" in problem["remedy"]
        # Whoever only looks is not kept waiting.
        for arguments in (["--once", "--dry-run"], ["tree"], ["identity", "show"]):
            assert agent.run(*arguments).code == 0
        process.kill()
        process.wait()
    assert agent.run("--once").code == 0


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.long
def test_colours_are_for_terminals_that_want_them(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert agent.run("--once").code == 0
    assert ESCAPE in on_a_terminal(agent, "tree")
    assert ESCAPE not in on_a_terminal(agent, "tree", NO_COLOR="1")
    assert (
        ESCAPE not in agent.run("tree", env={"FORCE_COLOR": "1", "TERM": "xterm-256color"}).stdout
    )


def test_the_log_is_on_stderr_and_only_warnings_without_debug(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    quiet = agent.run("--once", "--format", "json")
    assert (quiet.code, quiet.stderr) == (0, "")
    loud = agent.run("--once", "--format", "json", "--debug", "--reread")
    assert loud.json["exit_code"] == 0
    assert "placement GET /resource_providers" in loud.stderr
    assert "a-token" not in loud.stderr + loud.stdout


def test_a_reader_that_goes_away_is_no_error(agent: AgentHere) -> None:
    assert agent.run("--once").code == 0
    with AgentCommand(agent.folder).started("tree") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait() == 0


# --- other people's configuration -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelling", "driver", "vcpus"),
    [
        ("fake.SmallFakeDriver", "fake.small", 2),
        ("fake.FakeDriver", "fake", 1000),
        ("fake.MediumFakeDriverWithNestedCustomResources", "fake.medium_nested", 10),
    ],
)
def test_drivers_may_be_spelled_as_in_nova(
    agent: AgentHere, http_placement: HttpPlacement, spelling: str, driver: str, vcpus: int
) -> None:
    agent.configure(merged(on(http_placement), {"DEFAULT": {"compute_driver": spelling}}))
    result = agent.run("--once", "--format", "json")
    assert (result.code, only_node(result)["driver"]) == (0, driver)
    assert inventories(http_placement)["node-a"]["VCPU"]["total"] == vcpus
