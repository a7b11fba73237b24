"""The part of the tree that counts mediated devices: a child for each parent, with the class of the type that it is cut into."""

import os_resource_classes as orc
import os_traits

from agent.tree.children import counted, keep_last, place_of, put_child
from agent.tree.mdev_policy import MdevPolicy
from agent.model.facts import HostFacts
from agent.model.provider_tree import ProviderTree


def put_mdevs(tree: ProviderTree, present: ProviderTree, root: str, facts: HostFacts, policy: MdevPolicy) -> None:
    """Give ``tree`` what follows from the mediated devices of ``facts``; if they are not complete, what ``present`` has of them."""
    if not policy.types:
        return
    if not facts.complete("mdev"):
        _keep_last(tree, present, root, policy)
        return
    name = tree.name_of(root)
    for parent, kind, total in policy.offered(facts.mdev or ()):
        record = counted(total, min(total, kind.max_per_guest or total))
        put_child(tree, parent.provider_name(name), place_of(tree, root, parent.numa_node), {kind.resource_class: record})


def _keep_last(tree: ProviderTree, present: ProviderTree, root: str, policy: MdevPolicy) -> None:
    """Nobody knows now which parents there are: all that Placement has of them stays, and what an older layout has on the root."""
    name = tree.name_of(root)
    for uuid in present.get_provider_uuids_in_tree(root) if present.exists(root) else ():
        one = present.provider(uuid)
        if one.name.startswith(f"{name}_") and os_traits.COMPUTE_MANAGED_PCI_DEVICE not in one.traits:
            keep_last(tree, present, root, one.name, policy.classes)
    keep_last(tree, present, root, name, frozenset({orc.VGPU}))
