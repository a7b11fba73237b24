"""Who this host is: which uuid it has, and the way back to the provider that Placement has."""

import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.refusals import contents, the_only
from tests.functional.cli.setups import from_file, on, towards
from tests.support import faults
from tests.support.http_placement import HttpPlacement
from tests.support.placement import Placement
from tests.support.proxy import FaultProxy
from tests.support.service_manager import until
from tests.support.system import AgentCommand, AgentHere

GUEST = "7f0c44c1-3f0a-4a68-9a4d-6f6a6e1b2d11"
NAMED = re.compile(r"agent (identity set [0-9a-f-]+)")
HOST = {"cpu": {"online": "0-7"}, "memory_mib": 16384, "disk_gib": 100}


def node_of(agent: AgentCommand, *arguments: str) -> Mapping[str, Any]:
    (node,) = agent.run("--once", "--format", "json", *arguments).json["nodes"]
    found: Mapping[str, Any] = node
    return found


def root(placement: HttpPlacement, name: str = "node-a") -> str:
    (found,) = [uuid for uuid, one in placement.dump()["providers"].items() if one["name"] == name]
    return str(found)


def conflict(node: Mapping[str, Any]) -> dict[str, Any]:
    problem = the_only(node["errors"])
    assert problem["code"] == "placement.name-conflict"
    return problem


def take_over(agent: AgentCommand, problem: Mapping[str, str]) -> str:
    """Do what the remedy names. Return what it said."""
    command = NAMED.search(problem["remedy"])
    assert command is not None, problem
    done = agent.run(*command[1].split())
    assert done.code == 0, done
    return done.stdout


@pytest.fixture
def lost(agent: AgentHere, http_placement: HttpPlacement) -> AgentHere:
    """A host with a guest, whose store was lost."""
    assert agent.run("--once").code == 0
    http_placement.other.claim({root(http_placement): {"DISK_GB": 10}}, GUEST)
    shutil.rmtree(agent.store)
    return agent


@pytest.mark.parametrize("state", ["never run", "dry run", "run twice", "observed"])
def test_a_lost_identity_is_taken_over_with_the_command_that_the_conflict_names(
    lost: AgentHere, http_placement: HttpPlacement, state: str
) -> None:
    holder, before = root(http_placement), http_placement.dump()
    assert "openstack resource provider list --name node-a" in lost.run("identity", "show").stderr
    arguments = {"dry run": ["--dry-run"], "observed": ["--observe"]}.get(state, [])
    for _ in range({"never run": 0, "run twice": 2}.get(state, 1)):
        http_placement.clear()
        node = node_of(lost, *arguments)
        problem = conflict(node)
        assert (
            f"held by provider {holder} in Placement; consumers with allocations on it: 1, "
            in (problem["message"])
        )
        assert "providers below it: 4" in problem["message"]
        assert node["attempts"] == 1
        assert len(http_placement.requests) <= 10
    assert http_placement.dump() == before
    if state in ("never run", "dry run"):
        assert not lost.store.exists()
        problem = {"remedy": f"agent identity set {holder}"}
    assert take_over(lost, problem).endswith("\nPlacement has it as 'node-a'\n")
    assert lost.run("identity", "show").stdout.splitlines() == [
        holder,
        f"the agent's store: {lost.store / 'compute_id'}",
    ]
    # Nothing of the host's own is called somebody else's, whose remedy would take it away.
    waiting = node_of(lost, "--dry-run")
    assert "foreign-provider" not in {drift["kind"] for drift in waiting["drift"]}
    # And nothing of it is said to go.
    assert "in Placement again" not in lost.run("--once", "--observe").stderr
    done = lost.run("--once", "--adopt", "--format", "json")
    (taken,) = done.json["nodes"]
    assert (taken["uuid"], taken["errors"]) == (holder, [])
    assert "in Placement again" not in done.stderr
    assert node_of(lost)["state"] == "in-sync"
    assert set(http_placement.dump()["providers"]) == set(before["providers"])
    assert http_placement.dump()["consumers"] == before["consumers"]


def test_an_identity_that_was_made_up_yields_to_novas_that_appears_later(
    lost: AgentHere, http_placement: HttpPlacement
) -> None:
    holder = root(http_placement)
    conflict(node_of(lost))
    assert "made up by the agent" in lost.run("identity", "show").stdout
    nova = lost.folder / "nova"
    nova.mkdir()
    (nova / "compute_id").write_text(holder)
    node = node_of(lost, "--state_path", str(nova), "--adopt")
    assert (node["uuid"], node["errors"]) == (holder, [])
    assert list(contents(lost.store)) == ["compute_id", "database/store.sqlite"]


