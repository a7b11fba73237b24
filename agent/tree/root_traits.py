"""The traits that the agent itself keeps on a node's root."""

from collections.abc import Iterable, Mapping

import os_traits

from agent.model.facts import HostFacts
from agent.model.journal import Journal
from agent.model.names import AGENT_MARK, custom_token
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import Policy

STATUS_DISABLED = os_traits.COMPUTE_STATUS_DISABLED

OWN = frozenset({STATUS_DISABLED})
"""Traits that follow from the operator's options alone."""


def agent_trait(agent: str) -> str:
    """Return the trait that all nodes of the agent called ``agent`` carry, so that one request
    lists them.
    """
    return custom_token(f"COMPUTE_NODE_AGENT_{agent}")


def other_marks(traits: Iterable[str], agent: str) -> frozenset[str]:
    """Return the traits by which agents other than ``agent`` have marked a root as theirs."""
    marks = frozenset(trait for trait in traits if trait.startswith(AGENT_MARK))
    return marks - {agent_trait(agent)}


def put_root_traits(
    trees: NodeTrees,
    journal: Journal,
    policy: Policy,
    agent: str,
    capabilities: Mapping[str, bool],
    facts: HostFacts,
) -> None:
    """Mark the root as a compute node of this owner and agent, with the traits of facts and
    capabilities, and the disabled trait as the operator's switch says.

    If the facts are not complete, the traits set before stay. On a nova host the switch is nova's:
    unset, the trait stays as it was found; true removes it only if the journal says that the agent
    had set it.
    """
    tree, root, last = trees.desired, trees.root, trees.present_root
    tree.add_traits(root, os_traits.COMPUTE_NODE, policy.owner_trait, agent_trait(agent))
    # Marks of the agent that had the node before: the audit does not get here while another agent
    # has it.
    tree.remove_traits(root, *other_marks(tree.provider(root).traits, agent))
    own = journal.of(root)
    if last is not None and not facts.complete("traits"):
        tree.add_traits(root, *(last.traits & own.traits - own.configured.traits - OWN))
    known = {**(facts.traits or {}), **capabilities}
    tree.add_traits(root, *(trait for trait, has in known.items() if has))
    tree.remove_traits(root, *(trait for trait, has in known.items() if not has))
    was_disabled = last is not None and STATUS_DISABLED in last.traits
    if policy.enabled is False or (policy.enabled is None and was_disabled):
        tree.add_traits(root, STATUS_DISABLED)
    elif STATUS_DISABLED in own.traits:
        tree.remove_traits(root, STATUS_DISABLED)
