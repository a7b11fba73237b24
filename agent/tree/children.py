"""Children of the root or of a cell that count one class each: mediated devices and contexts of
encrypted memory.
"""

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
    """Return the name of the parent for a device of that cell: the cell's provider, or the root
    where the cell has none or is unknown.
    """
    name = tree.name_of(root)
    cell = cell_name(name, numa_node) if numa_node is not None else name
    return cell if tree.exists(cell) else name


def put_child(tree: ProviderTree, name: str, parent: str, inventory: Mapping[str, Record]) -> None:
    """Give ``tree`` a child with exactly that inventory. The child may exist, kept for a foreign
    provider below it, and now belong below another parent.
    """
    if tree.exists(name):
        tree.reparent(name, parent)
    else:
        tree.new_child(name, parent)
    tree.update_inventory(name, inventory)


def counted(total: int, most: int) -> Record:
    """Return the record of a class of which a consumer may have at most ``most``."""
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
    """Copy what ``present`` has of ``classes`` on the provider called ``name`` to ``tree``. Returns
    whether it was copied: not if ``present`` has none or ``tree`` has some already.
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
    """Give ``tree`` the providers of the mediated devices of ``facts``; if these are not complete,
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
    """Keep all that Placement has of mediated devices, including what an older layout has on the
    root, because the parents are unknown now.
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
    """The child provider of one technique of memory encryption."""

    suffix: str
    """What follows the node's name in the provider's name."""
    trait: str
    """The trait that flavors ask for."""

    def name(self, root: str) -> str:
        """Return the provider's name on the node called ``root``."""
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
    """Give ``tree`` the providers of the encryption contexts of ``facts``; if these are not
    complete, what ``present`` has of them.
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
        # A guest has one context: its memory is encrypted by one key.
        put_child(tree, child.name(name), name, {CLASS: counted(total, 1)})
        tree.add_traits(child.name(name), child.trait)


def take_trait_off_root(tree: ProviderTree, root: str) -> None:
    """Remove the trait of SEV from the root where its child has it; old releases set it on the root
    too.
    """
    sev = CHILDREN["sev"]
    if tree.exists(sev.name(tree.name_of(root))):
        tree.remove_traits(root, sev.trait)


def offered(facts: EncryptionFacts, policy: EncryptionPolicy) -> dict[Technique, int]:
    """Return how many contexts each technique offers, without techniques that offer none. Where
    SEV-SNP has some, SEV-ES has none, because they would be counted twice.
    """
    found = {
        technique: total for technique in CHILDREN if (total := policy.contexts(facts, technique))
    }
    return {
        technique: total
        for technique, total in found.items()
        if technique != "sev_es" or "sev_snp" not in found
    }
