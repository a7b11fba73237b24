"""What the agent writes of inventories, and what it does when that meets
somebody else.
"""

import logging
import time

import pytest

from agent.model.names import ProviderUuid
from tests.functional.placement.conftest import PF0, READ_R, Host, seen
from tests.support import faults
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver, shaped, total
from tests.support.placement import PlacementServer
from tests.support.settled import Want, node, settled

MEMORY = {"MEMORY_MB": total(16384)}
GIVEN = {"VCPU": total(16), **MEMORY}
ASK = "GET in_tree=R -> 200"
READ_PF0 = ["GET inv PF0 -> 200", "GET ag PF0 -> 200", "GET tr PF0 -> 200"]
PUT_INVENTORY = {"method": "PUT", "path": "/inventories$"}


def claim_on_root(placement: PlacementServer) -> faults.Action:
    """A scheduler gives a new consumer one CPU just before the request is handled: the root's
    generation moves.
    """
    return faults.before(lambda _: placement.other.claim({ROOT: {"VCPU": 1}}))


def told(log: pytest.LogCaptureFixture, level: int) -> list[str]:
    """What the agent logged at a level."""
    return [
        record.getMessage()
        for record in log.records
        if record.levelno == level and record.name.startswith("agent.")
    ]


def saved_contents(agent: AgentUnderTest, root: str) -> object:
    """What the agent keeps of a node: every provider, and when each was last read."""
    server = agent.fleet.context.server
    view = server.storage.view(server.transport.endpoint, ProviderUuid(root))
    assert view is not None
    return list(view.tree.providers()), view.read_at


# --- what is written ------------------------------------------------------------------------------


