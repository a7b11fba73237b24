"""Ours and theirs: what a driver starts from, and what becomes of its wish once everybody else's share is kept.

What the journal does not list belongs to somebody else: it survives whatever a driver does to its private copy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agent.errors import DRIVER_FAULT, InvalidTree
from agent.model.inventory import Inventories, Record, completed, problems, without_empty
from agent.model.journal import Configured, Journal, Ownership
from agent.model.mirror import Knowledge, View
from agent.model.names import MAX_PROVIDER_NAME, ProviderUuid, is_custom, is_uuid, printable
from agent.model.provider_tree import Provider, ProviderTree
from agent.model.report import Drift
from agent.placement.authorship import Authorship

STATUS_DISABLED = "COMPUTE_STATUS_DISABLED"
ADOPT = "agent --once --adopt takes the tree over"


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a class is allocated, and to how many consumers where that was asked."""

    amount: int
    consumers: int | None = None

    def __str__(self) -> str:
        to = f" to {self.consumers} consumer{'' if self.consumers == 1 else 's'}" if self.consumers else ""
        return f"{self.amount} of it are allocated{to}"


Usages = Mapping[ProviderUuid, Mapping[str, Use]]


@dataclass(frozen=True, slots=True)
class Target:
    """What Placement should hold: the node's tree with complete records, everybody's traits and aggregates.

    ``journal`` is what will be ours once it does; ``invalid`` says what of the wish was set aside, and why.
    """

    tree: ProviderTree
    journal: Journal
    drift: tuple[Drift, ...]
    invalid: tuple[str, ...]


def _foreign_inventory(present: Provider, own: Ownership, adopted: bool) -> Inventories:
    """The classes of somebody else: custom ones that are not in the journal, and all others until the tree is adopted."""
    return {name: record for name, record in present.inventory.items() if name not in own.classes and (is_custom(name) or not adopted)}


def _own_classes(inventory: Inventories, present: Inventories, own: Ownership) -> frozenset[str]:
    """The classes of ``inventory`` that are the agent's: a record that was there just so before stays whose it was."""
    return frozenset(name for name, record in inventory.items() if name in own.classes or present.get(name) != record)


def foreign_share(view: View, journal: Journal, root: ProviderUuid, name: str) -> ProviderTree:
    """The tree that a shaping driver starts from: everything of ours taken out, everything of others in place.

    Our children that carry foreign ones stay, empty, because those need them.
    """
    if not view.tree.exists(root):
        tree = ProviderTree()
        tree.new_root(name, root)
        return tree
    tree = view.tree.scoped(root)
    for uuid in reversed(tree.get_provider_uuids(root)):
        if not journal.owns(uuid) and uuid != root:
            continue
        if uuid != root and not tree.children(uuid):
            tree.remove(uuid)
            continue
        present, own = tree.provider(uuid), journal.of(uuid)
        tree.replace(replace(
            present, inventory=_foreign_inventory(present, own, adopted=True),
            traits=present.traits - own.traits, aggregates=present.aggregates - own.aggregates,
        ))  # fmt: skip
    return tree


