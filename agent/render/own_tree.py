"""The node's own part of a tree with sharing providers, and the uuids that are not shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.model.report import NodeReport


class HasTree(Protocol):
    """What is needed to show a tree: a NodeReport has it, and a StoredTree."""

    @property
    def uuid(self) -> str:
        """The uuid of the root."""

    @property
    def tree(self) -> ProviderTree:
        """The tree, with the roots that share with it."""

    @property
    def owned(self) -> frozenset[str]:
        """The providers that the agent wrote."""

    @property
    def used(self) -> Mapping[str, Mapping[str, int]]:
        """The usages by provider and class, as far as known."""

    @property
    def provisional(self) -> bool:
        """Whether the uuids were generated for a dry run only."""


@dataclass(frozen=True, slots=True)
class StoredTree:
    """A node's tree from the store, as it was last seen at ``endpoint``. Usages are not stored."""

    name: str
    uuid: str
    endpoint: str
    tree: ProviderTree
    owned: frozenset[str]
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    provisional: bool = False


def own_providers(tree: ProviderTree, root: str) -> list[ProviderUuid]:
    """Return the node's own providers, parents first, without the roots that only share with the
    tree.
    """
    return tree.get_provider_uuids(root) if tree.exists(root) else []


def provisional_names(node: NodeReport) -> Mapping[str, str]:
    """Return the uuids that are not shown, because the next run generates others, with the names
    that replace them in texts.
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


def replace_uuids(text: str, hidden: Mapping[str, str]) -> str:
    """Return ``text`` with every hidden uuid replaced."""
    for uuid, name in hidden.items():
        text = text.replace(uuid, name)
    return text
