"""Inventories of assignable units."""

from typing import Any

from agent.model.host_units import AssignableUnit
from agent.model.provider_tree import ProviderTree
from agent.tree.children import provider_name, put_units
from agent.tree.node_trees import NodeTrees
from tests.unit.tree.nodes import NAME, ROOT, amount, contents, facts, root_only

PMEM, OTHER = "CUSTOM_PMEM_NAMESPACE_4GB", "CUSTOM_PMEM_NAMESPACE_16GB"
CELL, CARD = f"{NAME}_NUMA0", f"{NAME}-card"
SEEN = (
    AssignableUnit(PMEM, "ns_0"),
    AssignableUnit(PMEM, "ns_1"),
    AssignableUnit(OTHER, "ns_0"),
    AssignableUnit(PMEM, "ns_0", "_NUMA0"),
    AssignableUnit("CUSTOM_PORT", "p0", "-card"),
)


def with_cell() -> ProviderTree:
    tree = root_only()
    tree.update_inventory(ROOT, {"VCPU": amount(4, 4.0)})
    tree.new_child(CELL, ROOT)
    tree.update_inventory(CELL, {"PCPU": amount(2)})
    return tree


def counted(
    tree: ProviderTree, present: ProviderTree | None = None, **changes: Any
) -> dict[str, dict[str, Any]]:
    put_units(NodeTrees(tree, present or root_only(), ROOT), facts(**changes))
    return contents(tree)


def test_the_root_counts_for_a_cell_that_has_no_provider():
    assert counted(root_only(), units=SEEN) == {
        NAME: {PMEM: amount(3), OTHER: amount(1)},
        CARD: {"CUSTOM_PORT": amount(1)},
    }


def test_where_a_unit_is_counted_is_told():
    assert [provider_name(one, with_cell(), ROOT) for one in SEEN] == [NAME, NAME, NAME, CELL, CARD]
    assert provider_name(SEEN[3], root_only(), ROOT) == NAME


def test_what_could_not_be_read_stays_as_it_was():
    present = with_cell()
    counted(present, units=SEEN)
    before = contents(present)
    assert counted(with_cell(), present, units=SEEN[:1], incomplete=["units"]) == before
    assert counted(with_cell(), present, units=None, incomplete=["units"]) == before


def test_nothing_but_units_stays_only_because_units_could_not_be_read():
    present = with_cell()
    present.update_inventory(CELL, {"PCPU": amount(2), "CUSTOM_SHARED": amount(4, 2.0)})
    present.new_child("gone", ROOT)
    present.update_inventory("gone", {PMEM: amount(1), "CUSTOM_SHARED": amount(4, 2.0)})
    present.new_child("parent", ROOT)
    present.update_inventory("parent", {PMEM: amount(1)})
    present.new_child("child", "parent")
    bare = root_only()
    bare.new_child(CELL, ROOT)
    assert counted(bare, present, incomplete=["units"]) == {NAME: {}, CELL: {}}
