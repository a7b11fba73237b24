"""Children of the root or of a cell that count one class each (mediated devices and contexts of
encrypted memory), and the inventories of assignable units, on the providers that the facts name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import os_resource_classes as orc
import os_traits

from agent.model.devices import AssignableUnit, EncryptionFacts, MdevParent, Technique
from agent.model.facts import HostFacts
from agent.model.inventory import Record
from agent.model.mirror import Consumers
from agent.model.names import ProviderUuid
from agent.model.provider_tree import Provider, ProviderTree
from agent.tree.node_trees import (
    NodeTrees,
    cell_or_root,
    ensure_child,
    inventory_record,
    is_cell_name,
    uuid_of_child,
)
from agent.tree.policy import EncryptionPolicy, MdevPolicy, MdevType


def put_mdevs(trees: NodeTrees, parents: Iterable[MdevParent] | None, policy: MdevPolicy) -> None:
    """Give the desired tree the providers of the mediated devices of ``parents``; if these are
    None, because they are not known now, what Placement has of them.
    """
    if not policy.types:
        return
    if parents is None:
        _keep_last_mdevs(trees, policy)
        return
    for parent, kind, total in policy.offered(parents):
        provider = parent.provider_name(trees.name)
        above = cell_or_root(trees.desired, trees.root, parent.numa_node)
        ensure_child(trees.desired, provider, above)
        record = inventory_record(total, most=min(total, kind.max_per_guest or total))
        trees.desired.update_inventory(provider, {kind.resource_class: record})


def lessened_mdevs(
    policy: MdevPolicy, facts: HostFacts, present: ProviderTree, node: str
) -> Mapping[ProviderUuid, tuple[MdevParent, MdevType]]:
    """Return the providers of the parents that share a ``max_instances``, if one of them is to
    offer less than it does in ``present`` although it can have more; else nothing. Then what is
    allocated of them decides.

    ``node``: the name of the root.
    """
    shared, lessened = dict[ProviderUuid, tuple[MdevParent, MdevType]](), False
    for parent, kind, total in policy.dealt(facts.mdev or ()) if facts.complete("mdev") else ():
        name = parent.provider_name(node)
        if kind.max_instances is not None and present.exists(name):
            provider = present.provider(name)
            offers = provider.inventory.get(kind.resource_class, {}).get("total", 0)
            shared[provider.uuid] = parent, kind
            lessened |= total < min(int(offers), parent.total(kind.name))
    return shared if lessened else {}


def with_allocated(
    policy: MdevPolicy,
    shared: Mapping[ProviderUuid, tuple[MdevParent, MdevType]],
    consumers: Consumers,
) -> MdevPolicy:
    """Return the policy with the devices that are allocated of the ``shared`` providers and not
    made, whether a claim has them or not.
    """
    promised = dict(policy.promised)
    for uuid, (parent, kind) in shared.items():
        allocated = sum(held.get(kind.resource_class, 0) for held in consumers[uuid].values())
        key = parent.name, kind.name
        promised[key] = max(promised.get(key, 0), allocated - parent.made(kind.name))
    return replace(policy, promised=promised)


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
    trees: NodeTrees, facts: EncryptionFacts | None, policy: EncryptionPolicy
) -> None:
    """Give the desired tree the providers of the encryption contexts of ``facts``; if these are
    None, because they are not known now, what Placement has of them.
    """
    if facts is None:
        for child in CHILDREN.values():
            if trees.keep_last(child.name(trees.name), {orc.MEM_ENCRYPTION_CONTEXT}):
                trees.desired.add_traits(child.name(trees.name), child.trait)
        trees.keep_last(trees.name, {orc.MEM_ENCRYPTION_CONTEXT})
        return
    for technique, total in offered(facts, policy).items():
        child = CHILDREN[technique]
        provider = child.name(trees.name)
        ensure_child(trees.desired, provider, trees.root)
        # A guest has one context: its memory is encrypted by one key.
        trees.desired.update_inventory(
            provider, {orc.MEM_ENCRYPTION_CONTEXT: inventory_record(total, most=1)}
        )
        trees.desired.add_traits(provider, child.trait)


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


# Classes of the other facts, though their records may look like a count of units.
OF_OTHERS = frozenset(
    {orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT}
)


def put_units(trees: NodeTrees, units: Iterable[AssignableUnit] | None) -> None:
    """Give the desired tree the inventories of the ``units``; if these are None, because they are
    not known now, what Placement has of them.
    """
    if units is None:
        _keep_last(trees)
        return
    totals = Counter(
        (provider_name(unit, trees.desired, trees.root), unit.resource_class) for unit in units
    )
    for (provider, resource_class), total in totals.items():
        if not trees.desired.exists(provider):
            trees.desired.new_child(provider, trees.root)
        trees.add_inventory(provider, {resource_class: inventory_record(total)})


def provider_name(unit: AssignableUnit, tree: ProviderTree, root: str) -> str:
    """Return the name of the provider that counts ``unit``: the root instead of a cell that has no
    provider, as in a flat layout.
    """
    node = tree.name_of(root)
    name = unit.provider_name(node)
    return node if is_cell_name(name, node) and not tree.exists(name) else name


def unit_provider(
    unit: AssignableUnit, node: str, root: ProviderUuid, present: ProviderTree
) -> ProviderUuid:
    """Return the uuid of the provider that counts ``unit`` of the node called ``node``, as
    Placement has it in ``present`` or will have it.
    """
    if unit.provider is None:
        return root
    name = provider_name(unit, present, root) if present.exists(root) else unit.provider_name(node)
    return uuid_of_child(present, root, name, node)


def _units(provider: Provider) -> dict[str, Record]:
    """Return the inventories of the provider that may count units: Placement does not mark them,
    but nothing of them is reserved and their ratio is 1.
    """
    return {
        name: record
        for name, record in provider.inventory.items()
        if name not in OF_OTHERS and record == inventory_record(int(record["total"]))
    }


def _keep_last(trees: NodeTrees) -> None:
    """Keep the units that Placement has, with the providers that have nothing else."""
    for last in trees.present_providers:
        units = _units(last)
        # The provider was created for other resources, unless it has nothing but units.
        if (
            units
            and not trees.desired.exists(last.name)
            and len(units) == len(last.inventory)
            and last.parent_uuid == trees.root
            and not trees.present.children(last.uuid)
        ):
            trees.desired.new_child(last.name, trees.root)
        if trees.desired.exists(last.name):
            known = trees.desired.provider(last.name).inventory
            trees.add_inventory(
                last.name, {name: record for name, record in units.items() if name not in known}
            )