class Merge:
    """One merge of a driver's wish with what others have in the tree."""

    def __init__(
        self, by: Authorship, knowledge: Knowledge, usages: Usages, configured: Mapping[ProviderUuid, Configured] | None = None, *, rented_whole: bool = False
    ) -> None:
        """``usages``: of what only waits to become free. ``configured``: what of the wish is the operator's. ``rented_whole``: see HostFacts."""
        self.by, self.knowledge, self.usages, self.configured, self.rented_whole = by, knowledge, usages, configured or {}, rented_whole
        self.present, self.journal, self.base, self.wish, self.root = by.present, by.journal, by.base, by.wish, by.root
        self.adopted = self.journal.adopted or not self.present.exists(self.root)
        self.staying = frozenset[str]() if self.adopted else self._staying()
        self.drift: list[Drift] = []
        self.invalid: list[str] = []

    def target(self) -> Target:
        """The merged tree."""
        tree = self.wish.subtree(self.root) if self.wish.exists(self.root) else ProviderTree()
        for uuid in reversed(tree.get_provider_uuids()):
            self._drop_unusable(tree, uuid)
        for uuid in self._kept(tree):
            if not tree.exists(uuid):
                self._put_back(tree, self.present.provider(uuid))
        owned: dict[ProviderUuid, Ownership] = {}
        for uuid in tree.get_provider_uuids():
            if self.by.ours(uuid):
                mine, ownership = self._ours(tree.provider(uuid))
                tree.replace(mine)
                owned[uuid] = ownership
            else:
                self._restore(tree, self.present.provider(uuid))
                self._report_foreign(uuid)
        held = {uuid: classes for uuid in self.journal.held if tree.exists(uuid) and (classes := self._held_classes(uuid))}
        return Target(tree.freeze(), Journal(owned, self.adopted, held), tuple(self.drift), tuple(self.invalid))

    # --- which providers --------------------------------------------------------------------------------------

    @staticmethod
    def _restore(tree: ProviderTree, present: Provider) -> None:
        """Undo whatever the driver did to a provider of somebody else."""
        try:
            tree.rename(present.uuid, present.name)
            if present.parent_uuid is not None:
                tree.reparent(present.uuid, present.parent_uuid)
        except ValueError as error:
            raise InvalidTree(
                f"driver error: it moved provider {printable(present.name)}, which is somebody else's: {error}", DRIVER_FAULT
            ) from error  # fmt: skip
        tree.replace(present)

    @staticmethod
    def _put_back(tree: ProviderTree, present: Provider) -> None:
        """Have a provider that the wish lacks and that cannot go."""
        try:
            tree.insert(present)
        except ValueError as error:
            raise InvalidTree(f"driver error: it made another {printable(present.name)}, but the one in Placement stays: {error}", DRIVER_FAULT) from error

    def _drop_unusable(self, tree: ProviderTree, uuid: ProviderUuid) -> None:
        name = tree.name_of(uuid)
        if not 1 <= len(name) <= MAX_PROVIDER_NAME:
            wrong = f"provider {printable(name[:60])!r}...: its name has {len(name)} characters, Placement takes 1 to {MAX_PROVIDER_NAME}"
        elif not is_uuid(uuid):
            wrong = f"provider {printable(name)!r}: {printable(uuid)!r} is no uuid"
        else:
            return
        self.invalid.append(wrong)
        tree.remove(uuid)

    def _kept(self, tree: ProviderTree) -> Iterator[ProviderUuid]:
        """Present providers that stay although ``tree``, the usable part of the wish, lacks them, and what they hang from, parents first."""
        keep: set[ProviderUuid] = set()
        for uuid in reversed(self.present.get_provider_uuids()):
            wished = self.by.wished(uuid)
            gone = self.journal.owns(uuid) and not wished
            if gone and not self.adopted:
                self._drift_adoption(self.present.provider(uuid), "the node no longer has it")
            usable, free = wished and tree.exists(uuid) and self.by.ours(uuid), gone and self.adopted and not self._held_classes(uuid)
            if uuid in keep or usable or free:
                continue
            ancestor: ProviderUuid | None = uuid
            while ancestor is not None:
                keep.add(ancestor)
                ancestor = self.present.provider(ancestor).parent_uuid
        return (uuid for uuid in self.present.get_provider_uuids() if uuid in keep)

    def _held_classes(self, uuid: ProviderUuid) -> frozenset[str]:
        used, wanted = self.usages.get(uuid, {}), self._wished_inventory(uuid)
        return frozenset(name for name in self.journal.held.get(uuid, ()) if name in used and used[name].amount > 0 and name not in wanted)

    def _wished_inventory(self, uuid: ProviderUuid) -> Inventories:
        return without_empty(self.wish.provider(uuid).inventory) if self.by.wished(uuid) else {}

    def _staying(self) -> frozenset[str]:
        """Classes that some provider of a tree that is not adopted keeps against the wish; in another one they would count twice."""
        stay: set[str] = set()
        for one in self.present.providers():
            if self.by.ours(one.uuid):
                stay |= _foreign_inventory(one, self.journal.of(one.uuid), adopted=False).keys() - self._wished_inventory(one.uuid).keys()
        return frozenset(name for name in stay if not is_custom(name))

    # --- contents ---------------------------------------------------------------------------------------------

    def _ours(self, wished: Provider) -> tuple[Provider, Ownership]:
        present = self.present.provider(wished.uuid) if self.present.exists(wished.uuid) else Provider(wished.uuid, wished.name)
        own = self.journal.of(wished.uuid)
        if not self.by.wished(wished.uuid) and not self.adopted:
            return present, own
        wanted = wished if self.by.wished(wished.uuid) else self._remains(present, own)
        inventory = self._inventory(wanted, present, own)
        traits, aggregates = self._traits(wanted, present, own), self._aggregates(wanted, present, own)
        ownership = Ownership(
            classes=_own_classes(inventory, present.inventory, own),
            traits=frozenset(name for name in traits if name in own.traits or name not in present.traits),
            aggregates=frozenset(name for name in aggregates if name in own.aggregates or name not in present.aggregates),
        )
        stays = own.configured.classes & (inventory.keys() - wanted.inventory.keys())
        asked = self.configured.get(wished.uuid, Configured())
        configured = Configured((asked.classes | stays) & ownership.classes, asked.traits & ownership.traits)
        ownership = replace(ownership, configured=configured)
        return replace(wished, inventory=inventory, traits=traits, aggregates=aggregates, generation=present.generation), ownership

    def _remains(self, present: Provider, own: Ownership) -> Provider:
        """What is wanted of a provider that is gone: until it is free its marks; nothing, if only others hang from it."""
        if self._held_classes(present.uuid):
            return replace(present, inventory={})
        return replace(present, inventory={}, traits=present.traits - own.traits, aggregates=present.aggregates - own.aggregates)

    def _inventory(self, wanted: Provider, present: Provider, own: Ownership) -> Inventories:
        """The records to have."""
        inventory = {name: completed(record, present.inventory.get(name)) for name, record in without_empty(wanted.inventory).items()}
        wrong = [text for name, record in inventory.items() for text in problems(name, record)]
        if wrong:
            self.invalid.extend(f"provider {printable(wanted.name)!r}: {text}" for text in wrong)
            return present.inventory
        foreign = {name: record for name, record in _foreign_inventory(present, own, self.adopted).items() if name not in inventory}
        for name in foreign:
            if not is_custom(name):
                self._drift_adoption(wanted, f"the node does not have its {name}")
        for name in sorted(self.staying & inventory.keys() - present.inventory.keys()):
            self._drift_adoption(wanted, f"{name} would move here")
            del inventory[name]
        waiting = self._held_classes(wanted.uuid)
        # What somebody else put there only keeps the provider: whether it may be had is his to say.
        held = {name: held_record(present.inventory[name], self.usages[wanted.uuid][name].amount) for name in waiting - foreign.keys()}
        for name in sorted(waiting):
            self._drift_held(present, name, foreign=name in foreign)
        if held and self.rented_whole:
            # Whoever has what is held has the node, so that nobody may come for what it offers now.
            inventory = {name: {**record, "reserved": record["total"]} for name, record in inventory.items()}
        return {**foreign, **inventory, **held}

    def _traits(self, wanted: Provider, present: Provider, own: Ownership) -> frozenset[str]:
        """Everybody's traits. A standard trait that the driver took off is off, whoever wrote it; nova's status trait is not."""
        base = self.base.provider(wanted.uuid).traits if self.base.exists(wanted.uuid) else frozenset[str]()
        retracted = {name for name in base - wanted.traits if not is_custom(name) and name != STATUS_DISABLED}
        return frozenset((wanted.traits | (present.traits - own.traits - retracted)) - self.knowledge.unknown_traits.keys())

    def _aggregates(self, wanted: Provider, present: Provider, own: Ownership) -> frozenset[str]:
        """Everybody's aggregates."""
        wrong = sorted(aggregate for aggregate in wanted.aggregates if not is_uuid(aggregate))
        self.invalid.extend(f"provider {printable(wanted.name)!r}: aggregate {printable(aggregate)!r} is no uuid" for aggregate in wrong)
        return frozenset(wanted.aggregates - set(wrong) | (present.aggregates - own.aggregates))

    # --- drift ------------------------------------------------------------------------------------------------

    def _report_foreign(self, uuid: ProviderUuid) -> None:
        name = printable(self.present.name_of(uuid))
        if self.base.exists(uuid) and not self.wish.exists(uuid):
            self.drift.append(Drift("foreign-provider", "info", f"the driver wanted to remove {name}, which is somebody else's", "none; it stays", uuid))
        elif self.by.touched(uuid):
            self.drift.append(Drift("foreign-provider", "warning", f"the driver wanted to change {name}, which is somebody else's", ADOPT, uuid))
        else:
            self.drift.append(Drift("foreign-provider", "info", f"{name} was put there by somebody else", "none; it stays as it is", uuid))

    def _drift_adoption(self, one: Provider, why: str) -> None:
        self.drift.append(Drift("adoption-needed", "warning", f"{printable(one.name)}: {why}, but the tree is not adopted", ADOPT, one.uuid))

    def _drift_held(self, present: Provider, name: str, *, foreign: bool) -> None:
        configured = name in self.journal.of(present.uuid).configured.classes
        gone = f"no file gives it {name} any more" if configured else f"{name} is gone from the node"
        gone = f"the node does not have it any more, but it stays because {name} is somebody else's" if foreign else gone
        what = f"{printable(present.name)}: {gone} {'and' if foreign else 'but'} {self.usages[present.uuid][name]}"
        remedy = "move or delete its consumers" + ("" if foreign else "; until then nothing new can claim it")
        self.drift.append(Drift("held-device", "warning", what, remedy, present.uuid))


def held_record(present: Record, used: int) -> dict[str, int | float]:
    """The record of a class that is gone from the node and still used: all of it reserved, so that no claim adds to it."""
    total = max(int(present["total"]), used)
    return {**present, "total": total, "reserved": total}
