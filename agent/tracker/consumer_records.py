"""What the reconciliation of allocations needs of the records."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.model.claim import Claim
from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.tracker.node_view import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeConsumers:
    """What is known of the consumers of one node's tree.

    ``host``: this host's name. ``claims``: the open ones of the node. ``instances``: those that have one, those among the
    consumers, and those of the migrations among these, deleted ones too. ``migrations``: those that lead from or to the node and go on,
    those among the consumers, and every one of the instances among them that have no claim, ended ones too.
    ``evacuations``: those from the node that are done and not cleared yet; ``strange_nodes``: where records have their instances, as far as that is a
    node of another store. ``unreadable``: consumers of which there is a record that makes no sense.
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
    """The records, as an audit asks them who a consumer is. ``view`` is what the audit has counted."""

    def needed(self, view: NodeView, *, purging: bool) -> bool:
        """Whether the node's allocations are worth reading: there is some record of a guest or a claim, here or elsewhere, over or not.

        ``purging``: also if there is none, because unknown consumers are to be removed. Never in the pass that made the
        node's record, because nobody can have told of its guests yet.

        :raises StoreError: the records cannot be read.
        """

    def clear(self, evacuations: Collection[ConsumerUuid]) -> None:
        """Write down that nothing of these evacuations is left at their source.

        :raises StoreError: the store cannot be written.
        """

    def intend(self, clearing: Mapping[ConsumerUuid, int | None]) -> None:
        """Write down that the leftovers of these evacuations are about to be removed, and by which generation of their consumer; None: not any more.

        :raises StoreError: the store cannot be written.
        """

    def records(self, view: NodeView, consumers: Collection[ConsumerUuid]) -> TreeConsumers:
        """What is known of ``consumers`` and of those who were promised something on the node.

        :raises StoreError: the records cannot be read.
        """
