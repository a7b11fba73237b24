"""A pass in which nothing changed neither shapes nor plans; whatever changes, by whomever, is seen
in the next pass all the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from agent.audit import allocations, planning, shape
from agent.model.facts import CpuFacts, HostFacts
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid, child_uuid
from agent.placement import clock
from agent.placement.mirror import Freshness
from agent.tracker.stored_state import InstanceClaim, InstanceUpdate
from tests.support.agent import ROOT, AgentUnderTest, ScriptedDriver, shaped, total
from tests.support.broken_store import counted

CHILD = child_uuid(ROOT, "child")
TREE = shaped(
    {"VCPU": total(8)},
    {"child": ("node-a", {"CUSTOM_THING": total(2)})},
    traits={"node-a": ["HW_CPU_X86_SSE"], "child": ["CUSTOM_FAST"]},
)
SMALL = Flavor("small", "small", vcpus=1, memory_mb=0)
OTHER = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each merge, plan and judgement of allocations that an audit computes."""
    made: list[str] = []
    for module, name in (
        (planning, "shape"),
        (shape, "make_plan"),
        (allocations, "judge_allocations"),
    ):
        original = getattr(module, name)

        def noted(*args: Any, of: Callable[..., Any] = original, called: str = name, **kw: Any):
            made.append(called)
            return of(*args, **kw)

        monkeypatch.setattr(module, name, noted)
    return made


@pytest.fixture
def agent(placement, tmp_path, shapes):
    made = AgentUnderTest(
        placement, tmp_path / "state", ScriptedDriver(TREE), freshness=Freshness(sharing=1e9)
    )
    made.cycle(start=True)
    made.cycle()
    made.cycle()
    shapes.clear()
    placement.clear()
    yield made
    made.stop()


def test_a_pass_with_nothing_to_do_computes_nothing_and_asks_once(agent, placement, shapes):
    node = agent.cycle()

    assert node.state == "in-sync"
    assert shapes == []
    assert [exchange.method for exchange in placement.requests] == ["GET"]


def test_a_pass_with_nothing_to_do_asks_the_store_twice(agent):
    agent.period()

    with counted() as sent:
        (node,) = agent.period().nodes

    assert node.state == "in-sync"
    # Whether there are records, and which version those of the node have.
    asked = [text for text in sent if "SELECT" in text and "resource_providers" not in text]
    assert len(asked) == 2


def _driver_adds_a_class(agent):
    agent.driver.script = shaped(
        {"VCPU": total(8), "MEMORY_MB": total(64)},
        {"child": ("node-a", {"CUSTOM_THING": total(2)})},
        traits={"node-a": ["HW_CPU_X86_SSE"], "child": ["CUSTOM_FAST"]},
    )


def _driver_drops_the_child(agent):
    agent.driver.script = shaped({"VCPU": total(8)}, traits={"node-a": ["HW_CPU_X86_SSE"]})


def _driver_drops_a_trait(agent):
    agent.driver.script = shaped(
        {"VCPU": total(8)},
        {"child": ("node-a", {"CUSTOM_THING": total(2)})},
        traits={"node-a": ["HW_CPU_X86_SSE"]},
    )


def _facts_gain_a_trait(agent):
    before = agent.driver.facts_of

    def facts(name: str) -> HostFacts:
        return replace(before(name), traits={"HW_CPU_X86_AVX": True})

    agent.driver.facts_of = facts


def _driver_reports_a_capability(agent):
    agent.driver.capabilities = {"COMPUTE_RESCUE_BFV": True}


def _stranger_deletes_the_child(agent):
    agent.placement.other.delete_provider(CHILD)


def _stranger_changes_inventory(agent):
    agent.placement.other.set_inventory(ROOT, {"VCPU": 3})


def _stranger_renames_the_child(agent):
    agent.placement.other.rename(CHILD, "taken away")


def _stranger_moves_the_child(agent):
    other = agent.placement.other
    other.reparent(CHILD, other.create_provider("elsewhere", OTHER, ROOT))


@pytest.mark.parametrize(
    "change",
    [
        _driver_adds_a_class,
        _driver_drops_the_child,
        _driver_drops_a_trait,
        _facts_gain_a_trait,
        _driver_reports_a_capability,
        _stranger_deletes_the_child,
        _stranger_changes_inventory,
        _stranger_renames_the_child,
        _stranger_moves_the_child,
    ],
)
def test_after_an_idle_pass_each_change_is_corrected_at_once(agent, placement, shapes, change):
    agent.cycle()
    change(agent)

    node = agent.cycle()

    assert node.state == "changed", node
    assert {"shape", "make_plan"} <= set(shapes)
    # What a process without memory finds is the judge.
    agent.stop()
    assert agent.once(dry_run=True).state == "in-sync"


