"""The agent's own traits on the root."""

import pytest

from agent.model.facts import HostFacts
from agent.model.mirror import Journal, Ownership
from agent.model.names import is_custom
from agent.model.provider_tree import ProviderTree
from agent.tree.desired_tree import STATUS_DISABLED, agent_trait, put_root_traits
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import Policy
from tests.unit.tree.nodes import ROOT, root_only

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
        capabilities or {},
        facts,
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