def test_a_final_identity_of_an_earlier_release_yields_too(
    lost: AgentHere, http_placement: HttpPlacement
) -> None:
    """It wrote the file before Placement accepted the name, and a copy of it into the database."""
    assert lost.run("db", "upgrade").code == 0
    (lost.store / "compute_id").write_text(f"{uuid.uuid4()}\n")
    take_over(lost, conflict(node_of(lost)))
    assert node_of(lost, "--adopt")["uuid"] == root(http_placement)


def test_where_nova_says_who_the_host_is_its_file_is_to_be_written(
    lost: AgentHere, http_placement: HttpPlacement
) -> None:
    holder, nova = root(http_placement), lost.folder / "nova"
    nova.mkdir()
    file = nova / "compute_id"
    file.write_text(str(uuid.uuid4()))
    state_path = ("--state_path", str(nova))
    node = node_of(lost, *state_path)
    assert f"write {holder} into {file}" in conflict(node)["remedy"]
    needed = f"the name 'node-a', needed by {file.read_text()}, is held by provider {holder}"
    assert conflict(node)["message"].startswith(needed)
    (nova / "nova.conf").write_text("[DEFAULT]\n")
    text = lost.run("--once", "--config-file", str(nova / "nova.conf")).stdout
    assert ("[placement.name-conflict]" in text, "found flat" in text) == (True, False)
    refused = lost.run("identity", "set", holder, *state_path)
    assert (refused.code, f"write {holder} into that file" in refused.stderr) == (1, True)
    file.write_text(holder)
    assert node_of(lost, *state_path, "--adopt")["errors"] == []
    assert lost.run("identity", "set", holder, *state_path).code == 0


def test_a_running_daemon_takes_the_provider_over_when_the_command_is_given(
    lost: AgentHere, http_placement: HttpPlacement
) -> None:
    holder, daemon = root(http_placement), AgentCommand(lost.folder)
    daemon.configure(on(http_placement))

    def node() -> dict[str, Any]:
        shown = lost.run("drift", "--format", "json")
        nodes = shown.json["nodes"] if shown.code == 0 else []
        return nodes[0] if nodes and nodes[0]["errors"] is not None else {}

    with daemon.started() as process:
        told = until(lambda: node().get("errors"))
        assert "the daemon reloaded" in take_over(lost, the_only(told))
        until(lambda: node().get("uuid") == holder and node().get("errors") == [])
        assert process.poll() is None
    assert (lost.store / "compute_id").read_text().strip() == holder


@pytest.mark.parametrize("fault", ["before", "after", "no Placement"])
def test_what_ends_between_the_proposal_and_the_root_leaves_no_conflict_with_oneself(
    http_placement: HttpPlacement, proxy: FaultProxy, tmp_path: Path, fault: str
) -> None:
    agent = AgentHere(tmp_path / "agent", on(http_placement, "fake.small"))
    agent.configure({**on(http_placement, "fake.small"), **towards(http_placement, proxy.url)})
    proxy.faults.add(faults.cut(applied=fault == "after"), method="POST", times=None)
    nowhere = ["--placement-endpoint", "http://127.0.0.1:1/"] if fault == "no Placement" else []
    first = agent.run("--once", *nowhere)
    proposed = agent.store / ("compute_id" if first.code == 0 else "compute_id.proposed")
    # A lost answer is asked about within the run.
    assert (first.code == 0) == (fault == "after")
    made = proposed.read_text().strip()
    proxy.faults.clear()
    node = node_of(agent)
    assert (node["uuid"], node["errors"], root(http_placement)) == (made, [], made)
    assert list(contents(agent.store)) == ["compute_id", "database/store.sqlite"]
    assert node_of(agent)["state"] == "in-sync"


