"""What is gone from the node and still used, when more than one thing is (placement.md 4.4, S-24)."""

from tests.support.agent import NAME, AgentUnderTest, shaped, total
from tests.support.placement import PlacementServer

ROOT_HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
A, B = {"CUSTOM_A": total(2)}, {"CUSTOM_B": total(3)}


def wants(agent: AgentUnderTest, *records: dict) -> None:
    agent.driver.script = shaped(ROOT_HAS, {"PF0": (NAME, {name: one for record in records for name, one in record.items()})})


def test_a_second_class_that_has_to_be_held_does_not_release_the_first(node_a: AgentUnderTest, placement: PlacementServer) -> None:
    wants(node_a, A, B)
    node_a.cycle()
    pf0 = node_a.cycle().tree.data("PF0").uuid
    first = placement.other.claim({pf0: {"CUSTOM_A": 1}})
    second = placement.other.claim({pf0: {"CUSTOM_B": 1}})
    wants(node_a, B)
    assert node_a.cycle().attempts == 2
    wants(node_a)
    report = node_a.cycle()
    assert (report.attempts, [one.kind for one in report.drift]) == (2, ["held-device", "held-device"])
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
