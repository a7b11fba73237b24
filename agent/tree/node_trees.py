"""The trees of one node while its desired tree is built, and the steps that several parts of the
desired tree take.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agent.model.inventory import Record
from agent.model.names import ProviderUuid, child_role, child_uuid
from agent.model.provider import Provider
from agent.model.provider_tree import DesiredTree, PresentTree, ProviderTree


@dataclass(frozen=True, slots=True)
class NodeTrees:
    """The desired tree of a node, and what Placement has of the node."""

    desired: DesiredTree
    """Edited in place."""
    present: PresentTree
    """What Placement has."""
    root: ProviderUuid

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.desired.name_of(self.root)

    @property
    def present_root(self) -> Provider | None:
        """The root in Placement; None if Placement does not have the node yet."""
        return self.present.provider(self.root) if self.present.exists(self.root) else None

    @property
    def present_providers(self) -> list[Provider]:
        """The providers of the node's tree in Placement, parents before their children."""
        if not self.present.exists(self.root):
            return []
        return [
            self.present.provider(uuid)
            for uuid in self.present.get_provider_uuids_in_tree(self.root)
        ]

    def add_inventory(self, provider: str, inventory: Mapping[str, Record]) -> None:
        """Add the records to those of the provider in the desired tree."""
        known = self.desired.provider(provider).inventory
        self.desired.update_inventory(provider, {**known, **inventory})

    def keep_last(self, name: str, classes: Collection[str]) -> bool:
        """Copy the ``classes`` that Placement has on the provider called ``name`` to the desired
        tree. Return whether they were copied: not if Placement has none of them, or the desired
        tree has one of them there already.
        """
        if not self.present.exists(name):
            return False
        last = self.present.provider(name)
        inventory = {
            resource_class: record
            for resource_class, record in last.inventory.items()
            if resource_class in classes
        }
        if not inventory:
            return False
        if not self.desired.exists(name):
            self.desired.new_child(name, last_parent(self.desired, last, self.root))
        elif not self.desired.provider(name).inventory.keys().isdisjoint(classes):
            return False
        self.add_inventory(name, inventory)
        return True


def uuid_of_child(tree: ProviderTree, root: ProviderUuid, name: str, node: str) -> ProviderUuid:
    """Return the uuid that the child called ``name`` of the node called ``node`` has in ``tree``,
    or that it will get.
    """
    if tree.exists(name):
        return tree.provider(name).uuid
    return child_uuid(root, child_role(name, node))


def shares_provider(tree: ProviderTree, provider: Provider) -> bool:
    """Whether ``provider``, of a tree derived from ``tree`` or that ``tree`` is derived from, was
    not written since: copies of a tree share what neither wrote.
    """
    return tree.exists(provider.uuid) and tree.provider(provider.uuid) is provider


def last_parent(tree: DesiredTree, last: Provider, root: ProviderUuid) -> ProviderUuid:
    """Return the parent that the provider has in Placement; the root if ``tree`` lacks it."""
    if last.parent_uuid and tree.exists(last.parent_uuid):
        return last.parent_uuid
    return root


def ensure_child(tree: DesiredTree, name: str, parent: str) -> None:
    """Give ``tree`` a provider of that name below ``parent``. An existing one is moved there: it
    may be kept only for a foreign provider below it, and now belong below another parent.
    """
    if tree.exists(name):
        tree.reparent(name, parent)
    else:
        tree.new_child(name, parent)


def inventory_record(
    total: int, *, reserved: int = 0, unit: int = 1, most: int | None = None, ratio: float = 1.0
) -> Record:
    """Return a complete inventory record. ``unit``: the least amount, and the step. ``most``: what
    one consumer may have; None for all.
    """
    return {
        "total": total,
        "reserved": reserved,
        "min_unit": unit,
        "max_unit": total if most is None else most,
        "step_size": unit,
        "allocation_ratio": ratio,
    }
