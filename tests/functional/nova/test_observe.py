"""An agent that only observes a host which another program manages: it writes nothing, and reports
what Placement has otherwise than the host and its guests.
"""

from pathlib import Path

import pytest

from tests.functional.nova.watched_host import (
    ALLOCATION,
    HEAL,
    HELD,
    MARKS,
    ROOT,
    Watched,
    a_guest,
    at_rest,
    host,
)
from tests.support.agent import new_uuid
from tests.support.http_placement import HttpPlacement
from tests.support.tracking import guest

GOOD, LOST, OTHER, TWICE, BOTH, MOVING, FIRST, SECOND = (
    guest(name) for name in ("good", "lost", "other", "twice", "both", "moving", "first", "second")
)


@pytest.fixture
def watched(tmp_path: Path, http_placement: HttpPlacement) -> Watched:
    return Watched(tmp_path, http_placement)


def test_what_may_be_a_migration_is_told_as_that_for_a_day_and_then_as_a_leftover(
    watched: Watched,
) -> None:
    watched.as_nova_has_it()
    other, migration = watched.other, new_uuid()
    elsewhere = other.create_provider("node-b")
    other.set_inventory(elsewhere, {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100})
    guests = {TWICE: "twice", FIRST: "first", SECOND: "second"}
    watched.has(*(a_guest(*one) for one in guests.items()))
    for uuid in (TWICE, migration):
        other.claim({ROOT: HELD}, uuid)
    for uuid in (FIRST, SECOND):
        other.claim({elsewhere: HELD}, uuid)
    young = {one["consumer"]: one for one in watched.observe()["drift"]}
    # One consumer explains one guest at most.
    assert young.keys() == {FIRST, SECOND}
    assert sorted(one["severity"] for one in young.values()) == ["info", "warning"]
    (may_be,) = (one["detail"] for one in young.values() if one["severity"] == "info")
    assert (
        f"may be moving: its allocation is on another node, and consumer {migration} holds as much "
        f"here, which may be its migration, or left over, as much as guest twice ({TWICE}) by an "
        "allocation of its own" in may_be
    )
    watched.placement.age(migration, 25 * 3600)
    old = {one["consumer"]: one for one in watched.observe()["drift"]}
    assert {uuid: (one["kind"], one["severity"]) for uuid, one in old.items()} == {
        **dict.fromkeys((FIRST, SECOND), ("missing-allocation", "warning")),
        migration: ("orphaned-allocation", "warning"),
    }
    assert "a migration that is over or died" in old[migration]["detail"]
    assert f"as much as guest twice ({TWICE})" in old[migration]["detail"]
    assert f" && {ALLOCATION} delete {migration}" in old[migration]["remedy"]
    assert "under way" not in old[migration]["detail"]


def test_a_server_that_was_evacuated_is_not_taken_for_the_migration_of_another(
    watched: Watched,
) -> None:
    watched.as_nova_has_it()
    other, evacuated = watched.other, new_uuid()
    elsewhere = other.create_provider("node-b")
    other.set_inventory(elsewhere, {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100})
    watched.has(a_guest(MOVING, "moving"))
    other.claim({elsewhere: HELD}, MOVING)
    other.claim({ROOT: HELD, elsewhere: HELD}, evacuated)
    found = {one["consumer"]: one["severity"] for one in watched.observe()["drift"]}
    assert found == {MOVING: "warning", evacuated: "warning"}


def test_a_guest_without_an_allocation_beside_a_leftover_of_its_amounts_is_a_warning(
    watched: Watched,
) -> None:
    watched.as_nova_has_it()
    watched.has(a_guest(LOST, "lost"))
    leftover = new_uuid()
    watched.other.claim({ROOT: HELD}, leftover)
    found = {one["consumer"]: one for one in watched.observe()["drift"]}
    assert {uuid: one["severity"] for uuid, one in found.items()} == {
        LOST: "warning",
        leftover: "warning",
    }
    assert found[LOST]["remedy"].endswith(f"else: {HEAL} {LOST}")


def test_a_guest_whose_allocation_is_on_another_node_only_is_a_warning(watched: Watched) -> None:
    watched.as_nova_has_it()
    watched.has(a_guest(LOST, "lost"))
    elsewhere = watched.other.create_provider("node-b")
    watched.other.set_inventory(elsewhere, {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100})
    watched.other.claim({elsewhere: HELD}, LOST)
    (drift,) = watched.observe()["drift"]
    assert (drift["kind"], drift["severity"], drift["consumer"]) == (
        "missing-allocation",
        "warning",
        LOST,
    )
    assert "another node only" in drift["detail"]
    assert drift["remedy"].endswith(f": {at_rest(LOST)}{HEAL} {LOST} --force")
    assert drift["remedy"].endswith(
        f"nova-manage placement heal_allocations --instance {LOST} --force"
    )


def test_what_the_agent_had_on_record_when_it_managed_the_node_does_not_count(
    watched: Watched,
) -> None:
    agent, other = watched.agent, watched.other
    watched.has(a_guest(LOST, "lost"))
    assert agent.run("--once").code == 0
    assert agent.run("guests", "import").code == 0
    other.set_traits(ROOT, other.traits(ROOT) - MARKS)
    watched.has()
    watched.placement.clear()
    result = agent.run("--once", "--observe", "--format", "json")
    (node,) = result.json["nodes"]
    assert (node["state"], node["operations"], node["drift"]) == ("in-sync", [], [])
    assert {request.method for request in watched.placement.requests} <= {"GET"}


