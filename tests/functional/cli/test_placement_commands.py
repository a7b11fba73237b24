"""The commands of operators who work on Placement itself: what they do, what a dry run shows, and
how they fail.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from agent.model.node_records import RecordChanges
from agent.placement import exchange
from agent.store.records import Records
from agent.store.store import open_store
from tests.functional.cli.refusals import contents, the_only
from tests.functional.cli.setups import on
from tests.support import faults
from tests.support.exchange import traffic
from tests.support.http_placement import HttpPlacement
from tests.support.placement import PROJECT, USER
from tests.support.proxy import FaultProxy
from tests.support.system import AgentCommand, AgentHere
from tests.unit.store.record_samples import instance, write

R = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
PF0 = "5f9c2a34-7d1e-4a8b-9c46-0000000000f0"
H = "5f9c2a34-7d1e-4a8b-9c46-000000000002"
A = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11"
C = "c0000000-0000-4000-8000-00000000000c"
M = "c0000000-0000-4000-8000-0000000000aa"
NAMES = {R: "R", PF0: "PF0", H: "H", C: "c", M: "m"}
HELD = {R: {"VCPU": 2, "MEMORY_MB": 512}, PF0: {"SRIOV_NET_VF": 1}, H: {"VCPU": 1}}
KEYS = ("schema", "placement", "dry_run", "result", "writes", "requests", "errors", "exit_code")


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "REPETITION_WAITS", (0.0, 0.0, 0.0))


@pytest.fixture
def cloud(http_placement: HttpPlacement) -> HttpPlacement:
    """The nodes ``R x`` with a device and ``H``, and a consumer on both."""
    other = http_placement.other
    for uuid, name, parent, inventory in (
        (R, "R x", None, {"VCPU": 8, "PCPU": 4, "MEMORY_MB": 4096}),
        (PF0, "PF0", R, {"SRIOV_NET_VF": 4}),
        (H, "H", None, {"VCPU": 8}),
    ):
        other.create_provider(name, uuid, parent)
        other.set_inventory(uuid, inventory)
    other.claim(HELD, C)
    http_placement.clear()
    return http_placement


def done(agent: AgentCommand, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The document of a command that ends with ``code``."""
    result = agent.run(*arguments, "--format", "json")
    assert result.code == code, result
    document: dict[str, Any] = result.json
    assert tuple(document) == KEYS
    assert document["exit_code"] == code
    assert (
        document["schema"]
        == f"compute-node-agent/{'-'.join(word for word in arguments[:2] if word in WORDS)}/1"
    )
    assert document["requests"]["total"] == sum(
        document["requests"][method] for method in ("GET", "POST", "PUT", "DELETE")
    )
    return document


WORDS = {
    "candidates",
    "allocation",
    "show",
    "list",
    "claim",
    "put",
    "add",
    "remove",
    "move",
    "delete",
    "remove-tree",
    "aggregate",
    "add-host",
    "remove-host",
    "usages",
    "decommission",
}


def seen(cloud: HttpPlacement) -> list[str]:
    return traffic(cloud.requests, NAMES)


def holdings(cloud: HttpPlacement) -> dict[str, Any]:
    return {uuid: one["allocations"] for uuid, one in cloud.dump()["consumers"].items()}


# --- reading --------------------------------------------------------------------------------------


