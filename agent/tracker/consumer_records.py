"""Consumer records: what the reconciliation of allocations reads of the records and writes to
them.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress

from agent.errors import StoreError
from agent.model.names import ConsumerUuid, is_uuid, normal_uuid
from agent.store.reading import RecordReader
from agent.store.records import Records
from agent.tracker.node_state import NodeState, NodeView
from agent.tracker.stored_state import TreeConsumers


class ConsumerRecords:
    """The records of consumers, as the allocations step of an audit uses them. ``host``: this
    host's name.
    """

    def __init__(self, records: Records, host: str) -> None:
        self._records, self._host = records, host
        # ``_looked``: the answer holds for the present pass. A record that is made meanwhile is in
        # the next pass's answer.
        self._has_records = self._looked = False

    def begin_pass(self) -> None:
        """Look once, for all nodes of a pass, whether there are records."""
        self._looked = False
        # If the records cannot be read, the audits themselves meet the error and report it.
        with suppress(StoreError):
            self._look()
            self._looked = True

    def _look(self) -> None:
        # Records that have ended are kept for long, and count too.
        if not self._has_records:
            with self._records.reading() as reading:
                self._has_records = reading.has_records()

    def is_needed(self, *, purging: bool) -> bool:
        """Return whether all of the node's allocations have to be read: there is a record of a
        guest or a claim, on any node, ended or not.

        ``purging``: also without any record, because unknown consumers are to be removed.

        :raises StoreError: the records cannot be read.
        """
        if not self._looked:
            self._look()
        return purging or self._has_records

    def clear_evacuations(self, evacuations: Collection[ConsumerUuid]) -> None:
        """Record that nothing of these evacuations is left at their source.

        :raises StoreError: the store cannot be written.
        """
        if evacuations:
            self._records.clear(evacuations)

    def note_clearing(self, clearing: Mapping[ConsumerUuid, int | None]) -> None:
        """Record the consumer generation with which the leftovers of these evacuations are about to
        be removed; None: they are not any more.

        :raises StoreError: the store cannot be written.
        """
        if clearing:
            self._records.intend_clearing(clearing)

    def read(self, view: NodeView, consumers: Collection[ConsumerUuid]) -> TreeConsumers:
        """Return the records of ``consumers`` and of the instances that have claims on the node,
        all at one moment. ``view``: what the usage step of the same audit counted.

        :raises StoreError: the records cannot be read.
        """
        with self._records.reading() as reading:
            state = _present_state(view, reading)
            claimed = {claim.instance for claim in state.claims.values()}
            found = reading.consumers(
                [consumer for consumer in consumers if consumer not in claimed]
            )
            # The instances of the migrations among the consumers are needed too, to know where the
            # guests are.
            moved = (
                {
                    migration.instance
                    for migration in found.migrations.values()
                    if migration.uuid in consumers
                }
                - found.instances.keys()
                - claimed
            )
            guests = reading.consumers(sorted(moved)).instances if moved else {}
            evacuations = reading.evacuations_from(self._host, state.node.uuid)
            evacuated = [found.instances.get(evacuation.instance) for evacuation in evacuations]
            nodes = {
                instance.node
                for instance in evacuated
                if instance is not None and instance.node is not None
            }
            strange = frozenset(uuid for uuid in nodes if reading.node(uuid) is None)
        return TreeConsumers(
            host=self._host,
            claims=tuple(state.claims.values()),
            instances={
                **{uuid: instance for uuid, instance in state.instances.items() if uuid in claimed},
                **guests,
                **found.instances,
            },
            migrations={**state.migrations, **found.migrations},
            unreadable=found.unreadable,
            evacuations=evacuations,
            strange_nodes=strange,
        )


def _present_state(view: NodeView, reading: RecordReader) -> NodeState:
    """Return the state of the node that ``view`` counted; read again if the records have changed
    since. A dry run's is ahead of the records.
    """
    node = view.state.node
    version = reading.node_versions([node.uuid]).get(node.uuid, 0)
    if version <= node.version or (records := reading.load(node.uuid)) is None:
        return view.state
    return NodeState.of(records, view.state.host)


class InstanceHosts:
    """Look-ups of instances by host in the records, for ``host``. Threads may share it."""

    def __init__(self, records: Records, host: str) -> None:
        self._records, self._host = records, host

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:
        """Return those of ``instances`` (uuids, in any spelling) that are on another host.

        :raises StoreError: the records cannot be read.
        """
        spelled = {ConsumerUuid(normal_uuid(given)): given for given in instances if is_uuid(given)}
        if not spelled:
            return frozenset()
        with self._records.reading() as reading:
            found = reading.consumers(list(spelled)).instances
        return frozenset(
            spelled[uuid]
            for uuid, instance in found.items()
            if instance.host not in (None, self._host) and not instance.removed
        )

    def nodes(self) -> frozenset[str]:
        """Return the uuids of the nodes on which this host has instances.

        :raises StoreError: the records cannot be read.
        """
        with self._records.reading() as reading:
            return frozenset(reading.nodes_with_instances(self._host))
