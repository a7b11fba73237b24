"""Misplaced guests in the passes of a daemon: looked at once, and again only for a reason; no
request more.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.audit.remembered import MisplacedGuests
from agent.explain.explanation import GuestHere
from agent.model.facts import CpuFacts, Domain, HostFacts, Origin
from agent.model.instance import Flavor
from agent.model.names import ConsumerUuid
from agent.placement import clock
from agent.placement.mirror import Freshness
from agent.tracker.stored_state import InstanceUpdate
from tests.support.agent import ROOT, AgentUnderTest, ScriptedDriver

AVX = "HW_CPU_X86_AVX"
GUESTS = [
    ConsumerUuid("11111111-1111-4111-8111-111111111111"),
    ConsumerUuid("22222222-2222-4222-8222-222222222222"),
]
FLAVOR = Flavor("f", "f", 2, 512, extra_specs={f"trait:{AVX}": "required"})


def guests(*, specs_known: bool = True) -> tuple[Domain, ...]:
    origin = Origin(FLAVOR, "p", "u", specs_known=specs_known)
    return tuple(Domain(uuid, uuid[:4], 512, 2, origin=origin) for uuid in GUESTS)


def facts(**changed: Any) -> Callable[[str], HostFacts]:
    known = {
        "cpu": CpuFacts(frozenset(range(8))),
        "memory_mib": 16384,
        "disk_gib": 100,
        "traits": {AVX: True},
        "domains": guests(),
        **changed,
    }
    return lambda name: HostFacts(name, clock.now(), "scripted", **known)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The guest of each look."""
    found: list[str] = []
    before = GuestHere.of

    def noted(state: Any, instance: Any, *rest: Any, **more: Any) -> GuestHere:
        found.append(instance.uuid)
        return before(state, instance, *rest, **more)

    monkeypatch.setattr(GuestHere, "of", noted)
    return found


@pytest.fixture
def agent(placement, tmp_path):
    made = AgentUnderTest(
        placement, tmp_path / "state", ScriptedDriver(), freshness=Freshness(sharing=1e9)
    )
    made.driver.facts_of = facts()
    made.cycle(start=True)
    made.tracking.tracker.import_guests(ROOT)
    made.cycle()
    made.cycle()
    yield made
    made.stop()


def told(agent: AgentUnderTest) -> list[str]:
    drift = agent.cycle().drift
    return [one.consumer for one in drift if one.kind == "misplaced-guest"]


def test_a_pass_without_change_looks_at_nobody_and_asks_no_more(agent, placement, looked_at):
    agent.driver.facts_of = facts(traits={AVX: False})
    assert told(agent) == GUESTS
    agent.cycle()
    looked_at.clear()
    placement.clear()
    assert told(agent) == GUESTS
    assert looked_at == []
    with_guests = len(placement.requests)

    agent.driver.facts_of = facts()
    assert told(agent) == []
    agent.cycle()
    placement.clear()
    assert told(agent) == []
    assert len(placement.requests) == with_guests


def test_a_guest_that_changed_is_looked_at_and_no_other(agent, looked_at):
    looked_at.clear()
    agent.tracking.tracker.update(GUESTS[0], InstanceUpdate(vm_state="stopped"))
    assert told(agent) == []
    assert looked_at == [GUESTS[0]]


def test_a_guest_that_moves_is_not_judged(agent):
    agent.tracking.tracker.update(GUESTS[0], InstanceUpdate(task_state="migrating"))
    agent.driver.facts_of = facts(traits={AVX: False})
    assert told(agent) == [GUESTS[1]]


def test_a_flavor_whose_extra_specs_nobody_wrote_down_is_not_judged(agent):
    agent.driver.facts_of = facts(traits={AVX: False}, domains=guests(specs_known=False))
    assert told(agent) == []


def test_what_a_degraded_node_could_not_say_is_said_once_its_records_are_corrected(agent):
    """A node with a damaged record denies every claim, so that nothing is known of its guests."""
    tree = agent.cycle().tree
    (state,) = agent.fleet.states().values()
    pinned = replace(FLAVOR, extra_specs={"hw:cpu_policy": "dedicated"})
    had = {uuid: replace(one, flavor=pinned) for uuid, one in state.instances.items()}
    state = replace(state, instances=had)
    # The tree has PCPU, the host has no cell to pin to.
    provider = tree.provider(ROOT)
    tree = tree.copy()
    tree.update_inventory(ROOT, {**provider.inventory, "PCPU": provider.inventory["VCPU"]})
    fresh = [one.consumer for one in MisplacedGuests().drift(state, tree, clock.now())]
    assert fresh == GUESTS
    guests_of_node = MisplacedGuests()
    guests_of_node.drift(replace(state, damaged=("device x: unknown state",)), tree, clock.now())
    found = guests_of_node.drift(state, tree, clock.now())
    assert [one.consumer for one in found] == fresh
