"""What the reconciliation of allocations needs of the records."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.model.claim import Claim
from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.tracker.node_entry import NodeEntry
from agent.tracker.node_state import NodeState, NodeView
from agent.tracker.record_store import RecordStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeConsumers:
    """What is known of the consumers of one node's tree.

    ``host``: this host's name. ``claims``: the open ones of the node. ``instances``: those that
    have one, those among the consumers, and those of the migrations among these, deleted ones too.
    ``migrations``: those that lead from or to the node and go on, those among the consumers, and
    every one of the instances among them that have no claim, ended ones too. ``evacuations``: those
    from the node that are done and not cleared yet; ``strange_nodes``: where records have their
    instances, as far as that is a node of another store. ``unreadable``: consumers of which there
    is a record that makes no sense.
    """

    host: str
    instances: Mapping[ConsumerUuid, Instance] = field(default_factory=dict)
    migrations: Mapping[ConsumerUuid, Migration] = field(default_factory=dict)
    claims: Collection[Claim] = ()
    evacuations: Collection[Migration] = ()
    strange_nodes: frozenset[ProviderUuid] = frozenset()
    unreadable: frozenset[ConsumerUuid] = frozenset()

    def moves(self) -> Mapping[ConsumerUuid, Sequence[Migration]]:
        """The migrations of each instance that has any."""
        moves: dict[ConsumerUuid, list[Migration]] = {}
        for one in self.migrations.values():
            moves.setdefault(one.instance, []).append(one)
        return moves


class ConsumerRecords(Protocol):
    """The records, as an audit asks them who a consumer is. ``view`` is what the audit
    has counted.
    """

    def needed(self, view: NodeView, *, purging: bool) -> bool:
        """Whether the node's allocations are worth reading: there is some record of a guest or a
        claim, here or elsewhere, over or not.

        ``purging``: also if there is none, because unknown consumers are to be removed. Never in
        the pass that made the node's record, because nobody can have told of its guests yet.

        :raises StoreError: the records cannot be read.
        """

    def clear(self, evacuations: Collection[ConsumerUuid]) -> None:
        """Write down that nothing of these evacuations is left at their source.

        :raises StoreError: the store cannot be written.
        """

    def intend(self, clearing: Mapping[ConsumerUuid, int | None]) -> None:
        """Write down that the leftovers of these evacuations are about to be removed, and by which
        generation of their consumer; None: not any more.

        :raises StoreError: the store cannot be written.
        """

    def records(self, view: NodeView, consumers: Collection[ConsumerUuid]) -> TreeConsumers:
        """What is known of ``consumers`` and of those who were promised something on the node.

        :raises StoreError: the records cannot be read.
        """


class StoredConsumerRecords:
    """Reads the records of nodes that were audited. ``host``: this host's name."""

    def __init__(
        self, records: RecordStore, entries: Mapping[ProviderUuid, NodeEntry], host: str
    ) -> None:
        self._records, self._entries, self._host = records, entries, host
        self._has_records = False

    def needed(self, view: NodeView, *, purging: bool) -> bool:
        """Whether the node's allocations are worth reading, see
        :class:`~agent.tracker.consumer_records.ConsumerBook`.
        """
        if view.created:
            return False
        if not self._has_records:
            with self._records.reading() as reading:
                self._has_records = reading.has_records()
        return purging or self._has_records

    def clear(self, evacuations: Collection[ConsumerUuid]) -> None:
        """Write down that nothing of these evacuations is left at their source.

        :raises StoreError: the store cannot be written.
        """
        if evacuations:
            self._records.clear(evacuations)

    def intend(self, clearing: Mapping[ConsumerUuid, int | None]) -> None:
        """Write down by which generation of their consumer the leftovers of these evacuations are
        about to be removed; None: they are not.

        :raises StoreError: the store cannot be written.
        """
        if clearing:
            self._records.intend_clearing(clearing)

    def records(self, view: NodeView, consumers: Collection[ConsumerUuid]) -> TreeConsumers:
        """What is known of ``consumers`` and of those who were promised something on the node.

        :raises StoreError: the records cannot be read.
        """
        state = self._newest(view)
        claimed = {one.instance for one in state.claims.values()}
        with self._records.reading() as reading:
            found = reading.consumers([one for one in consumers if one not in claimed])
            # Of a migration that holds something it matters where its guest is.
            moved = (
                {one.instance for one in found.migrations.values() if one.uuid in consumers}
                - found.instances.keys()
                - claimed
            )
            guests = reading.consumers(sorted(moved)).instances if moved else {}
            evacuations = reading.evacuations_from(self._host, view.node)
            # Because what was counted may be older than the end of an evacuation: a guest that left
            # since would look as if it were back.
            counted = [one.instance for one in evacuations if one.instance in state.instances]
            now = reading.consumers(counted).instances if counted else {}
            evacuated = [found.instances.get(one.instance) for one in evacuations]
            nodes = {one.node for one in evacuated if one is not None and one.node is not None}
            strange = frozenset(uuid for uuid in nodes if reading.node(uuid) is None)
        left = {
            uuid
            for uuid in counted
            if uuid not in now or now[uuid].node != state.instances[uuid].node
        }
        return TreeConsumers(
            host=self._host,
            claims=tuple(state.claims.values()),
            instances={
                **{uuid: one for uuid, one in state.instances.items() if uuid in claimed},
                **guests,
                **found.instances,
            },
            migrations={**state.migrations, **found.migrations},
            unreadable=found.unreadable,
            evacuations=[one for one in evacuations if one.instance not in left],
            strange_nodes=strange,
        )

    def _newest(self, view: NodeView) -> NodeState:
        """What the audit counted, or what was promised and given back since."""
        entry = self._entries.get(view.node)
        now = entry.state if entry is not None else None
        return now if now is not None and now.node.version > view.version else view.state
