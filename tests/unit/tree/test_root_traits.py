"""The agent's own traits on the root."""

from typing import Any

import pytest

from agent.model.devices import AssignableUnit
from agent.model.facts import HostFacts
from agent.model.mirror import Journal, Ownership
from agent.model.names import is_custom
from agent.model.provider_tree import ProviderTree
from agent.tree.children import provider_name, put_units
from agent.tree.desired_tree import STATUS_DISABLED, agent_trait, put_root_traits
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import Policy
from tests.unit.tree.nodes import NAME, ROOT, amount, contents, facts, root_only

AGENT = "0e1d2c3b-4a59-4687-8796-000000000009"
OURS = Journal({ROOT: Ownership(traits=frozenset({STATUS_DISABLED}))})


FACTS = HostFacts("cn1", 0, "fake")


def traits(tree=None, present=None, journal=None, policy=None, capabilities=None, facts=FACTS):
    tree = tree or root_only()
    put_root_traits(
        NodeTrees(tree, root_only() if present is None else present, ROOT),
        journal or Journal(),
        policy or Policy(),
        AGENT,
        {**(facts.traits or {}), **(capabilities or {})},
        complete=facts.complete("traits"),
    )
    return tree.data(ROOT).traits


def marked():
    tree = root_only()
    tree.add_traits(ROOT, STATUS_DISABLED)
    return tree


def test_the_agents_trait_is_a_valid_custom_name():
    assert agent_trait(AGENT) == "CUSTOM_COMPUTE_NODE_AGENT_0E1D2C3B_4A59_4687_8796_000000000009"
    assert is_custom(agent_trait(AGENT))


@pytest.mark.parametrize(
    ("enabled", "found", "journal", "disabled"),
    [
        (False, False, Journal(), True),
        (False, True, Journal(), True),
        (None, False, Journal(), False),
        (None, True, Journal(), True),
        (None, True, OURS, True),
        (None, False, OURS, False),
        (True, True, Journal(), True),
        (True, True, OURS, False),
        (True, False, OURS, False),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_the_switch(enabled, found, journal, disabled, whole):
    """``whole``: the driver starts from all that Placement has, else from what is not
    the agent's.
    """
    present = marked() if found else root_only()
    tree = present.copy() if whole or journal is not OURS else root_only()
    assert (STATUS_DISABLED in traits(tree, present, journal, Policy(enabled=enabled))) is disabled


def test_a_root_that_placement_lacks_is_not_disabled_unless_asked_for():
    nothing = ProviderTree()
    assert STATUS_DISABLED not in traits(present=nothing)
    assert STATUS_DISABLED in traits(present=nothing, policy=Policy(enabled=False))


# --- inventories of assignable units ---


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
    found = facts(**changes)
    units = found.units or () if found.complete("units") else None
    put_units(NodeTrees(tree, present or root_only(), ROOT), units)
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
