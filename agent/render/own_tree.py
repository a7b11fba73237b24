"""The part of a node's forest that is the node's own, and how its uuids are shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.model.report import NodeReport


class HasTree(Protocol):
    """What is needed to show a tree: a node's report has it, and so has a stored tree."""

    @property
    def uuid(self) -> str:
        """The root."""

    @property
    def tree(self) -> ProviderTree:
        """The forest that holds it."""

    @property
    def owned(self) -> frozenset[str]:
        """The providers that are the agent's."""

    @property
    def used(self) -> Mapping[str, Mapping[str, int]]:
        """What is in use by provider and class, where known."""

    @property
    def provisional(self) -> bool:
        """Whether the uuids were made up for a dry run."""


@dataclass(frozen=True, slots=True)
class StoredTree:
    """A node's tree as it was last seen at ``endpoint``. What is in use was not stored."""

    name: str
    uuid: str
    endpoint: str
    tree: ProviderTree
    owned: frozenset[str]
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    provisional: bool = False


def own_providers(tree: ProviderTree, root: str) -> list[ProviderUuid]:
    """The node's own tree, parents first, without the roots that only share with it."""
    return tree.get_provider_uuids(root) if tree.exists(root) else []


def made_up(node: NodeReport) -> Mapping[str, str]:
    """The uuids that nobody may see, because the next run makes others, with what stands for them
    in texts.
    """
    if not node.provisional:
        return {}
    created = {
        outcome.operation.provider
        for outcome in node.outcomes
        if outcome.operation.op == "create-provider"
    }
    names: dict[str, str] = {provider.uuid: provider.name for provider in created if provider}
    names |= {uuid: node.tree.name_of(uuid) for uuid in own_providers(node.tree, node.uuid)}
    return {**names, node.uuid: node.name}


def replaced(text: str, hidden: Mapping[str, str]) -> str:
    """``text`` with every hidden uuid in it replaced."""
    for uuid, name in hidden.items():
        text = text.replace(uuid, name)
    return text
