"""What the agent deleted and a restored database brings back is decided by what it does: children
that only the agent makes go again, with all that they offer; names stay.
"""

import pytest

from agent.model.names import child_uuid
from agent.model.provider_tree import ProviderTree
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, new_uuid, operations, shaped, total
from tests.support.placement import PlacementServer

HAS = {"VCPU": total(16), "MEMORY_MB": total(64)}
CARD = child_uuid(ROOT, "card")
MANAGED = ("COMPUTE_MANAGED_PCI_DEVICE",)


def much(tree: ProviderTree) -> None:
    """A cell, a card with a port below it, and two traits."""
    shaped(
        HAS,
        {
            "cell": (NAME, {"VGPU": total(2)}),
            "card": (NAME, {"CUSTOM_CARD": total(1)}),
            "port": ("card", {"SRIOV_NET_VF": total(8)}),
        },
        traits={NAME: ("CUSTOM_GOLD", "HW_CPU_X86_AVX2"), "card": MANAGED, "port": MANAGED},
    )(tree)


little = shaped(HAS)


@pytest.fixture
def agent(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """A node that had much and has little, in a Placement that was restored to when it had much."""
    agent = host(much)
    assert agent.cycle(start=True).state == "changed"
    backup = placement.snapshot()
    agent.driver.script = little
    assert agent.cycle().state == "changed"
    assert not placement.other.call("GET", f"/resource_providers/{CARD}", expect=(404,)).ok
    placement.restore(backup)
    return agent


def is_little(placement: PlacementServer) -> bool:
    other = placement.other
    return [one["uuid"] for one in other.tree(ROOT)] == [ROOT] and (
        other.inventory(ROOT).keys() == HAS.keys()
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_children_that_a_restored_database_brings_back_are_removed_again_and_names_stay(
    agent: AgentUnderTest, placement: PlacementServer, *, restarted: bool
) -> None:
    if restarted:
        agent.stop()
    report = agent.cycle()
    assert (report.state, [one for one in report.drift if one.kind == "foreign-provider"]) == (
        "changed",
        [],
    )
    assert is_little(placement)
    assert {"CUSTOM_GOLD", "HW_CPU_X86_AVX2"} < placement.other.traits(ROOT)
    assert agent.cycle().state == "in-sync"


def test_a_dry_run_shows_what_would_be_removed_again(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    agent.stop()
    report = agent.once(dry_run=True)
    assert [one.op for one in operations(report)].count("delete-provider") == 3
    assert len(placement.other.tree(ROOT)) == 4


def test_what_somebody_uses_of_what_came_back_is_held(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    guest = placement.other.claim({CARD: {"CUSTOM_CARD": 1}})
    report = agent.cycle()
    assert [one.kind for one in report.drift] == ["held-device", "orphaned-allocation"]
    assert placement.other.inventory(CARD)["CUSTOM_CARD"]["reserved"] == 1
    placement.other.release(guest)
    agent.cycle()
    assert is_little(placement)


def test_what_others_put_beside_what_came_back_stays(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    theirs = placement.other.create_provider("theirs", parent=ROOT)
    placement.other.set_inventory(theirs, {"CUSTOM_THEIRS": 1})
    placement.other.set_traits(ROOT, placement.other.traits(ROOT) | {"CUSTOM_THEIRS"})
    aggregate = new_uuid()
    placement.other.set_aggregates(ROOT, {aggregate})
    agent.cycle()
    assert {one["uuid"] for one in placement.other.tree(ROOT)} == {ROOT, theirs}
    assert "CUSTOM_THEIRS" in placement.other.traits(ROOT)
    assert placement.other.aggregates(ROOT) == {aggregate}


def test_what_the_node_has_again_by_then_is_kept(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    agent.driver.script = much
    assert agent.cycle().state == "in-sync"
    assert len(placement.other.tree(ROOT)) == 4
    agent.driver.script = little
    assert agent.cycle().state == "changed"
    assert is_little(placement)


def test_a_trait_that_had_been_the_agents_is_the_operators_who_sets_it_again(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    agent.cycle()
    placement.other.set_traits(ROOT, placement.other.traits(ROOT) | {"CUSTOM_GOLD"})
    assert agent.cycle().state == "in-sync"
    assert "CUSTOM_GOLD" in placement.other.traits(ROOT)


def test_an_emptied_placement_gets_the_classes_and_traits_of_all_providers_in_one_pass(
    host: Host, placement: PlacementServer
) -> None:
    """The agent takes all names for known, and each provider's first write is refused."""
    cards = {f"card{one}": (NAME, {f"CUSTOM_CARD{one}": total(1)}) for one in range(4)}
    agent = host(shaped(HAS, cards, traits={card: [f"CUSTOM_OF_{card.upper()}"] for card in cards}))
    agent.cycle(start=True)
    before = placement.dump()
    placement.reset()
    report = agent.cycle(start=True)
    assert (report.state, report.attempts, report.errors) == ("changed", 2, ())
    assert {one.status for one in report.outcomes} == {"done"}
    assert placement.other.tree(ROOT)
    assert placement.dump() == before
    assert agent.cycle().state == "in-sync"
