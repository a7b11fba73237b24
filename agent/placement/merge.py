"""The merge of a driver's desired tree with what others have in Placement.

What the journal does not list belongs to somebody else: it survives whatever a driver does to its
private copy of the tree.
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

# The standard classes that are the node's own in its tree, written by nova or by the agent; other
# services write their own classes on providers of the tree.
NODES_OWN = frozenset(
    {orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT}
)
STATUS_DISABLED = "COMPUTE_STATUS_DISABLED"
ADOPT = "agent --once --adopt takes the tree over"


@dataclass(frozen=True, slots=True)
class Use:
    """The usage of one class: the allocated amount, and the number of consumers if it was read."""

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
    """What Placement should hold: the node's tree with complete records, and with the traits and
    aggregates of others.
    """

    tree: ProviderTree
    journal: Journal
    """What will be the agent's once Placement holds the tree."""
    drift: tuple[Drift, ...]
    invalid: tuple[str, ...]
    """What of the desired tree was set aside, and why."""
    conflicts: tuple[ProviderNameConflict, ...] = ()
    """Children that cannot be created because providers of others have their names."""


def _foreign_inventory(present: Provider, own: Ownership, adopted: bool) -> Inventories:
    """Return the classes of others: those that are not in the journal; in an adopted tree without
    the classes that only a node has.
    """
    return {
        name: record
        for name, record in present.inventory.items()
        if name not in own.classes and (name not in NODES_OWN or not adopted)
    }


def _own_classes(inventory: Inventories, present: Inventories, own: Ownership) -> frozenset[str]:
    """Return the classes of ``inventory`` that are the agent's.

    A record that was in Placement before with exactly these values keeps its owner.
    """
    return frozenset(
        name
        for name, record in inventory.items()
        if name in own.classes or present.get(name) != record
    )


