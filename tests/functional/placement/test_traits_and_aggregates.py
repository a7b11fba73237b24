"""Everybody's traits and aggregates, kept, taken back, refused,
raced for.
"""

import logging

import pytest

from agent.model import mirror
from agent.model.provider_tree import ProviderTree
from agent.placement import server
from agent.tree.policy import Policy
from tests.functional.placement.conftest import READ_R, Host, seen
from tests.support import faults
from tests.support.agent import (
    NAME,
    ROOT,
    AgentUnderTest,
    ScriptedDriver,
    Shape,
    new_uuid,
    shaped,
    total,
)
from tests.support.placement import PlacementServer
from tests.support.settled import ROOT_TRAITS, Want, node, settled

INVENTORY = {"VCPU": total(16), "MEMORY_MB": total(16384)}
MULTI_ATTACH = "COMPUTE_VOLUME_MULTI_ATTACH"
DISABLED = "COMPUTE_STATUS_DISABLED"

pytestmark = pytest.mark.usefixtures("short_waits")


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    """What the agent itself says at WARNING; its transport's line for each 5xx apart."""
    return [
        one.getMessage()
        for one in log.records
        if one.levelno == logging.WARNING and not one.name.endswith("transport")
    ]


def add_traits(placement: PlacementServer, *traits: str) -> None:
    placement.other.set_traits(ROOT, placement.other.traits(ROOT) | set(traits))


def in_aggregate(aggregate: str) -> Shape:
    def shape(tree: ProviderTree) -> None:
        shaped(INVENTORY)(tree)
        tree.add_aggregates(ROOT, aggregate)

    return shape


# --- traits ---------------------------------------------------------------------------------------


