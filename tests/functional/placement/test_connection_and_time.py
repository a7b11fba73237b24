"""A database that went back, clocks that jump, reads that race, operators
who move things.
"""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.audit.context import AuditOptions
from agent.model.facts import CpuFacts, HostFacts
from agent.placement import clock
from agent.placement.mirror import Freshness
from tests.functional.placement.conftest import N0, N1, PF0, READ_R, Host, seen
from tests.support import faults
from tests.support.agent import (
    NAME,
    ROOT,
    AgentUnderTest,
    ScriptedDriver,
    new_uuid,
    shaped,
    total,
)
from tests.support.placement import PlacementServer
from tests.support.settled import Want, clean, node, settled
from tests.support.tracking import domain, guest

HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
MORE = {**HAS, "VCPU": total(18)}
VF = {"SRIOV_NET_VF": total(8)}
CELL = {"MEMORY_MB": total(1024)}
STRUCTURE = "GET in_tree=R -> 200"
WENT_BACK = "placement state went back or was changed outside"

pytestmark = pytest.mark.usefixtures("short_waits")


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage()
        for one in log.records
        if one.levelname == "WARNING" and one.name.startswith("agent.")
    ]


# --- a restored database --------------------------------------------------------------------------


def test_a_database_that_went_back_is_read_anew_and_told_once(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    backup, old = placement.snapshot(), placement.other.generation(ROOT)
    node_a.driver.script = shaped(MORE, {"PF0": (NAME, VF)})
    assert node_a.cycle().state == "changed"
    assert placement.other.generation(ROOT) > old
    placement.restore(backup)
    placement.clear()
    agent_log.clear()
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [
        STRUCTURE,
        *READ_R,
        "GET al R -> 200",
        "POST RP PF0 under R -> 200",
        "PUT inv PF0 g0 -> 200",
        f"PUT inv R g{old} -> 200",
        # Confirmed once and needed again: Placement is asked whether it has it.
        "GET RP R -> 200",
    ]
    assert warnings(agent_log) == [f"{WENT_BACK} (PF0, {NAME}); everything is read again"]
    settled(node_a, placement, agent_log, {NAME: node(MORE), "PF0": Want(VF, NAME)})
    assert len(warnings(agent_log)) == 1


@pytest.fixture
def disguised(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """A restored database that shows the generation that the agent knows, with another
    inventory.
    """
    agent = host(shaped(HAS), freshness=Freshness(reread=86400))
    agent.cycle(start=True)
    backup, generation = placement.snapshot(), placement.other.generation(ROOT)
    agent.driver.script = shaped(MORE)
    agent.cycle()
    placement.restore(backup)
    assert (
        placement.other.set_inventory(ROOT, {"VCPU": total(4), "MEMORY_MB": total(64)})
        == generation + 1
    )
    placement.clear()
    return agent


def test_the_same_generation_with_other_contents_is_not_seen_until_everything_is_read(
    disguised: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    assert disguised.cycle().state == "in-sync"
    assert seen(placement) == [STRUCTURE]
    placement.clear()
    (report,) = disguised.fleet.run(AuditOptions(reread=True)).nodes
    assert report.state == "changed"
    # Nor is the server's version taken for granted, because a restored Placement may be an older
    # one.
    assert seen(placement) == ["GET / -> 200", STRUCTURE, *READ_R, "PUT inv R g3 -> 200"]
    settled(disguised, placement, agent_log, {NAME: node(MORE)})


def test_a_change_writes_the_whole_inventory_whatever_was_believed_to_be_there(
    disguised: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    disguised.driver.script = shaped({**HAS, "VCPU": total(20)})
    assert disguised.cycle().state == "changed"
    assert seen(placement) == [STRUCTURE, "PUT inv R g3 -> 200"]
    settled(disguised, placement, agent_log, {NAME: node({**HAS, "VCPU": total(20)})})


def test_age_alone_has_everything_read_one_day(
    disguised: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.monotonic()
    later = SimpleNamespace(monotonic=lambda: now + 43000, time=time.time)
    monkeypatch.setattr(clock, "time", later)
    assert disguised.cycle().state == "in-sync"
    assert seen(placement) == [STRUCTURE]
    placement.clear()
    later = SimpleNamespace(monotonic=lambda: now + 86401, time=time.time)
    monkeypatch.setattr(clock, "time", later)
    assert disguised.cycle().state == "changed"
    assert seen(placement) == [STRUCTURE, *READ_R, "PUT inv R g3 -> 200"]
    settled(disguised, placement, agent_log, {NAME: node(MORE)})


# --- clocks ---------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_an_hour_moves_no_interval_and_holds_nothing_up(
    host: Host,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aggregate, begun, wall, passed = new_uuid(), time.monotonic(), time.time, [0.0]
    monkeypatch.setattr(
        clock,
        "time",
        SimpleNamespace(monotonic=lambda: begun + passed[0], time=lambda: time.time()),
    )
    agent = host(shaped(HAS), freshness=Freshness(sharing=300, reread=86400))
    agent.cycle(start=True)
    placement.other.set_aggregates(ROOT, [aggregate])
    agent.cycle()
    ask = f"GET member_of=in:{aggregate} required=MISC_SHARES_VIA_AGGREGATE -> 200"
    assert seen(placement)[-1] == ask
    # For everybody, the libraries included.
    monkeypatch.setattr(time, "time", lambda: wall() - 3600)
    for seconds, expected in (
        (100, [STRUCTURE]),
        (299, [STRUCTURE]),
        (301, [STRUCTURE, ask]),
        (302, [STRUCTURE]),
    ):
        passed[0] = seconds
        placement.clear()
        assert agent.cycle().state == "in-sync"
        assert seen(placement) == expected
    assert warnings(agent_log) == []
    settled(agent, placement, agent_log, {NAME: node(HAS, aggregates={aggregate})})


# Less than an hour ahead, because then Placement closes its connection to the database in memory.
@pytest.mark.parametrize("seconds", [-7200, 4000])
def test_guests_are_seen_and_missed_at_once_although_the_clock_was_set(
    placement: PlacementServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    driver, guests, wall = ScriptedDriver(shaped(HAS)), [domain("first", 512)], time.time
    # As drivers do, by the wall clock.
    driver.facts_of = lambda name: HostFacts(
        name,
        time.time(),
        "scripted",
        cpu=CpuFacts(frozenset(range(16))),
        memory_mib=16384,
        disk_gib=100,
        domains=tuple(guests),
    )
    agent = AgentUnderTest(placement, tmp_path / "state", driver)

    def strangers() -> set[str | None]:
        report = agent.cycle()
        assert report.errors == ()
        return {one.consumer for one in report.drift if one.kind == "unknown-domain"}

    agent.cycle(start=True)
    assert strangers() == {guest("first")}
    monkeypatch.setattr(time, "time", lambda: wall() + seconds)
    guests.append(domain("second", 512))
    assert strangers() == {guest("first"), guest("second")}
    monkeypatch.setattr(time, "time", wall)
    guests.clear()
    assert strangers() == set()
    agent.stop()


# --- reads that race ------------------------------------------------------------------------------


def test_what_changes_between_the_three_reads_is_read_again(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    other = placement.other
    generation = other.set_traits(ROOT, other.traits(ROOT) | {"CUSTOM_RACK7"})
    change = faults.before(lambda _: other.set_inventory(ROOT, {"VCPU": 4}))
    placement.faults.add(change, method="GET", path="/aggregates$")
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [STRUCTURE, *READ_R, *READ_R, f"PUT inv R g{generation + 1} -> 200"]
    settled(node_a, placement, agent_log, {NAME: node(HAS, "CUSTOM_RACK7")})


def test_a_provider_that_never_holds_still_is_not_written(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    other, totals = placement.other, iter(range(100, 1000))
    other.set_inventory(ROOT, {"VCPU": 4})
    rule = placement.faults.add(
        faults.before(lambda _: other.set_inventory(ROOT, {"VCPU": next(totals)})),
        method="GET",
        path="/aggregates$",
        times=None,
    )
    report = node_a.cycle()
    assert (report.state, report.attempts) == ("failed", 4)
    assert [one.code for one in report.errors] == ["placement.conflict"]
    # Four attempts of three readings each, then the next period.
    assert rule.hits == 12
    assert placement.writes() == []
    placement.faults.clear()
    assert node_a.cycle().state == "changed"
    settled(node_a, placement, agent_log, {NAME: node(HAS)})


# --- operators ------------------------------------------------------------------------------------


@pytest.fixture
def with_device(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """A root with two cells, and PF0 below the first."""
    agent = host(shaped(HAS, {"N0": (NAME, CELL), "N1": (NAME, CELL), "PF0": ("N0", VF)}))
    assert agent.cycle(start=True).state == "changed"
    placement.clear()
    return agent


TREE = {NAME: node(HAS), "N0": Want(CELL, NAME), "N1": Want(CELL, NAME), "PF0": Want(VF, "N0")}


def test_a_child_that_an_operator_renamed_gets_its_name_back(
    with_device: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    generation = placement.other.generation(PF0)
    placement.other.rename(PF0, "PF0b")
    assert placement.other.generation(PF0) == generation
    assert with_device.cycle().state == "changed"
    assert seen(placement) == [STRUCTURE, "PUT RP PF0 -> 200"]
    assert placement.requests[-1].body == {"name": "PF0"}
    settled(with_device, placement, agent_log, TREE)


def test_a_child_that_an_operator_moved_is_moved_back(
    with_device: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    placement.other.reparent(PF0, N1)
    assert with_device.cycle().state == "changed"
    assert seen(placement) == [STRUCTURE, "PUT RP PF0 -> 200"]
    assert placement.requests[-1].version == "1.37"
    assert placement.requests[-1].body == {"name": "PF0", "parent_provider_uuid": N0}
    settled(with_device, placement, agent_log, TREE)


def test_a_placement_that_cannot_move_providers_leaves_it_to_the_operator(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    old = PlacementServer(max_version="1.36")
    agent = host(
        shaped(HAS, {"N0": (NAME, CELL), "N1": (NAME, CELL), "PF0": ("N0", VF)}), placement=old
    )
    agent.cycle(start=True)
    # The operator's way around the server: another one on the same database.
    placement.restore(old.snapshot())
    placement.other.reparent(PF0, N1)
    old.restore(placement.snapshot())
    old.clear()
    report = agent.cycle()
    assert seen(old) == [STRUCTURE]
    (drift,) = report.drift
    assert (drift.kind, drift.severity, drift.provider) == ("identity", "warning", PF0)
    assert "1.37" in drift.remedy
    # What it has is kept up to date all the same.
    agent.driver.script = shaped(
        HAS, {"N0": (NAME, CELL), "N1": (NAME, CELL), "PF0": ("N0", {"SRIOV_NET_VF": total(4)})}
    )
    old.clear()
    assert agent.cycle().state == "changed"
    # A start asks again whether the server can do more by now, because something waits for that.
    settled(
        agent, old, agent_log, TREE | {"PF0": Want({"SRIOV_NET_VF": total(4)}, "N1")}, reads=(1, 2)
    )
    agent.stop()
    old.close()


# --- stopped in the middle ------------------------------------------------------------------------


def test_a_daemon_that_stopped_between_two_providers_goes_on_where_it_was(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped(MORE, {"PF0": (NAME, VF)})
    placement.faults.add(
        faults.after(lambda _: node_a.cancelled.set()), method="PUT", path=f"{PF0}/inventories$"
    )
    report = node_a.cycle()
    assert [one.status for one in report.outcomes] == ["done", "done", "failed"]
    assert seen(placement) == [STRUCTURE, "POST RP PF0 under R -> 200", "PUT inv PF0 g0 -> 200"]
    assert warnings(agent_log) == []
    node_a.cancelled.clear()
    placement.clear()
    assert node_a.once().state == "changed"
    assert seen(placement) == [STRUCTURE, "PUT inv R g2 -> 200"]
    settled(node_a, placement, agent_log, {NAME: node(MORE), "PF0": Want(VF, NAME)})
    clean(placement, agent_log)