@pytest.mark.parametrize("applied", [False, True], ids=["not arrived", "applied"])
def test_a_run_that_is_killed_while_it_writes_the_root_is_finished_by_the_next_one(
    http_placement: HttpPlacement, proxy: FaultProxy, tmp_path: Path, *, applied: bool
) -> None:
    command = AgentCommand(tmp_path / "agent")
    command.configure({**on(http_placement, "fake.small"), **towards(http_placement, proxy.url)})
    with command.started("--once") as process:

        def kill(_exchange: Any) -> None:
            process.kill()
            process.wait()

        proxy.faults.add(replace(faults.cut(applied=applied), after=kill), method="POST")
        process.communicate(timeout=60)
    assert process.returncode == -9
    assert not (command.store / "compute_id").exists()
    proposed = (command.store / "compute_id.proposed").read_text().strip()
    assert list(http_placement.dump()["providers"]) == [proposed] * applied
    agent = AgentHere(command.folder, on(http_placement, "fake.small"))
    node = node_of(agent)
    assert (node["uuid"], node["errors"], root(http_placement)) == (proposed, [], proposed)
    assert node_of(agent)["state"] == "in-sync"


def test_a_copied_identity_is_given_up_with_the_command_that_the_conflict_names(
    agent: AgentHere, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    """A disk image of a host that ran before."""
    assert agent.run("--once").code == 0
    before = http_placement.dump()
    copy = AgentHere(tmp_path / "copy", on(http_placement, "fake.numa"))
    shutil.copytree(agent.store, copy.store)
    copy.configure(on(http_placement, "fake.numa", {"DEFAULT": {"host": "node-b"}}))
    problem = the_only(node_of(copy)["errors"])
    assert problem["code"] == "placement.identity-conflict"
    (made,) = re.findall(r"agent identity set \$\((cat \S+)\)", problem["remedy"])
    former = copy.run("identity", "show").stdout.split()[0]
    own = subprocess.run(made.split(), capture_output=True, text=True, check=True).stdout.strip()
    said = copy.run("identity", "set", own).stdout
    assert f"{own}, no longer {former}" in said
    assert "Placement has no provider with it yet" in said
    assert node_of(copy)["state"] == "changed"
    assert root(http_placement, "node-b") == own
    after = http_placement.dump()["providers"]
    assert {uuid: after[uuid] for uuid in before["providers"]} == before["providers"]
    assert [node_of(one)["state"] for one in (agent, copy)] == ["in-sync"] * 2


@pytest.mark.parametrize("lost", [False, True], ids=["with its store", "without its store"])
def test_a_host_that_got_the_compute_id_of_another_one_is_itself_again_by_what_is_told(
    agent: AgentHere, http_placement: HttpPlacement, tmp_path: Path, *, lost: bool
) -> None:
    assert agent.run("--once").code == 0
    other = AgentHere(tmp_path / "other")
    other.configure(on(http_placement, "fake.numa", {"DEFAULT": {"host": "node-b"}}))
    assert other.run("--once").code == 0
    theirs, mine = root(http_placement, "node-a"), root(http_placement, "node-b")
    for provider in (theirs, mine):
        http_placement.other.claim({provider: {"DISK_GB": 1}})
    before = http_placement.dump()
    if lost:
        shutil.rmtree(other.store)
        other.store.mkdir()
    (other.store / "compute_id").write_text(f"{theirs}\n")
    assert the_only(node_of(other)["errors"])["code"] == "placement.identity-conflict"
    # The wrong one of the remedies takes nothing from the other host, and leads back.
    refused = other.run("identity", "rename", "--format", "json").json["nodes"][0]["errors"][0]
    assert refused["remedy"].endswith(f"if it never was {theirs}: agent identity set {mine}")
    assert http_placement.dump() == before
    assert other.run("identity", "set", mine).code == 0
    assert (
        the_only(other.run("--once", "--adopt", "--format", "json").json["nodes"])["errors"] == []
    )
    after = http_placement.dump()
    assert after["consumers"] == before["consumers"]
    assert after["providers"].keys() == before["providers"].keys()
    assert after["providers"][theirs] == before["providers"][theirs]
    assert [node_of(one)["state"] for one in (agent, other)] == ["in-sync"] * 2


def test_two_hosts_with_one_name_are_two_once_one_is_renamed(
    agent: AgentHere, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    assert agent.run("--once").code == 0
    other = AgentHere(tmp_path / "other", on(http_placement))
    problem = conflict(node_of(other))
    assert "if they are two hosts: rename one of them" in problem["remedy"]
    proposed = (other.store / "compute_id.proposed").read_text().strip()
    other.configure(on(http_placement, "fake.numa", {"DEFAULT": {"host": "node-b"}}))
    assert node_of(other)["state"] == "changed"
    assert root(http_placement, "node-b") == proposed
    assert node_of(agent)["state"] == "in-sync"


def test_the_records_follow_the_identity(http_placement: HttpPlacement, tmp_path: Path) -> None:
    """The host ran with a Placement of its own at first, and guests were imported."""
    flavor = {"id": "1", "name": "small", "vcpus": 2, "memory_mb": 1024, "root_gb": 10}
    origin = {"flavor": flavor, "project_id": "project", "user_id": "user"}
    guest = {"uuid": GUEST, "name": "g", "vcpus": 2, "memory_mib": 1024, "origin": origin}
    agent = from_file(http_placement, tmp_path / "agent", {**HOST, "guests": [guest]})
    assert agent.run("guests", "import").code == 0
    old = agent.run("identity", "show").stdout.split()[0]
    holder = http_placement.other.create_provider("node-a")
    take_over(agent, conflict(node_of(agent)))
    planned = node_of(agent, "--dry-run")
    assert (planned["uuid"], planned["errors"]) == (holder, [])
    http_placement.clear()
    node = node_of(agent)
    assert node["usage"] == planned["usage"]
    assert [one["op"] for one in node["operations"]] == [one["op"] for one in planned["operations"]]
    assert (node["uuid"], node["errors"], node["usage"]["instances"]) == (holder, [], 1)
    (claim,) = agent.run("claims", "--format", "json").json["claims"]
    assert (claim["instance"], claim["node"]) == (GUEST, holder)
    assert node_of(agent)["requests"]["total"] <= 2
    # And back, as often as it is told.
    http_placement.other.delete_provider(holder)
    assert agent.run("identity", "set", old).code == 0
    assert node_of(agent)["uuid"] == old
    assert len(agent.run("claims", "--format", "json").json["claims"]) == 1


def test_novas_compute_id_is_looked_for_beside_each_configuration_file_and_then_in_state_path(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    nova, state = agent.folder / "etc" / "nova", agent.folder / "state"
    nova.mkdir(parents=True)
    state.mkdir()
    (nova / "nova.conf").write_text(f"[DEFAULT]\nstate_path = {state}\n")
    given, holder = ("--config-file", str(nova / "nova.conf")), str(uuid.uuid4())
    (nova / "compute_id").write_text(holder)
    shown = agent.run("identity", "show", *given).stdout.splitlines()
    assert shown == [holder, f"nova's compute_id: {nova / 'compute_id'}"]
    assert node_of(agent, *given, "--dry-run")["uuid"] == holder
    (state / "compute_id").write_text(other := str(uuid.uuid4()))
    refused = agent.run("--once", *given)
    assert refused.code == 1
    assert all(text in refused.stderr for text in (holder, other, "remove the file that is wrong"))
    # The remedy.
    (nova / "compute_id").unlink()
    assert node_of(agent, *given)["uuid"] == other


def test_a_node_of_a_backend_has_no_identity_to_set(
    http_placement: Placement, tmp_path: Path
) -> None:
    ironic = AgentHere(tmp_path / "ironic", on(http_placement, "ironic"))
    for words in (("identity", "show"), ("identity", "set", str(uuid.uuid4()))):
        refused = ironic.run(*words)
        assert (refused.code, "uuids of its backend" in refused.stderr) == (1, True)
    assert not ironic.store.exists()


def test_the_name_of_one_node_of_many_is_freed_by_the_command_that_is_named(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    blades = [{"name": f"blade-{number}", "memory_mib": 1024} for number in (1, 2)]
    agent = from_file(http_placement, tmp_path / "agent", {"nodes": blades})
    holder = http_placement.other.create_provider("blade-2")
    _, taken = agent.run("--once", "--format", "json").json["nodes"]
    problem = conflict(taken)
    assert f"openstack resource provider delete {holder}" in problem["remedy"]
    assert "identity" not in problem["remedy"]
    http_placement.other.delete_provider(holder)
    assert agent.run("--once").code == 0


@pytest.mark.parametrize("given", ["nonsense", "", "\x1b[31m"])
def test_what_is_no_uuid_is_not_set(agent: AgentHere, given: str) -> None:
    refused = agent.run("identity", "set", given)
    assert (refused.code, "is no uuid" in refused.stderr, "\x1b" in refused.stderr) == (
        1,
        True,
        False,
    )
    assert not agent.store.exists()
