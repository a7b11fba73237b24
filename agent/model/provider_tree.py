"""Provider tree: a private, editable forest of frozen providers; and the difference of two provider
trees.

Copies share what did not change, so that a driver gets its own tree of 500 providers within
microseconds. Method names and results are those that drivers written for nova use.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NewType, Self

from agent.model.inventory import Inventories, changed, copied
from agent.model.names import ProviderUuid, is_uuid, normal_uuid
from agent.model.provider import SHARING_TRAIT, Provider, ProviderForest, copied_units


class ProviderTree(ProviderForest):
    """A forest of providers. Belongs to its holder; providers are copied on the way in and out."""

    __slots__ = ()

    def data(self, name_or_uuid: str) -> Provider:
        """Return a copy of the provider; editing its inventory, traits or aggregates does not
        change the tree.
        """
        return self.provider(name_or_uuid).data()

    def replace(self, provider: Provider) -> None:
        """Replace the contents of a provider. Its name and parent stay."""
        found = self.provider(provider.uuid)
        self._put(replace(provider, name=found.name, parent_uuid=found.parent_uuid))

    def set_generation(self, name_or_uuid: str, generation: int | None) -> None:
        """Store the generation that Placement answered."""
        self._put(replace(self.provider(name_or_uuid), generation=generation))

    def has_inventory(self, name_or_uuid: str) -> bool:
        """Return whether the provider has any inventory record."""
        return bool(self.provider(name_or_uuid).inventory)

    def has_inventory_changed(self, name_or_uuid: str, inventory: Inventories | None) -> bool:
        """Return whether ``inventory`` differs from the stored one; see
        :func:`agent.model.inventory.changed`.
        """
        return changed(self.provider(name_or_uuid).inventory, inventory or {})

    def update_inventory(
        self, name_or_uuid: str, inventory: Inventories | None, generation: int | None = None
    ) -> bool:
        """Replace the inventory if it changed; ``None`` means empty. Returns whether it changed."""
        found = self.provider(name_or_uuid)
        is_changed = changed(found.inventory, inventory or {})
        self._put(
            replace(
                found,
                inventory=copied(inventory) if is_changed else found.inventory,
                generation=found.generation if generation is None else generation,
            ),
            name_or_uuid,
        )
        return is_changed

    def has_traits(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        """Return whether the provider has all of ``traits``."""
        return self.provider(name_or_uuid).traits >= set(traits)

    def have_traits_changed(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        """Return whether ``traits`` is another set than the stored one."""
        return self.provider(name_or_uuid).traits != set(traits)

    def update_traits(
        self, name_or_uuid: str, traits: Iterable[str], generation: int | None = None
    ) -> bool:
        """Replace the traits. Returns whether they changed."""
        found, new = self.provider(name_or_uuid), frozenset(traits)
        self._put(
            replace(
                found, traits=new, generation=found.generation if generation is None else generation
            ),
            name_or_uuid,
        )
        return new != found.traits

    def add_traits(self, name_or_uuid: str, *traits: str) -> None:
        """Add traits; the others stay. Without any trait nothing is done, as in nova's tree, even
        if there is no such provider.
        """
        if traits:
            self.update_traits(name_or_uuid, self.provider(name_or_uuid).traits | set(traits))

    def remove_traits(self, name_or_uuid: str, *traits: str) -> None:
        """Remove traits; the others stay. Without any trait: as :meth:`add_traits`."""
        if traits:
            self.update_traits(name_or_uuid, self.provider(name_or_uuid).traits - set(traits))

    def in_aggregates(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool:
        """Return whether the provider is in all of ``aggregates``."""
        return self.provider(name_or_uuid).aggregates >= self._normal(aggregates)

    def have_aggregates_changed(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool:
        """Return whether ``aggregates`` is another set than the stored one."""
        return self.provider(name_or_uuid).aggregates != self._normal(aggregates)

    def update_aggregates(
        self, name_or_uuid: str, aggregates: Iterable[str], generation: int | None = None
    ) -> bool:
        """Replace the aggregates, in their normal form. Returns whether they changed."""
        found, new = self.provider(name_or_uuid), self._normal(aggregates)
        self._put(
            replace(
                found,
                aggregates=new,
                generation=found.generation if generation is None else generation,
            ),
            name_or_uuid,
        )
        return new != found.aggregates

    def add_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        """Add aggregates; the others stay. Without any aggregate: as :meth:`add_traits`."""
        if aggregates:
            self.update_aggregates(
                name_or_uuid, self.provider(name_or_uuid).aggregates | self._normal(aggregates)
            )

    def remove_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        """Remove aggregates; the others stay. Without any aggregate: as :meth:`add_traits`."""
        if aggregates:
            self.update_aggregates(
                name_or_uuid, self.provider(name_or_uuid).aggregates - self._normal(aggregates)
            )

    @staticmethod
    def _normal(aggregates: Iterable[str]) -> frozenset[str]:
        return frozenset(
            normal_uuid(aggregate) if is_uuid(aggregate) else aggregate for aggregate in aggregates
        )

    def update_resources(self, name_or_uuid: str, resources: Mapping[str, Any]) -> bool:
        """Replace the assignable units of the host. Returns whether they changed."""
        found = self.provider(name_or_uuid)
        self._put(replace(found, resources=copied_units(resources)))
        return dict(found.resources) != dict(resources)

    def has_sharing_provider(self, resource_class: str) -> bool:
        """Return whether some provider of the forest shares ``resource_class`` through
        aggregates.
        """
        return any(
            resource_class in provider.inventory and SHARING_TRAIT in provider.traits
            for provider in self._providers.values()
        )

    # --- whole trees ------------------------------------------------------------------------------

    def populate_from_iterable(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add or replace providers from Placement's rows (``uuid name generation
        parent_provider_uuid``), in any order.

        A replaced provider loses its contents and every descendant that is not among the rows;
        others stay.

        :raises ValueError: a parent is neither present nor among the rows, a cycle, a taken name;
            nothing is changed.
        """
        pending = {self._normal_spelling(row["uuid"]): row for row in rows}
        parents = {
            uuid: self._normal_spelling(above)
            if (above := row.get("parent_provider_uuid"))
            else None
            for uuid, row in pending.items()
        }
        if not pending:
            return
        self._editable(None)
        work = self.copy()
        for uuid in pending:
            if uuid in work._providers:
                work.remove(uuid)
        while pending:
            ready = [uuid for uuid in pending if parents[uuid] not in pending]
            if not ready:
                raise ValueError(f"the rows of {', '.join(sorted(pending))} form a cycle")
            for uuid in ready:
                row, parent = pending.pop(uuid), parents[uuid]
                if parent is None:
                    work.new_root(row["name"], uuid, row.get("generation"))
                else:
                    work.new_child(row["name"], parent, uuid, row.get("generation"))
        self._providers, self._uuids, self._children = work._providers, work._uuids, work._children

    def scoped(self, name_or_uuid: str) -> Self:
        """Return the tree that a driver gets: the node's own tree, editable, and read-only copies
        of the roots that share with it.

        A child that is removed and added again by its name gets its old uuid back.

        :raises ValueError: the provider is no root.
        """
        new = self.subtree(name_or_uuid)
        aggregates = set[str]().union(*(member.aggregates for member in new._providers.values()))
        shared = [
            root
            for root in self.roots
            if SHARING_TRAIT in root.traits
            and root.aggregates & aggregates
            and root.uuid not in new._providers
        ]
        for root in shared:
            new._add(replace(root, parent_uuid=None))
        new._read_only = frozenset(root.uuid for root in shared)
        return new


