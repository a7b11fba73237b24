"""A store of records that breaks at a chosen moment of a transaction."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Literal

from agent.errors import StoreError
from agent.model.names import ProviderUuid
from agent.model.node_records import RecordChanges
from agent.store.reading import RecordReader
from agent.store.records import Records, Transaction
from tests.support.tracking import Host

Moment = Literal["begin", "write", "second-device", "commit", "answer"]
"""Before anything; before anything is written; when only one of the devices is; before all is durable; after it."""


class BrokenRecords(Records):
    """Sound until :meth:`break_at`."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.moment: Moment | None = None

    def break_at(self, moment: Moment, happens: Callable[[], object]) -> None:
        """At this moment of the next transaction that comes so far ``happens`` is called, once; it
        may raise.
        """
        self.moment, self._happens = moment, happens

    def reading(self) -> AbstractContextManager[RecordReader]:
        return self._records.reading()

    @contextmanager
    def transaction(self, nodes: Collection[ProviderUuid]) -> Iterator[Transaction]:
        self.meet("begin")
        with self._records.transaction(nodes) as real:
            yield _BrokenTransaction(real, self)  # type: ignore[misc]
            self.meet("commit")
        self.meet("answer")

    def meet(self, moment: Moment) -> None:
        if moment == self.moment:
            self.moment = None
            self._happens()


class _BrokenTransaction:
    def __init__(self, real: Transaction, records: BrokenRecords) -> None:
        self._real, self._records = real, records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def write(self, changes: RecordChanges) -> None:
        self._records.meet("write")
        if self._records.moment == "second-device" and len(changes.devices) > 1:
            self._real.write(replace(changes, devices=changes.devices[:1]))
        self._records.meet("second-device")
        self._real.write(changes)


def breakable(host: Host) -> BrokenRecords:
    """Start the host's agent anew, on a store that can be broken."""
    records = host.records = BrokenRecords(host.records)
    host.restart()
    host.audit(start=True)
    return records


def fail() -> None:
    """What a store does that cannot write."""
    raise StoreError("the disk is full", "make room")
