from agent.model.host_units import AssignableUnit
from agent.model.mirror import Journal
from agent.tree.desired_tree import complete_tree
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import Policy
from agent.tree.reshape.allocation_editor import ReshapeContext
from tests.unit.tree.nodes import NAME, ROOT, amount, contents, facts, root_only


def test_units_are_counted_on_a_provider_that_the_driver_made():
    trees = NodeTrees(root_only(), root_only(), ROOT)
    trees.desired.new_child(f"{NAME}-card", ROOT)
    units = facts(units=(AssignableUnit("CUSTOM_PORT", "p0", "-card"),))
    complete_tree(trees, Journal(), ReshapeContext(units, Policy()), None)
    assert contents(trees.desired)[f"{NAME}-card"] == {"CUSTOM_PORT": amount(1)}