def test_candidates_are_asked_for_in_the_apis_own_words(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    document = done(agent, "candidates", "resources=VCPU:2", f"in_tree={H}")
    assert document["result"]["version"] == "1.36"
    assert document["result"]["allocation_requests"] == [
        {"allocations": {H: {"resources": {"VCPU": 2}}}, "mappings": {"": [H]}}
    ]
    assert document["result"]["provider_summaries"][H]["used"] == {"VCPU": 1}
    assert document["placement"] == {"mode": "http", "endpoint": cloud.url, "max_version": "1.39"}
    assert seen(cloud) == [
        "GET / -> 200",
        f"GET allocation_candidates?in_tree={H}&resources=VCPU:2 -> 200".replace(H, "H"),
        "GET in_tree=H -> 200",
    ]
    assert document["result"]["providers"][H] == "H"
    text = agent.run("candidates", "resources=VCPU:2", f"in_tree={H}")
    assert text.stdout.splitlines()[:3] == ["1 candidate", "candidate 1", f"  H ({H}): VCPU 2"]
    assert "no candidates: nothing fits" in agent.run("candidates", "resources=VCPU:9").stdout


def test_a_consumer_is_shown_with_the_names_of_its_providers(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    document = done(agent, "allocation", "show", C.upper())
    assert document["result"] == {
        "consumer": C,
        "allocations": HELD,
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_generation": 1,
        "providers": {R: "R x", PF0: "PF0", H: "H"},
    }
    text = agent.run("allocation", "show", C).stdout
    assert text.startswith(f"consumer {C}, generation 1, project {PROJECT}, user {USER}\n")
    assert f"  R x ({R}): MEMORY_MB 512, VCPU 2\n" in text
    assert done(agent, "allocation", "show", M)["result"] == {"consumer": M, "allocations": {}}


def test_the_consumers_of_a_node_are_listed_with_all_that_they_hold(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    cloud.other.claim({H: {"VCPU": 2}}, M)
    document = done(agent, "allocation", "list", "R x")
    record = {"project_id": PROJECT, "user_id": USER, "consumer_generation": 1}
    assert document["result"] == {
        "root": {"uuid": R, "name": "R x"},
        "consumers": {C: {"allocations": HELD, **record}},
    }
    assert document["requests"]["total"] == 1 + 1 + 1 + 2 + 1, "version, name, tree, each, consumer"
    assert set(done(agent, "allocation", "list", H)["result"]["consumers"]) == {C, M}
    assert agent.run("allocation", "list", "R x").stdout.splitlines()[:2] == [
        f"R x ({R}): 1 consumer",
        f"consumer {C}",
    ]
    unknown = agent.run("allocation", "list", "R y")
    assert (unknown.code, "[allocation.provider-not-found]" in unknown.stderr) == (1, True)


def test_usages_are_shown_by_class_and_as_quota_counts_them(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    document = done(agent, "usages", PROJECT, "--user-id", "nobody")
    assert document["result"] == {
        "project": {
            "id": PROJECT,
            "usages": {"VCPU": 3, "MEMORY_MB": 512, "SRIOV_NET_VF": 1},
            "quota": {"cores": 3, "ram": 512},
        },
        "user": {"id": "nobody", "usages": {}, "quota": {"cores": 0, "ram": 0}},
    }
    assert done(agent, "usages", "nobody's")["result"]["user"] is None
    assert agent.run("usages", PROJECT).stdout.startswith(
        f"project {PROJECT}: 3 cores, 512 MiB of memory\n  MEMORY_MB 512\n"
    )


# --- writing --------------------------------------------------------------------------------------

WRITERS: dict[str, tuple[tuple[str, ...], list[tuple[str, str]]]] = {
    "claim": (
        ("allocation", "claim", C, "resources=VCPU:2", f"in_tree={H}", "--beside-source", "sum"),
        [("PUT", f"/allocations/{C}")],
    ),
    "add": (("allocation", "add", C, "PF0", "SRIOV_NET_VF=2"), [("PUT", f"/allocations/{C}")]),
    "remove": (("allocation", "remove", C, "R x", "VCPU=1"), [("PUT", f"/allocations/{C}")]),
    "move": (("allocation", "move", C, M), [("POST", "/allocations")]),
    "delete": (("allocation", "delete", C), [("PUT", f"/allocations/{C}")]),
    "delete by force": (("allocation", "delete", C, "--force"), [("DELETE", f"/allocations/{C}")]),
    "remove tree": (("allocation", "remove-tree", C, "R x"), [("PUT", f"/allocations/{C}")]),
    "add host": (
        ("aggregate", "add-host", A, "R x"),
        [("PUT", f"/resource_providers/{R}/aggregates")],
    ),
    "decommission": (
        ("decommission", "R x", "--consumer", C, "--all-providers"),
        [
            ("PUT", f"/allocations/{C}"),
            ("DELETE", f"/resource_providers/{PF0}"),
            ("DELETE", f"/resource_providers/{R}"),
        ],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("which", WRITERS)
def test_a_dry_run_shows_what_the_run_after_it_sends(
    agent: AgentHere, cloud: HttpPlacement, which: str
) -> None:
    arguments, expected = WRITERS[which]
    before, folder = cloud.dump(), contents(agent.folder)
    planned = done(agent, *arguments, "--dry-run")
    text = agent.run(*arguments, "--dry-run")
    assert (
        done(agent, *arguments, "--dry-run", "--detailed-exitcode", code=2)["writes"]
        == planned["writes"]
    )
    assert [str(one) for one in cloud.writes()] == []
    assert (cloud.dump(), contents(agent.folder)) == (before, folder)
    assert not agent.store.exists()
    assert [(one["method"], one["path"]) for one in planned["writes"]] == expected
    assert {one["status"] for one in planned["writes"]} == {None}
    for method, path in expected:
        assert f"{method} {path}" in text.stdout
    assert text.stdout.count("not sent") == len(expected)
    assert text.stdout.endswith("dry run: nothing was written\n")

    cloud.clear()
    sent = done(agent, *arguments, "--detailed-exitcode", code=2)
    assert not sent["dry_run"]
    assert [{**one, "status": None} for one in sent["writes"]] == planned["writes"]
    assert [
        (one.method, one.path, one.version, one.body, one.status) for one in cloud.writes()
    ] == [tuple(one.values()) for one in sent["writes"]]
    assert sent["requests"]["total"] == cloud.count()
    assert [key for key, value in planned["result"].items() if value != sent["result"][key]] == []


OWNED = ("--project-id", PROJECT, "--user-id", USER)


def test_the_first_candidate_with_room_is_claimed(agent: AgentHere, cloud: HttpPlacement) -> None:
    query = ("resources=VCPU:2", f"in_tree={H}")
    document = done(agent, "allocation", "claim", M, *query, *OWNED)
    assert document["result"] == {
        "consumer": M,
        "candidate": {"allocations": {H: {"resources": {"VCPU": 2}}}, "mappings": {"": [H]}},
        "allocations": {H: {"VCPU": 2}},
    }
    assert holdings(cloud) == {C: HELD, M: {H: {"VCPU": 2}}}
    again = done(agent, "allocation", "claim", M, *query, *OWNED, "--detailed-exitcode")
    assert again["writes"] == []
    for more, code in (("VCPU:3", "consumer-changed"), ("VCPU:9", "no-room")):
        refused = agent.run("allocation", "claim", M, f"resources={more}", f"in_tree={H}", *OWNED)
        assert (refused.code, f"[allocation.{code}]" in refused.stderr) == (1, True)
    assert holdings(cloud)[M] == {H: {"VCPU": 2}}


@pytest.mark.parametrize("how, on_both", [("maximum", 3), ("sum", 4)])
def test_a_claim_beside_the_source_of_a_move_keeps_what_is_held_and_its_owner(
    agent: AgentHere, cloud: HttpPlacement, how: str, on_both: int
) -> None:
    arguments = ("allocation", "claim", C, "resources=VCPU:3", f"in_tree={H}")
    done(agent, *arguments, "--beside-source", how)
    assert holdings(cloud) == {C: {**HELD, H: {"VCPU": on_both}}}
    assert cloud.dump()["consumers"][C]["project_id"] == PROJECT
    wrong = agent.run(*arguments, "--beside-source", "both")
    assert (wrong.code, "neither maximum nor sum" in wrong.stderr) == (1, True)


def test_a_claim_for_a_consumer_that_holds_nothing_needs_an_owner(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    refused = agent.run("allocation", "claim", M, "resources=VCPU:1")
    assert (refused.code, refused.stdout) == (1, "")
    assert "its owner is unknown" in refused.stderr
    assert "give --project-id and --user-id" in refused.stderr
    assert holdings(cloud) == {C: HELD}


def test_amounts_of_a_provider_come_and_go(agent: AgentHere, cloud: HttpPlacement) -> None:
    added = done(agent, "allocation", "add", C, "R x", "VCPU=1", "PCPU=2")
    assert added["result"]["provider"] == {"uuid": R, "name": "R x"}
    assert holdings(cloud)[C][R] == {"VCPU": 3, "PCPU": 2, "MEMORY_MB": 512}
    done(agent, "allocation", "remove", C, R, "VCPU=1", "PCPU=2")
    assert holdings(cloud) == {C: HELD}
    for arguments, code in (
        (("remove", C, "R x", "VCPU=3"), "negative-result"),
        (("remove", C, "R x", "PCPU=1"), "not-allocated"),
        (("add", C, "R x", "VCPU=9"), "no-room"),
        (("add", M, "R x", "VCPU=1"), "consumer-not-found"),
        (("add", C, "R y", "VCPU=1"), "provider-not-found"),
    ):
        refused = agent.run("allocation", *arguments)
        assert (refused.code, f"[allocation.{code}]" in refused.stderr) == (1, True), refused
    assert holdings(cloud) == {C: HELD}
    for provider, resources in HELD.items():
        words = [f"{name}={amount}" for name, amount in resources.items()]
        done(agent, "allocation", "remove", C, provider, *words)
    assert holdings(cloud) == {}


def test_amounts_that_are_none_are_told_all_at_once(agent: AgentHere, cloud: HttpPlacement) -> None:
    words = ("VCPU", "VCPU=-1", "VCPU=٣", "PCPU=1", "PCPU=2")
    refused = agent.run("allocation", "add", C, R, *words)
    assert (refused.code, refused.stdout) == (1, "")
    for word in words[:3]:
        assert f"'{word}' is not CLASS=AMOUNT" in refused.stderr
    assert "'PCPU' is named twice" in refused.stderr
    assert "whole number from 1" in agent.run("allocation", "add", C, R, "VCPU=0").stderr
    assert cloud.count() == 0 or [str(one) for one in cloud.writes()] == []


def test_a_record_is_put_as_it_was_shown_unless_somebody_changed_it(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    file = agent.folder / "record.json"
    file.write_text(agent.run("allocation", "show", C, "--format", "json").stdout)
    edited = json.loads(file.read_text())["result"]
    edited["allocations"][R]["VCPU"] = 5
    file.write_text(json.dumps(edited))
    dry = done(agent, "allocation", "put", C, str(file), "--dry-run")
    assert [one["method"] for one in dry["writes"]] == ["PUT"]
    assert holdings(cloud) == {C: HELD}
    text = agent.run("allocation", "put", C, str(file), "--dry-run").stdout
    assert f"  {edited['providers'][R]} ({R}): MEMORY_MB 512, VCPU 5" in text
    done(agent, "allocation", "put", C, str(file))
    assert holdings(cloud)[C][R] == {"VCPU": 5, "MEMORY_MB": 512}
    # It is there already.
    done(agent, "allocation", "put", C, str(file))
    edited["allocations"][R]["VCPU"] = 1
    file.write_text(json.dumps(edited))
    changed = agent.run("allocation", "put", C, str(file))
    assert (changed.code, "[allocation.consumer-changed]" in changed.stderr) == (1, True)
    assert holdings(cloud)[C][R] == {"VCPU": 5, "MEMORY_MB": 512}


BAD_RECORDS: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "record.json"),
    "nested": ("[" * 100_000, "record.json"),
    "no object": ("[]", "it is no object with allocations, project_id"),
    "too large": (" " * 1_100_000 + "{}", "it is no object with"),
    "no generation": ('{"allocations": {}, "project_id": "p", "user_id": "u"}', "no object with"),
    "of another": (
        f'{{"consumer": "{M}", "allocations": {{}}, "project_id": "p", "user_id": "u", '
        '"consumer_generation": 1}',
        f"the record of consumer '{M}', not of {C}",
    ),
    "generation": (
        '{"allocations": {}, "project_id": "p", "user_id": "u", "consumer_generation": "1"}',
        "consumer_generation '1' is no whole number",
    ),
    "amounts": (
        f'{{"allocations": {{"{R}": {{"VCPU": -1}}}}, "project_id": "", "user_id": "u", '
        '"consumer_generation": 1}',
        "'-1' of 'VCPU' is no whole number",
    ),
}


@pytest.mark.parametrize("which", BAD_RECORDS)
def test_a_record_that_is_none_is_refused_and_nothing_is_sent(
    agent: AgentHere, cloud: HttpPlacement, which: str
) -> None:
    text, message = BAD_RECORDS[which]
    file = agent.folder / "record.json"
    file.write_text(text)
    refused = agent.run("allocation", "put", C, str(file))
    assert (refused.code, refused.stdout) == (1, "")
    assert message in refused.stderr
    assert "[allocation.bad-request]" in refused.stderr
    assert [str(one) for one in cloud.writes()] == []
    assert holdings(cloud) == {C: HELD}


def test_everything_of_a_consumer_is_moved_once(agent: AgentHere, cloud: HttpPlacement) -> None:
    assert (
        done(agent, "allocation", "move", C, M, "--project-id", "theirs")["result"]["allocations"]
        == HELD
    )
    assert holdings(cloud) == {M: HELD}
    assert cloud.dump()["consumers"][M]["project_id"] == "theirs"
    refused = agent.run("allocation", "move", C, M)
    assert (refused.code, refused.stdout) == (1, "")
    assert "[allocation.nothing-to-move]" in refused.stderr
    cloud.other.claim({H: {"VCPU": 1}}, C)
    assert "[allocation.target-busy]" in agent.run("allocation", "move", M, C).stderr
    assert done(agent, "allocation", "move", M, C, "--overwrite")["errors"] == []
    assert holdings(cloud) == {C: HELD}


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_consumer_is_deleted_and_once_more_it_is_no_error(
    agent: AgentHere, cloud: HttpPlacement, force: tuple[str, ...]
) -> None:
    assert done(agent, "allocation", "delete", C, *force)["result"] == {
        "consumer": C,
        "deleted": True,
    }
    assert holdings(cloud) == {}
    again = agent.run("allocation", "delete", C, *force, "--detailed-exitcode")
    assert (again.code, again.stdout.splitlines()[0]) == (0, f"consumer {C} holds nothing")


def test_a_consumer_lets_go_of_a_node_by_name_or_uuid(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    assert done(agent, "allocation", "remove-tree", C, "R x")["result"]["providers_removed"] == 2
    assert holdings(cloud) == {C: {H: {"VCPU": 1}}}
    assert (
        done(agent, "allocation", "remove-tree", C, R, "--detailed-exitcode")["result"][
            "providers_removed"
        ]
        == 0
    )
    assert done(agent, "allocation", "remove-tree", C, H)["result"]["root"] == {
        "uuid": H,
        "name": "H",
    }
    again = done(agent, "allocation", "remove-tree", C, H)
    assert again["result"]["providers_removed"] == 0


def test_hosts_come_into_aggregates_and_leave_them(agent: AgentHere, cloud: HttpPlacement) -> None:
    cloud.other.set_aggregates(R, [M])
    assert done(agent, "aggregate", "add-host", A, "R x")["result"] == {
        "aggregate": A,
        "host": {"uuid": R, "name": "R x"},
        "changed": True,
    }
    assert cloud.other.aggregates(R) == {A, M}
    assert agent.run("aggregate", "add-host", A, R).stdout.startswith(
        f"host R x is in aggregate {A}\n"
    )
    assert done(agent, "aggregate", "add-host", A, H)["result"]["changed"]
    assert done(agent, "aggregate", "remove-host", A, R)["result"]["changed"]
    assert not done(agent, "aggregate", "remove-host", A, R, "--detailed-exitcode")["result"][
        "changed"
    ]
    # An aggregate that nobody is in may be a wrong uuid.
    assert done(agent, "aggregate", "remove-host", A, H)["result"]["changed"]
    nobody = agent.run("aggregate", "remove-host", A, H)
    assert (nobody.code, f"no host is in aggregate {A}" in nobody.stderr) == (1, True)
    assert cloud.other.aggregates(R) == {M}
    assert "[allocation.provider-not-found]" in agent.run("aggregate", "add-host", A, "R+x").stderr


# --- decommission ---------------------------------------------------------------------------------


def test_a_node_is_decommissioned_and_once_more_it_is_no_error(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    document = done(agent, "decommission", "R x", "--evacuated", C, "--all-providers")
    assert document["result"] == {
        "root": {"uuid": R, "name": "R x"},
        "released": {C: 2},
        "not_released": {},
        "deleted": [PF0, R],
        "kept": {},
        "unknown_consumers": {},
    }
    assert set(cloud.dump()["providers"]) == {H}
    assert holdings(cloud) == {C: {H: {"VCPU": 1}}}
    again = done(
        agent, "decommission", R, "--evacuated", C, "--all-providers", "--detailed-exitcode"
    )
    assert (again["writes"], again["result"]["root"]) == ([], None)
    # A name may be a wrong one.
    unknown = agent.run("decommission", "R x", "--format", "json")
    assert (unknown.code, [one["code"] for one in unknown.json["errors"]]) == (
        1,
        ["allocation.provider-not-found"],
    )
    assert "uuid of the root" in unknown.json["errors"][0]["remedy"]


def test_a_consumer_that_nobody_named_is_told_and_stays(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    document = done(agent, "decommission", "R x", "--all-providers", code=1)
    assert document["result"]["unknown_consumers"] == {C: [R, PF0]}
    assert {one["code"] for one in document["errors"]} == {"allocation.provider-in-use"}
    assert all(one["remedy"] for one in document["errors"])
    assert [str(one) for one in cloud.writes()] == []
    text = agent.run("decommission", "R x", "--all-providers")
    assert (
        f"consumer {C} is not known to be of this node and keeps what it has on {R}, {PF0}"
        in text.stdout
    )
    # As far as it goes, it goes.
    cloud.other.claim({R: {"VCPU": 2}}, C)
    partly = done(agent, "decommission", "R x", "--all-providers", code=3)
    assert (partly["result"]["deleted"], list(partly["result"]["kept"])) == ([PF0], [R])


def test_whom_the_records_know_need_not_be_named(agent: AgentHere, cloud: HttpPlacement) -> None:
    with open_store(agent.store) as store:
        write(Records(store), RecordChanges(instances=(instance(uuid=C, node=R, host="host-1"),)))
    document = done(agent, "decommission", "R x", "--all-providers")
    assert (document["result"]["released"], document["result"]["unknown_consumers"]) == ({C: 2}, {})


def test_what_no_journal_knows_is_deleted_only_if_that_is_said(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    cloud.other.release(C)
    document = done(agent, "decommission", "R x", code=1)
    assert {one["code"] for one in document["errors"]} == {
        "allocation.foreign-provider",
        "allocation.provider-in-use",
    }
    assert document["writes"] == []


def test_the_agents_own_node_goes_and_somebody_elses_child_stays(
    agent: AgentHere, cloud: HttpPlacement
) -> None:
    assert agent.run("--once").code == 0
    uuids = {one["name"]: uuid for uuid, one in cloud.dump()["providers"].items()}
    theirs = cloud.other.create_provider("network agent", parent=uuids["node-a"])
    document = done(agent, "decommission", "node-a", code=3)
    own = {uuid for name, uuid in uuids.items() if name.startswith("node-a")} - {uuids["node-a"]}
    assert own
    assert set(document["result"]["deleted"]) == own
    assert set(document["result"]["kept"]) == {theirs, uuids["node-a"]}
    cloud.other.delete_provider(theirs)
    assert done(agent, "decommission", "node-a")["result"]["deleted"] == [uuids["node-a"]]


def test_the_agents_own_node_is_not_decommissioned_while_an_agent_runs(
    agent: AgentHere, cloud: HttpPlacement, proxy: FaultProxy
) -> None:
    assert agent.run("--once").code == 0
    proxy.faults.add(faults.read_timeout(), times=None)
    other = AgentCommand(
        agent.folder, on(cloud, "fake.numa", {"placement": {"endpoint": proxy.url}})
    )
    with other.started("--once") as process:
        while not proxy.requests:
            assert process.poll() is None
            time.sleep(0.02)
        agent.configure(on(cloud))
        cloud.clear()
        problem = the_only(agent.run("decommission", "node-a", "--format", "json").json["errors"])
        assert problem["code"] == "store.locked"
        assert agent.run("decommission", "node-a", "--dry-run").code == 0
        # Other work disturbs nobody.
        assert agent.run("allocation", "delete", C).code == 0
        process.kill()
        process.wait()
    assert [one.method for one in cloud.writes()] == ["PUT"]


# --- bad input and outages ------------------------------------------------------------------------

NONSENSE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "no uuid to show": (("allocation", "show", "c"), "consumer 'c' is no uuid"),
    "no uuid to move": (("allocation", "move", C, "m"), "target 'm' is no uuid"),
    "no uuid to delete": (("allocation", "delete", "../x"), "consumer '../x' is no uuid"),
    "no aggregate": (
        ("aggregate", "add-host", "A\x1b[31m", "R x"),
        "aggregate 'A\\x1b[31m' is no uuid",
    ),
    "no query": (("candidates", "resources"), "'resources' is not of the form key=value"),
    "an unknown key": (
        ("candidates", "resource=VCPU:1"),
        "'resource' is not one of resources, required",
    ),
    "a negative amount": (("candidates", "resources=VCPU:-1"), "'VCPU:-1' has no whole number"),
    "a project too long": (("usages", "p" * 256), "has not 1 to 255 characters"),
    "a consumer that is none": (
        ("decommission", "R x", "--consumer", "c"),
        "consumer 'c' is no uuid",
    ),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_bad_input_is_one_error_with_a_remedy_before_any_write(
    agent: AgentHere, cloud: HttpPlacement, what: str
) -> None:
    arguments, told = NONSENSE[what]
    before = cloud.dump()
    document = agent.run(*arguments, "--format", "json")
    problem = the_only(document.json["errors"])
    assert (document.code, document.json["exit_code"], problem["code"]) == (
        1,
        1,
        "allocation.bad-request",
    )
    assert told in problem["message"]
    assert problem["remedy"]
    text = agent.run(*arguments)
    assert (text.code, text.stdout) == (1, "")
    assert "\x1b" not in text.stderr
    assert told in text.stderr
    assert cloud.dump() == before
    assert cloud.count() == 0


@pytest.mark.parametrize(
    "arguments", [WRITERS[which][0] for which in ("claim", "add host", "decommission")]
)
def test_an_outage_is_an_error_and_nothing_is_written(
    agent: AgentHere, cloud: HttpPlacement, proxy: FaultProxy, arguments: tuple[str, ...]
) -> None:
    agent.configure(on(cloud, "fake.numa", {"placement": {"endpoint": proxy.url}}))
    proxy.faults.add(faults.answer(503), times=None)
    before = cloud.dump()
    result = agent.run(*arguments, "--format", "json")
    assert (result.code, the_only(result.json["errors"])["code"]) == (1, "placement.refused")
    assert "Traceback" not in result.stderr
    assert cloud.dump() == before


def test_a_refusal_at_the_last_step_leaves_one_document(
    agent: AgentHere, cloud: HttpPlacement, proxy: FaultProxy
) -> None:
    agent.configure(on(cloud, "fake.numa", {"placement": {"endpoint": proxy.url}}))
    proxy.faults.add(faults.answer(409, "placement.concurrent_update"), method="PUT", times=None)
    problem = the_only(agent.run("allocation", "delete", C, "--format", "json").json["errors"])
    assert problem["code"] == "allocation.consumer-changed"
    proxy.faults.add(faults.answer(403), method="DELETE", times=None)
    assert (
        "403"
        in the_only(
            agent.run("allocation", "delete", C, "--force", "--format", "json").json["errors"]
        )["message"]
    )


# --- the embedded Placement -----------------------------------------------------------------------


@pytest.mark.long
def test_without_credentials_the_work_is_on_the_embedded_placement(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("embedded")
    agent = AgentCommand(
        folder,
        {
            "DEFAULT": {
                "compute_driver": "fake.small",
                "host": "node-a",
                "state_path": "/nonexistent",
            }
        },
    )
    looked = agent.run("candidates", "resources=VCPU:1")
    assert looked.code == 0, looked
    using = f"using the embedded Placement in {agent.store / 'placement.sqlite'}"
    assert looked.stdout.splitlines()[0] == f"{using}, which was empty"
    assert not agent.store.exists(), "whoever only looks makes nothing"
    assert agent.run("--once").code == 0
    assert len(done(agent, "candidates", "resources=VCPU:1")["result"]["allocation_requests"]) == 1
    before = contents(agent.store)
    assert (
        done(agent, "aggregate", "add-host", A, "node-a", "--dry-run")["placement"]["mode"]
        == "embedded"
    )
    assert contents(agent.store) == before
    added = done(agent, "aggregate", "add-host", A, "node-a")
    assert (added["result"]["changed"], added["writes"][0]["status"]) == (True, 200)
    assert not done(agent, "aggregate", "add-host", A, "node-a")["result"]["changed"]


FAILING = {
    "aggregate-remove-host": (
        "aggregate",
        "remove-host",
        "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11",
        "nobody",
    ),
    "aggregate-add-host": (
        "aggregate",
        "add-host",
        "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11",
        "nobody",
    ),
    "allocation-remove-tree": (
        "allocation",
        "remove-tree",
        "c0000000-0000-4000-8000-000000000001",
        "nobody",
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_work_that_fails_is_reported_as_that_work_with_its_requests(
    agent: AgentHere, cloud: HttpPlacement, name: str
) -> None:
    result = agent.run(*FAILING[name], "--format", "json")
    assert result.code == 1
    assert result.json["schema"] == f"compute-node-agent/{name}/1"
    assert result.json["requests"]["GET"] >= 1
    assert (len(result.json["errors"]), result.json["exit_code"], result.json["result"]) == (
        1,
        1,
        {},
    )
