"""The desired tree of one node: the part that follows from the facts, the driver's own part, the
agent's traits on the root, and what the operator's provider files add.

Files neither create providers nor change their ownership. What a file added before belongs neither
to the driver nor to another owner, whichever tree shows it: it is removed first, and comes back
only if a file still says so.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import os_resource_classes as orc
import os_traits

from agent.driver.interface import Allocations
from agent.model.devices import EncryptionFacts
from agent.model.inventory import differs
from agent.model.mirror import Configured, Journal, Ownership
from agent.model.names import AGENT_MARK, ProviderUuid, custom_token
from agent.model.provider_tree import Provider, ProviderTree
from agent.placement.ownership import MergeInputs
from agent.provider_config.applying import Addition, Applied, ProviderConfig, apply
from agent.tree.children import (
    CHILDREN,
    put_encryption,
    put_mdevs,
    put_units,
)
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import Policy
from agent.tree.reshape.allocation_editor import ReshapeContext
from agent.tree.reshape.moving import move_allocations

REMOTE_MANAGED_PORTS = os_traits.COMPUTE_REMOTE_MANAGED_PORTS
STATUS_DISABLED = os_traits.COMPUTE_STATUS_DISABLED

OWN = frozenset({STATUS_DISABLED})
"""Traits that follow from the operator's options alone."""


def agent_trait(agent: str) -> str:
    """Return the trait that all nodes of the agent called ``agent`` carry, so that one request
    lists them.
    """
    return custom_token(f"COMPUTE_NODE_AGENT_{agent}")


def other_marks(traits: Iterable[str], agent: str) -> frozenset[str]:
    """Return the traits by which agents other than ``agent`` have marked a root as theirs."""
    marks = frozenset(trait for trait in traits if trait.startswith(AGENT_MARK))
    return marks - {agent_trait(agent)}


def put_root_traits(
    trees: NodeTrees,
    journal: Journal,
    policy: Policy,
    agent: str,
    known: Mapping[str, bool],
    *,
    complete: bool = True,
    offers_remote_ports: bool | None = None,
) -> None:
    """Mark the root as a compute node of this owner and agent, with the ``known`` traits of facts
    and capabilities, and the disabled trait as the operator's switch says.

    If these are not ``complete``, the traits set before stay. On a nova host the switch is nova's:
    unset, the trait stays as it was found; true removes it only if the journal says that the agent
    had set it.

    ``agent``: empty for an agent that only observes, which marks nothing. ``offers_remote_ports``:
    whether devices are offered that another processor programs; if that is unknown (None), the
    capability stays as Placement has it.
    """
    tree, root, last = trees.desired, trees.root, trees.present_root
    tree.add_traits(root, os_traits.COMPUTE_NODE)
    if agent:
        tree.add_traits(root, policy.owner_trait, agent_trait(agent))
        # Marks of the agent that had the node before: the audit does not get here while another
        # agent has it.
        tree.remove_traits(root, *other_marks(tree.provider(root).traits, agent))
    own = journal.of(root)
    if last is not None and not complete:
        tree.add_traits(root, *(last.traits & own.traits - own.configured.traits - OWN))
    known = dict(known)
    if known.get(REMOTE_MANAGED_PORTS):
        before = last is not None and REMOTE_MANAGED_PORTS in last.traits
        known[REMOTE_MANAGED_PORTS] = before if offers_remote_ports is None else offers_remote_ports
    tree.add_traits(root, *(trait for trait, has in known.items() if has))
    tree.remove_traits(root, *(trait for trait, has in known.items() if not has))
    was_disabled = last is not None and STATUS_DISABLED in last.traits
    if policy.enabled is False or (policy.enabled is None and was_disabled):
        tree.add_traits(root, STATUS_DISABLED)
    elif STATUS_DISABLED in own.traits:
        tree.remove_traits(root, STATUS_DISABLED)


_PCI_PARENT = re.compile(r"_pci_[0-9a-f]{4,8}_[0-9a-f]{2}_[01][0-9a-f]_[0-7]")


