"""The merge of a driver's desired tree with what others have in Placement: the desired records,
those of others, and the classes that are held until they are free.

What the journal does not list belongs to somebody else: it survives whatever a driver does to its
private copy of the tree.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Self

from agent.errors import DRIVER_FAULT, AgentError, InvalidTree, ProviderNameConflict
from agent.model.finding import Drift
from agent.model.inventory import Inventories, Record, Resources, completed, problems, without_empty
from agent.model.mirror import Configured, Journal, Ownership, ServerCapabilities
from agent.model.names import (
    AGENT_MARK,
    MAX_PROVIDER_NAME,
    MOST_NAMED,
    ConsumerUuid,
    ProviderUuid,
    child_role,
    child_uuid,
    is_custom,
    is_uuid,
    name_first,
    printable,
)
from agent.model.provider_tree import PresentTree, Provider, ProviderTree, TargetTree
from agent.placement.ownership import NODES_OWN, STATUS_DISABLED, MergeInputs, foreign_inventory

ADOPT = "take the tree over: agent --once --adopt"


@dataclass(frozen=True, slots=True)
class Use:
    """The usage of one class: the allocated amount, and to whom."""

    amount: int
    shares: Mapping[ConsumerUuid, int] = field(default_factory=dict)

    @property
    def consumers(self) -> tuple[ConsumerUuid, ...]:
        """Who uses it, if that is known."""
        return tuple(self.shares)

    def __str__(self) -> str:
        to = f" to {name_first(self.consumers)}" if self.consumers else ""
        return f"{self.amount} of it are allocated{to}"

    def ending(self, provider: ProviderUuid, name: str) -> str:
        """Return how what is used of the class ``name`` of ``provider`` becomes free."""
        if not self.shares:
            return "move or delete its consumers"
        first = [*self.shares.items()][:MOST_NAMED]
        given_back = " && ".join(
            f"agent allocation remove {consumer} {provider} {name}={amount}"
            for consumer, amount in first
        )
        more = ", and so with the others" if len(self.shares) > MOST_NAMED else ""
        return f"move its consumers away; if they go on without it: {given_back}{more}"


Usages = Mapping[ProviderUuid, Mapping[str, Use]]


def uses_of(holders: Mapping[ConsumerUuid, Resources]) -> dict[str, Use]:
    """Return how much of each class the consumers of one provider use."""
    shares: dict[str, dict[ConsumerUuid, int]] = {}
    for consumer, resources in sorted(holders.items()):
        for name, amount in resources.items():
            shares.setdefault(name, {})[consumer] = amount
    return {name: Use(sum(held.values()), held) for name, held in shares.items()}


def set_aside(what: str) -> AgentError:
    """Return the error for a part of the desired tree that breaks a rule of Placement."""
    return AgentError(what, "it was left as it is in Placement")


def adoption_needed(provider: Provider, why: str) -> Drift:
    """Return drift for a change that is not made because the tree is not adopted."""
    return Drift(
        "adoption-needed",
        "warning",
        f"{printable(provider.name)}: {why}, but the tree is not adopted",
        ADOPT,
        provider.uuid,
    )


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


@dataclass(frozen=True, slots=True)
class Target:
    """What Placement should hold: the node's tree with complete records, and with the traits and
    aggregates of others.
    """

    tree: TargetTree
    journal: Journal
    """What will be the agent's once Placement holds the tree."""
    drift: tuple[Drift, ...]
    invalid: tuple[AgentError, ...]
    """What of the desired tree was set aside, and why."""
    conflicts: tuple[ProviderNameConflict, ...] = ()
    """Children that cannot be created because providers of others have their names."""

    def with_names_of_others(self, present: PresentTree) -> Self:
        """Return the target in which the providers that are not the agent's are called as in
        ``present``.
        """
        owned = self.journal.providers
        names = {
            provider.uuid: name
            for provider in self.tree.providers()
            if provider.uuid not in owned
            and present.exists(provider.uuid)
            and (name := present.name_of(provider.uuid)) != provider.name
        }
        if not names:
            return self
        tree = self.tree.copy()
        for uuid, name in names.items():
            tree.rename(uuid, name)
        return replace(self, tree=TargetTree(tree.freeze()))


