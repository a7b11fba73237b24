"""The part of the tree that counts contexts of encrypted memory: a child for each technique, with its trait."""

from collections.abc import Mapping
from dataclasses import dataclass

import os_resource_classes as orc
import os_traits

from agent.tree.children import counted, keep_last, put_child
from agent.tree.encryption_policy import EncryptionPolicy
from agent.model.encryption import EncryptionFacts, Technique
from agent.model.facts import HostFacts
from agent.model.provider_tree import ProviderTree

CLASS = orc.MEM_ENCRYPTION_CONTEXT


@dataclass(frozen=True, slots=True)
class Child:
    """What is behind the node's name in that of the provider, and the trait that flavors ask for."""

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


def put_encryption(tree: ProviderTree, present: ProviderTree, root: str, facts: HostFacts, policy: EncryptionPolicy) -> None:
    """Give ``tree`` what follows from the encryption of ``facts``; if that is not complete, what ``present`` has of it."""
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
    """How many contexts each technique is given, if any. Where SEV-SNP has some, SEV-ES has none: they would be counted twice."""
    found = {technique: total for technique in CHILDREN if (total := policy.contexts(facts, technique))}
    return {technique: total for technique, total in found.items() if technique != "sev_es" or "sev_snp" not in found}
