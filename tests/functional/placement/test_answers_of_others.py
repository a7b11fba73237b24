"""Answers that are not Placement's own: from whatever stands in front of it, or from another
Placement behind the same address.
"""

import logging

import pytest

from agent.service.log_writer import ProblemLog
from tests.functional.placement.conftest import N0, READ_R, Host, seen
from tests.support import faults
from tests.support.agent import NAME, AgentUnderTest, shaped, total
from tests.support.placement import PlacementServer
from tests.support.settled import node, settled

ROOT_INVENTORY = {"VCPU": total(16)}
MORE = {"VCPU": total(18)}

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture
def with_child(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """R -> N0, just synchronised."""
    agent = host(shaped(ROOT_INVENTORY, {"N0": (NAME, {"VGPU": total(2)})}))
    agent.cycle(start=True)
    placement.clear()
    return agent


@pytest.mark.parametrize("status", [404, 400, 403, 409])
def test_an_error_page_does_not_make_a_child_of_ours_foreign(
    status: int,
    with_child: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    before = placement.dump()
    with_child.driver.script = shaped(ROOT_INVENTORY)
    placement.faults.add(faults.html(status), method="DELETE")
    report = with_child.cycle()
    assert (report.state, [one.code for one in report.errors]) == (
        "degraded",
        ["placement.unreachable"],
    )
    assert "in a form that is not Placement's" in report.errors[0].message
    # The next process knows it, too.
    assert with_child.once().state == "changed"
    settled(with_child, placement, agent_log, {}, before=before, gone={"N0"})


def test_a_404_of_another_placement_does_not_make_a_child_of_ours_foreign(
    with_child: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    before = placement.dump()
    with_child.driver.script = shaped(ROOT_INVENTORY)
    placement.faults.add(faults.answer(404), method="DELETE")
    assert with_child.cycle().state == "changed"
    assert with_child.once().state == "changed"
    assert N0 not in placement.dump()["providers"]
    settled(with_child, placement, agent_log, {}, before=before, gone={"N0"})


@pytest.mark.parametrize("status", [404, 409, 400])
def test_an_error_page_in_answer_to_a_put_is_told_as_such_and_is_no_conflict(
    status: int,
    with_child: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    with_child.driver.script = shaped(MORE, {"N0": (NAME, {"VGPU": total(2)})})
    news = ProblemLog()
    placement.faults.add(faults.html(status), method="PUT", path="/inventories$", times=None)
    for _ in range(2):
        report = with_child.period()
        news.log_changes(report.errors, report.nodes)
        (one,) = report.nodes
        assert (one.state, one.attempts) == ("degraded", 1)
        assert placement.count("PUT") == 1
        placement.clear()
    said = [one.getMessage() for one in agent_log.records if one.levelno == logging.WARNING]
    assert [
        line
        for line in said
        if line.startswith("placement unreachable")
        and f"{status} in a form that is not Placement's" in line
    ] == said
    placement.faults.clear()
    placement.clear()
    assert with_child.cycle().state == "changed"
    # What became of the write is read, whatever the generation says.
    assert seen(placement) == ["GET in_tree=R -> 200", *READ_R, "PUT inv R g2 -> 200"]


@pytest.mark.parametrize("what", ["aggregates", "traits", "inventories"])
def test_an_error_page_in_answer_to_a_get_does_not_say_that_a_provider_is_gone(
    what: str, with_child: AgentUnderTest, placement: PlacementServer
) -> None:
    before = placement.dump()
    placement.other.set_traits(N0, ["HW_NUMA_ROOT"])
    placement.faults.add(faults.html(404), method="GET", path=f"/{what}$", times=None)
    report = with_child.cycle()
    assert (report.state, report.attempts, [one.code for one in report.errors]) == (
        "failed",
        1,
        ["placement.unreachable"],
    )
    assert placement.writes() == []
    assert placement.dump()["providers"].keys() == before["providers"].keys()


def test_a_page_with_200_for_ever_is_told_once(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    placement.faults.add(faults.html(200), times=None)
    agent_log.clear()
    for _ in range(4):
        assert node_a.cycle().state == "failed"
    said = [
        (one.levelname, one.getMessage())
        for one in agent_log.records
        if one.levelno >= logging.INFO
    ]
    assert [level for level, text in said if "not Placement's" in text] == ["WARNING"]
    assert [text for _, text in said if "reachable again" in text] == []
    placement.faults.clear()
    settled(
        node_a, placement, agent_log, {NAME: node({"VCPU": total(16), "MEMORY_MB": total(16384)})}
    )
