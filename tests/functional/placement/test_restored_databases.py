"""What the agent deleted or took back and a restored database brings back: it is the agent's still,
and goes again.
"""

from typing import Any

import pytest

from agent.model.names import child_uuid
from agent.model.provider_tree import ProviderTree
from agent.placement import clock, tombstones
from agent.tree.policy import Policy
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import (
    NAME,
    ROOT,
    AgentUnderTest,
    ScriptedDriver,
    new_uuid,
    operations,
    shaped,
    total,
)
from tests.support.placement import PlacementServer

HAS = {"VCPU": total(16), "MEMORY_MB": total(64)}
CARD = child_uuid(ROOT, "card")
CHOSEN = new_uuid()


def much(tree: ProviderTree) -> None:
    """A card with a port below it, a child with a uuid of the driver's own, a custom class and two
    traits.
    """
    shaped(
        HAS | {"CUSTOM_LICENCE": total(5)},
        {"card": (NAME, {"CUSTOM_CARD": total(1)}), "port": ("card", {"SRIOV_NET_VF": total(8)})},
        traits={NAME: ("CUSTOM_GOLD", "HW_CPU_X86_AVX2"), "card": ("CUSTOM_FAST",)},
    )(tree)
    if not tree.exists("chosen"):
        tree.new_child("chosen", NAME, CHOSEN)
    tree.update_inventory("chosen", {"VGPU": total(2)})


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
    return (
        [one["uuid"] for one in other.tree(ROOT)] == [ROOT]
        and other.inventory(ROOT).keys() == HAS.keys()
        and not {"CUSTOM_GOLD", "HW_CPU_X86_AVX2"} & other.traits(ROOT)
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_providers_classes_and_traits_that_a_restored_database_brings_back_are_removed_again(
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
    assert agent.cycle().state == "in-sync"


@pytest.mark.long
def test_what_comes_back_twice_goes_twice(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    backup = placement.snapshot()
    for _ in range(3):
        placement.restore(backup)
        # In one process and within a few minutes it would be somebody who writes against the agent.
        agent.once()
        assert is_little(placement)


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


class NovaStyle(ScriptedDriver):
    """Is shown everything that is there, and adds a card for as long as it has one."""

    has = True

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: Any = None
    ) -> None:
        provider_tree.update_inventory(
            nodename, HAS | ({"CUSTOM_LICENCE": total(5)} if self.has else {})
        )
        if self.has and not provider_tree.exists("card"):
            provider_tree.new_child("card", nodename)
            provider_tree.update_inventory("card", {"CUSTOM_CARD": total(1)})
            provider_tree.add_traits(nodename, "CUSTOM_GOLD")
        if not self.has and self.calls == 0:
            self.calls += 1
            provider_tree.remove("card")
            provider_tree.remove_traits(nodename, "CUSTOM_GOLD")


def test_a_driver_that_is_shown_everything_is_not_shown_what_it_had_removed(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(None)
    agent.driver = NovaStyle()
    assert agent.cycle(start=True).state == "changed"
    backup = placement.snapshot()
    agent.driver.has = False
    assert agent.cycle().state == "changed"
    assert is_little(placement)
    placement.restore(backup)
    assert agent.cycle().state == "changed"
    assert is_little(placement)


def test_a_child_whose_uuid_only_the_agent_gives_is_its_own_even_without_a_tombstone(
    agent: AgentUnderTest, placement: PlacementServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 2 * tombstones.AGE)
    # The tombstones are too old, and go with the next change.
    monkeypatch.setattr(tombstones, "NUMBER", 0)
    agent.driver.script = shaped(HAS | {"VGPU": total(1)})
    agent.stop()
    agent.cycle()
    assert CARD not in {one["uuid"] for one in placement.other.tree(ROOT)}


def test_a_status_trait_that_comes_back_is_novas(host: Host, placement: PlacementServer) -> None:
    agent = host(little)
    for enabled in (False, True):
        agent.stop()
        agent.policy = Policy(enabled=enabled)
        agent.cycle(start=True)
    assert "COMPUTE_STATUS_DISABLED" not in placement.other.traits(ROOT)
    placement.other.set_traits(ROOT, placement.other.traits(ROOT) | {"COMPUTE_STATUS_DISABLED"})
    agent.cycle()
    assert "COMPUTE_STATUS_DISABLED" in placement.other.traits(ROOT)


def test_an_aggregate_that_comes_back_goes_from_a_child_and_stays_on_the_root(
    host: Host, placement: PlacementServer
) -> None:
    aggregate = new_uuid()

    def grouped(tree: ProviderTree) -> None:
        shaped(HAS, {"card": (NAME, {"CUSTOM_CARD": total(1)})})(tree)
        for one in (NAME, "card"):
            tree.add_aggregates(one, aggregate)

    agent = host(grouped)
    agent.cycle(start=True)
    agent.driver.script = shaped(HAS, {"card": (NAME, {"CUSTOM_CARD": total(1)})})
    agent.cycle()
    for one in (ROOT, CARD):
        assert placement.other.aggregates(one) == set()
        placement.other.set_aggregates(one, {aggregate})
    agent.cycle()
    assert (placement.other.aggregates(ROOT), placement.other.aggregates(CARD)) == (
        {aggregate},
        set(),
    )


def test_what_was_never_written_is_not_taken_from_who_makes_it_later(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(little)
    agent.cycle(start=True)
    agent.driver.script = much
    placement.faults.add(faults.answer(503), method="PUT")
    assert agent.cycle().state == "degraded"
    placement.faults.clear()
    agent.driver.script = little
    agent.cycle()
    # The operator does by hand what the agent never came to.
    placement.other.set_traits(ROOT, placement.other.traits(ROOT) | {"HW_CPU_X86_AVX2"})
    for _ in range(2):
        assert agent.cycle().state == "in-sync"
    assert "HW_CPU_X86_AVX2" in placement.other.traits(ROOT)


def test_an_operators_own_trait_that_had_been_the_agents_does_not_go_without_a_word(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(much)
    agent.cycle(start=True)
    agent.driver.script = little
    agent.cycle()
    agent_log.clear()
    placement.other.set_traits(ROOT, placement.other.traits(ROOT) | {"CUSTOM_GOLD"})
    for _ in range(2):
        agent.cycle()
    (told,) = (one.getMessage() for one in agent_log.records if one.levelname == "WARNING")
    assert f"trait CUSTOM_GOLD of {NAME}" in told
    assert "provider config file" in told
