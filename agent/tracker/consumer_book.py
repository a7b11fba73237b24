"""What the reconciliation of allocations needs of the records."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.model.claim import Claim
from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRecords:
    """What is known of the consumers of one node's tree.

    ``host``: this host's name. ``instances``: those among the consumers and those with an open claim on the node, deleted
    ones too. ``migrations``: those among the consumers, and every one of these instances, ended ones too. ``claims``: the
    open ones of the node. ``unreadable``: consumers of which there is a record that makes no sense.
    """

    host: str
    instances: Mapping[ConsumerUuid, Instance] = field(default_factory=dict)
    migrations: Mapping[ConsumerUuid, Migration] = field(default_factory=dict)
    claims: Collection[Claim] = ()
    unreadable: frozenset[ConsumerUuid] = frozenset()


class ConsumerBook(Protocol):
    """The records, as an audit asks them who a consumer is."""

    def needed(self, node: ProviderUuid, *, purging: bool) -> bool:
        """Whether the node's allocations are worth reading: it has instances, open claims or migrations in progress.

        ``purging``: also if it has none, because unknown consumers are to be removed. Never in the pass that made the
        node's record, because nobody can have told of its guests yet.
        """

    def records(self, node: ProviderUuid, consumers: Collection[ConsumerUuid]) -> ConsumerRecords:
        """What is known of ``consumers`` and of those who were promised something on the node, in one reading.

        :raises StoreError: the records cannot be read.
        """
