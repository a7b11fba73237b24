"""Whose each provider and class of a node's tree is, and by which role a child of it is known. Pure
functions.

What the journal does not list belongs to somebody else. A child is known by its role, not by its
name: after the node got another name its children are the same ones, and are renamed in place. The
journal has the roles of the agent's children. Without them, as after the loss of a store, a role is
read from uuid and name.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import os_resource_classes as orc

from agent.model.inventory import Inventories
from agent.model.mirror import Journal, Ownership, PlacementView
from agent.model.names import (
    AGENT_MARK,
    ProviderUuid,
    child_name,
    child_role,
    child_uuid,
    follows_name,
    is_custom,
)
from agent.model.provider_tree import BaseTree, DesiredTree, PresentTree, Provider, ProviderTree

# The standard classes that are the node's own in its tree, written by nova or by the agent; other
# services write their own classes on providers of the tree.
NODES_OWN = frozenset(
    {orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT}
)
STATUS_DISABLED = "COMPUTE_STATUS_DISABLED"
# The mark of a provider of devices, whose inventories are the agent's, or nova's before it.
MANAGED_DEVICE = "COMPUTE_MANAGED_PCI_DEVICE"


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """The inputs of a merge.

    They tell of each provider of the desired tree whether this pass or an earlier pass of the agent
    wrote it, or somebody else.
    """

    present: PresentTree
    """What Placement has of the node."""
    journal: Journal
    base: BaseTree
    """The tree from which the driver made the desired tree."""
    desired: DesiredTree
    root: ProviderUuid
    take_over: bool
    """Whether every provider that the driver wrote is the agent's, as with an empty journal."""
    keeps_foreign: bool = False
    """Whether a provider that the node no longer has stays while others have something on it: a
    source that was empty once must not lose what only they can write again.
    """
    gives_back: bool = False
    """Whether standard traits of others keep it too: nova writes such traits on its providers, and
    they go with what they describe as long as the agent manages the tree.
    """

    @classmethod
    def of(
        cls,
        view: PlacementView,
        journal: Journal,
        base: BaseTree,
        desired: DesiredTree,
        root: ProviderUuid,
        *,
        take_over: bool = False,
    ) -> Self:
        """Build the inputs, with ``present`` taken from ``view``."""
        return cls(
            view.subtree(root), journal, base, desired, root, take_over or not journal.owns(root)
        )

    def is_changed(self, uuid: ProviderUuid) -> bool:
        """Return whether this pass changed or created the provider."""
        if not self.desired.exists(uuid):
            return False
        return not self.base.exists(uuid) or self.desired.provider(uuid) != self.base.provider(uuid)

    def is_written(self, uuid: ProviderUuid) -> bool:
        """Return whether this pass wrote the provider, perhaps without changing it."""
        return self.is_changed(uuid) or uuid in self.desired.written_by_name

    def is_desired(self, uuid: ProviderUuid) -> bool:
        """Return whether the desired tree wants the provider, and does not only contain it as
        :func:`foreign_share` left it, as a parent for providers of others.
        """
        if not self.desired.exists(uuid) or uuid == self.root or not self.journal.owns(uuid):
            return self.desired.exists(uuid)
        emptied = (
            self.base.exists(uuid)
            and self.present.exists(uuid)
            and self.base.provider(uuid) != self.present.provider(uuid)
        )
        return not emptied or self.is_written(uuid)

    def is_own(self, uuid: ProviderUuid) -> bool:
        """Return whether the provider is the agent's to write."""
        if uuid == self.root or self.journal.owns(uuid) or not self.present.exists(uuid):
            return True
        return self.take_over and self.is_written(uuid)

    def kept_for_others(self, uuid: ProviderUuid) -> Sequence[str]:
        """Return what others have on a present provider, which the node no longer has and which
        stays for that; empty if it goes.
        """
        if not self.keeps_foreign:
            return ()
        present, own = self.present.provider(uuid), self.journal.of(uuid)
        traits = (
            trait
            for trait in present.traits - own.traits
            if self.gives_back or (is_custom(trait) and not trait.startswith(AGENT_MARK))
        )
        return [
            *sorted(foreign_inventory(present, own, adopted=True)),
            *sorted(traits),
            *(f"aggregate {uuid}" for uuid in sorted(present.aggregates - own.aggregates)),
        ]


def foreign_inventory(present: Provider, own: Ownership, adopted: bool) -> Inventories:
    """Return the classes of others: those that are not in the journal; in an adopted tree without
    the classes that only a node has.
    """
    return {
        name: record
        for name, record in present.inventory.items()
        if name not in own.classes and (name not in NODES_OWN or not adopted)
    }


def foreign_share(view: PlacementView, journal: Journal, root: ProviderUuid, name: str) -> BaseTree:
    """Return the tree that a shaping driver starts from: without the agent's contents, with those
    of others.

    Children of the agent that have foreign children stay, without contents, as their parents.
    """
    if not view.tree.exists(root):
        tree = BaseTree(ProviderTree())
        tree.new_root(name, root)
        return tree
    tree = BaseTree(view.tree.scoped(root))
    for uuid in reversed(tree.get_provider_uuids(root)):
        if not journal.owns(uuid) and uuid != root:
            continue
        if uuid != root and not tree.children(uuid):
            tree.remove(uuid)
            continue
        present, own = tree.provider(uuid), journal.of(uuid)
        tree.replace(
            replace(
                present,
                inventory=foreign_inventory(present, own, adopted=True),
                traits=present.traits - own.traits,
                aggregates=present.aggregates - own.aggregates,
            )
        )
    return tree