def with_novas_children(inputs: MergeInputs) -> MergeInputs:
    """Return ``inputs`` with the children that nova created added to the journal, if the tree is
    being taken over.
    """
    present, journal = inputs.present, inputs.journal
    if not inputs.take_over or not present.exists(inputs.root):
        return inputs
    root = present.name_of(inputs.root)
    taken = {
        child.uuid: ownership
        for child in present.providers()
        if not journal.owns(child.uuid)
        and child.parent_uuid == inputs.root
        and (ownership := _novas_ownership(child, root)) is not None
    }
    if not taken:
        return inputs
    return replace(inputs, journal=replace(journal, providers={**journal.providers, **taken}))


def _novas_ownership(provider: Provider, root: str) -> Ownership | None:
    """Return what nova wrote on a child that it created; None if nova did not create it."""
    if (
        orc.VGPU in provider.inventory
        and provider.name.startswith(root)
        and _PCI_PARENT.fullmatch(provider.name.removeprefix(root))
    ):
        return Ownership(frozenset({orc.VGPU}))
    for child in CHILDREN.values():
        if orc.MEM_ENCRYPTION_CONTEXT in provider.inventory and provider.name == child.name(root):
            return Ownership(
                frozenset({orc.MEM_ENCRYPTION_CONTEXT}), frozenset(provider.traits & {child.trait})
            )
    return None


_SEV = CHILDREN["sev"]


def count_on_root(tree: ProviderTree, root: ProviderUuid, classes: frozenset[str]) -> None:
    """Move the inventories of ``classes`` from the children to the root. A child with nothing left
    is removed.
    """
    if orc.VGPU in classes:
        _fold(
            tree,
            root,
            orc.VGPU,
            [uuid for uuid in tree.get_provider_uuids_in_tree(root) if uuid != root],
            together=True,
        )
    if orc.MEM_ENCRYPTION_CONTEXT in classes and tree.exists(sev := _SEV.name(tree.name_of(root))):
        # A guest has one context, and contexts of the other techniques never were on the root.
        _fold(tree, root, orc.MEM_ENCRYPTION_CONTEXT, [tree.provider(sev).uuid], together=False)
        tree.add_traits(root, _SEV.trait)


def _fold(
    tree: ProviderTree,
    root: ProviderUuid,
    name: str,
    children: list[ProviderUuid],
    *,
    together: bool,
) -> None:
    """Add up the children's inventories of class ``name`` on the root.

    ``together``: one consumer may have all of it; else at most what one child offered.
    """
    having = [uuid for uuid in reversed(children) if name in tree.provider(uuid).inventory]
    if not having:
        return
    inventory = tree.provider(root).inventory
    records = [
        tree.provider(uuid).inventory[name]
        for uuid in (*having, *((root,) if name in inventory else ()))
    ]
    total = sum(int(record["total"]) for record in records)
    most = total if together else max(int(record["max_unit"]) for record in records)
    tree.update_inventory(
        root, {**inventory, name: {**records[0], "total": total, "max_unit": most}}
    )
    for uuid in having:
        left = {
            other: record
            for other, record in tree.provider(uuid).inventory.items()
            if other != name
        }
        if left or tree.children(uuid):
            tree.update_inventory(uuid, left)
        else:
            tree.remove(uuid)