def foreign_share(
    view: PlacementView, journal: Journal, root: ProviderUuid, name: str
) -> ProviderTree:
    """Return the tree that a shaping driver starts from: without the agent's contents, with those
    of others.

    Children of the agent that have foreign children stay, without contents, as their parents.
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
    """One merge of a driver's desired tree with what others have in the tree."""

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
        """Prepare the merge.

        :param usages: the usage of classes that are held until they are free.
        :param configured: what of the desired tree comes from provider config files.
        :param exclusive: whether one consumer takes the whole node, see HostFacts.
        :param incomplete: whether parts of the desired tree are copied from Placement, because the
            node's state is not known now.
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
        # The classes of each provider that the agent has reserved in full, besides those that are
        # held until they are free.
        self.reserved: dict[ProviderUuid, frozenset[str]] = {}

    def target(self) -> Target:
        """Return the merged tree with its journal, drift and conflicts."""
        tree = self.desired.subtree(self.root) if self.desired.exists(self.root) else ProviderTree()
        for uuid in reversed(tree.get_provider_uuids()):
            self._drop_unusable(tree, uuid)
        for uuid in self._kept(tree):
            if not tree.exists(uuid):
                self._put_back(tree, self.present.provider(uuid))
        owned: dict[ProviderUuid, Ownership] = {}
        for uuid in tree.get_provider_uuids():
            if self.by.is_own(uuid):
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
                    # It stays in the journal until it can be created: every pass reports it.
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
        """Undo what the driver did to a provider of somebody else."""
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
        """Insert a provider that the desired tree lacks and that cannot be deleted."""
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
        """Return the present providers that stay although ``tree``, the usable part of the desired
        tree, lacks them, and their ancestors; parents first.
        """
        keep: set[ProviderUuid] = set()
        for uuid in reversed(self.present.get_provider_uuids()):
            wished = self.by.is_desired(uuid)
            gone = self.journal.owns(uuid) and not wished
            if gone and not self.adopted:
                self._drift_adoption(self.present.provider(uuid), "the node no longer has it")
            usable, free = (
                wished and tree.exists(uuid) and self.by.is_own(uuid),
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
        return (
            without_empty(self.desired.provider(uuid).inventory) if self.by.is_desired(uuid) else {}
        )

    def _staying(self) -> frozenset[str]:
        """Return the classes that some provider of a tree that is not adopted keeps although the
        desired tree lacks them there; on another provider they would count twice.
        """
        stay = frozenset[str]()
        for one in self.present.providers():
            if self.by.is_own(one.uuid):
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
        if not self.by.is_desired(wished.uuid) and not self.adopted:
            return present, own
        wanted = wished if self.by.is_desired(wished.uuid) else self._remains(present, own)
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
        """Return what is wanted of a provider that the node no longer has: its traits and
        aggregates while a class is held; without held classes, where only foreign children need
        it, no contents of the agent.
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
        """Return the inventory records that the provider is to have."""
        reserved = self.journal.held.get(wanted.uuid, frozenset())
        records = without_empty(wanted.inventory)
        # A driver that starts from Placement's contents and writes a held class anew without
        # changing its record (it sets only the total) says that the class is back.
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
        # A class of somebody else only keeps the provider: its owner decides whether it may be
        # claimed.
        held = {
            name: held_record(present.inventory[name], self.usages[wanted.uuid][name].amount)
            for name in waiting - foreign.keys()
        }
        for name in sorted(waiting):
            self._drift_held(present, name, foreign=name in foreign)
        # A record that the agent reserved in full and that is unchanged, because the node's state
        # is not known now, stays reserved by the agent.
        stays = reserved & inventory.keys() if self.incomplete else ()
        kept = {
            name
            for name in stays
            if inventory[name] == present.inventory.get(name) and _is_all_reserved(inventory[name])
        }
        if held and self.exclusive:
            # The consumer of a held class has the whole node, so that nobody may claim what the
            # node offers now.
            kept |= {name for name, record in inventory.items() if not _is_all_reserved(record)}
            inventory = {
                name: {**record, "reserved": record["total"]} for name, record in inventory.items()
            }
        if kept:
            self.reserved[present.uuid] = frozenset(kept)
        return {**foreign, **inventory, **held}

    def _traits(self, wanted: Provider, present: Provider, own: Ownership) -> frozenset[str]:
        """Return the traits of the agent and of others.

        A standard trait that the driver removed is removed, whoever wrote it, except nova's status
        trait. So is a mark of the agent.
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
        """Return the aggregates of the agent and of others."""
        wrong = sorted(aggregate for aggregate in wanted.aggregates if not is_uuid(aggregate))
        self.invalid.extend(
            f"provider {printable(wanted.name)!r}: aggregate {printable(aggregate)!r} is no uuid"
            for aggregate in wrong
        )
        return frozenset(wanted.aggregates - set(wrong) | (present.aggregates - own.aggregates))

    # --- drift ------------------------------------------------------------------------------------

    def _replaced(self, uuid: ProviderUuid) -> ProviderUuid | None:
        """Return the child of the agent that is missing because the provider ``uuid`` of somebody
        else has its name; ``None`` if there is no such child.
        """
        name = self.present.name_of(uuid)
        called = [
            child_uuid(self.root, name),
            *(one for one, own in self.journal.providers.items() if own.name == name),
        ]
        lost = next(
            (one for one in called if self.journal.owns(one) and not self.present.exists(one)), None
        )
        if lost is None or not self.by.is_changed(uuid):
            return None
        self.conflicts.append(
            ProviderNameConflict(
                (
                    f"the name {printable(name)!r} of provider {lost} is held by provider {uuid} "
                    "in Placement, which is somebody else's"
                ),
                # A driver that chooses the uuids of its children cannot use a provider with
                # another uuid.
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
        elif self.by.is_changed(uuid):
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
    """Return Placement's record of the class, which completes a sparse record; without
    ``reserved`` if the agent had reserved all of it.
    """
    record = present.inventory.get(name, {})
    return _without_reserved(record) if name in reserved else record


def _without_reserved(record: Record) -> Record:
    return {field: value for field, value in record.items() if field != "reserved"}


def _is_all_reserved(record: Record) -> bool:
    return record["reserved"] == record["total"]


def held_record(present: Record, used: int) -> dict[str, int | float]:
    """Return the record of a class that is gone from the node and still used: reserved in full, so
    that no new allocation is possible.
    """
    total = max(int(present["total"]), used)
    return {**present, "total": total, "reserved": total}