class Merge:
    """One merge of a driver's desired tree with what others have in the tree."""

    def __init__(
        self,
        inputs: MergeInputs,
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
        self.inputs, self.capabilities = inputs, capabilities
        self.configured = configured or {}
        self.present, self.journal, self.base, self.desired, self.root = (
            inputs.present,
            inputs.journal,
            inputs.base,
            inputs.desired,
            inputs.root,
        )
        # The merged tree: the part of the desired tree that can be used, completed step by step.
        self.tree = (
            self.desired.subtree(self.root) if self.desired.exists(self.root) else ProviderTree()
        )
        self.adopted = self.journal.adopted or not self.present.exists(self.root)
        self.drift: list[Drift] = []
        self.invalid: list[AgentError] = []
        self.conflicts: list[ProviderNameConflict] = []
        self.usages, self.exclusive, self.incomplete = usages, exclusive, incomplete
        self.staying = frozenset[str]() if self.adopted else self._staying()
        # The classes of each provider that the agent has reserved in full, besides those that are
        # held until they are free.
        self._reserved: dict[ProviderUuid, frozenset[str]] = {}

    def target(self) -> Target:
        """Return the merged tree with its journal, drift and conflicts."""
        tree = self.tree
        for uuid in reversed(tree.get_provider_uuids()):
            self._drop_unusable(uuid)
        for uuid in self._kept():
            if not tree.exists(uuid):
                self._put_back(self.present.provider(uuid))
        owned: dict[ProviderUuid, Ownership] = {}
        for uuid in tree.get_provider_uuids():
            if self.inputs.is_own(uuid):
                mine, ownership = self._merge_own(tree.provider(uuid))
                tree.replace(mine)
                owned[uuid] = replace(ownership, role=self._role(uuid, mine.name))
            else:
                self._restore(self.present.provider(uuid))
                owned |= self._report_foreign(uuid)
        held = {
            uuid: classes
            for uuid, classes in self._reserved_classes().items()
            if classes and tree.exists(uuid)
        }
        return Target(
            TargetTree(tree.freeze()),
            Journal(owned, self.adopted, held),
            tuple(self.drift),
            tuple(self.invalid),
            tuple(self.conflicts),
        )

    def _role(self, uuid: ProviderUuid, name: str) -> str:
        if uuid == self.root:
            return ""
        if self.inputs.is_desired(uuid):
            return child_role(name, self.tree.name_of(self.root))
        # What the node no longer has may still be called after a former name of the node; its role
        # is found later, if it is not known.
        return self.journal.of(uuid).role

    # --- which providers --------------------------------------------------------------------------

    def _restore(self, present: Provider) -> None:
        """Undo what the driver did to a provider of somebody else."""
        tree = self.tree
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

    def _put_back(self, present: Provider) -> None:
        """Insert a provider that the desired tree lacks and that cannot be deleted."""
        try:
            self.tree.insert(present)
        except ValueError as error:
            raise InvalidTree(
                (
                    f"driver error: it made another {printable(present.name)}, but the one in "
                    f"Placement stays: {error}"
                ),
                DRIVER_FAULT,
            ) from error

    def _drop_unusable(self, uuid: ProviderUuid) -> None:
        name = self.tree.name_of(uuid)
        if not 1 <= len(name) <= MAX_PROVIDER_NAME:
            wrong = AgentError(
                f"provider {printable(name[:60])!r}...: its name has {len(name)} characters, "
                f"Placement takes 1 to {MAX_PROVIDER_NAME}",
                "give the host a shorter name: [DEFAULT] host",
            )
        elif not is_uuid(uuid):
            wrong = set_aside(f"provider {printable(name)!r}: {printable(uuid)!r} is no uuid")
        else:
            return
        self.invalid.append(wrong)
        self.tree.remove(uuid)

    def _kept(self) -> Iterator[ProviderUuid]:
        """Return the present providers that stay although the usable part of the desired tree lacks
        them, and their ancestors; parents first.
        """
        keep: set[ProviderUuid] = set()
        for uuid in reversed(self.present.get_provider_uuids()):
            desired = self.inputs.is_desired(uuid)
            gone = self.journal.owns(uuid) and not desired
            if gone and not self.adopted:
                self.drift.append(
                    adoption_needed(
                        self.present.provider(uuid), "it is no part of the node's tree any more"
                    )
                )
            usable = desired and self.tree.exists(uuid) and self.inputs.is_own(uuid)
            goes = gone and self.adopted and not self._held_classes(uuid)
            others = self.inputs.kept_for_others(uuid) if goes else ()
            if others and not self.inputs.gives_back:
                self.drift.append(_kept_for_others(self.present.provider(uuid), others))
            if uuid in keep or usable or (goes and not others):
                continue
            ancestor: ProviderUuid | None = uuid
            while ancestor is not None:
                keep.add(ancestor)
                ancestor = self.present.provider(ancestor).parent_uuid
        return (uuid for uuid in self.present.get_provider_uuids() if uuid in keep)

    # --- providers of others ----------------------------------------------------------------------

    def _report_foreign(self, uuid: ProviderUuid) -> Mapping[ProviderUuid, Ownership]:
        """Report a provider of somebody else, or the child of the agent whose name it has.

        Return what the agent owns of that child: it stays in the journal until it can be created,
        so that every pass reports it.
        """
        provider = self.present.provider(uuid)
        changed = self.inputs.is_changed(uuid)
        missing = self._missing_child(provider.name) if changed else None
        if missing is not None:
            self.conflicts.append(
                _name_conflict(missing, provider, self.present.provider(self.root))
            )
            return {missing: self.journal.of(missing)}
        removed = self.base.exists(uuid) and not self.desired.exists(uuid)
        self.drift.append(_foreign(provider, removed=removed, changed=changed))
        return {}

    def _missing_child(self, name: str) -> ProviderUuid | None:
        """Return the child of the agent that is called ``name`` and that Placement lacks, ``None``
        if there is none.
        """
        role = child_role(name, self.present.name_of(self.root))
        return next(
            (
                uuid
                for uuid, own in self.journal.providers.items()
                if own.role == role and not self.present.exists(uuid)
            ),
            None,
        )

    # --- contents ---------------------------------------------------------------------------------

    def _merge_own(self, desired: Provider) -> tuple[Provider, Ownership]:
        """Return a provider of the agent as Placement should have it, and what of it is the
        agent's.
        """
        uuid = desired.uuid
        present = (
            self.present.provider(uuid)
            if self.present.exists(uuid)
            else Provider(uuid, desired.name)
        )
        own, is_desired = self.journal.of(uuid), self.inputs.is_desired(uuid)
        if not is_desired and not self.adopted:
            return present, own
        wanted = desired if is_desired else self._remains(present, own)
        inventory = self._inventory(wanted, present, own)
        traits = self._traits(uuid, wanted.traits, present.traits - own.traits)
        aggregates = self._aggregates(wanted.name, wanted.aggregates)
        aggregates |= present.aggregates - own.aggregates
        ownership = Ownership(
            # A record that was in Placement before with exactly these values keeps its owner.
            classes=frozenset(
                name
                for name, record in inventory.items()
                if name in own.classes or present.inventory.get(name) != record
            ),
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
        asked = self.configured.get(uuid, Configured())
        configured = Configured(
            (asked.classes | stays) & ownership.classes, asked.traits & ownership.traits
        )
        ownership = replace(ownership, configured=configured)
        return replace(
            desired,
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

    def _traits(self, uuid: ProviderUuid, wanted: Set[str], of_others: Set[str]) -> frozenset[str]:
        """Return the traits of the agent and of others.

        A standard trait that the driver removed is removed, whoever wrote it, except nova's status
        trait. So is a mark of the agent.
        """
        base = self.base.provider(uuid).traits if self.base.exists(uuid) else frozenset[str]()
        retracted = {
            name
            for name in base - wanted
            if name.startswith(AGENT_MARK) or (not is_custom(name) and name != STATUS_DISABLED)
        }
        return frozenset(
            (wanted | (of_others - retracted)) - self.capabilities.unknown_traits.keys()
        )

    def _aggregates(self, name: str, wanted: Set[str]) -> frozenset[str]:
        """Return the usable aggregates of those that the provider called ``name`` wants."""
        usable = frozenset(filter(is_uuid, wanted))
        self.invalid.extend(
            set_aside(
                f"provider {printable(name)!r}: aggregate {printable(aggregate)!r} is no uuid"
            )
            for aggregate in sorted(wanted - usable)
        )
        return usable

    # --- inventories ------------------------------------------------------------------------------

    def _staying(self) -> frozenset[str]:
        """Return the classes that some provider of a tree that is not adopted keeps although the
        desired tree lacks them there; on another provider they would count twice.
        """
        stay = frozenset[str]()
        for provider in self.inputs.present.providers():
            if self.inputs.is_own(provider.uuid):
                own = self.journal.of(provider.uuid)
                stay |= foreign_inventory(
                    provider, own, adopted=False
                ).keys() - self._desired_classes(provider.uuid)
        return stay & NODES_OWN

    def _desired_classes(self, uuid: ProviderUuid) -> frozenset[str]:
        if not self.inputs.is_desired(uuid):
            return frozenset()
        return frozenset(without_empty(self.inputs.desired.provider(uuid).inventory))

    def _held_classes(self, uuid: ProviderUuid) -> frozenset[str]:
        """Return the classes that the provider keeps, although it is to lose them, because they are
        in use.
        """
        used, wanted = self.usages.get(uuid, {}), self._desired_classes(uuid)
        return frozenset(
            name
            for name in self.journal.held.get(uuid, ())
            if name in used and used[name].amount > 0 and name not in wanted
        )

    def _reserved_classes(self) -> dict[ProviderUuid, frozenset[str]]:
        """Return the classes, by provider, that the agent has reserved in full."""
        return {
            uuid: self._held_classes(uuid) | self._reserved.get(uuid, frozenset())
            for uuid in (*self.journal.held, *self._reserved)
        }

    def _inventory(self, wanted: Provider, present: Provider, own: Ownership) -> Inventories:
        """Return the inventory records that a provider of the agent is to have.

        :param wanted: the provider in the desired tree.
        :param present: the provider in Placement.
        """
        reserved = self.journal.held.get(wanted.uuid, frozenset())
        inventory = self._completed(wanted, present, reserved)
        wrong = [text for name, record in inventory.items() for text in problems(name, record)]
        if wrong:
            self.invalid.extend(
                set_aside(f"provider {printable(wanted.name)!r}: {text}") for text in wrong
            )
            return present.inventory
        foreign = {
            name: record
            for name, record in foreign_inventory(present, own, self.adopted).items()
            if name not in inventory
        }
        for name in foreign:
            if name in NODES_OWN:
                self.drift.append(adoption_needed(wanted, f"the node does not have its {name}"))
        for name in sorted(self.staying & inventory.keys() - present.inventory.keys()):
            self.drift.append(adoption_needed(wanted, f"{name} would move here"))
            del inventory[name]
        held = self._hold(present, foreign)
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
            self._reserved[present.uuid] = frozenset(kept)
        return {**foreign, **inventory, **held}

    def _completed(
        self, wanted: Provider, present: Provider, reserved: frozenset[str]
    ) -> dict[str, Record]:
        """Return the desired records, each completed by Placement's.

        :param reserved: the classes of the provider that the agent has reserved in full.
        """
        records, base = without_empty(wanted.inventory), self.inputs.base
        # A driver that starts from Placement's contents and writes a held class anew without
        # changing its record (it sets only the total) says that the class is back.
        again = (
            base.provider(wanted.uuid).inventory
            if base.exists(wanted.uuid) and wanted.uuid in self.inputs.desired.written_by_name
            else {}
        )
        back = {
            name
            for name in reserved & records.keys() & again.keys()
            if records[name] == again[name]
        }
        records |= {name: _without_reserved(records[name]) for name in back}
        return {
            name: completed(
                record,
                # Without what the agent itself had reserved.
                _without_reserved(present.inventory.get(name, {}))
                if name in reserved
                else present.inventory.get(name, {}),
            )
            for name, record in records.items()
        }

    def _hold(self, present: Provider, foreign: Inventories) -> Inventories:
        """Return the records of the classes that are held until they are free.

        A class of somebody else only keeps the provider: its owner decides whether it may be
        claimed.
        """
        waiting = self._held_classes(present.uuid)
        used = self.usages.get(present.uuid, {})
        for name in sorted(waiting):
            self.drift.append(self._held(present, name, used[name], foreign=name in foreign))
        return {
            name: held_record(present.inventory[name], used[name].amount)
            for name in waiting - foreign.keys()
        }

    def _held(self, present: Provider, name: str, use: Use, *, foreign: bool) -> Drift:
        """Return drift for a class that is gone from the node and still used.

        :param foreign: whether the class is somebody else's.
        """
        configured = self.journal.of(present.uuid).configured.classes
        gone = (
            f"the node does not have it any more, but it stays because {name} is somebody else's"
            if foreign
            else f"no file gives it {name} any more"
            if name in configured
            else f"{name} is gone from the node"
        )
        return Drift(
            "held-device",
            "warning",
            f"{printable(present.name)}: {gone} {'and' if foreign else 'but'} {use}",
            use.ending(present.uuid, name)
            + ("" if foreign else "; until then nothing new can claim it"),
            present.uuid,
            use.consumers[0] if len(use.consumers) == 1 else None,
        )


def _kept_for_others(provider: Provider, others: Sequence[str]) -> Drift:
    """Return drift for a provider that the node no longer has and that stays, without contents of
    the agent, for what others have on it.
    """
    name = printable(provider.name)
    return Drift(
        "held-device",
        "warning",
        f"{name}: the node does not have it any more, but somebody else gave it "
        f"{name_first(others)}; it stays for that, and offers nothing of the agent",
        f"if it does not come back: openstack resource provider delete {provider.uuid}",
        provider.uuid,
    )


def _foreign(provider: Provider, *, removed: bool, changed: bool) -> Drift:
    """Return drift for a provider of somebody else.

    :param removed: whether the driver removed it.
    :param changed: whether the driver changed it.
    """
    name = printable(provider.name)
    what, remedy = (
        (f"the driver wanted to remove {name}, which is somebody else's", "none; it stays")
        if removed
        else (f"the driver wanted to change {name}, which is somebody else's", ADOPT)
        if changed
        else (f"{name} was put there by somebody else", "none; it stays as it is")
    )
    return Drift(
        "foreign-provider",
        "warning" if changed and not removed else "info",
        what,
        remedy,
        provider.uuid,
    )


def _name_conflict(missing: ProviderUuid, holder: Provider, root: Provider) -> ProviderNameConflict:
    """Return the conflict for a child of the agent whose name is held by ``holder``."""
    # A driver that chooses the uuids of its children cannot use a provider with another uuid.
    derived = missing == child_uuid(root.uuid, child_role(holder.name, root.name))
    return ProviderNameConflict(
        f"the name {printable(holder.name)!r} of provider {missing} is held by provider "
        f"{holder.uuid} in Placement, which is somebody else's",
        f"delete or rename it; or, with that provider too, {ADOPT}"
        if derived
        else "delete or rename that provider",
        holder=holder.uuid,
        uuid=missing,
    )