def test_a_changed_total_is_one_guarded_put(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    bystander = placement.other.create_provider("bystander")
    placement.other.set_inventory(bystander, {"VCPU": 1})
    before = placement.dump()
    wanted = {"VCPU": total(18), **MEMORY}
    node_a.driver.script = shaped(wanted)
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [ASK, "PUT inv R g2 -> 200"]
    assert placement.requests[-1].body["inventories"] == wanted
    assert node_a.cycle().tree.provider(ROOT).generation == 3
    settled(node_a, placement, agent_log, {NAME: node(wanted)}, before=before)


def test_a_class_that_the_driver_drops_goes(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped({"VCPU": total(16)})
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [ASK, "PUT inv R g2 -> 200"]
    assert placement.requests[-1].body["inventories"] == {"VCPU": total(16)}
    settled(node_a, placement, agent_log, {NAME: node({"VCPU": total(16)})})


def test_a_class_with_a_total_of_0_is_left_out(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped({**GIVEN, "VGPU": total(2)})
    node_a.cycle()
    placement.clear()
    node_a.driver.script = shaped({**GIVEN, "VGPU": total(0)})
    assert node_a.cycle().state == "changed"
    assert [one.body["inventories"] for one in placement.writes()] == [GIVEN]
    settled(node_a, placement, agent_log, {NAME: node(GIVEN)})


@pytest.mark.parametrize(
    ("record", "said"),
    [
        pytest.param(total(16, reserved=20), "VCPU: reserved 20 is above total 16", id="s_21"),
        pytest.param(
            total(16, min_unit=3, max_unit=2), "VCPU: min_unit 3 is above max_unit 2", id="s_22"
        ),
    ],
)
def test_a_record_that_could_not_be_used_is_rejected_locally(
    node_a: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    record: dict[str, float],
    said: str,
) -> None:
    child = {"SRIOV_NET_VF": total(4)}
    node_a.driver.script = shaped(
        {"VCPU": record, "MEMORY_MB": total(8192)}, {"PF0": (NAME, child)}
    )
    report = node_a.cycle()
    assert report.state == "degraded"
    assert [error.message for error in report.errors] == [f"provider 'node-a': {said}"]
    # All of the root's inventory stays, because an inventory is written as a whole; the rest of the
    # tree goes on.
    assert seen(placement) == [ASK, "POST RP PF0 under R -> 200", "PUT inv PF0 g0 -> 200"]
    settled(
        node_a,
        placement,
        agent_log,
        {NAME: node(GIVEN), "PF0": Want(child, NAME)},
        state="degraded",
    )


def test_a_custom_class_is_ensured_once(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped({**GIVEN, "CUSTOM_FPGA_X": total(1)})
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [
        ASK,
        "PUT resource_classes CUSTOM_FPGA_X -> 201",
        "PUT inv R g2 -> 200",
    ]
    placement.clear()
    node_a.stop()
    node_a.driver.script = shaped({**GIVEN, "CUSTOM_FPGA_X": total(2)})
    assert node_a.once().state == "changed"
    assert seen(placement) == [ASK, "PUT inv R g3 -> 200"]
    settled(node_a, placement, agent_log, {NAME: node({**GIVEN, "CUSTOM_FPGA_X": total(2)})})


# --- what is in use -------------------------------------------------------------------------------


def test_a_used_class_is_held_with_all_of_it_reserved_until_it_is_free(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped(GIVEN, {"PF0": (NAME, {"SRIOV_NET_VF": total(4)})})
    node_a.cycle()
    consumer = placement.other.claim({PF0: {"SRIOV_NET_VF": 1}})
    grown = {"VCPU": total(18), **MEMORY}
    node_a.driver.script = shaped(grown, {"PF0": (NAME, {})})
    placement.clear()
    report = node_a.cycle()
    # The class is held in the same pass, because until then others can claim what is gone.
    assert seen(placement) == [
        ASK,
        *READ_PF0,
        "GET al PF0 -> 200",
        "PUT inv PF0 g2 -> 409",
        "PUT inv R g2 -> 200",
        ASK,
        "GET al PF0 -> 200",
        "PUT inv PF0 g2 -> 200",
    ]
    assert report.attempts == 2
    assert [one.kind for one in report.drift] == ["held-device", "orphaned-allocation"]
    assert placement.other.inventory(PF0) == {"SRIOV_NET_VF": total(4, reserved=4)}
    for following in (node_a.cycle, node_a.once):
        placement.clear()
        held = following()
        assert (held.state, [one.kind for one in held.drift]) == (
            "in-sync",
            ["held-device", "orphaned-allocation"],
        )
        assert seen(placement) == [ASK, "GET al PF0 -> 200"]
    placement.other.release(consumer)
    placement.clear()
    assert node_a.cycle().drift == ()
    assert seen(placement) == [ASK, "GET al PF0 -> 200", "PUT inv PF0 g3 -> 200"]
    settled(node_a, placement, agent_log, {NAME: node(grown), "PF0": Want({}, NAME)})


def test_a_total_below_what_is_used_is_written_and_warned_of_once(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    placement.other.claim({ROOT: {"VCPU": 8}})
    before = placement.dump()
    node_a.driver.script = shaped({"VCPU": total(1), **MEMORY})
    report = node_a.cycle()
    assert seen(placement) == [
        ASK,
        *READ_R,
        "GET al R -> 200",
        "PUT inv R g3 -> 200",
        "GET us R -> 200",
    ]
    assert [(one.kind, one.severity) for one in report.drift] == [
        ("orphaned-allocation", "info"),
        ("overcommitted", "warning"),
    ]
    assert told(agent_log, logging.WARNING) == ["over-committed VCPU 8 of 1 on node-a"]
    refusal = placement.other.call(
        "PUT",
        "/allocations/33333333-3333-3333-3333-333333333333",
        {
            "allocations": {ROOT: {"resources": {"VCPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
        },
        expect=[409],
    )
    assert refusal.json()["errors"][0]["code"] == "placement.undefined_code"
    settled(node_a, placement, agent_log, {NAME: node({"VCPU": total(1), **MEMORY})}, before=before)
    assert len(told(agent_log, logging.WARNING)) == 1


# --- somebody else writes too ---------------------------------------------------------------------


def test_a_claim_between_read_and_write_is_read_again_and_planned_anew(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    wanted = {"VCPU": total(18), **MEMORY}
    node_a.driver.script, node_a.driver.calls = shaped(wanted), 0
    placement.faults.add(claim_on_root(placement), **PUT_INVENTORY)
    begun = time.monotonic()
    report = node_a.cycle()
    assert time.monotonic() - begun >= 0.1
    assert (report.state, report.attempts, report.errors, node_a.driver.calls) == (
        "changed",
        2,
        (),
        2,
    )
    assert seen(placement) == [
        ASK,
        "PUT inv R g2 -> 409",
        ASK,
        *READ_R,
        "GET al R -> 200",
        "PUT inv R g3 -> 200",
    ]
    assert [(one.operation.op, one.status) for one in report.outcomes] == [
        ("set-inventory", "done")
    ]
    consumers = placement.dump()["consumers"]
    assert [one["allocations"] for one in consumers.values()] == [{ROOT: {"VCPU": 1}}]
    settled(node_a, placement, agent_log, {NAME: node(wanted)}, consumers=consumers)


@pytest.mark.usefixtures("short_waits")
def test_after_four_conflicts_the_cycle_gives_up_and_the_next_is_normal(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    wanted = {"VCPU": total(18), **MEMORY}
    node_a.driver.script = shaped(wanted)
    stormy = placement.faults.add(claim_on_root(placement), times=None, **PUT_INVENTORY)
    report = node_a.cycle()
    assert (report.state, report.attempts) == ("failed", 4)
    assert [one.code for one in report.errors] == ["placement.conflict"]
    assert [line for line in seen(placement) if line.startswith("PUT")] == [
        f"PUT inv R g{generation} -> 409" for generation in (2, 3, 4, 5)
    ]
    assert stormy.hits == 4
    placement.faults.clear()
    placement.clear()
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [ASK, *READ_R, "GET al R -> 200", "PUT inv R g6 -> 200"]
    settled(
        node_a, placement, agent_log, {NAME: node(wanted)}, consumers=placement.dump()["consumers"]
    )


def test_a_write_that_met_503_is_sent_again_in_the_next_cycle_only(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    wanted = {"VCPU": total(18), **MEMORY}
    node_a.driver.script = shaped(wanted)
    placement.faults.add(faults.answer(503), **PUT_INVENTORY)
    assert node_a.cycle().state == "degraded"
    assert seen(placement) == [ASK, "PUT inv R g2 -> 503"]
    placement.clear()
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [ASK, *READ_R, "PUT inv R g2 -> 200"]
    settled(node_a, placement, agent_log, {NAME: node(wanted)})


def test_what_is_in_doubt_stays_so_until_it_was_read(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    wanted = {"VCPU": total(18), **MEMORY}
    node_a.driver.script = shaped(wanted)
    placement.faults.add(faults.answer(503), **PUT_INVENTORY)
    node_a.cycle()
    placement.faults.add(faults.refused(), method="GET", path="/aggregates$", times=2)
    assert node_a.cycle().state == "failed"
    placement.clear()
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [ASK, *READ_R, "PUT inv R g2 -> 200"]
    settled(node_a, placement, agent_log, {NAME: node(wanted)})


@pytest.mark.usefixtures("short_waits")
def test_a_conflict_on_one_node_costs_the_other_nothing(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    other_root = "5f9c2a34-7d1e-4a8b-9c46-000000000002"
    agent = host(driver=ScriptedDriver(shaped(GIVEN), {ROOT: NAME, other_root: "node-b"}))
    agent.period(start=True)
    before = placement.dump()
    saved = saved_contents(agent, other_root)
    wanted = {"VCPU": total(18), **MEMORY}
    agent.driver.script = lambda tree: shaped(wanted if tree.exists(ROOT) else GIVEN)(tree)
    placement.faults.add(claim_on_root(placement), method="PUT", path=f"{ROOT}/inventories$")
    placement.clear()
    reports = {one.name: one for one in agent.period().nodes}
    assert (reports[NAME].state, reports[NAME].attempts) == ("changed", 2)
    assert (reports["node-b"].state, reports["node-b"].attempts) == ("in-sync", 1)
    assert reports["node-b"].requests == {"GET": 0, "POST": 0, "PUT": 0, "DELETE": 0}
    assert [line for line in seen(placement) if other_root in line] == []
    assert saved_contents(agent, other_root) == saved
    settled(
        agent,
        placement,
        agent_log,
        {NAME: node(wanted)},
        before=before,
        consumers=placement.dump()["consumers"],
    )


def test_the_html_page_of_a_proxy_counts_as_an_outage(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    wanted = {"VCPU": total(18), **MEMORY}
    node_a.driver.script = shaped(wanted)
    placement.faults.add(faults.html(502), **PUT_INVENTORY)
    report = node_a.cycle()
    assert (report.state, [one.code for one in report.errors]) == (
        "degraded",
        ["placement.refused"],
    )
    assert "502" in report.errors[0].message
    (line,) = told(agent_log, logging.WARNING)
    assert f"placement PUT /resource_providers/{ROOT}/inventories -> 502" in line
    assert "no request id" in line
    placement.clear()
    assert node_a.cycle().state == "changed"
    assert seen(placement) == [ASK, *READ_R, "PUT inv R g2 -> 200"]
    settled(node_a, placement, agent_log, {NAME: node(wanted)})


def test_an_inventory_edited_by_hand_is_set_back_and_told(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    wanted = {"VCPU": total(16, allocation_ratio=4.0), **MEMORY}
    agent = host(shaped(wanted))
    agent.cycle(start=True)
    placement.other.set_inventory(ROOT, {"VCPU": total(16, allocation_ratio=2.0), **MEMORY})
    placement.clear()
    agent_log.clear()
    assert agent.cycle().state == "changed"
    assert seen(placement) == [ASK, *READ_R, "PUT inv R g3 -> 200"]
    assert told(agent_log, logging.INFO) == ["inventory of node-a: VCPU ratio 2.0 -> 4.0"]
    settled(agent, placement, agent_log, {NAME: node(wanted)})