def test_a_uuid_that_the_driver_gives_and_placement_has_stands_in_the_remedies(
    watched: Watched,
) -> None:
    watched.as_nova_has_it()
    watched.has(DEFAULT={"state_path": watched.folder / "none"})
    leftover = watched.other.claim({ROOT: HELD})
    node = watched.observe()
    (drift,) = node["drift"]
    assert (node["uuid"], drift["consumer"]) == (ROOT, leftover)
    assert f"--resource_provider {ROOT}" in drift["remedy"]
    text = watched.agent.run("--once", "--observe").stdout
    assert f"driver fake.file · {ROOT}" in text


def test_a_trait_that_nova_compute_does_not_know_is_told_for_information(
    watched: Watched,
) -> None:
    watched.as_nova_has_it()
    described = {**host(), "traits": ["HW_CPU_X86_SSE3"]}
    watched.agent.configure(watched.config(watched.agent, described, {}))
    node = watched.observe()
    (drift,) = node["drift"]
    assert (drift["kind"], drift["severity"]) == ("reported-otherwise", "info")
    assert "HW_CPU_X86_SSE3" in drift["detail"]
    assert node["operations"] == []


def test_monitoring_gets_a_line_and_the_code_of_a_plugin(watched: Watched) -> None:
    watched.as_nova_has_it()
    watched.has(a_guest(LOST, "lost"))
    result = watched.agent.run("--once", "--observe", "--format", "nagios")
    first, finding = result.stdout.splitlines()
    assert result.code == 1
    assert first == (
        "PLACEMENT WARNING - nodes 1, differences 0, drift 1, errors 0 (missing-allocation 1) | "
        "nodes=1 differences=0 drift=1 errors=0"
    )
    assert finding.startswith("node-a: missing-allocation: ")
    watched.other.claim({ROOT: HELD}, LOST)
    result = watched.agent.run("--once", "--observe", "--format", "nagios")
    assert (result.code, result.stdout[:14]) == (0, "PLACEMENT OK -")
    # A command that has bars is not given without them.
    watched.other.claim({ROOT: HELD}, guest("stray"))
    result = watched.agent.run("--once", "--observe", "--format", "nagios")
    _, finding = result.stdout.splitlines()
    assert finding.endswith("(the report without --format nagios has the command)")


def test_monitoring_of_a_placement_that_is_away_is_unknown(watched: Watched) -> None:
    watched.has()
    watched.placement.stop()
    result = watched.agent.run("--once", "--observe", "--format", "nagios")
    assert result.code in (2, 3)
    assert result.stdout.startswith(("PLACEMENT UNKNOWN", "PLACEMENT CRITICAL"))


def test_a_textfile_for_prometheus(watched: Watched) -> None:
    watched.as_nova_has_it()
    watched.has(a_guest(LOST, "lost"))
    result = watched.agent.run("--once", "--observe", "--format", "prometheus")
    assert result.code == 0
    assert (
        'compute_node_agent_once_node_drift{kind="missing-allocation",node="node-a",'
        'severity="warning"} 1.0'
    ) in result.stdout
    assert 'compute_node_agent_once_node_state{node="node-a",state="in-sync"} 1.0' in result.stdout


def test_the_figures_on_record_are_said_to_be_of_the_guests_here(watched: Watched) -> None:
    watched.as_nova_has_it()
    watched.has(a_guest(GOOD, "good"))
    text = watched.agent.run("--once", "--observe").stdout
    assert "on record: what the guests that are shown here have" in text


def test_every_command_that_writes_is_refused_where_the_agent_only_observes(
    watched: Watched,
) -> None:
    watched.as_nova_has_it()
    watched.has(DEFAULT={"mode": "observe"})
    consumer = new_uuid()
    result = watched.agent.run(
        "allocation", "put", consumer, "--resource", f"{ROOT}:VCPU=1", "--format", "json"
    )
    assert result.code != 0
    assert watched.other.allocations(consumer)["allocations"] == {}
    adopted = watched.agent.run("--once", "--adopt", "--format", "json")
    assert adopted.json["errors"][0]["message"].startswith("--adopt takes a tree over")
    for command in (("import",), ("forget", LOST)):
        refused = watched.agent.run("guests", *command)
        assert refused.code != 0
        assert "[DEFAULT] mode is observe" in refused.stderr
    assert watched.agent.run("guests", "import", "--dry-run").code == 0


def test_without_the_placement_of_a_cloud_there_is_nothing_to_observe(watched: Watched) -> None:
    watched.has(placement={"backend": "embedded"})
    result = watched.agent.run("--once", "--observe", "--format", "json")
    (error,) = result.json["errors"]
    assert (result.code, error["code"]) == (1, "config.invalid")
    assert error["remedy"].endswith("--config-file /etc/nova/nova.conf")


def test_a_host_whose_compute_id_is_not_found_is_observed_by_the_first_way_that_is_told(
    watched: Watched,
) -> None:
    watched.as_nova_has_it()
    described = {key: value for key, value in host().items() if key != "uuid"}
    watched.is_host(described, DEFAULT={"state_path": "/nonexistent"})
    (error,) = watched.observe()["errors"]
    assert error["code"] == "placement.name-conflict"
    first, second = (error["remedy"].index(way) for way in ("state_path", "agent identity set"))
    assert first < second
    watched.is_host(described)
    node = watched.observe()
    assert (node["uuid"], node["errors"], node["state"]) == (ROOT, [], "in-sync")


def test_a_driver_that_shows_no_guests_says_nothing_of_their_allocations(
    watched: Watched,
) -> None:
    described = host()
    del described["guests"]
    watched.as_nova_has_it()
    watched.agent.configure(watched.config(watched.agent, described, {}))
    watched.other.claim({ROOT: HELD}, new_uuid())
    assert watched.observe()["drift"] == []
