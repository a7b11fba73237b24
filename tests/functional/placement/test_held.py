"""What is gone from the node and still used, when more than one thing is."""

from typing import Any

import pytest

from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver, shaped, total
from tests.support.nova_style_driver import NovaStyleDriver
from tests.support.placement import PlacementServer

ROOT_HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
A, B = {"CUSTOM_A": total(2)}, {"CUSTOM_B": total(3)}


def wants(agent: AgentUnderTest, *records: dict) -> None:
    agent.driver.script = shaped(
        ROOT_HAS, {"PF0": (NAME, {name: one for record in records for name, one in record.items()})}
    )


def test_a_second_class_that_has_to_be_held_does_not_release_the_first(
    node_a: AgentUnderTest, placement: PlacementServer
) -> None:
    wants(node_a, A, B)
    node_a.cycle()
    pf0 = node_a.cycle().tree.data("PF0").uuid
    first = placement.other.claim({pf0: {"CUSTOM_A": 1}})
    second = placement.other.claim({pf0: {"CUSTOM_B": 1}})
    wants(node_a, B)
    assert node_a.cycle().attempts == 2
    wants(node_a)
    report = node_a.cycle()
    assert (report.attempts, [one.kind for one in report.drift]) == (
        2,
        ["held-device", "held-device", "orphaned-allocation", "orphaned-allocation"],
    )
    both = {"CUSTOM_A": total(2, reserved=2), "CUSTOM_B": total(3, reserved=3)}
    assert placement.other.inventory(pf0) == both
    for following in (node_a.cycle, node_a.once):
        assert following().state == "in-sync"
        assert placement.other.inventory(pf0) == both
    placement.other.release(first)
    node_a.cycle()
    assert set(placement.other.inventory(pf0)) == {"CUSTOM_B"}
    placement.other.release(second)
    assert node_a.cycle().drift == ()
    assert placement.other.inventory(pf0) == {}


@pytest.mark.parametrize("style", ["shaping", "nova"])
def test_what_the_agent_reserved_while_it_was_held_is_not_kept_for_a_driver_that_says_no_more_than_totals(
    host: Host, placement: PlacementServer, style: str
) -> None:
    def sparse(**totals: int) -> Any:
        records = {name: {"total": amount} for name, amount in totals.items()}
        if style == "shaping":
            return ScriptedDriver(lambda tree: tree.update_inventory(NAME, records))
        driver = NovaStyleDriver()
        driver.update_provider_tree = lambda tree, name, allocations=None: tree.update_inventory(
            name, records
        )  # type: ignore[method-assign]
        return driver

    agent = host(driver=sparse(VCPU=16, CUSTOM_A=4))
    agent.once()
    consumer = placement.other.claim({ROOT: {"CUSTOM_A": 1}})
    agent.driver = sparse(VCPU=16)
    agent.once()
    assert placement.other.inventory(ROOT)["CUSTOM_A"]["reserved"] == 4
    agent.driver = sparse(VCPU=16, CUSTOM_A=4)
    for _ in range(2):
        agent.once()
        assert placement.other.inventory(ROOT)["CUSTOM_A"]["reserved"] == 0
    # Held again, and gone with its consumer.
    agent.driver = sparse(VCPU=16)
    agent.once()
    placement.other.release(consumer)
    agent.once()
    assert set(placement.other.inventory(ROOT)) == {"VCPU"}
