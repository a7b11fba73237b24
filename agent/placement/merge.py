"""Ours and theirs: what a driver starts from, and what becomes of its wish once everybody else's
share is kept.

What the journal does not list belongs to somebody else: it survives whatever a driver does to its
private copy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import os_resource_classes as orc

from agent.errors import DRIVER_FAULT, InvalidTree, ProviderNameConflict
from agent.model.inventory import Inventories, Record, completed, problems, without_empty
from agent.model.journal import Configured, Journal, Ownership
from agent.model.mirror import PlacementView, ServerCapabilities
from agent.model.names import (
    AGENT_MARK,
    MAX_PROVIDER_NAME,
    ProviderUuid,
    child_uuid,
    is_custom,
    is_uuid,
    printable,
)
from agent.model.provider_tree import Provider, ProviderTree
from agent.model.report import Drift
from agent.placement.merge_inputs import MergeInputs

# The standard classes that a node's own part of its tree has, from nova or from the agent; another
# service has its own on providers of the tree.
NODES_OWN = frozenset(
    {orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT}
)
STATUS_DISABLED = "COMPUTE_STATUS_DISABLED"
ADOPT = "agent --once --adopt takes the tree over"


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a class is allocated, and to how many consumers where that was asked."""

    amount: int
    consumers: int | None = None

    def __str__(self) -> str:
        to = (
            f" to {self.consumers} consumer{'' if self.consumers == 1 else 's'}"
            if self.consumers
            else ""
        )
        return f"{self.amount} of it are allocated{to}"


Usages = Mapping[ProviderUuid, Mapping[str, Use]]


@dataclass(frozen=True, slots=True)
class Target:
    """What Placement should hold: the node's tree with complete records, everybody's traits and
    aggregates.

    ``journal`` is what will be ours once it does; ``invalid`` says what of the wish was set aside,
    and why; ``conflicts`` which of our children cannot be had because somebody else's have their
    names.
    """

    tree: ProviderTree
    journal: Journal
    drift: tuple[Drift, ...]
    invalid: tuple[str, ...]
    conflicts: tuple[ProviderNameConflict, ...] = ()


def _foreign_inventory(present: Provider, own: Ownership, adopted: bool) -> Inventories:
    """The classes of somebody else: those that are not in the journal; of an adopted tree, but for
    those that only a node has.
    """
    return {
        name: record
        for name, record in present.inventory.items()
        if name not in own.classes and (name not in NODES_OWN or not adopted)
    }


def _own_classes(inventory: Inventories, present: Inventories, own: Ownership) -> frozenset[str]:
    """The classes of ``inventory`` that are the agent's: a record that was there just so before
    stays whose it was.
    """
    return frozenset(
        name
        for name, record in inventory.items()
        if name in own.classes or present.get(name) != record
    )


