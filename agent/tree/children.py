"""Children of the root or of a cell that count one class each: mediated devices and contexts of
encrypted memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import os_resource_classes as orc
import os_traits

from agent.model.encryption import EncryptionFacts, Technique
from agent.model.facts import HostFacts
from agent.tree.cell_tree import cell_or_root
from agent.tree.encryption_policy import EncryptionPolicy
from agent.tree.mdev_policy import MdevPolicy
from agent.tree.node_trees import NodeTrees, ensure_child, inventory_record


def put_mdevs(trees: NodeTrees, facts: HostFacts, policy: MdevPolicy) -> None:
    """Give the desired tree the providers of the mediated devices of ``facts``; if these are not
    complete, what Placement has of them.
    """
    if not policy.types:
        return
    if not facts.complete("mdev"):
        _keep_last_mdevs(trees, policy)
        return
    for parent, kind, total in policy.offered(facts.mdev or ()):
        provider = parent.provider_name(trees.name)
        above = cell_or_root(trees.desired, trees.root, parent.numa_node)
        ensure_child(trees.desired, provider, above)
        record = inventory_record(total, most=min(total, kind.max_per_guest or total))
        trees.desired.update_inventory(provider, {kind.resource_class: record})


def _keep_last_mdevs(trees: NodeTrees, policy: MdevPolicy) -> None:
    """Keep all that Placement has of mediated devices, including what an older layout has on the
    root, because the parents are unknown now.
    """
    for provider in trees.present_providers:
        if (
            provider.name.startswith(f"{trees.name}_")
            and os_traits.COMPUTE_MANAGED_PCI_DEVICE not in provider.traits
        ):
            trees.keep_last(provider.name, policy.classes)
    trees.keep_last(trees.name, {orc.VGPU})


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


def put_encryption(trees: NodeTrees, facts: HostFacts, policy: EncryptionPolicy) -> None:
    """Give the desired tree the providers of the encryption contexts of ``facts``; if these are not
    complete, what Placement has of them.
    """
    if not facts.complete("encryption"):
        for child in CHILDREN.values():
            if trees.keep_last(child.name(trees.name), {CLASS}):
                trees.desired.add_traits(child.name(trees.name), child.trait)
        trees.keep_last(trees.name, {CLASS})
        return
    for technique, total in offered(facts.encryption or EncryptionFacts(), policy).items():
        child = CHILDREN[technique]
        provider = child.name(trees.name)
        ensure_child(trees.desired, provider, trees.root)
        # A guest has one context: its memory is encrypted by one key.
        trees.desired.update_inventory(provider, {CLASS: inventory_record(total, most=1)})
        trees.desired.add_traits(provider, child.trait)


def remove_sev_trait_from_root(trees: NodeTrees) -> None:
    """Remove the trait of SEV from the root where its child has it; old releases set it on the root
    too.
    """
    sev = CHILDREN["sev"]
    if trees.desired.exists(sev.name(trees.name)):
        trees.desired.remove_traits(trees.root, sev.trait)


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
