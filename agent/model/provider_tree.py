"""Resource providers, and provider tree: a private, editable forest of frozen providers, by their
parents; and the difference of two provider trees.

Copies share what did not change, so that a driver gets its own tree of 500 providers within
microseconds. Method names and results are those that drivers written for nova use.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NewType, Self

from agent.model.inventory import Inventories, Number, changed, copied
from agent.model.names import ProviderUuid, child_role, child_uuid, is_uuid, normal_uuid

SHARING_TRAIT = "MISC_SHARES_VIA_AGGREGATE"


@dataclass(frozen=True, slots=True)
class Provider:
    """One resource provider."""

    uuid: ProviderUuid
    name: str
    generation: int | None = None
    """Placement's; ``None`` until Placement has the provider."""
    parent_uuid: ProviderUuid | None = None
    inventory: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    traits: AbstractSet[str] = frozenset()
    aggregates: AbstractSet[str] = frozenset()
    resources: Mapping[str, Any] = field(default_factory=dict)
    """Assignable units of the host, by resource class. Never sent to Placement."""

    def data(self) -> "Provider":
        """Return a copy whose inventory, traits and aggregates can be edited."""
        return replace(
            self,
            inventory=copied(self.inventory),
            traits=set(self.traits),
            aggregates=set(self.aggregates),
            resources=copied_units(self.resources),
        )


