"""What follows from the facts: totals by the CPU sets, ratios, reserved amounts, layouts."""

import pytest

from agent.errors import ConfigErrors
from agent.model.facts import Cell, CpuFacts, Topology
from agent.model.provider_tree import ProviderTree
from agent.numa.host_policy import HostPolicy
from agent.tree.host_tree import choose_layout, layout_hint, offered_cpus, shape_host
from agent.tree.node_trees import Cpus, NodeTrees
from agent.tree.policy import Policy, Ratio
from tests.unit.tree.nodes import (
    FACTS,
    NAME,
    ROOT,
    amount,
    contents,
    facts,
    root_only,
)

CELLS = (f"{NAME}_NUMA0", f"{NAME}_NUMA8")


def cpus(shared=None, dedicated=None, **more) -> Policy:
    return Policy(
        HostPolicy(shared and frozenset(shared), dedicated and frozenset(dedicated)), **more
    )


def shaped(host=FACTS, policy=None, present=None, tree=None):
    tree, present = tree or root_only(), root_only() if present is None else present
    shape_host(NodeTrees(tree, present, ROOT), host, policy or Policy())
    return tree


def placed(host=FACTS, policy=None):
    """What Placement has after the agent was here before."""
    return shaped(host, policy).freeze()


# --- CPU sets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shared", "dedicated", "offered"),
    [
        (None, None, Cpus(frozenset(range(8)), frozenset())),
        ({0, 1}, None, Cpus(frozenset({0, 1}), frozenset())),
        (None, {0, 4}, Cpus(frozenset(), frozenset({0, 4}))),
        ({0, 1}, {2, 4}, Cpus(frozenset({0, 1}), frozenset({2, 4}))),
    ],
)
def test_which_cpus_are_offered(shared, dedicated, offered):
    assert offered_cpus(FACTS.cpu, cpus(shared, dedicated)) == offered


@pytest.mark.parametrize(
    ("shared", "dedicated", "vcpu", "pcpu"),
    [(None, None, 8, 0), ({0, 1}, None, 2, 0), (None, {0, 4, 5}, 0, 3), ({0, 1}, {2, 4}, 2, 2)],
)
@pytest.mark.parametrize("layout", ["nested", "flat"])
def test_totals_of_cpus_in_both_layouts(shared, dedicated, vcpu, pcpu, layout):
    found = contents(shaped(policy=cpus(shared, dedicated, layout=layout)))
    assert found[NAME].get("VCPU", {}).get("total", 0) == vcpu
    assert sum(one.get("PCPU", {}).get("total", 0) for one in found.values()) == pcpu
    assert ("PCPU" in found[NAME]) is (layout == "flat" and pcpu > 0)


def test_a_cell_without_dedicated_cpus_stays_as_a_place():
    tree = shaped(policy=cpus({0}, {1}))
    assert contents(tree)[CELLS[1]] == {}
    assert [tree.data(name).traits for name in CELLS] == [{"HW_NUMA_ROOT"}] * 2
    assert tree.children(ROOT) == [tree.data(name).uuid for name in CELLS]


# --- ratios and reserved --------------------------------------------------------------------------


def test_ratios_come_from_the_options_then_from_placement_then_from_the_initial_ones():
    present = root_only()
    present.update_inventory(ROOT, {"VCPU": amount(4, 2.0), "MEMORY_MB": amount(1024, 1.5)})
    found = contents(
        shaped(
            policy=Policy(cpu_ratio=Ratio(8.0, 4.0), disk_ratio=Ratio(None, 1.1)), present=present
        )
    )[NAME]
    assert [found[name]["allocation_ratio"] for name in ("VCPU", "MEMORY_MB", "DISK_GB")] == [
        8.0,
        1.5,
        1.1,
    ]


def test_units_follow_the_total_whatever_placement_has():
    present = root_only()
    present.update_inventory(ROOT, {"VCPU": {**amount(4, 4.0), "min_unit": 2, "step_size": 2}})
    assert contents(shaped(present=present))[NAME]["VCPU"] == amount(8, 4.0)


def test_dedicated_cpus_and_their_ratio_are_never_overcommitted():
    present = root_only()
    present.update_inventory(ROOT, {"PCPU": amount(1, 3.0)})
    found = contents(
        shaped(
            policy=cpus({0}, {1}, layout="flat", cpu_ratio=Ratio(8.0), reserved_cpus=1),
            present=present,
        )
    )
    assert (found[NAME]["PCPU"], found[NAME]["VCPU"]) == (amount(1), amount(1, 8.0, reserved=1))