# --- roles ----------------------------------------------------------------------------------------

# The children that nova and the agent themselves make, whatever the node was called then.
_KNOWN = re.compile(
    r".+?(_NUMA\d+|_[0-9A-F]{4,8}:[0-9A-F]{2}:[01][0-9A-F]\.[0-7]"
    r"|_pci_[0-9a-f]{4,8}_[0-9a-f]{2}_[01][0-9a-f]_[0-7]|_amd_sev(_es|_snp)?|_intel_tdx)"
)


def derived_role(provider: Provider, root: ProviderUuid) -> str | None:
    """Return the role that the provider's uuid was derived from, if its name ends with it."""
    endings = (provider.name[at:] for at in range(1, len(provider.name)))
    roles = filter(follows_name, endings)
    return next((role for role in roles if child_uuid(root, role) == provider.uuid), None)


def is_derived(provider: Provider, root: ProviderUuid) -> bool:
    """Return whether the uuid was derived from the provider's role, or from its name, as the first
    releases did. Nobody but the agent does that.
    """
    texts = (provider.name, child_role(provider.name, ""))
    return (
        any(child_uuid(root, text) == provider.uuid for text in texts)
        or derived_role(provider, root) is not None
    )


def with_derived(journal: Journal, tree: ProviderTree, root: ProviderUuid) -> Journal:
    """Return the journal with the children of ``tree`` that it lacks and whose uuids only the agent
    derives, as after a restored database. What is on them is others', except where only the agent
    or nova writes: on a provider of devices.
    """
    found = {
        child.uuid: Ownership(
            frozenset(child.inventory)
            if journal.adopted and MANAGED_DEVICE in child.traits
            else frozenset()
        )
        for child in tree.providers()
        if child.uuid != root and not journal.owns(child.uuid) and is_derived(child, root)
    }
    return replace(journal, providers={**journal.providers, **found}) if found else journal


def found_role(provider: Provider, root: ProviderUuid, names: Collection[str]) -> str:
    """Return the role of a child whose role nobody wrote down. ``names``: what its node is or was
    called.
    """
    if (derived := derived_role(provider, root)) is not None:
        return derived
    if (known := _KNOWN.fullmatch(provider.name)) is not None:
        return known[1]
    # Below the longest name: one name of the node may begin with the other.
    return min((child_role(provider.name, node) for node in names), key=len)


def doubled(
    tree: ProviderTree, journal: Journal, root: ProviderUuid, node: str
) -> Iterator[tuple[ProviderUuid, ProviderUuid]]:
    """Yield the children that have a role twice: the one that is held because consumers use it, and
    the one that has the name. The first releases made the second one when a node was renamed.
    """
    if not journal.adopted or not tree.exists(root):
        return
    names = {node, tree.name_of(root)}
    for uuid in journal.held:
        if uuid == root or not (journal.owns(uuid) and tree.exists(uuid)):
            continue
        role = journal.of(uuid).role or found_role(tree.provider(uuid), root, names)
        if not tree.exists(name := child_name(role, node)):
            continue
        other = tree.provider(name).uuid
        if other != uuid and journal.owns(other) and all(map(journal.owns, tree.children(other))):
            yield uuid, other


def named_by_role(
    view: PlacementView,
    journal: Journal,
    root: ProviderUuid,
    node: str,
    *,
    taking_over: bool,
    first: Collection[ProviderUuid] = (),
) -> PlacementView:
    """Return ``view`` with the root called ``node``, and its children called by their roles,
    whatever their present names are. A name that another provider of the tree has stays that one's,
    except for the providers ``first``, which get the name in exchange for theirs.

    ``taking_over``: children that the journal does not have may become the agent's.
    """
    if not view.tree.exists(root):
        return view
    names = dict(_names(view.tree, journal, root, node, taking_over=taking_over))
    tree = view.tree.copy()
    for uuid, name in names.items():
        if tree.exists(name) and uuid in first:
            before, other = tree.name_of(uuid), tree.provider(name).uuid
            tree.rename(other, other)
            tree.rename(uuid, name)
            tree.rename(other, before)
        # A node of ironic is called by its uuid.
        elif not tree.exists(name) or tree.provider(name).uuid == uuid:
            tree.rename(uuid, name)
    return replace(view, tree=PresentTree(tree.freeze())) if names else view


def _names(
    tree: ProviderTree, journal: Journal, root: ProviderUuid, node: str, *, taking_over: bool
) -> Iterator[tuple[ProviderUuid, str]]:
    """Yield the providers that are not called by their roles, with the names that they should have:
    the root first.
    """
    known = frozenset[str]()
    for uuid in tree.get_provider_uuids(root):
        provider, name = tree.provider(uuid), node
        if uuid != root:
            own = journal.providers.get(uuid)
            role = own.role if own is not None else ""
            # As nearly all are.
            if role and provider.name == node + role:
                continue
            if own is None and not taking_over:
                continue
            known = known or _names_of_node(tree, root, node)
            name = child_name(role or found_role(provider, root, known), node)
        if name != provider.name:
            yield uuid, name


def _names_of_node(tree: ProviderTree, root: ProviderUuid, node: str) -> frozenset[str]:
    """Return what the node is called, and was called when its children were made."""
    matches = (_KNOWN.fullmatch(provider.name) for provider in tree.providers())
    earlier = (found[0].removesuffix(found[1]) for found in matches if found is not None)
    return frozenset((node, tree.name_of(root), *earlier))
