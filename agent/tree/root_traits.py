"""The traits that the agent itself keeps on a node's root."""

from collections.abc import Iterable, Mapping

import os_traits

from agent.model.facts import HostFacts
from agent.model.journal import Journal
from agent.model.names import AGENT_MARK, custom_token
from agent.model.provider_tree import ProviderTree
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
    return frozenset(one for one in traits if one.startswith(AGENT_MARK)) - {agent_trait(agent)}


def put_root_traits(
    tree: ProviderTree,
    present: ProviderTree,
    root: str,
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
    tree.add_traits(root, os_traits.COMPUTE_NODE, policy.owner_trait, agent_trait(agent))
    # Marks of the agent that had the node before: the audit does not get here while another agent
    # has it.
    tree.remove_traits(root, *other_marks(tree.provider(root).traits, agent))
    if not facts.complete("traits") and present.exists(root):
        before = journal.of(root)
        tree.add_traits(
            root, *(present.provider(root).traits & before.traits - before.configured.traits - OWN)
        )
    known = {**(facts.traits or {}), **capabilities}
    tree.add_traits(root, *(name for name, has in known.items() if has))
    tree.remove_traits(root, *(name for name, has in known.items() if not has))
    found = present.exists(root) and present.has_traits(root, [STATUS_DISABLED])
    ours = STATUS_DISABLED in journal.of(root).traits
    if policy.enabled is False or (policy.enabled is None and found):
        tree.add_traits(root, STATUS_DISABLED)
    elif ours:
        tree.remove_traits(root, STATUS_DISABLED)
