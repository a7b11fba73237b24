"""The inventories of a merge: the desired records, those of others, and the classes that are held
until they are free.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.errors import AgentError
from agent.model.finding import Drift
from agent.model.inventory import Inventories, Record, Resources, completed, problems, without_empty
from agent.model.mirror import Ownership
from agent.model.names import MOST_NAMED, ConsumerUuid, ProviderUuid, name_first, printable
from agent.model.provider_tree import Provider
from agent.placement.ownership import NODES_OWN, MergeInputs, foreign_inventory

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


class InventoryMerge:
    """The merge of the inventories of one tree."""

    def __init__(
        self,
        inputs: MergeInputs,
        usages: Usages,
        drift: list[Drift],
        invalid: list[AgentError],
        *,
        adopted: bool,
        exclusive: bool,
        incomplete: bool,
    ) -> None:
        """Prepare the merge; for the parameters see :class:`agent.placement.merge.Merge`. What is
        found goes to its lists ``drift`` and ``invalid``.
        """
        self.inputs, self.journal, self.usages = inputs, inputs.journal, usages
        self.drift, self.invalid, self.adopted = drift, invalid, adopted
        self.exclusive, self.incomplete = exclusive, incomplete
        self.staying = frozenset[str]() if adopted else self._staying()
        # The classes of each provider that the agent has reserved in full, besides those that are
        # held until they are free.
        self._reserved: dict[ProviderUuid, frozenset[str]] = {}

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

    def held_classes(self, uuid: ProviderUuid) -> frozenset[str]:
        """Return the classes that the provider keeps, although it is to lose them, because they are
        in use.
        """
        used, wanted = self.usages.get(uuid, {}), self._desired_classes(uuid)
        return frozenset(
            name
            for name in self.journal.held.get(uuid, ())
            if name in used and used[name].amount > 0 and name not in wanted
        )

    def reserved_classes(self) -> dict[ProviderUuid, frozenset[str]]:
        """Return the classes, by provider, that the agent has reserved in full."""
        return {
            uuid: self.held_classes(uuid) | self._reserved.get(uuid, frozenset())
            for uuid in (*self.journal.held, *self._reserved)
        }

    def merge(self, wanted: Provider, present: Provider, own: Ownership) -> Inventories:
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
        waiting = self.held_classes(present.uuid)
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
