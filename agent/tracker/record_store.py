"""What the tracker needs of the store: its protocols, the clock, and the number of attempts."""

from collections.abc import Callable, Collection, Mapping, Sequence
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

Clock = Callable[[], float]
"""Returns the time in seconds since the epoch."""

ATTEMPTS = 10
"""How often a transaction is begun that is in conflict with others each time."""


class RecordReads(Protocol):
    """Reads of records, all at one moment. Returns None or empty where there is no record."""

    def node_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """Return the version of each of these nodes that exists."""

    def load(self, node: ProviderUuid) -> NodeRecords | None:
        """Return all records of one node."""

    def node(self, uuid: ProviderUuid) -> ComputeNode | None:
        """Return one node, deleted or not."""

    def node_named(self, host: str, name: str) -> ComputeNode | None:
        """Return the node of that name on that host, deleted or not."""

    def lease(self, node: ProviderUuid) -> Lease | None:
        """Return the lease on the node, which names the host that manages it."""

    def leases(self, host: str) -> Sequence[Lease]:
        """Return all leases that the host has, or was the last to have."""

    def nodes_of(self, host: str) -> Collection[ProviderUuid]:
        """Return the nodes of the host without the deleted ones."""

    def nodes_with_instances(self, host: str) -> Collection[ProviderUuid]:
        """Return the nodes on which the host has instances."""

    def instance(self, uuid: ConsumerUuid) -> Instance | None:
        """Return one instance, deleted or not."""

    def migration(self, uuid: ConsumerUuid) -> Migration | None:
        """Return one migration, ended or not."""

    def claim(self, id: str) -> Claim | None:
        """Return one claim, open or not."""

    def claims_of(self, instance: ConsumerUuid) -> tuple[Claim, ...]:
        """Return the instance's open claims on all nodes."""

    def held_by(
        self, claims: Collection[str]
    ) -> tuple[tuple[DeviceRecord, ...], tuple[UnitRecord, ...]]:
        """Return the devices and units that these claims hold."""

    def consumers(self, uuids: Collection[ConsumerUuid]) -> RecordedConsumers:
        """Return the records of these consumers, however many there are."""

    def evacuations_from(self, host: str, node: ProviderUuid) -> Collection[Migration]:
        """Return the evacuations from a node of a host that are done and not cleared yet."""

    def has_records(self) -> bool:
        """Return whether there is any record of a guest or a claim on any node, ended ones
        included.
        """


class RecordTransaction(RecordReads, Protocol):
    """Reads and writes; no other transaction changes what this one has read before it ends."""

    def write(self, changes: RecordChanges) -> None:
        """Write all changes, and raise the versions of the nodes that they touch.

        :raises RecordConflict: a record was written by another transaction since it was read, or a
            new one exists already.
        """


class RecordStore(Protocol):
    """The store of records. Changes are durable once their transaction has ended."""

    def reading(self) -> AbstractContextManager[RecordReads]:
        """Read without blocking any other process."""

    def transaction(
        self, nodes: Collection[ProviderUuid]
    ) -> AbstractContextManager[RecordTransaction]:
        """Read and write the records of these nodes and of their instances, exclusively; an
        exception undoes all of it.

        :raises RecordConflict: another transaction was faster.
        """

    def clear(self, migrations: Collection[ConsumerUuid]) -> None:
        """Record that these evacuations are cleared."""

    def intend_clearing(self, clearing: Mapping[ConsumerUuid, int | None]) -> None:
        """Record the consumer generation with which each of these evacuations is being cleared,
        None for those that are not.
        """

    def remove_ended(self, before: float) -> int:
        """Remove the records that ended before that time and that no other record refers to.
        Returns their number.
        """
