"""Claims while the tree meets conflicts and reshapes."""

from typing import Any

import pytest

from agent.errors import ReshapeNeeded
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.tracker.stored_state import InstanceClaim
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver, shaped, total
from tests.support.placement import PlacementServer
from tests.support.tracking import F1, instance, uuid_of

NODE = ProviderUuid(ROOT)


def claim(agent: AgentUnderTest, name: str) -> None:
    agent.tracking.tracker.claim(
        InstanceClaim(id=uuid_of(f"claim-{name}"), node=NODE, instance=instance(name, F1))
    )


def dirty(agent: AgentUnderTest) -> bool:
    return agent.tracking.tracker.view(NODE).node.dirty


def conflicting(agent: AgentUnderTest, placement: PlacementServer, times: int | None) -> None:
    """The node has changed, and writing that meets so many conflicts."""
    agent.driver.script = shaped({"VCPU": total(8), "MEMORY_MB": total(16384)})
    placement.faults.add(
        faults.answer(409, "placement.concurrent_update"),
        method="PUT",
        path=f"^/resource_providers/{ROOT}/inventories",
        times=times,
    )


def test_three_conflicts_are_waited_out_while_claims_go_on(
    node_a: AgentUnderTest, placement: PlacementServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    def wait(attempt: int, _cancelled: object) -> bool:
        claim(node_a, f"i{attempt}")
        waits.append(attempt)
        return False

    monkeypatch.setattr("agent.audit.flushing.conflict_wait", wait)
    conflicting(node_a, placement, 3)
    placement.faults.add(faults.before(lambda _exchange: claim(node_a, "late")), method="PUT")
    report = node_a.cycle()
    assert (report.state, report.attempts, waits) == ("changed", 4, [1, 2, 3])
    # Each attempt counts who came before it. One came after the last of them had.
    assert report.usage.claims == 3
    assert dirty(node_a)
    assert node_a.cycle().usage.claims == 4
    assert not dirty(node_a)


def test_four_conflicts_leave_the_node_dirty_until_the_next_audit(
    node_a: AgentUnderTest, placement: PlacementServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.audit.flushing.conflict_wait", lambda _attempt, _cancelled: False)
    claim(node_a, "i1")
    conflicting(node_a, placement, 4)
    assert (node_a.cycle().state, dirty(node_a)) == ("failed", True)
    assert (node_a.cycle().state, dirty(node_a)) == ("changed", False)


class Splitting(ScriptedDriver):
    """Moves VCPU to a cell once it is told to."""

    split = False

    def shape(self, tree: ProviderTree, facts: Any, allocations: Any) -> None:
        if self.split and allocations is None:
            raise ReshapeNeeded
        super().shape(tree, facts, allocations)


def test_a_reshape_in_a_periodic_audit_is_an_error_and_claims_go_on(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(driver=Splitting(shaped({"VCPU": total(16)})))
    assert agent.cycle(start=True).state == "changed"
    claim(agent, "i1")
    agent.driver.split = True
    placement.clear()
    report = agent.cycle()
    assert (report.state, [one.code for one in report.errors], placement.writes()) == (
        "failed",
        ["reshape.needed"],
        [],
    )
    assert report.usage.claims == 1
    claim(agent, "i2")
    agent.driver.split = False
    assert agent.cycle().usage.claims == 2
    assert placement.dump()["providers"][ROOT]["name"] == NAME
