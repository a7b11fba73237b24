"""Which classes of a compute node's tree are nova's to remove, and which stay: those of other
writers, and those in use.
"""

from collections.abc import Mapping
from typing import cast

import os_traits

from agent.model.inventory import changed, completed
from agent.model.mirror import Held, Journal, Ownership
from agent.model.names import ProviderUuid
from agent.model.provider_tree import PresentTree, Provider, ProviderTree, TargetTree
from agent.placement.ownership import NODES_OWN


def is_device(provider: Provider) -> bool:
    """Return whether nova's translator of PCI devices keeps the provider."""
    return os_traits.COMPUTE_MANAGED_PCI_DEVICE in provider.traits


def novas_classes(journal: Journal, present: PresentTree) -> Mapping[ProviderUuid, frozenset[str]]:
    """Return the classes of each present provider that nova may remove: those that its driver
    listed before, those that only a node has, all of a device, and all of a provider that is seen
    for the first time.

    ``journal``: the classes that the driver listed, and that are still there.
    """
    return {
        one.uuid: (journal.of(one.uuid).classes | NODES_OWN) & one.inventory.keys()
        if journal.owns(one.uuid) and not is_device(one)
        else frozenset(one.inventory)
        for one in present.providers()
    }


def next_journal(before: Journal, tree: ProviderTree, present: PresentTree) -> Journal:
    """Return the journal after a write of ``tree``, the driver's. What is in use on a provider that
    was seen for the first time may be another writer's.
    """
    providers = {
        one.uuid: Ownership(
            ((before.of(one.uuid).classes | NODES_OWN) & one.inventory.keys())
            | (tree.provider(one.uuid).inventory.keys() if tree.exists(one.uuid) else set())
        )
        for one in present.providers()
    }
    return Journal(providers, adopted=True, version=before.version)


def of_others(
    tree: ProviderTree, present: PresentTree, own: Mapping[ProviderUuid, frozenset[str]]
) -> Held:
    """Return the classes that the driver does not list and that are not nova's, by provider."""
    found = {
        uuid: frozenset(
            present.provider(uuid).inventory.keys() - tree.provider(uuid).inventory.keys() - classes
        )
        for uuid, classes in own.items()
        if tree.exists(uuid)
    }
    return {uuid: classes for uuid, classes in found.items() if classes}


def as_written(tree: ProviderTree, present: PresentTree, stays: Held) -> TargetTree:
    """Return ``tree`` with the classes that stay as they are in Placement, and with whole records:
    where nova changes the inventory of a provider, Placement's defaults stand for what its records
    lack.

    A device stays as a whole, because another class beside the one in use would offer it twice.
    """
    result = tree.copy()
    for provider in tree.providers():
        uuid = provider.uuid
        there = present.provider(uuid) if present.exists(uuid) else provider
        old = there.inventory if present.exists(uuid) else {}
        kept = {name: old[name] for name in stays.get(uuid, frozenset()) & old.keys()}
        wanted = {**kept, **provider.inventory}
        if kept and is_device(there):
            wanted = dict(old)
        if changed(old, wanted):
            records = {name: completed(record) for name, record in wanted.items()}
            result.update_inventory(uuid, records)
        elif provider.inventory != old:
            result.update_inventory(uuid, dict(old))
    return cast(TargetTree, result)
