"""The children that nova makes just as the agent does, told by name and class.

Who takes a tree over takes these too, also those whose device is gone: nobody else would ever take them away.
"""

import re
from dataclasses import replace

import os_resource_classes as orc

from agent.tree.encryption_tree import CHILDREN, CLASS
from agent.model.journal import Ownership
from agent.model.provider_tree import Provider
from agent.placement.merge_inputs import MergeInputs

_PCI_PARENT = re.compile(r"_pci_[0-9a-f]{4,8}_[0-9a-f]{2}_[01][0-9a-f]_[0-7]")


def with_novas_children(by: MergeInputs) -> MergeInputs:
    """``by`` with nova's children in its journal, if the tree is being taken over."""
    if not by.take_over or not by.present.exists(by.root):
        return by
    root = by.present.name_of(by.root)
    taken = {
        one.uuid: own for one in by.present.providers()
        if not by.journal.owns(one.uuid) and one.parent_uuid == by.root and (own := _ownership(one, root)) is not None
    }  # fmt: skip
    return replace(by, journal=replace(by.journal, providers={**by.journal.providers, **taken})) if taken else by


def _ownership(one: Provider, root: str) -> Ownership | None:
    """What of a child is nova's; None if it is none of nova's."""
    if orc.VGPU in one.inventory and one.name.startswith(root) and _PCI_PARENT.fullmatch(one.name.removeprefix(root)):
        return Ownership(frozenset({orc.VGPU}))
    for child in CHILDREN.values():
        if CLASS in one.inventory and one.name == child.name(root):
            return Ownership(frozenset({CLASS}), frozenset(one.traits & {child.trait}))
    return None
