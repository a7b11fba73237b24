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
"""What follows from the operator's word alone."""


def agent_trait(agent: str) -> str:
    """The trait that all nodes of the agent called ``agent`` carry, so that one request
    lists them.
    """
    return custom_token(f"COMPUTE_NODE_AGENT_{agent}")


def other_marks(traits: Iterable[str], agent: str) -> frozenset[str]:
    """The traits by which other agents than ``agent`` have marked a root as theirs."""
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
    """Mark the root as a compute node of this owner and agent, with what the driver found and can
    do, and the operator's switch.

    Where it could not find out, the traits that were set before stay. The switch is nova's on a
    nova host: unset it leaves the trait as it was found, and true takes it off only if the journal
    says that the agent had put it on.
    """
    tree.add_traits(root, os_traits.COMPUTE_NODE, policy.owner_trait, agent_trait(agent))
    # Of who had the node before. A node that another agent still has never comes so far.
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