def complete_tree(
    trees: NodeTrees,
    journal: Journal,
    reshape_context: ReshapeContext,
    allocations: Allocations | None,
) -> None:
    """Add what follows from the facts to the desired tree after the driver's own part, because the
    driver may create the providers that count the units. ``allocations`` are edited in place.

    :raises ReshapeNeeded: allocated inventory has to move and ``allocations`` is None.
    :raises ReshapeFailed: the allocations cannot be moved.
    """
    facts, policy = reshape_context.facts, reshape_context.policy
    put_mdevs(trees, facts.mdev or () if facts.complete("mdev") else None, policy.mdev)
    encryption = facts.encryption or EncryptionFacts() if facts.complete("encryption") else None
    put_encryption(trees, encryption, policy.encryption)
    if journal.adopted and trees.desired.exists(_SEV.name(trees.name)):
        # Old releases set the trait on the root too.
        trees.desired.remove_traits(trees.root, _SEV.trait)
    if policy.on_root:
        count_on_root(trees.desired, trees.root, policy.on_root)
    put_units(trees, facts.units or () if facts.complete("units") else None)
    # Nothing is deleted from a tree that is not adopted, so nothing moves in it either.
    if journal.adopted:
        move_allocations(trees, reshape_context, allocations)


def complete_ratios(tree: ProviderTree, ratios: Mapping[str, float]) -> None:
    """Add the operator's ratios to the driver's records that have none. Ratios that the operator
    left open are completed from Placement by the merge.
    """
    for provider in list(tree.providers()):
        completed = {
            name: {**record, "allocation_ratio": ratios[name]}
            for name, record in provider.inventory.items()
            if name in ratios and "allocation_ratio" not in record
        }
        if completed:
            tree.update_inventory(provider.uuid, {**provider.inventory, **completed})


def put_operators_files(
    config: ProviderConfig, inputs: MergeInputs, owner_trait: str, *, kept: bool = False
) -> Applied:
    """Return the desired tree of ``inputs`` with the additions of the operator's files. A provider
    that has an entry also gets ``owner_trait``.

    ``kept``: the facts are not complete, so parts of the desired tree are copies of what Placement
    has, and may contain what files added.
    """
    configured_before = {
        uuid: ownership.configured
        for uuid, ownership in inputs.journal.providers.items()
        if ownership.configured
    }
    if not inputs.desired.exists(inputs.root) or not (config.entries or configured_before):
        return Applied(inputs.desired)
    tree = inputs.desired.copy()
    for uuid, configured in configured_before.items():
        source = inputs.present if kept and inputs.present.exists(uuid) else inputs.base
        if tree.exists(uuid) and source.exists(uuid):
            _take_back(tree, source.provider(uuid), configured)
    members = tree.get_provider_uuids(inputs.root)
    own_classes = {
        uuid: _own_classes(tree.provider(uuid), inputs)
        for uuid in members
        if inputs.is_desired(uuid) and inputs.is_own(uuid)
    }
    gone = frozenset(uuid for uuid in members if not inputs.is_desired(uuid))
    last = {
        uuid: Addition(
            {
                name: record
                for name, record in there.inventory.items()
                if name in configured.classes
            },
            frozenset(configured.traits & there.traits),
        )
        for uuid, configured in configured_before.items()
        if inputs.present.exists(uuid) and (there := inputs.present.provider(uuid))
    }
    return apply(config, tree, inputs.root, owner_trait, own_classes, gone=gone, last=last)


def _take_back(tree: ProviderTree, base: Provider, configured: Configured) -> None:
    """Remove what files added and the desired tree only has because ``base`` has it, unless the
    desired record differs.
    """
    desired = tree.provider(base.uuid)
    left = {
        name
        for name in configured.classes & desired.inventory.keys() & base.inventory.keys()
        if not differs(base.inventory[name], desired.inventory[name])
    }
    if left:
        tree.update_inventory(
            base.uuid,
            {name: record for name, record in desired.inventory.items() if name not in left},
        )
    tree.remove_traits(base.uuid, *(configured.traits & base.traits))


def _own_classes(desired: Provider, inputs: MergeInputs) -> frozenset[str]:
    """Return the classes that the node itself has: set in this pass, or in an earlier one and still
    there.
    """
    base = inputs.base.provider(desired.uuid).inventory if inputs.base.exists(desired.uuid) else {}
    own = inputs.journal.of(desired.uuid).classes
    return frozenset(
        name
        for name, record in desired.inventory.items()
        if name in own or name not in base or differs(base[name], record)
    )
