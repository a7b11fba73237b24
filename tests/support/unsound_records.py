"""Records that fail on purpose: a commit that does not come through, a reading that is
out of date.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from agent.errors import StoreError
from agent.model.names import ProviderUuid
from agent.model.node_records import NodeRecords
from agent.store.records import Records, Transaction
from agent.store.store import Store


class UnsoundRecords(Records):
    """``failures``: so many of the next transactions are undone with an error at their end.

    ``outdated``: what the next transactions see of their node instead of what there is, as if it
    changed after they read it.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.failures = 0
        self.outdated: list[NodeRecords] = []

    @contextmanager
    def transaction(self, nodes: Collection[ProviderUuid]) -> Iterator[Transaction]:
        with super().transaction(nodes) as transaction:
            if self.outdated:
                old = self.outdated.pop(0)
                transaction.load = lambda node: old  # type: ignore[method-assign]
            yield transaction
            if self.failures:
                self.failures -= 1
                raise StoreError("the disk is full", "make room")
