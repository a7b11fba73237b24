"""What the tracker needs of a store."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from agent.model.claim import Claim
from agent.model.compute_node import ComputeNode, Lease
from agent.model.devices import DeviceRecord
from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import NodeRecords, RecordChanges, RecordedConsumers
from agent.model.unit_record import UnitRecord


class RecordReads(Protocol):
    """Reads records, all at one moment. None or empty for what there is not."""

    def node_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """The version of each of these nodes that there is."""

    def load(self, node: ProviderUuid) -> NodeRecords | None:
        """All records of one node."""

    def node(self, uuid: ProviderUuid) -> ComputeNode | None:
        """One node, deleted or not."""

    def node_named(self, host: str, name: str) -> ComputeNode | None:
        """The node of that name on that host, deleted or not."""

    def lease(self, node: ProviderUuid) -> Lease | None:
        """Who manages the node."""

    def leases(self, host: str) -> Sequence[Lease]:
        """All leases that the host has, or had last."""

    def nodes_of(self, host: str) -> Collection[ProviderUuid]:
        """The nodes of the host; not the deleted ones."""

    def nodes_with_instances(self, host: str) -> Collection[ProviderUuid]:
        """The nodes on which the host has instances."""

    def instance(self, uuid: ConsumerUuid) -> Instance | None:
        """One instance, deleted or not."""

    def migration(self, uuid: ConsumerUuid) -> Migration | None:
        """One migration, ended or not."""

    def claim(self, id: str) -> Claim | None:
        """One claim, open or not."""

    def claims_of(self, instance: ConsumerUuid) -> tuple[Claim, ...]:
        """The instance's open claims on all nodes."""

    def held_by(
        self, claims: Collection[str]
    ) -> tuple[tuple[DeviceRecord, ...], tuple[UnitRecord, ...]]:
        """The devices and units that these claims hold."""

    def consumers(self, uuids: Collection[ConsumerUuid]) -> RecordedConsumers:
        """What is known of these consumers, however many."""

    def evacuations_from(self, host: str, node: ProviderUuid) -> Collection[Migration]:
        """The evacuations from a node of a host that are done and not cleared yet."""

    def has_records(self) -> bool:
        """Whether there is any record of a guest or a claim, on whatever node, those that are over
        too.
        """


class RecordTransaction(RecordReads, Protocol):
    """Reads and writes; what it has read nobody else changes before its end."""

    def write(self, changes: RecordChanges) -> None:
        """Write all of them, and let the versions of the nodes that are touched grow.

        :raises RecordConflict: a record was written by somebody else since it was read, or exists
            already.
        """


class RecordStore(Protocol):
    """The store of records. Durable once a transaction has ended."""

    def reading(self) -> AbstractContextManager[RecordReads]:
        """Read without holding anybody up."""

    def transaction(
        self, nodes: Collection[ProviderUuid]
    ) -> AbstractContextManager[RecordTransaction]:
        """Work on the records of these nodes and of their instances, alone; an exception undoes all
        of it.

        :raises RecordConflict: another transaction was faster.
        """

    def clear(self, migrations: Collection[ConsumerUuid]) -> None:
        """Write down that these evacuations are cleared."""

    def intend_clearing(self, clearing: Mapping[ConsumerUuid, int | None]) -> None:
        """Write down by which generation of their consumer these evacuations are being cleared,
        None for those that are not.
        """

    def remove_ended(self, before: float) -> int:
        """Remove what ended before that time and that nothing refers to. Returns how
        many records.
        """