def test_all_that_is_reserved_above_its_total_is_told_at_once():
    with pytest.raises(ConfigErrors) as refused:
        shaped(
            policy=Policy(reserved_cpus=9, reserved_memory_mib=8193, reserved_disk_mib=101 * 1024)
        )
    assert [error.message for error in refused.value.errors] == [
        "[DEFAULT] reserved_host_cpus: 9 of VCPU reserved, above the total 8 of node-a",
        (
            "[DEFAULT] reserved_host_memory_mb: 8193 of MEMORY_MB reserved, above the total 8192 "
            "of node-a"
        ),
        "[DEFAULT] reserved_host_disk_mb: 101 of DISK_GB reserved, above the total 100 of node-a",
    ]
    shaped(policy=Policy(reserved_cpus=8, reserved_memory_mib=8192, reserved_disk_mib=100 * 1024))


def test_a_class_with_a_total_of_0_is_left_out_and_what_is_reserved_of_it_too():
    found = contents(
        shaped(
            facts(memory_mib=0, disk_gib=None),
            policy=cpus(None, {0}, reserved_cpus=1, reserved_disk_mib=1),
        )
    )
    assert set(found[NAME]) == set()


# --- layout ---------------------------------------------------------------------------------------


def test_a_host_without_cells_has_its_dedicated_cpus_on_the_root():
    assert contents(shaped(facts(numa=None), policy=cpus({0}, {1, 4}, layout="nested")))[NAME][
        "PCPU"
    ] == amount(2)


def found_with(*children):
    present = root_only()
    present.update_inventory(ROOT, {"VCPU": amount(8)})
    for name in children:
        present.new_child(name, ROOT)
    return present


@pytest.mark.parametrize(
    ("present", "layout"),
    [
        (ProviderTree(), "nested"),
        (root_only(), "nested"),
        (found_with(), "flat"),
        (
            found_with(
                "node-a_pci_0000_81_00_0",
                "node-b_NUMA0",
                "node-a_NUMA",
                "node-a_NUMA0x",
                "node-a_NUMA00",
            ),
            "flat",
        ),
        (found_with("node-a_NUMA8"), "nested"),
    ],
)
def test_a_new_root_is_nested_and_an_existing_one_keeps_its_layout(present, layout):
    assert choose_layout(Policy(), present, ROOT) == layout
    assert choose_layout(Policy(layout="flat"), present, ROOT) == "flat"
    assert choose_layout(Policy(layout="nested"), present, ROOT) == "nested"


@pytest.mark.parametrize(
    ("numa", "policy", "present"),
    [
        (FACTS.numa, Policy(layout="flat"), found_with()),
        (FACTS.numa, Policy(), found_with("node-a_NUMA0")),
        (FACTS.numa, Policy(), root_only()),
        (None, Policy(), found_with()),
        (Topology(()), Policy(), found_with()),
    ],
)
def test_who_chose_or_has_no_cells_is_told_nothing(numa, policy, present):
    assert layout_hint(numa, policy, present, ROOT) is None


# --- incomplete facts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "broken"),
    [
        ("memory", {"memory_mib": 1}),
        ("disk", {"disk_gib": 1}),
        ("cpu", {"cpu": CpuFacts(frozenset({0}))}),
    ],
)
@pytest.mark.parametrize("layout", ["nested", "flat"])
def test_an_incomplete_section_keeps_its_last_good_values(section, broken, layout):
    policy = cpus(None, {1, 4}, layout=layout) if section == "cpu" else Policy(layout=layout)
    before = placed(policy=policy)
    assert contents(shaped(facts(incomplete=[section], **broken), policy, before)) == contents(
        before
    )


def test_an_incomplete_section_that_placement_does_not_have_stays_out():
    present = root_only()
    assert set(contents(shaped(facts(incomplete=["memory"]), present=present))[NAME]) == {
        "VCPU",
        "DISK_GB",
    }


@pytest.mark.parametrize("numa", [None, Topology(FACTS.numa.cells[:1])])
def test_cells_stay_while_the_topology_cannot_be_read(numa):
    policy = cpus({0}, {1, 4})
    before = placed(policy=policy)
    before_cells = contents(before)
    assert contents(shaped(facts(incomplete=["numa"], numa=numa), policy, before)) == before_cells


def test_somebody_elses_child_is_not_taken_for_a_cell():
    present = found_with("node-a_NUMA0", "node-a_NUMA_tools")
    tree = shaped(facts(incomplete=["numa"], numa=None), present=present)
    assert [tree.name_of(child) for child in tree.children(ROOT)] == ["node-a_NUMA0"]


def test_cells_without_cpus_or_memory_are_places_too():
    odd = Topology((Cell(0, frozenset(range(8)), 0), Cell(1, frozenset(), 65536)))
    tree = shaped(facts(numa=odd), policy=cpus({0}, {1}))
    assert contents(tree)[f"{NAME}_NUMA1"] == {}
    assert tree.has_traits(f"{NAME}_NUMA1", ["HW_NUMA_ROOT"])