def foreign_share(
    view: PlacementView, journal: Journal, root: ProviderUuid, name: str
) -> ProviderTree:
    """The tree that a shaping driver starts from: everything of ours taken out, everything of
    others in place.

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
        tree.replace(
            replace(
                present,
                inventory=_foreign_inventory(present, own, adopted=True),
                traits=present.traits - own.traits,
                aggregates=present.aggregates - own.aggregates,
            )
        )
    return tree


class Merge:
    """One merge of a driver's wish with what others have in the tree."""

    def __init__(
        self,
        by: MergeInputs,
        capabilities: ServerCapabilities,
        usages: Usages,
        configured: Mapping[ProviderUuid, Configured] | None = None,
        *,
        exclusive: bool = False,
        incomplete: bool = False,
    ) -> None:
        """``usages``: of what only waits to become free. ``configured``: what of the wish is the
        operator's. ``exclusive``: see HostFacts.

        ``incomplete``: parts of the wish are what Placement has, because nobody can say now what
        the node has.
        """
        self.by, self.capabilities, self.usages, self.configured = (
            by,
            capabilities,
            usages,
            configured or {},
        )
        self.exclusive, self.incomplete = exclusive, incomplete
        self.present, self.journal, self.base, self.desired, self.root = (
            by.present,
            by.journal,
            by.base,
            by.desired,
            by.root,
        )
        self.adopted = self.journal.adopted or not self.present.exists(self.root)
        self.staying = frozenset[str]() if self.adopted else self._staying()
        self.drift: list[Drift] = []
        self.invalid: list[str] = []
        self.conflicts: list[ProviderNameConflict] = []
        # The classes of each provider that the agent has reserved as a whole, beside those that
        # only wait to become free.
        self.reserved: dict[ProviderUuid, frozenset[str]] = {}

    def target(self) -> Target:
        """The merged tree."""
        tree = self.desired.subtree(self.root) if self.desired.exists(self.root) else ProviderTree()
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
                owned[uuid] = (
                    ownership
                    if uuid in (self.root, child_uuid(self.root, mine.name))
                    else replace(ownership, name=mine.name)
                )
            else:
                self._restore(tree, self.present.provider(uuid))
                if (lost := self._replaced(uuid)) is not None:
                    # Ours until it can be had again, so that every pass says so.
                    owned[lost] = self.journal.of(lost)
                else:
                    self._report_foreign(uuid)
        held = {
            uuid: classes
            for uuid in (*self.journal.held, *self.reserved)
            if tree.exists(uuid)
            and (classes := self._held_classes(uuid) | self.reserved.get(uuid, frozenset()))
        }
        return Target(
            tree.freeze(),
            Journal(owned, self.adopted, held),
            tuple(self.drift),
            tuple(self.invalid),
            tuple(self.conflicts),
        )

    # --- which providers --------------------------------------------------------------------------

    @staticmethod
    def _restore(tree: ProviderTree, present: Provider) -> None:
        """Undo whatever the driver did to a provider of somebody else."""
        try:
            tree.rename(present.uuid, present.name)
            if present.parent_uuid is not None:
                tree.reparent(present.uuid, present.parent_uuid)
        except ValueError as error:
            raise InvalidTree(
                (
                    f"driver error: it moved provider {printable(present.name)}, which is somebody "
                    f"else's: {error}"
                ),
                DRIVER_FAULT,
            ) from error
        tree.replace(present)

    @staticmethod
    def _put_back(tree: ProviderTree, present: Provider) -> None:
        """Have a provider that the wish lacks and that cannot go."""
        try:
            tree.insert(present)
        except ValueError as error:
            raise InvalidTree(
                (
                    f"driver error: it made another {printable(present.name)}, but the one in "
                    f"Placement stays: {error}"
                ),
                DRIVER_FAULT,
            ) from error

    def _drop_unusable(self, tree: ProviderTree, uuid: ProviderUuid) -> None:
        name = tree.name_of(uuid)
        if not 1 <= len(name) <= MAX_PROVIDER_NAME:
            wrong = (
                f"provider {printable(name[:60])!r}...: its name has {len(name)} characters, "
                f"Placement takes 1 to {MAX_PROVIDER_NAME}"
            )
        elif not is_uuid(uuid):
            wrong = f"provider {printable(name)!r}: {printable(uuid)!r} is no uuid"
        else:
            return
        self.invalid.append(wrong)
        tree.remove(uuid)

    def _kept(self, tree: ProviderTree) -> Iterator[ProviderUuid]:
        """Present providers that stay although ``tree``, the usable part of the wish, lacks them,
        and what they hang from, parents first.
        """
        keep: set[ProviderUuid] = set()
        for uuid in reversed(self.present.get_provider_uuids()):
            wished = self.by.wished(uuid)
            gone = self.journal.owns(uuid) and not wished
            if gone and not self.adopted:
                self._drift_adoption(self.present.provider(uuid), "the node no longer has it")
            usable, free = (
                wished and tree.exists(uuid) and self.by.ours(uuid),
                gone and self.adopted and not self._held_classes(uuid),
            )
            if uuid in keep or usable or free:
                continue
            ancestor: ProviderUuid | None = uuid
            while ancestor is not None:
                keep.add(ancestor)
                ancestor = self.present.provider(ancestor).parent_uuid
        return (uuid for uuid in self.present.get_provider_uuids() if uuid in keep)

    def _held_classes(self, uuid: ProviderUuid) -> frozenset[str]:
        used, wanted = self.usages.get(uuid, {}), self._wished_inventory(uuid)
        return frozenset(
            name
            for name in self.journal.held.get(uuid, ())
            if name in used and used[name].amount > 0 and name not in wanted
        )

    def _wished_inventory(self, uuid: ProviderUuid) -> Inventories:
        return without_empty(self.desired.provider(uuid).inventory) if self.by.wished(uuid) else {}

    def _staying(self) -> frozenset[str]:
        """Classes that some provider of a tree that is not adopted keeps against the wish; in
        another one they would count twice.
        """
        stay = frozenset[str]()
        for one in self.present.providers():
            if self.by.ours(one.uuid):
                stay |= (
                    _foreign_inventory(one, self.journal.of(one.uuid), adopted=False).keys()
                    - self._wished_inventory(one.uuid).keys()
                )
        return stay & NODES_OWN

    # --- contents ---------------------------------------------------------------------------------

    def _ours(self, wished: Provider) -> tuple[Provider, Ownership]:
        present = (
            self.present.provider(wished.uuid)
            if self.present.exists(wished.uuid)
            else Provider(wished.uuid, wished.name)
        )
        own = self.journal.of(wished.uuid)
        if not self.by.wished(wished.uuid) and not self.adopted:
            return present, own
        wanted = wished if self.by.wished(wished.uuid) else self._remains(present, own)
        inventory = self._inventory(wanted, present, own)
        traits, aggregates = (
            self._traits(wanted, present, own),
            self._aggregates(wanted, present, own),
        )
        ownership = Ownership(
            classes=_own_classes(inventory, present.inventory, own),
            traits=frozenset(
                name for name in traits if name in own.traits or name not in present.traits
            ),
            aggregates=frozenset(
                name
                for name in aggregates
                if name in own.aggregates or name not in present.aggregates
            ),
        )
        stays = own.configured.classes & (inventory.keys() - wanted.inventory.keys())
        asked = self.configured.get(wished.uuid, Configured())
        configured = Configured(
            (asked.classes | stays) & ownership.classes, asked.traits & ownership.traits
        )
        ownership = replace(ownership, configured=configured)
        return replace(
            wished,
            inventory=inventory,
            traits=traits,
            aggregates=aggregates,
            generation=present.generation,
        ), ownership

    def _remains(self, present: Provider, own: Ownership) -> Provider:
        """What is wanted of a provider that is gone: until it is free its marks; nothing, if only
        others hang from it.
        """
        if self._held_classes(present.uuid):
            return replace(present, inventory={})
        return replace(
            present,
            inventory={},
            traits=present.traits - own.traits,
            aggregates=present.aggregates - own.aggregates,
        )

    def _inventory(self, wanted: Provider, present: Provider, own: Ownership) -> Inventories:
        """The records to have."""
        reserved = self.journal.held.get(wanted.uuid, frozenset())
        records = without_empty(wanted.inventory)
        # A driver that writes over a held class no more than its total, where it is shown what is
        # there, says that it is back.
        again = (
            self.base.provider(wanted.uuid).inventory
            if self.base.exists(wanted.uuid) and wanted.uuid in self.desired.written_by_name
            else {}
        )
        back = {
            name
            for name in reserved & records.keys() & again.keys()
            if records[name] == again[name]
        }
        records |= {name: _without_reserved(records[name]) for name in back}
        inventory = {
            name: completed(record, _last(name, present, reserved))
            for name, record in records.items()
        }
        wrong = [text for name, record in inventory.items() for text in problems(name, record)]
        if wrong:
            self.invalid.extend(f"provider {printable(wanted.name)!r}: {text}" for text in wrong)
            return present.inventory
        foreign = {
            name: record
            for name, record in _foreign_inventory(present, own, self.adopted).items()
            if name not in inventory
        }
        for name in foreign:
            if name in NODES_OWN:
                self._drift_adoption(wanted, f"the node does not have its {name}")
        for name in sorted(self.staying & inventory.keys() - present.inventory.keys()):
            self._drift_adoption(wanted, f"{name} would move here")
            del inventory[name]
        waiting = self._held_classes(wanted.uuid)
        # What somebody else put there only keeps the provider: whether it may be had is his to say.
        held = {
            name: held_record(present.inventory[name], self.usages[wanted.uuid][name].amount)
            for name in waiting - foreign.keys()
        }
        for name in sorted(waiting):
            self._drift_held(present, name, foreign=name in foreign)
        # What stays just as the agent reserved it, because nobody can say now what the node has,
        # stays reserved by the agent.
        stays = reserved & inventory.keys() if self.incomplete else ()
        kept = {
            name
            for name in stays
            if inventory[name] == present.inventory.get(name) and _is_all_reserved(inventory[name])
        }
        if held and self.exclusive:
            # Whoever has what is held has the node, so that nobody may come for what it offers now.
            kept |= {name for name, record in inventory.items() if not _is_all_reserved(record)}
            inventory = {
                name: {**record, "reserved": record["total"]} for name, record in inventory.items()
            }
        if kept:
            self.reserved[present.uuid] = frozenset(kept)
        return {**foreign, **inventory, **held}

    def _traits(self, wanted: Provider, present: Provider, own: Ownership) -> frozenset[str]:
        """Everybody's traits. A standard trait that the driver took off is off, whoever wrote it;
        nova's status trait is not. So is an agent's mark.
        """
        base = (
            self.base.provider(wanted.uuid).traits
            if self.base.exists(wanted.uuid)
            else frozenset[str]()
        )
        retracted = {
            name
            for name in base - wanted.traits
            if name.startswith(AGENT_MARK) or (not is_custom(name) and name != STATUS_DISABLED)
        }
        return frozenset(
            (wanted.traits | (present.traits - own.traits - retracted))
            - self.capabilities.unknown_traits.keys()
        )

    def _aggregates(self, wanted: Provider, present: Provider, own: Ownership) -> frozenset[str]:
        """Everybody's aggregates."""
        wrong = sorted(aggregate for aggregate in wanted.aggregates if not is_uuid(aggregate))
        self.invalid.extend(
            f"provider {printable(wanted.name)!r}: aggregate {printable(aggregate)!r} is no uuid"
            for aggregate in wrong
        )
        return frozenset(wanted.aggregates - set(wrong) | (present.aggregates - own.aggregates))

    # --- drift ------------------------------------------------------------------------------------

    def _replaced(self, uuid: ProviderUuid) -> ProviderUuid | None:
        """The child of ours whose place somebody else's, of the same name, has taken; None if it is
        only somebody else's.
        """
        name = self.present.name_of(uuid)
        called = [
            child_uuid(self.root, name),
            *(one for one, own in self.journal.providers.items() if own.name == name),
        ]
        lost = next(
            (one for one in called if self.journal.owns(one) and not self.present.exists(one)), None
        )
        if lost is None or not self.by.touched(uuid):
            return None
        self.conflicts.append(
            ProviderNameConflict(
                (
                    f"the name {printable(name)!r} of provider {lost} is held by provider {uuid} "
                    "in Placement, which is somebody else's"
                ),
                # A driver that gives its children uuids has no use for another one.
                f"{ADOPT}, that provider too; or delete or rename it"
                if lost == child_uuid(self.root, name)
                else "delete or rename that provider",
                holder=uuid,
                uuid=lost,
            )
        )
        return lost

    def _report_foreign(self, uuid: ProviderUuid) -> None:
        name = printable(self.present.name_of(uuid))
        if self.base.exists(uuid) and not self.desired.exists(uuid):
            self.drift.append(
                Drift(
                    "foreign-provider",
                    "info",
                    f"the driver wanted to remove {name}, which is somebody else's",
                    "none; it stays",
                    uuid,
                )
            )
        elif self.by.touched(uuid):
            self.drift.append(
                Drift(
                    "foreign-provider",
                    "warning",
                    f"the driver wanted to change {name}, which is somebody else's",
                    ADOPT,
                    uuid,
                )
            )
        else:
            self.drift.append(
                Drift(
                    "foreign-provider",
                    "info",
                    f"{name} was put there by somebody else",
                    "none; it stays as it is",
                    uuid,
                )
            )

    def _drift_adoption(self, one: Provider, why: str) -> None:
        self.drift.append(
            Drift(
                "adoption-needed",
                "warning",
                f"{printable(one.name)}: {why}, but the tree is not adopted",
                ADOPT,
                one.uuid,
            )
        )

    def _drift_held(self, present: Provider, name: str, *, foreign: bool) -> None:
        configured = name in self.journal.of(present.uuid).configured.classes
        gone = (
            f"no file gives it {name} any more" if configured else f"{name} is gone from the node"
        )
        gone = (
            f"the node does not have it any more, but it stays because {name} is somebody else's"
            if foreign
            else gone
        )
        what = (
            f"{printable(present.name)}: {gone} {'and' if foreign else 'but'} "
            f"{self.usages[present.uuid][name]}"
        )
        remedy = "move or delete its consumers" + (
            "" if foreign else "; until then nothing new can claim it"
        )
        self.drift.append(Drift("held-device", "warning", what, remedy, present.uuid))


def _last(name: str, present: Provider, reserved: frozenset[str]) -> Record:
    """What Placement has of the class for a sparse record; not how much is ``reserved`` where it
    was the agent that reserved all of it.
    """
    record = present.inventory.get(name, {})
    return _without_reserved(record) if name in reserved else record


def _without_reserved(record: Record) -> Record:
    return {field: value for field, value in record.items() if field != "reserved"}


def _is_all_reserved(record: Record) -> bool:
    return record["reserved"] == record["total"]


def held_record(present: Record, used: int) -> dict[str, int | float]:
    """The record of a class that is gone from the node and still used: all of it reserved, so that
    no claim adds to it.
    """
    total = max(int(present["total"]), used)
    return {**present, "total": total, "reserved": total}
