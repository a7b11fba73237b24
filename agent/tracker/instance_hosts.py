"""Whose instances are whose, as drivers that share nodes with other agents need to know it."""

from collections.abc import Collection

from agent.model.names import ConsumerUuid, is_uuid, normal_uuid
from agent.tracker.record_store import RecordStore


class InstanceHosts:
    """What the records know of instances, for ``host``. Threads may share it."""

    def __init__(self, records: RecordStore, host: str) -> None:
        self._records, self._host = records, host

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:
        """Those of ``instances``, by uuid, that are another host's.

        :raises StoreError: the records cannot be read.
        """
        spelled = {ConsumerUuid(normal_uuid(one)): one for one in instances if is_uuid(one)}
        if not spelled:
            return frozenset()
        with self._records.reading() as reading:
            found = reading.consumers(list(spelled)).instances
        return frozenset(spelled[uuid] for uuid, one in found.items() if one.host not in (None, self._host) and not one.removed)

    def nodes(self) -> frozenset[str]:
        """The uuids of the nodes on which this host has instances.

        :raises StoreError: the records cannot be read.
        """
        with self._records.reading() as reading:
            return frozenset(reading.nodes_with_instances(self._host))