PresentTree = NewType("PresentTree", ProviderTree)
"""What Placement has."""
BaseTree = NewType("BaseTree", ProviderTree)
"""The tree from which a desired tree is made: the contents of others in the node's tree, or
the whole tree for drivers that shape all of it.
"""
DesiredTree = NewType("DesiredTree", ProviderTree)
"""What Placement should hold by facts, policy, driver and the operator's files."""
TargetTree = NewType("TargetTree", ProviderTree)
"""What Placement should hold after the merge of the desired tree with what others have."""


@dataclass(frozen=True, slots=True)
class TreeDifference:
    """The difference of two trees, as providers by kind of change.

    Structural changes list parents first, so that a move never closes a loop: the ancestors of the
    new parent are in their place already. ``removed`` and the contents list children first.
    """

    added: tuple[ProviderUuid, ...]
    removed: tuple[ProviderUuid, ...]
    renamed: tuple[ProviderUuid, ...]
    reparented: tuple[ProviderUuid, ...]
    inventory: tuple[ProviderUuid, ...]
    traits: tuple[ProviderUuid, ...]
    aggregates: tuple[ProviderUuid, ...]

    def __bool__(self) -> bool:
        return bool(
            self.added
            or self.removed
            or self.renamed
            or self.reparented
            or self.inventory
            or self.traits
            or self.aggregates
        )


def compare_trees(present: PresentTree, target: TargetTree) -> TreeDifference:
    """Return what must change in ``present`` to make it ``target``.

    The contents of a new provider are listed too.
    """
    before, after = present.get_provider_uuids(), target.get_provider_uuids()
    there, wanted = set(before), set(after)
    pairs = [
        (
            present.provider(new.uuid)
            if new.uuid in there
            else Provider(new.uuid, new.name, None, new.parent_uuid),
            new,
        )
        for new in target.providers()
    ]
    different = [(old, new) for old, new in pairs if old is not new]
    children_first = different[::-1]
    return TreeDifference(
        added=tuple(uuid for uuid in after if uuid not in there),
        removed=tuple(uuid for uuid in reversed(before) if uuid not in wanted),
        renamed=tuple(new.uuid for old, new in different if old.name != new.name),
        reparented=tuple(new.uuid for old, new in different if old.parent_uuid != new.parent_uuid),
        inventory=tuple(
            new.uuid for old, new in children_first if changed(old.inventory, new.inventory)
        ),
        traits=tuple(new.uuid for old, new in children_first if old.traits != new.traits),
        aggregates=tuple(
            new.uuid for old, new in children_first if old.aggregates != new.aggregates
        ),
    )
