"""Which providers of a node's forest are the node's own."""

from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree


def own_providers(tree: ProviderTree, root: str) -> list[ProviderUuid]:
    """The node's own tree, parents first, without the roots that only share with it."""
    return tree.get_provider_uuids(root) if tree.exists(root) else []
