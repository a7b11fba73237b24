"""What each child of a node is to it, and what it is called for that. Pure functions.

A child is known by its role, not by its name: after the node got another name its children are
the same ones, and are renamed in place. The journal has the roles of the agent's children. Without
them, as after the loss of a store, a role is read from uuid and name.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from agent.model.mirror import Journal, Ownership, PlacementView
from agent.model.names import ProviderUuid, child_name, child_role, child_uuid, follows_name
from agent.model.provider import Provider
from agent.model.provider_tree import PresentTree, ProviderTree, TargetTree
from agent.placement.merge import Target

# The children that nova and the agent themselves make, whatever the node was called then.
_KNOWN = re.compile(
    r".+?(_NUMA\d+|_[0-9A-F]{4,8}:[0-9A-F]{2}:[01][0-9A-F]\.[0-7]"
    r"|_pci_[0-9a-f]{4,8}_[0-9a-f]{2}_[01][0-9a-f]_[0-7]|_amd_sev(_es|_snp)?|_intel_tdx)"
)


def _endings(name: str) -> Iterator[str]:
    """Yield the roles that ``name`` may end with."""
    return (name[at:] for at in range(1, len(name)) if follows_name(name[at:]))


def derived_role(provider: Provider, root: ProviderUuid) -> str | None:
    """Return the role that the provider's uuid was derived from, if its name ends with it."""
    return next(
        (role for role in _endings(provider.name) if child_uuid(root, role) == provider.uuid), None
    )


def is_derived(provider: Provider, root: ProviderUuid) -> bool:
    """Return whether the uuid was derived from the provider's role, or from its name, as the first
    releases did. Nobody but the agent does that.
    """
    texts = (provider.name, child_role(provider.name, ""))
    return (
        any(child_uuid(root, text) == provider.uuid for text in texts)
        or derived_role(provider, root) is not None
    )


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


def with_roles(journal: Journal, last: ProviderTree, root: ProviderUuid, node: str) -> Journal:
    """Return the journal with the roles of children that the first releases wrote, who kept no
    roles. ``last``: the node's tree as it was last seen.
    """
    if not last.exists(root):
        return journal
    names = (node, last.name_of(root))
    found: dict[ProviderUuid, Ownership] = {
        uuid: replace(own, role=found_role(last.provider(uuid), root, names))
        for uuid, own in journal.providers.items()
        if uuid != root and last.exists(uuid) and not own.role
    }
    return replace(journal, providers={**journal.providers, **found}) if found else journal


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


def with_names_of_others(target: Target, present: PresentTree) -> Target:
    """Return ``target`` in which the providers that are not the agent's are called as in
    ``present``.
    """
    owned = target.journal.providers
    names = {
        provider.uuid: name
        for provider in target.tree.providers()
        if provider.uuid not in owned
        and present.exists(provider.uuid)
        and (name := present.name_of(provider.uuid)) != provider.name
    }
    if not names:
        return target
    tree = target.tree.copy()
    for uuid, name in names.items():
        tree.rename(uuid, name)
    return replace(target, tree=TargetTree(tree.freeze()))
