"""Who the consumers of a node's allocations are, as the records say."""

from collections.abc import Collection, Mapping

from agent.model.names import ConsumerUuid, ProviderUuid
from agent.tracker.consumer_book import ConsumerRecords
from agent.tracker.record_store import RecordStore
from agent.tracker.slot import Slot


class Book:
    """Reads the records of nodes that were audited. ``host``: this host's name."""

    def __init__(self, records: RecordStore, slots: Mapping[ProviderUuid, Slot], host: str) -> None:
        self._records, self._slots, self._host = records, slots, host

    def needed(self, node: ProviderUuid, *, purging: bool) -> bool:
        """Whether the node's allocations are worth reading, see :class:`~agent.tracker.consumer_book.ConsumerBook`."""
        slot = self._slots.get(node)
        if slot is None or slot.state is None or slot.created:
            return False
        return purging or bool(slot.state.claims or slot.state.instances or slot.state.migrations)

    def records(self, node: ProviderUuid, consumers: Collection[ConsumerUuid]) -> ConsumerRecords:
        """What is known of ``consumers`` and of those who were promised something on the node, in one reading.

        :raises StoreError: the records cannot be read.
        """
        with self._records.reading() as reading:
            here = reading.load(node)
            claims = here.claims if here is not None else ()
            who = {*consumers, *(one.instance for one in claims)}
            found = reading.consumers(who)
        return ConsumerRecords(
            host=self._host,
            instances=found.instances,
            migrations=found.migrations,
            claims=claims,
            unreadable=found.unreadable,
        )