def copied_units(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of assignable units whose collections can be edited."""
    return {name: copy(units) for name, units in resources.items()}


class ProviderExists(ValueError):
    """The tree has a provider with the name or the uuid of a new one already."""

    def __init__(self, name: str, uuid: ProviderUuid, there: Provider | None) -> None:
        """``name`` and ``uuid``: of the new provider. ``there``: the present provider with that
        name, or else with that uuid; None if neither is found.
        """
        super().__init__(
            f"a provider with the name {name!r} or the uuid {uuid} is already in the tree"
        )
        self.name, self.uuid, self.there = name, uuid, there


class ProviderTree:
    """A forest of providers: by uuid and by name, and the place of each among its parent's
    children. Belongs to its holder; providers are copied on the way in and out.

    Every lookup takes a provider's name or uuid. Every method raises ``ValueError`` for an unknown
    provider unless its docstring says otherwise.
    """

    __slots__ = (
        "_children",
        "_frozen",
        "_known_uuids",
        "_named",
        "_providers",
        "_read_only",
        "_uuids",
    )

    def __init__(self) -> None:
        self._providers: dict[ProviderUuid, Provider] = {}
        self._uuids: dict[str, ProviderUuid] = {}
        self._children: dict[ProviderUuid | None, tuple[ProviderUuid, ...]] = {None: ()}
        self._read_only: frozenset[ProviderUuid] = frozenset()
        self._known_uuids: Mapping[str, ProviderUuid] = {}
        # Providers that were written by their names: a writer that uses a name means that provider;
        # a loop over all uuids means none in particular.
        self._named: set[ProviderUuid] = set()
        self._frozen = False

    # --- looking up -------------------------------------------------------------------------------

    def _uuid_of(self, name_or_uuid: str) -> ProviderUuid | None:
        if name_or_uuid in self._providers:
            return ProviderUuid(name_or_uuid)
        if name_or_uuid in self._uuids:
            return self._uuids[name_or_uuid]
        if is_uuid(name_or_uuid) and normal_uuid(name_or_uuid) in self._providers:
            return normal_uuid(name_or_uuid)
        return None

    def _below(self, uuid: ProviderUuid | None) -> Iterator[ProviderUuid]:
        pending = list(reversed(self._children.get(uuid, ())))
        while pending:
            current = pending.pop()
            yield current
            pending.extend(reversed(self._children.get(current, ())))

    @property
    def roots(self) -> list[Provider]:
        """The providers without a parent, in the order in which they were added."""
        return [self._providers[uuid] for uuid in self._children[None]]

    def exists(self, name_or_uuid: str) -> bool:
        """Return whether the provider is in the forest; never raises."""
        return self._uuid_of(name_or_uuid) is not None

    def provider(self, name_or_uuid: str) -> Provider:
        """Return the provider itself, shared and not to be edited; for readers for which a copy
        costs too much.
        """
        uuid = self._uuid_of(name_or_uuid)
        if uuid is None:
            raise ValueError(f"no provider {name_or_uuid!r} in the tree")
        return self._providers[uuid]

    def providers(self) -> Iterator[Provider]:
        """Return all providers, parents before their children, shared and not to be edited."""
        return (self._providers[uuid] for uuid in self._below(None))

    def name_of(self, uuid: str) -> str:
        """Return the name of a provider."""
        return self.provider(uuid).name

    def root_of(self, name_or_uuid: str) -> ProviderUuid:
        """Return the uuid of the root of the provider's tree."""
        found = self.provider(name_or_uuid)
        while found.parent_uuid is not None:
            found = self._providers[found.parent_uuid]
        return found.uuid

    def depth(self, name_or_uuid: str) -> int:
        """Return the number of the provider's ancestors."""
        found, depth = self.provider(name_or_uuid), 0
        while found.parent_uuid is not None:
            found, depth = self._providers[found.parent_uuid], depth + 1
        return depth

    def children(self, name_or_uuid: str) -> list[ProviderUuid]:
        """Return the direct children, in the order in which they were added."""
        return list(self._children.get(self.provider(name_or_uuid).uuid, ()))

    def get_provider_uuids(self, name_or_uuid: str | None = None) -> list[ProviderUuid]:
        """Return the uuids of the subtree at the provider, or of the whole forest; parents before
        their children.
        """
        if name_or_uuid is None:
            return list(self._below(None))
        start = self.provider(name_or_uuid).uuid
        return [start, *self._below(start)]

    def get_provider_uuids_in_tree(self, name_or_uuid: str) -> list[ProviderUuid]:
        """Return the uuids of the whole tree that contains the provider, root first."""
        return self.get_provider_uuids(self.root_of(name_or_uuid))

    def __len__(self) -> int:
        return len(self._providers)

    def __contains__(self, name_or_uuid: str) -> bool:
        return self.exists(name_or_uuid)

    # --- building ---------------------------------------------------------------------------------

    def new_root(self, name: str, uuid: str, generation: int | None = None) -> ProviderUuid:
        """Add a provider without a parent.

        :raises ValueError: the name or the uuid is taken.
        """
        return self._add(Provider(self._normal_spelling(uuid), name, generation))

    def new_child(
        self, name: str, parent: str, uuid: str | None = None, generation: int | None = None
    ) -> ProviderUuid:
        """Add a provider below ``parent``. Without ``uuid`` it gets the uuid that the name had
        before, else one derived from the root and from the role that the name says.

        If another provider has that uuid, it is the same provider, renamed by someone else: it gets
        its name and its parent back.

        :raises ValueError: the name or the uuid is taken, or the parent is unknown.
        """
        above = self.provider(parent)
        if uuid:
            return self._add(Provider(self._normal_spelling(uuid), name, generation, above.uuid))
        root = self._providers[self.root_of(above.uuid)]
        chosen = self._known_uuids.get(name) or child_uuid(root.uuid, child_role(name, root.name))
        if chosen in self._providers and name not in self._uuids:
            self.reparent(chosen, above.uuid)
            self.rename(chosen, name)
            return chosen
        return self._add(Provider(chosen, name, generation, above.uuid))

    @staticmethod
    def _normal_spelling(uuid: str) -> ProviderUuid:
        return normal_uuid(uuid) if is_uuid(uuid) else ProviderUuid(uuid)

    def _add(self, new: Provider) -> ProviderUuid:
        self._editable(new.parent_uuid)
        taken = new.uuid in self._providers or new.name in self._uuids
        shadowed = new.uuid in self._uuids or (new.name != new.uuid and new.name in self._providers)
        if taken or shadowed:
            there = self._providers.get(self._uuids.get(new.name) or new.uuid)
            raise ProviderExists(new.name, new.uuid, there)
        self._providers[new.uuid] = new
        self._uuids[new.name] = new.uuid
        self._children[new.parent_uuid] = (*self._children.get(new.parent_uuid, ()), new.uuid)
        return new.uuid

    def insert(self, provider: Provider) -> ProviderUuid:
        """Add a provider with its contents below its parent.

        :raises ValueError: the name or the uuid is taken, or the parent is unknown.
        """
        if provider.parent_uuid is not None:
            self.provider(provider.parent_uuid)
        return self._add(provider)

    def remove(self, name_or_uuid: str) -> None:
        """Remove the provider and all its descendants."""
        gone = self.provider(name_or_uuid)
        self._editable(gone.uuid)
        for uuid in self.get_provider_uuids(gone.uuid):
            del self._uuids[self._providers.pop(uuid).name]
            self._children.pop(uuid, None)
        self._children[gone.parent_uuid] = tuple(
            uuid for uuid in self._children[gone.parent_uuid] if uuid != gone.uuid
        )

    def rename(self, name_or_uuid: str, name: str) -> None:
        """Give the provider another name.

        :raises ValueError: the name is taken.
        """
        found = self.provider(name_or_uuid)
        if name == found.name:
            return
        self._editable(found.uuid)
        if name in self._uuids or (name in self._providers and name != found.uuid):
            raise ValueError(f"the name {name!r} is already in the tree")
        del self._uuids[found.name]
        self._uuids[name] = found.uuid
        self._put(replace(found, name=name))

    def reparent(self, name_or_uuid: str, parent: str) -> None:
        """Move the provider and all its descendants under ``parent``.

        :raises ValueError: ``parent`` is unknown, or is a descendant of the provider.
        """
        found, above = self.provider(name_or_uuid), self.provider(parent)
        if above.uuid in self.get_provider_uuids(found.uuid):
            raise ValueError(
                f"{above.name!r} lies below {found.name!r} and cannot become its parent"
            )
        if found.parent_uuid == above.uuid:
            return
        self._editable(found.uuid)
        self._editable(above.uuid)
        self._children[found.parent_uuid] = tuple(
            uuid for uuid in self._children[found.parent_uuid] if uuid != found.uuid
        )
        self._children[above.uuid] = (*self._children.get(above.uuid, ()), found.uuid)
        self._put(replace(found, parent_uuid=above.uuid))

    # --- editing ----------------------------------------------------------------------------------

    def _editable(self, uuid: ProviderUuid | None) -> None:
        if self._frozen:
            raise ValueError("the tree is frozen")
        if uuid in self._read_only:
            raise ValueError(
                f"provider {uuid} is shared from outside this tree and cannot be edited here"
            )

    def _put(self, new: Provider, called: str = "") -> None:
        """Replace the provider with the uuid of ``new``. ``called``: the name or uuid that the
        writer used.
        """
        self._editable(new.uuid)
        self._providers[new.uuid] = new
        if called in self._uuids:
            self._named.add(new.uuid)

    @property
    def written_by_name(self) -> frozenset[ProviderUuid]:
        """The providers whose contents were written by their names since the tree was created,
        whether that changed anything or not.
        """
        return frozenset(self._named)

    @property
    def read_only(self) -> frozenset[ProviderUuid]:
        """The providers that cannot be edited in this tree."""
        return self._read_only

    def freeze(self) -> Self:
        """Return this tree, which refuses every edit with ``ValueError`` from now on."""
        self._frozen = True
        return self

    def same_contents(self, other: "ProviderTree") -> bool:
        """Return whether the other forest has equal providers in equal places, and whether the same
        of them were written by their names.
        """
        return (
            self._providers == other._providers
            and self._children == other._children
            and self._named == other._named
        )

    # --- copies -----------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return an editable copy that shares every provider with this tree."""
        new = type(self)()
        new._providers = dict(self._providers)
        new._uuids = dict(self._uuids)
        new._children = dict(self._children)
        new._read_only = self._read_only
        new._known_uuids = self._known_uuids
        new._named = set(self._named)
        return new

    def subtree(self, name_or_uuid: str) -> Self:
        """Return an editable copy of one tree of the forest.

        :raises ValueError: the provider is no root.
        """
        root = self.provider(name_or_uuid)
        if root.parent_uuid is not None:
            raise ValueError(f"{root.name!r} is not a root")
        new = type(self)()
        members = self.get_provider_uuids(root.uuid)
        new._providers = {uuid: self._providers[uuid] for uuid in members}
        new._uuids = {member.name: uuid for uuid, member in new._providers.items()}
        new._children = {
            uuid: self._children[uuid] for uuid in members if uuid in self._children
        } | {None: (root.uuid,)}
        new._known_uuids = dict(new._uuids)
        return new

    # --- contents ---------------------------------------------------------------------------------

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