def test_a_capability_that_is_gone_is_taken_off_and_nothing_else(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    driver = ScriptedDriver(shaped(INVENTORY))
    driver.capabilities = {MULTI_ATTACH: True}
    agent = host(driver=driver)
    agent.cycle(start=True)
    add_traits(placement, "CUSTOM_RACK7")
    generation = placement.other.generation(ROOT)
    driver.capabilities = {MULTI_ATTACH: False}
    placement.clear()
    assert agent.cycle().state == "changed"
    assert seen(placement) == ["GET in_tree=R -> 200", *READ_R, f"PUT tr R g{generation} -> 200"]
    assert placement.requests[-1].body["traits"] == sorted({*ROOT_TRAITS, "CUSTOM_RACK7"})
    settled(agent, placement, agent_log, {NAME: node(INVENTORY, "CUSTOM_RACK7")})


def test_a_capability_that_the_driver_no_longer_mentions_is_taken_off_if_the_agent_had_put_it_on(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    driver = ScriptedDriver(shaped(INVENTORY))
    driver.capabilities = {MULTI_ATTACH: True}
    agent = host(driver=driver)
    agent.cycle(start=True)
    add_traits(placement, "COMPUTE_TRUSTED_CERTS")
    driver.capabilities = {}
    assert agent.cycle().state == "changed"
    settled(agent, placement, agent_log, {NAME: node(INVENTORY, "COMPUTE_TRUSTED_CERTS")})


def test_a_trait_of_ours_that_somebody_took_off_is_put_back_and_told_once(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    placement.other.set_traits(ROOT, ROOT_TRAITS - {"COMPUTE_NODE"})
    generation = placement.other.generation(ROOT)
    assert node_a.cycle().state == "changed"
    assert seen(placement) == ["GET in_tree=R -> 200", *READ_R, f"PUT tr R g{generation} -> 200"]
    settled(node_a, placement, agent_log, {NAME: node(INVENTORY)})
    assert [line for line in warnings(agent_log) if "COMPUTE_NODE" in line] == [
        f"provider {NAME} lost traits that the agent had set: COMPUTE_NODE"
    ]


def test_a_500_for_lost_races_is_looked_at_and_repeated_once(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(INVENTORY))
    race = placement.faults.add(faults.answer(500), method="PUT", path=f"{ROOT}/traits")
    report = agent.cycle(start=True)
    assert race.hits == 1
    assert (report.state, report.attempts) == ("changed", 1)
    assert seen(placement)[-5:] == ["PUT tr R g1 -> 500", *READ_R, "PUT tr R g1 -> 200"]
    settled(agent, placement, agent_log, {NAME: node(INVENTORY)})


def test_a_500_that_was_applied_needs_no_second_put(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(INVENTORY))
    placement.faults.add(faults.answer(500, applied=True), method="PUT", path=f"{ROOT}/traits")
    assert agent.cycle(start=True).state == "changed"
    assert seen(placement)[-4:] == ["PUT tr R g1 -> 500", *READ_R]
    settled(agent, placement, agent_log, {NAME: node(INVENTORY)})


def test_a_500_because_somebody_else_won_the_race_makes_a_new_plan(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(INVENTORY))
    placement.faults.add(faults.answer(500), method="PUT", path=f"{ROOT}/traits")
    placement.faults.add(
        faults.before(lambda _: add_traits(placement, "CUSTOM_RACK7")),
        method="GET",
        path=f"{ROOT}/inventories",
    )
    report = agent.cycle(start=True)
    assert (report.state, report.attempts) == ("changed", 2)
    assert seen(placement)[-9:] == [
        "PUT tr R g1 -> 500",
        *READ_R,
        "GET in_tree=R -> 200",
        *READ_R,
        "PUT tr R g2 -> 200",
    ]
    settled(agent, placement, agent_log, {NAME: node(INVENTORY, "CUSTOM_RACK7")})


def test_a_second_500_fails_the_cycle_and_the_next_one_mends_it(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(INVENTORY))
    twice = placement.faults.add(faults.answer(500), method="PUT", path=f"{ROOT}/traits", times=2)
    report = agent.cycle(start=True)
    assert twice.hits == 2
    assert report.state == "degraded"
    assert [one.code for one in report.errors] == ["placement.refused"]
    assert seen(placement)[-5:] == ["PUT tr R g1 -> 500", *READ_R, "PUT tr R g1 -> 500"]
    assert agent.cycle().state == "changed"
    settled(agent, placement, agent_log, {NAME: node(INVENTORY)})


def test_a_custom_trait_is_made_once(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped(INVENTORY, traits={NAME: ["CUSTOM_A", "CUSTOM_B"]})
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "GET traits?name=in:CUSTOM_A,CUSTOM_B -> 200",
        "PUT traits CUSTOM_A -> 201",
        "PUT traits CUSTOM_B -> 201",
        "PUT tr R g2 -> 200",
    ]
    placement.clear()
    node_a.driver.script = shaped(
        INVENTORY, {"N0": (NAME, {})}, traits={NAME: ["CUSTOM_A"], "N0": ["CUSTOM_B"]}
    )
    assert node_a.cycle().state == "changed"
    assert [line for line in seen(placement) if "traits" in line] == [], (
        "a name that is known is asked for again"
    )
    settled(
        node_a,
        placement,
        agent_log,
        {NAME: node(INVENTORY, "CUSTOM_A"), "N0": Want({}, NAME, {"CUSTOM_B"})},
    )


def test_two_agents_make_the_same_trait_at_once_and_both_go_on(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped(INVENTORY, traits={NAME: ["CUSTOM_A"]})
    placement.faults.add(
        faults.before(lambda _: placement.other.call("PUT", "/traits/CUSTOM_A")),
        method="PUT",
        path="/traits/CUSTOM_A",
    )
    report = node_a.cycle()
    assert (report.state, report.attempts) == ("changed", 1)
    assert seen(placement)[-2:] == ["PUT traits CUSTOM_A -> 204", "PUT tr R g2 -> 200"]
    settled(node_a, placement, agent_log, {NAME: node(INVENTORY, "CUSTOM_A")})


def test_a_standard_trait_that_the_server_does_not_know_is_left_out_for_an_hour(
    node_a: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node_a.driver.script = shaped(INVENTORY, traits={NAME: ["HW_NEW", "HW_CPU_X86_VMX"]})
    assert node_a.cycle().state == "changed"
    # Known before planning, so that the failing PUT of the scenario is not needed to find out.
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "GET traits?name=in:HW_CPU_X86_VMX,HW_NEW -> 200",
        "PUT tr R g2 -> 200",
    ]
    assert [line for line in warnings(agent_log) if "HW_NEW" in line] == [
        "this Placement does not know the trait HW_NEW; it is left out"
    ]
    placement.clear()
    assert node_a.cycle().state == "in-sync"
    assert seen(placement) == ["GET in_tree=R -> 200"]
    monkeypatch.setattr(mirror, "ASK_FOR_TRAIT_AGAIN", -1.0)
    placement.clear()
    node_a.cycle()
    assert seen(placement) == ["GET in_tree=R -> 200", "GET traits?name=in:HW_NEW -> 200"]
    monkeypatch.undo()
    node_a.cycle()
    settled(node_a, placement, agent_log, {NAME: node(INVENTORY, "HW_CPU_X86_VMX")})


def test_a_trait_that_the_server_confirmed_and_then_refuses_is_left_out_and_all_others_arrive(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    """A downgraded server: what its predecessor knew, it does not. Only the refusal tells."""
    confirmed = node_a.fleet.context.server.capabilities
    assert confirmed is not None
    node_a.fleet.context.server.learn(server.with_names(confirmed, traits=["HW_NEW"]))
    node_a.driver.script = shaped(INVENTORY, traits={NAME: ["HW_NEW", "CUSTOM_A"]})
    report = node_a.cycle()
    assert (report.state, report.attempts) == ("changed", 2)
    assert [line for line in seen(placement) if line.startswith("PUT")] == [
        "PUT traits CUSTOM_A -> 201",
        "PUT tr R g2 -> 400",
        "PUT tr R g2 -> 200",
    ]
    assert [line for line in warnings(agent_log) if "HW_NEW" in line] == [
        "this Placement does not know the trait HW_NEW; it is left out"
    ]
    settled(node_a, placement, agent_log, {NAME: node(INVENTORY, "CUSTOM_A")})


@pytest.mark.parametrize("where", [NAME, "N0"])
def test_a_custom_trait_deleted_between_making_and_using_it_is_made_once_more(
    where: str,
    node_a: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    node_a.driver.script = shaped(INVENTORY, {"N0": (NAME, {})}, traits={where: ["CUSTOM_A"]})
    deleted = placement.faults.add(
        faults.after(lambda _: placement.other.call("DELETE", "/traits/CUSTOM_A")),
        method="PUT",
        path="/traits/CUSTOM_A",
    )
    report = node_a.cycle()
    assert deleted.hits == 1
    assert (report.state, report.attempts) == ("changed", 2)
    target = "R g2" if where == NAME else "N0 g0"
    assert [line for line in seen(placement) if line.startswith("PUT")] == [
        "PUT traits CUSTOM_A -> 201",
        f"PUT tr {target} -> 400",
        "PUT traits CUSTOM_A -> 201",
        f"PUT tr {target} -> 200",
    ]
    on = {one: {"CUSTOM_A"} & {"CUSTOM_A" if one == where else ""} for one in (NAME, "N0")}
    settled(
        node_a,
        placement,
        agent_log,
        {NAME: node(INVENTORY, *on[NAME]), "N0": Want({}, NAME, on["N0"])},
    )


def test_a_name_that_is_refused_again_and_again_is_forgotten_once_and_then_told(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped(INVENTORY, traits={NAME: ["CUSTOM_A"]})
    placement.faults.add(
        faults.answer(400, "placement.undefined_code"),
        method="PUT",
        path=f"{ROOT}/traits",
        times=None,
    )
    report = node_a.cycle()
    assert (report.state, report.attempts) == ("degraded", 2)
    assert [one.code for one in report.errors] == ["placement.refused"]
    assert [line for line in seen(placement) if line.startswith("PUT tr ")] == [
        "PUT tr R g2 -> 400"
    ] * 2
    placement.clear()
    # Not retried until the input changes.
    assert node_a.cycle().state == "degraded"
    assert placement.writes() == []


# --- aggregates -----------------------------------------------------------------------------------


def test_an_aggregate_of_the_operator_is_kept_and_its_generation_used(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    aggregate = new_uuid()
    generation = placement.other.set_aggregates(ROOT, [aggregate])
    grown = {**INVENTORY, "VCPU": total(18)}
    node_a.driver.script = shaped(grown)
    assert node_a.cycle().state == "changed"
    assert [line for line in seen(placement) if not line.startswith("GET")] == [
        f"PUT inv R g{generation} -> 200"
    ]
    settled(node_a, placement, agent_log, {NAME: node(grown, aggregates={aggregate})})


def test_equal_aggregates_are_not_sent_because_the_server_would_move_the_generation(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    aggregate = new_uuid()
    node_a.driver.script = in_aggregate(aggregate.upper())
    assert node_a.cycle().state == "changed"
    assert seen(placement) == ["GET in_tree=R -> 200", "PUT ag R g2 -> 200"]
    placement.clear()
    assert node_a.cycle().state == "in-sync"
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        f"GET member_of=in:{aggregate} required=MISC_SHARES_VIA_AGGREGATE -> 200",
    ]
    generation = placement.other.generation(ROOT)
    assert placement.other.set_aggregates(ROOT, [aggregate]) == generation + 1
    node_a.cycle()
    settled(node_a, placement, agent_log, {NAME: node(INVENTORY, aggregates={aggregate})})


def test_an_aggregate_of_ours_is_taken_back_and_that_of_somebody_else_stays(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    ours, theirs = new_uuid(), new_uuid()
    node_a.driver.script = in_aggregate(ours)
    node_a.cycle()
    placement.other.set_aggregates(ROOT, [ours, theirs])
    node_a.cycle()
    node_a.driver.script = shaped(INVENTORY)
    assert node_a.cycle().state == "changed"
    node_a.cycle()
    settled(node_a, placement, agent_log, {NAME: node(INVENTORY, aggregates={theirs})})


def test_a_conflict_while_aggregates_are_written_reads_the_tree_again_and_loses_no_child(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    aggregate, child = new_uuid(), {"N0": (NAME, {"VGPU": total(1)})}
    node_a.driver.script = shaped(INVENTORY, child)
    node_a.cycle()
    before = placement.dump()["providers"].keys()

    def grouped(tree: ProviderTree) -> None:
        shaped(INVENTORY, child)(tree)
        tree.add_aggregates(ROOT, aggregate)

    node_a.driver.script = grouped
    race = placement.faults.add(
        faults.before(lambda _: add_traits(placement, "CUSTOM_RACK7")),
        method="PUT",
        path="/aggregates$",
    )
    placement.clear()
    report = node_a.cycle()
    assert (race.hits, report.state, report.attempts) == (1, "changed", 2)
    # The structure tells that the child is there: nobody makes it a second time.
    assert placement.count("POST") == 0
    assert seen(placement).count("GET in_tree=R -> 200") == 2
    assert placement.dump()["providers"].keys() == before
    # The pass after it asks once who shares by the new aggregate.
    node_a.cycle()
    settled(
        node_a,
        placement,
        agent_log,
        {
            NAME: node(INVENTORY, "CUSTOM_RACK7", aggregates={aggregate}),
            "N0": Want({"VGPU": total(1)}, NAME),
        },
    )


# --- the switch -----------------------------------------------------------------------------------


def candidates(placement: PlacementServer) -> int:
    query = "resources=VCPU:2&root_required=COMPUTE_NODE,!COMPUTE_STATUS_DISABLED"
    return len(
        placement.other.call("GET", f"/allocation_candidates?{query}").json()["allocation_requests"]
    )


def test_a_disabled_host_gets_no_candidates_until_it_is_enabled(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(INVENTORY))
    agent.once()
    add_traits(placement, "CUSTOM_RACK7")
    assert candidates(placement) == 1
    agent.policy = Policy(enabled=False)
    placement.clear()
    generation = placement.other.generation(ROOT)
    assert agent.once().state == "changed"
    assert seen(placement)[-1] == f"PUT tr R g{generation} -> 200"
    assert candidates(placement) == 0
    assert placement.other.traits(ROOT) == {*ROOT_TRAITS, "CUSTOM_RACK7", DISABLED}
    agent.policy = Policy(enabled=True)
    assert agent.once().state == "changed"
    assert candidates(placement) == 1
    settled(agent, placement, agent_log, {NAME: node(INVENTORY, "CUSTOM_RACK7")})


@pytest.mark.parametrize("enabled", [True, None])
def test_a_host_that_somebody_else_disabled_stays_disabled(
    enabled: bool | None,
    host: Host,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    agent = host(shaped(INVENTORY), policy=Policy(enabled=enabled))
    agent.cycle(start=True)
    add_traits(placement, DISABLED)
    placement.clear()
    report = agent.cycle()
    assert report.state == "in-sync"
    assert [drift.kind for drift in report.drift] == (["disabled"] if enabled else [])
    settled(agent, placement, agent_log, {NAME: node(INVENTORY, DISABLED)})


def test_an_unset_switch_leaves_the_trait_as_the_agent_left_it(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(INVENTORY), policy=Policy(enabled=False))
    agent.once()
    agent.policy = Policy(enabled=None)
    assert agent.once().state == "in-sync"
    settled(agent, placement, agent_log, {NAME: node(INVENTORY, DISABLED)})
