"""A driver that forgets what a node with CPUs has; on a real Placement."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.model.facts import CpuFacts, HostFacts
from tests.support.agent import NAME, ROOT, AgentUnderTest
from tests.support.placement import PlacementServer

PUBLISHED = {"VCPU": 32, "MEMORY_MB": 65536, "DISK_GB": 1000}


@pytest.fixture
def agent(placement: PlacementServer, tmp_path: Path) -> Iterator[AgentUnderTest]:
    """An agent that has published a whole host."""
    made = AgentUnderTest(placement, tmp_path / "state")
    say(made)
    assert made.cycle(start=True).state == "changed"
    yield made
    made.stop()


def say(agent: AgentUnderTest, **changes: Any) -> None:
    """Have the driver tell of a whole host, but for ``changes``."""
    whole: dict[str, Any] = {
        "cpu": CpuFacts(frozenset(range(32))),
        "memory_mib": 65536,
        "disk_gib": 1000,
    }
    # A clock of its own, because every facts are newer than those before.
    agent.driver.facts_of = lambda name: HostFacts(
        name, agent.driver.calls + 1.0, "test", **{**whole, **changes}
    )


def published(placement: PlacementServer) -> dict[str, int]:
    """The totals of the root."""
    return {
        name: record["total"]
        for name, record in placement.dump()["providers"][ROOT]["inventories"].items()
    }


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"disk_gib": None}, " have CPUs but no disk_gib"),
        ({"memory_mib": None}, " have CPUs but no memory_mib"),
        ({"memory_mib": -1}, ": memory_mib = -1: no whole number of at least 0"),
        ({"memory_mib": None, "disk_gib": None}, " have CPUs but no memory_mib and no disk_gib"),
        (
            {"memory_mib": None, "disk_gib": None, "incomplete": {"disk": "it broke"}},
            " have CPUs but no memory_mib",
        ),
    ],
)
def test_what_is_forgotten_is_named_and_the_last_good_data_stay(
    agent: AgentUnderTest, placement: PlacementServer, changes: dict[str, Any], named: str
) -> None:
    say(agent, **changes)
    placement.clear()
    report = agent.cycle()
    assert report.state == "failed"
    (error,) = report.errors
    assert error.message == f"driver scripted: its facts of {NAME}{named}"
    assert error.remedy
    assert not [request for request in placement.requests if request.method != "GET"]
    assert published(placement) == PUBLISHED
    kept = agent.tracking.tracker.view(report.uuid).node
    assert (kept.memory_mb, kept.local_gb) == (65536, 1000)
    say(agent)
    assert agent.cycle().state == "in-sync"


def test_what_could_not_be_read_is_not_forgotten(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    say(
        agent, memory_mib=None, disk_gib=None, incomplete={"memory": "it broke", "disk": "it broke"}
    )
    assert agent.cycle().state == "degraded"
    assert published(placement) == PUBLISHED


def test_what_the_driver_says_is_not_there_is_taken_away(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    say(agent, disk_gib=0)
    assert agent.cycle().state == "changed"
    assert published(placement) == {"VCPU": 32, "MEMORY_MB": 65536}