def _guest_is_deleted(agent, guest):
    agent.tracking.tracker.update(ConsumerUuid(guest), InstanceUpdate(deleted=True))


def _stranger_allocates(agent, _guest):
    agent.placement.other.claim({ROOT: {"VCPU": 1}})


def _stranger_takes_from_the_guest(agent, guest):
    agent.placement.other.claim({ROOT: {"VCPU": 2}}, guest)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (_guest_is_deleted, []),
        (_stranger_allocates, ["orphaned-allocation"]),
        (_stranger_takes_from_the_guest, ["allocation-mismatch"]),
    ],
)
def test_allocations_are_judged_again_only_when_a_record_or_an_allocation_changed(
    agent, placement, shapes, change, kinds
):
    guest = placement.other.claim({ROOT: {"VCPU": 1}})
    described = Instance(uuid=ConsumerUuid(guest), project_id="p", user_id="u", flavor=SMALL)
    tracker = agent.tracking.tracker
    tracker.claim(InstanceClaim(id="claim", node=ProviderUuid(ROOT), instance=described))
    tracker.update(ConsumerUuid(guest), InstanceUpdate(vm_state="active"))
    assert [agent.cycle().drift for _ in range(3)][-1] == ()
    shapes.clear()
    placement.clear()
    assert (agent.cycle().drift, shapes, len(placement.requests)) == ((), [], 1)

    change(agent, guest)

    node = agent.cycle()
    assert [drift.kind for drift in node.drift] == kinds
    assert "judge_allocations" in shapes
    if not kinds:
        assert placement.other.allocations(guest)["allocations"] == {}


class FactsOnly:
    """A driver that leaves its tree to the facts. It reports the same mappings and the same set
    again and again, and changes them in place.
    """

    def __init__(self) -> None:
        scripted = ScriptedDriver()
        self.start, self.stop, self.nodes = scripted.start, scripted.stop, scripted.nodes
        self.is_node_deleted, self.capabilities = scripted.is_node_deleted, {"HW_CPU_X86_AVX": True}
        self.memory_mib = 1024
        self.traits = {"HW_CPU_X86_SSE": True}
        self.online = set(range(8))

    def facts(self, name: str) -> HostFacts:
        cpu = CpuFacts(cast(frozenset[int], self.online))
        return HostFacts(
            name,
            clock.now(),
            "test",
            cpu=cpu,
            memory_mib=self.memory_mib,
            disk_gib=10,
            traits=self.traits,
        )

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        return self.capabilities


def test_a_driver_that_leaves_the_tree_to_the_facts_is_seen_to_change_too(
    placement, tmp_path, shapes
):
    driver = FactsOnly()
    made = AgentUnderTest(placement, tmp_path, driver, freshness=Freshness(sharing=1e9))
    for start in (True, False, False):
        made.cycle(start=start)
    shapes.clear()
    assert (made.cycle().state, shapes) == ("in-sync", [])

    driver.capabilities["HW_CPU_X86_AVX2"] = True
    assert made.cycle().state == "changed"
    assert placement.other.traits(ROOT) >= {"HW_CPU_X86_AVX", "HW_CPU_X86_AVX2"}

    driver.memory_mib = 2048
    assert made.cycle().state == "changed"
    assert placement.other.inventory(ROOT)["MEMORY_MB"]["total"] == 2048

    driver.traits["HW_CPU_X86_SSE2"] = True
    assert made.cycle().state == "changed"
    assert placement.other.traits(ROOT) >= {"HW_CPU_X86_SSE", "HW_CPU_X86_SSE2"}

    driver.online -= {6, 7}
    assert made.cycle().state == "changed"
    assert placement.other.inventory(ROOT)["VCPU"]["total"] == 6

    made.cycle()
    shapes.clear()
    assert (made.cycle().state, shapes) == ("in-sync", [])
    made.stop()


def test_a_trait_that_somebody_else_sets_stays_and_the_pass_after_it_is_idle_again(
    agent, placement, shapes
):
    placement.other.set_traits(ROOT, [*placement.other.traits(ROOT), "CUSTOM_BY_OPERATOR"])

    assert agent.cycle().state == "in-sync"
    assert shapes.count("make_plan") == 1
    assert agent.cycle().state == "in-sync"
    assert shapes.count("make_plan") == 1
    assert "CUSTOM_BY_OPERATOR" in placement.other.traits(ROOT)
