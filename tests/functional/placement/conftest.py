"""Fixtures of the scenarios: a host on an empty Placement, its log, waits that cost no time."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.model.names import child_uuid
from tests.support.agent import ROOT, AgentUnderTest, ScriptedDriver, Shape, shaped, total
from tests.support.exchange import traffic
from tests.support.placement import PlacementServer
from tests.support.settled import Scene

Host = Callable[..., AgentUnderTest]
N0, N1, PF0 = (child_uuid(ROOT, role) for role in ("N0", "N1", "PF0"))
NAMES = {ROOT: "R", N0: "N0", N1: "N1", PF0: "PF0"}
READ_R = ["GET inv R -> 200", "GET ag R -> 200", "GET tr R -> 200"]


def seen(placement: PlacementServer) -> list[str]:
    """The requests so far, a line each, with these providers by their roles."""
    return traffic(placement.requests, NAMES)


@pytest.fixture
def agent_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """All that the agent logs, down to DEBUG."""
    caplog.set_level(logging.DEBUG, "agent")
    return caplog


@pytest.fixture
def scene(placement: PlacementServer, agent_log: pytest.LogCaptureFixture) -> Scene:
    """Two nodes and a shared store, for operations on allocations."""
    return Scene(placement, agent_log)


@pytest.fixture
def host(placement: PlacementServer, tmp_path: Path) -> Iterator[Host]:
    """Makes agents on ``placement``: ``host(shape, driver=..., folder=..., roles=...)``; stopped at
    the end.
    """
    made: list[AgentUnderTest] = []

    def make(
        shape: Shape | None = None, *, driver: Any = None, folder: str = "state", **options: Any
    ) -> AgentUnderTest:
        made.append(
            AgentUnderTest(
                options.pop("placement", placement),
                tmp_path / folder,
                driver or ScriptedDriver(shape),
                **options,
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def node_a(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """The scenarios' given state: root ``node-a`` with VCPU 16 and MEMORY_MB 16384, just
    synchronised by this agent.
    """
    agent = host(shaped({"VCPU": total(16), "MEMORY_MB": total(16384)}))
    assert agent.cycle(start=True).state == "changed"
    placement.clear()
    return agent
