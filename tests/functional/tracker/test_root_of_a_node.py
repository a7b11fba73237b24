"""Traits and reserved amounts of a node's root: resource tracking 8.10, as far as no provider files
are needed, on a real Placement.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.model.facts import CpuFacts, HostFacts
from agent.model.provider_tree import ProviderTree
from agent.tree.policy import Policy
from tests.support.agent import ROOT, AgentUnderTest
from tests.support.placement import PlacementServer

MULTI_ATTACH, RACK, DISABLED = (
    "COMPUTE_VOLUME_MULTI_ATTACH",
    "CUSTOM_RACK",
    "COMPUTE_STATUS_DISABLED",
)

Made = Callable[..., AgentUnderTest]


@pytest.fixture
def made(placement: PlacementServer, tmp_path: Path) -> Iterator[Made]:
    """Makes the agent of one and the same host, with the policy that is given."""
    agents: list[AgentUnderTest] = []

    def make(**policy: Any) -> AgentUnderTest:
        for earlier in agents:
            earlier.stop()
        agent = AgentUnderTest(placement, tmp_path / "state", policy=Policy(**policy))
        agent.driver.facts_of = lambda name: HostFacts(
            name,
            agent.driver.calls + 1.0,
            "test",
            cpu=CpuFacts(frozenset(range(4))),
            memory_mib=4096,
            disk_gib=100,
        )
        agents.append(agent)
        return agent

    yield make
    for earlier in agents:
        earlier.stop()


def reserved_disk(placement: PlacementServer) -> int:
    """What of the root's disk is reserved, in GiB."""
    found: int = placement.dump()["providers"][ROOT]["inventories"]["DISK_GB"]["reserved"]
    return found


@pytest.mark.parametrize(("mib", "gib"), [(2048, 2), (2049, 3)])
def test_reserved_disk_is_rounded_up_where_the_driver_says_nothing(
    made: Made, placement: PlacementServer, mib: int, gib: int
) -> None:
    made(reserved_disk_mib=mib).once()
    assert reserved_disk(placement) == gib


def test_what_the_driver_reserves_is_never_overridden(
    made: Made, placement: PlacementServer
) -> None:
    def seven(tree: ProviderTree) -> None:
        inventory = dict(tree.data(ROOT).inventory)
        tree.update_inventory(
            ROOT, {**inventory, "DISK_GB": {**inventory["DISK_GB"], "reserved": 7}}
        )

    agent = made(reserved_disk_mib=2048)
    agent.driver.script = seven
    for start in (True, False):
        agent.cycle(start=start)
        assert reserved_disk(placement) == 7
