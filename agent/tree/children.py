"""Children that count one class each, and where in the tree they hang."""

from collections.abc import Mapping
from dataclasses import dataclass

import os_resource_classes as orc
import os_traits

from agent.model.encryption import EncryptionFacts, Technique
from agent.model.facts import HostFacts
from agent.model.inventory import Record
from agent.model.provider_tree import ProviderTree
from agent.tree.cell_tree import cell_name
from agent.tree.encryption_policy import EncryptionPolicy
from agent.tree.mdev_policy import MdevPolicy


def place_of(tree: ProviderTree, root: str, numa_node: int | None) -> str:
    """The name of what a device of that cell hangs from: the cell, or the root where cells have no
    provider or none is known.
    """
    name = tree.name_of(root)
    cell = cell_name(name, numa_node) if numa_node is not None else name
    return cell if tree.exists(cell) else name


def put_child(tree: ProviderTree, name: str, parent: str, inventory: Mapping[str, Record]) -> None:
    """Have a child of just that inventory. It may be here from last time, because something foreign
    lies below it, and belong elsewhere by now.
    """
    if tree.exists(name):
        tree.reparent(name, parent)
    else:
        tree.new_child(name, parent)
    tree.update_inventory(name, inventory)


def counted(total: int, most: int) -> Record:
    """The record of a class of which a consumer may have at most ``most``."""
    return {
        "total": total,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": most,
        "step_size": 1,
        "allocation_ratio": 1.0,
    }


def keep_last(
    tree: ProviderTree, present: ProviderTree, root: str, name: str, classes: frozenset[str]
) -> bool:
    """Have what ``present`` has of ``classes`` on the provider called ``name``. Returns whether it
    is there and ``tree`` had none of it.
    """
    if not present.exists(name):
        return False
    last = present.provider(name)
    inventory = {one: record for one, record in last.inventory.items() if one in classes}
    if not inventory or (tree.exists(name) and tree.provider(name).inventory.keys() & classes):
        return False
    if not tree.exists(name):
        tree.new_child(
            name,
            str(last.parent_uuid) if last.parent_uuid and tree.exists(last.parent_uuid) else root,
        )
    tree.update_inventory(name, {**tree.provider(name).inventory, **inventory})
    return True


def put_mdevs(
    tree: ProviderTree, present: ProviderTree, root: str, facts: HostFacts, policy: MdevPolicy
) -> None:
    """Give ``tree`` what follows from the mediated devices of ``facts``; if they are not complete,
    what ``present`` has of them.
    """
    if not policy.types:
        return
    if not facts.complete("mdev"):
        _keep_last(tree, present, root, policy)
        return
    name = tree.name_of(root)
    for parent, kind, total in policy.offered(facts.mdev or ()):
        record = counted(total, min(total, kind.max_per_guest or total))
        put_child(
            tree,
            parent.provider_name(name),
            place_of(tree, root, parent.numa_node),
            {kind.resource_class: record},
        )


def _keep_last(tree: ProviderTree, present: ProviderTree, root: str, policy: MdevPolicy) -> None:
    """Nobody knows now which parents there are: all that Placement has of them stays, and what an
    older layout has on the root.
    """
    name = tree.name_of(root)
    for uuid in present.get_provider_uuids_in_tree(root) if present.exists(root) else ():
        one = present.provider(uuid)
        if (
            one.name.startswith(f"{name}_")
            and os_traits.COMPUTE_MANAGED_PCI_DEVICE not in one.traits
        ):
            keep_last(tree, present, root, one.name, policy.classes)
    keep_last(tree, present, root, name, frozenset({orc.VGPU}))


CLASS = orc.MEM_ENCRYPTION_CONTEXT


@dataclass(frozen=True, slots=True)
class Child:
    """What is behind the node's name in that of the provider, and the trait that
    flavors ask for.
    """

    suffix: str
    trait: str

    def name(self, root: str) -> str:
        """The provider's name on the node called ``root``."""
        return f"{root}_{self.suffix}"


CHILDREN: Mapping[Technique, Child] = {
    "sev": Child("amd_sev", os_traits.HW_CPU_X86_AMD_SEV),
    "sev_es": Child("amd_sev_es", os_traits.HW_CPU_X86_AMD_SEV_ES),
    "sev_snp": Child("amd_sev_snp", os_traits.HW_CPU_X86_AMD_SEV_SNP),
    "tdx": Child("intel_tdx", os_traits.HW_CPU_X86_INTEL_TDX),
}


def put_encryption(
    tree: ProviderTree, present: ProviderTree, root: str, facts: HostFacts, policy: EncryptionPolicy
) -> None:
    """Give ``tree`` what follows from the encryption of ``facts``; if that is not complete, what
    ``present`` has of it.
    """
    name = tree.name_of(root)
    if not facts.complete("encryption"):
        for child in CHILDREN.values():
            if keep_last(tree, present, root, child.name(name), frozenset({CLASS})):
                tree.add_traits(child.name(name), child.trait)
        keep_last(tree, present, root, name, frozenset({CLASS}))
        return
    for technique, total in offered(facts.encryption or EncryptionFacts(), policy).items():
        child = CHILDREN[technique]
        # A guest has one context: whatever it runs is encrypted by one key.
        put_child(tree, child.name(name), name, {CLASS: counted(total, 1)})
        tree.add_traits(child.name(name), child.trait)


def take_trait_off_root(tree: ProviderTree, root: str) -> None:
    """SEV is a trait of its child, where it has one; old releases had both on the root."""
    sev = CHILDREN["sev"]
    if tree.exists(sev.name(tree.name_of(root))):
        tree.remove_traits(root, sev.trait)


def offered(facts: EncryptionFacts, policy: EncryptionPolicy) -> dict[Technique, int]:
    """How many contexts each technique is given, if any. Where SEV-SNP has some, SEV-ES has none:
    they would be counted twice.
    """
    found = {
        technique: total for technique in CHILDREN if (total := policy.contexts(facts, technique))
    }
    return {
        technique: total
        for technique, total in found.items()
        if technique != "sev_es" or "sev_snp" not in found
    }
