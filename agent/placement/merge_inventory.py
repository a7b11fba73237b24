"""The inventories of a merge: the desired records, those of others, and the classes that are held
until they are free.
"""

from agent.model.inventory import Inventories, Record, completed, problems, without_empty
from agent.model.mirror import Ownership
from agent.model.names import ProviderUuid, printable
from agent.model.provider import Provider
from agent.placement.merge_inputs import (
    NODES_OWN,
    MergeFindings,
    MergeInputs,
    Usages,
    foreign_inventory,
)


class InventoryMerge:
    """The merge of the inventories of one tree."""

    def __init__(
        self,
        inputs: MergeInputs,
        usages: Usages,
        findings: MergeFindings,
        *,
        adopted: bool,
        exclusive: bool,
        incomplete: bool,
    ) -> None:
        """Prepare the merge; for the parameters see :class:`agent.placement.merge.Merge`."""
        self.inputs, self.journal, self.usages = inputs, inputs.journal, usages
        self.findings, self.adopted = findings, adopted
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
                stay |= (
                    foreign_inventory(provider, own, adopted=False).keys()
                    - self._desired(provider.uuid).keys()
                )
        return stay & NODES_OWN

    def _desired(self, uuid: ProviderUuid) -> Inventories:
        if not self.inputs.is_desired(uuid):
            return {}
        return without_empty(self.inputs.desired.provider(uuid).inventory)

    def held_classes(self, uuid: ProviderUuid) -> frozenset[str]:
        """Return the classes that the provider keeps, although it is to lose them, because they are
        in use.
        """
        used, wanted = self.usages.get(uuid, {}), self._desired(uuid)
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
            self.findings.invalid.extend(
                f"provider {printable(wanted.name)!r}: {text}" for text in wrong
            )
            return present.inventory
        foreign = {
            name: record
            for name, record in foreign_inventory(present, own, self.adopted).items()
            if name not in inventory
        }
        for name in foreign:
            if name in NODES_OWN:
                self.findings.add_adoption_needed(wanted, f"the node does not have its {name}")
        for name in sorted(self.staying & inventory.keys() - present.inventory.keys()):
            self.findings.add_adoption_needed(wanted, f"{name} would move here")
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
            name: completed(record, _last_record(name, present, reserved))
            for name, record in records.items()
        }

    def _hold(self, present: Provider, foreign: Inventories) -> Inventories:
        """Return the records of the classes that are held until they are free.

        A class of somebody else only keeps the provider: its owner decides whether it may be
        claimed.
        """
        waiting = self.held_classes(present.uuid)
        used = self.usages.get(present.uuid, {})
        configured = self.journal.of(present.uuid).configured.classes
        for name in sorted(waiting):
            self.findings.add_held(
                present,
                name,
                used[name],
                foreign=name in foreign,
                configured=name in configured,
            )
        return {
            name: held_record(present.inventory[name], used[name].amount)
            for name in waiting - foreign.keys()
        }


def _last_record(name: str, present: Provider, reserved: frozenset[str]) -> Record:
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
