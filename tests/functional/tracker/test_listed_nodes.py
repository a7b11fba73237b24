"""Nodes that the driver lists, stops listing, and says are deleted; on a real Placement."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.model.names import ProviderUuid
from agent.tracker.errors import NodeUnavailable, UnknownNode
from agent.tracker.stored_state import InstanceClaim
from tests.support.agent import AgentUnderTest, ScriptedDriver
from tests.support.placement import PlacementServer
from tests.support.tracking import F1, instance, uuid_of

A, B = ProviderUuid(uuid_of("node-a")), ProviderUuid(uuid_of("node-b"))
BOTH = {A: "node-a", B: "node-b"}


class ListingDriver(ScriptedDriver):
    """Lists ``managed``, and is sure of ``deleted`` ones only."""

    def __init__(self) -> None:
        super().__init__(nodes=BOTH)
        self.deleted: set[str] = set()
        self.asked: list[str] = []

    def is_node_deleted(self, name: str) -> bool:
        self.asked.append(name)
        return name in self.deleted

    def list(self, nodes: Mapping[str, str]) -> None:
        """List these from now on."""
        self.managed = dict(nodes)


@pytest.fixture
def agent(placement: PlacementServer, tmp_path: Path) -> Iterator[AgentUnderTest]:
    """An agent with two nodes, both audited."""
    made = AgentUnderTest(placement, tmp_path / "state", ListingDriver())
    assert [node.state for node in made.period(start=True).nodes] == ["changed", "changed"]
    yield made
    made.stop()


def claim(agent: AgentUnderTest, node: ProviderUuid, name: str) -> None:
    agent.tracking.tracker.claim(
        InstanceClaim(id=uuid_of(f"claim-{name}"), node=node, instance=instance(name, F1))
    )


def test_a_node_that_a_list_lacks_stays_unless_the_backend_says_that_it_is_deleted(
    agent: AgentUnderTest,
) -> None:
    tracker = agent.tracking.tracker
    claim(agent, B, "i1")
    agent.driver.list({A: "node-a"})
    agent.period()
    assert agent.driver.asked == ["node-b"]
    assert set(tracker.nodes()) == {A, B}
    assert tracker.view(B).used.memory_mb == 2048
    with pytest.raises(NodeUnavailable):
        claim(agent, B, "i2")
    agent.driver.list(BOTH)
    agent.period()
    claim(agent, B, "i2")
    assert tracker.view(B).used.memory_mb == 4096


def test_a_node_that_the_backend_says_is_deleted_is_forgotten(agent: AgentUnderTest) -> None:
    tracker = agent.tracking.tracker
    agent.driver.list({A: "node-a"})
    agent.driver.deleted.add("node-b")
    agent.period()
    assert tracker.nodes() == [A]
    with pytest.raises(UnknownNode):
        tracker.view(B)
