"""A second writer of the node's providers: a nova-compute that still runs, an agent with a copied
identity.
"""

import itertools
from collections.abc import Callable

import pytest

from agent.model.finding import PARTLY
from agent.model.names import child_uuid
from agent.model.report import NodeReport, exit_code
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, shaped, total
from tests.support.monotonic import Clock
from tests.support.placement import PlacementServer

VCPU, THEIRS = (
    {"VCPU": total(16), "MEMORY_MB": total(1024)},
    {"VCPU": total(64), "MEMORY_MB": total(1024)},
)
N0 = child_uuid(ROOT, "N0")
CHILD = {"N0": (NAME, {"VGPU": total(2)})}

pytestmark = [pytest.mark.usefixtures("short_waits"), pytest.mark.long]


@pytest.fixture
def agent(host: Host, clock: Clock) -> AgentUnderTest:
    """Just synchronised."""
    assert clock.now == 0.0
    agent = host(shaped(VCPU, CHILD, traits={NAME: ["CUSTOM_OURS"]}))
    assert agent.cycle(start=True).state == "changed"
    return agent


RIVALS: dict[str, tuple[Callable[[PlacementServer], object], str, str]] = {
    "inventory": (
        lambda placement: placement.other.set_inventory(ROOT, THEIRS),
        "inventory of VCPU",
        ROOT,
    ),
    "trait": (
        lambda placement: placement.other.set_traits(
            ROOT, placement.other.traits(ROOT) - {"CUSTOM_OURS"}
        ),
        "trait CUSTOM_OURS",
        ROOT,
    ),
    "child deleted": (lambda placement: placement.other.delete_provider(N0), "the provider", N0),
    "child renamed": (lambda placement: placement.other.rename(N0, "renamed"), "its name", N0),
    "child taken away": (lambda placement: placement.other.reparent(N0, None), "the provider", N0),
}


def told(report: NodeReport) -> list[str]:
    return [one.detail for one in report.drift if one.kind == "rival-writer"]


def wrote(placement: PlacementServer) -> int:
    return len(placement.writes())


@pytest.mark.parametrize("how", RIVALS)
def test_two_writers_do_not_write_against_each_other_every_minute(
    how: str, agent: AgentUnderTest, placement: PlacementServer, clock: Clock
) -> None:
    interfere, what, uuid = RIVALS[how]
    written = []
    for minute in range(1, 41):
        clock.now = 60.0 * minute
        if not written or written[-1] == minute - 1:
            # The other one puts it back within a minute.
            interfere(placement)
        placement.clear()
        report = agent.cycle()
        if placement.writes():
            written.append(minute)
        if minute >= 2:
            (drift,) = (one for one in report.drift if one.kind == "rival-writer")
            assert (drift.severity, drift.provider) == ("warning", uuid)
            assert what in drift.detail
            assert "times)" in drift.detail
            assert "nova-compute" in drift.remedy
        if minute >= 2 and minute not in written:
            assert (report.state, exit_code([report])) == ("degraded", PARTLY)
            assert "another writer" in str(report.outcomes[0].error)
    # What the agent wrote first was changed back, and what it wrote in minute 1: from then on once
    # in ten minutes.
    assert written[0] == 1
    assert [after - at for at, after in itertools.pairwise(written)] == [10, 10, 10]
    # The other one is stopped: ten minutes after the last correction nothing is told any more.
    for minute in range(41, 65):
        clock.now = 60.0 * minute
        last = agent.cycle()
    assert (last.state, told(last)) == ("in-sync", [])


def test_what_is_changed_back_keeps_nothing_else_from_being_written(
    agent: AgentUnderTest, placement: PlacementServer, clock: Clock
) -> None:
    for minute in (1, 2, 3):
        clock.now = 60.0 * minute
        placement.other.set_inventory(ROOT, THEIRS)
        report = agent.cycle()
    assert len(told(report)) == 1
    agent.driver.script = shaped(
        {**VCPU, "MEMORY_MB": total(2048)},
        {"N0": (NAME, {"VGPU": total(3)})},
        traits={NAME: ["CUSTOM_OURS", "CUSTOM_MORE"]},
    )
    clock.now = 240.0
    agent.cycle()
    assert placement.other.inventory(ROOT)["MEMORY_MB"]["total"] == 2048
    assert placement.other.inventory(ROOT)["VCPU"]["total"] == 64
    assert placement.other.inventory(N0)["VGPU"]["total"] == 3
    assert "CUSTOM_MORE" in placement.other.traits(ROOT)
    # What the node itself has otherwise by now is nobody's rivalry.
    agent.driver.script = shaped(
        {"VCPU": total(20), "MEMORY_MB": total(2048)}, CHILD, traits={NAME: ["CUSTOM_OURS"]}
    )
    report = agent.cycle()
    assert (placement.other.inventory(ROOT)["VCPU"]["total"], told(report)) == (20, [])


def test_an_operator_who_changes_something_once_in_a_while_is_no_rival(
    agent: AgentUnderTest, placement: PlacementServer, clock: Clock
) -> None:
    for hour in (1, 2, 3, 4):
        clock.now = 3600.0 * hour
        placement.other.set_inventory(ROOT, THEIRS)
        report = agent.cycle()
        assert (report.state, told(report)) == ("changed", [])


def test_a_device_that_comes_and_goes_is_no_rival(
    agent: AgentUnderTest, placement: PlacementServer, clock: Clock
) -> None:
    # As the functions of a card do whose driver is loaded anew.
    for minute in range(1, 9):
        clock.now = 60.0 * minute
        there = minute % 2 == 0
        agent.driver.script = shaped(
            VCPU,
            {"N0": (NAME, {"VGPU": total(2)})} if there else {},
            traits={NAME: ["CUSTOM_OURS"]},
        )
        report = agent.cycle()
        assert (report.state, told(report)) == ("changed", [])
        if there:
            assert placement.other.inventory(N0) == {"VGPU": total(2)}


def test_a_provider_that_is_made_again_gets_all_that_it_had_whatever_was_changed_back_before(
    agent: AgentUnderTest, placement: PlacementServer, clock: Clock
) -> None:
    clock.now = 60.0
    placement.other.set_inventory(N0, {"VGPU": total(7)})
    assert agent.cycle().state == "changed"
    clock.now = 120.0
    placement.other.delete_provider(N0)
    report = agent.cycle()
    assert (report.state, told(report)) == ("changed", [])
    assert placement.other.inventory(N0)["VGPU"]["total"] == 2
