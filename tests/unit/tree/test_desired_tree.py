import pytest

from agent.errors import ReshapeNeeded
from agent.model.host_units import AssignableUnit
from agent.model.mirror import Journal
from agent.tree.desired_tree import DriverReport, desired_tree
from agent.tree.policy import Policy
from tests.unit.tree.nodes import FACTS, NAME, ROOT, amount, contents, facts, root_only

CAPABILITIES = {"COMPUTE_NODE_X": True}


def desired(driver_report, allocations=None, base=None):
    return desired_tree(
        base or root_only().freeze(),
        root_only(),
        ROOT,
        driver_report,
        Policy(),
        Journal(),
        "agent",
        allocations=allocations,
    )


def test_facts_then_the_drivers_shape_then_the_agents_traits():
    seen = []

    def shape(tree, allocations):
        seen.append((set(contents(tree)), allocations))
        tree.add_traits(ROOT, "CUSTOM_A")
        tree.remove_traits(ROOT, "COMPUTE_NODE")
        tree.new_child("gpu", ROOT)

    tree = desired(DriverReport(FACTS, CAPABILITIES, shape), allocations := {})
    assert seen == [({NAME, f"{NAME}_NUMA0", f"{NAME}_NUMA8"}, allocations)]
    assert seen[0][1] is allocations
    assert tree.exists("gpu")
    assert tree.has_traits(ROOT, ["CUSTOM_A", "COMPUTE_NODE", "COMPUTE_NODE_X", "OWNER_NOVA"])


def test_a_driver_that_shapes_all_gets_nothing_from_the_facts():
    tree = desired(
        DriverReport(
            FACTS,
            {},
            lambda tree, _: tree.update_inventory(ROOT, {"VCPU": {"total": 1}}),
            shape_all=True,
        )
    )
    assert contents(tree) == {NAME: {"VCPU": {"total": 1}}}
    assert tree.has_traits(ROOT, ["COMPUTE_NODE"])


def test_a_driver_need_not_shape_anything():
    assert set(contents(desired(DriverReport(FACTS, {})))[NAME]) == {"VCPU", "MEMORY_MB", "DISK_GB"}


def test_the_base_is_left_alone_even_when_the_driver_gives_up_half_way():
    base = root_only()

    def shape(tree, allocations):
        tree.new_child("gpu", ROOT)
        raise ReshapeNeeded

    with pytest.raises(ReshapeNeeded):
        desired(DriverReport(FACTS, {}, shape), base=base)
    assert contents(base) == {NAME: {}}
    assert base.data(ROOT).traits == set()


def test_units_are_counted_on_a_provider_that_the_driver_makes():
    def shape(tree, allocations):
        tree.new_child(f"{NAME}-card", ROOT)
        tree.add_traits(f"{NAME}-card", "CUSTOM_CARD")

    tree = desired(
        DriverReport(facts(units=(AssignableUnit("CUSTOM_PORT", "p0", "-card"),)), {}, shape)
    )
    assert contents(tree)[f"{NAME}-card"] == {"CUSTOM_PORT": amount(1)}


def test_a_driver_that_shapes_all_counts_its_units_itself():
    tree = desired(
        DriverReport(
            facts(units=(AssignableUnit("CUSTOM_PORT", "p0"),)),
            {},
            lambda tree, _: None,
            shape_all=True,
        )
    )
    assert contents(tree) == {NAME: {}}
