"""Which nodes that the driver no longer lists were deleted."""

import logging
import time
from collections.abc import Container, Mapping

from agent.audit.context import AuditContext
from agent.driver.interface import MarksNodes
from agent.errors import AgentError, DriverError
from agent.model.names import ProviderUuid, printable
from agent.placement.answers import Row

LOG = logging.getLogger(__name__)

# Seconds after which the driver is asked again about a node that it no longer lists and did not
# delete, in case it is deleted elsewhere meanwhile.
ASK_AGAIN = 600.0


class DeletedNodes:
    """Asks the driver about nodes that it no longer lists, and remembers those not deleted."""

    def __init__(self, context: AuditContext) -> None:
        self._context = context
        self._remembers = isinstance(context.driver, MarksNodes)
        # When the driver last said of a node that is no longer managed here that it is not deleted;
        # in seconds of the monotonic clock.
        self._elsewhere: dict[ProviderUuid, float] = {}

    def find(
        self,
        listed: Container[str],
        rows: Mapping[ProviderUuid, Row],
        errors: list[AgentError],
    ) -> dict[str, str]:
        """Return the names, by uuid, of the roots in ``rows`` that are ours, that are not
        ``listed``, and of which the driver says that they are deleted.

        Only an explicit answer counts, because a missing node may have moved to another agent. With
        a driver that marks its nodes, "not deleted" is remembered for a while. A failed call is
        added to ``errors``, and ends the questions of this pass.
        """
        deleted, now = {}, time.monotonic()
        missing = {uuid: row for uuid, row in rows.items() if uuid not in listed}
        self._elsewhere = {
            uuid: at
            for uuid, at in self._elsewhere.items()
            if uuid in missing and now - at < ASK_AGAIN
        }
        for uuid, row in missing.items():
            if uuid in self._elsewhere or not self._is_ours(uuid):
                continue
            try:
                answer = self._is_deleted(row.name)
            except DriverError as error:
                errors.append(error)
                break
            if answer:
                deleted[str(uuid)] = row.name
                continue
            if self._remembers:
                self._elsewhere[uuid] = now
            LOG.info(
                "node %s is not managed here any more, but it is not deleted either; its providers "
                "stay",
                printable(row.name),
            )
        return deleted

    def _is_ours(self, root: ProviderUuid) -> bool:
        return self._context.server.storage.journal(root).owns(root)

    def _is_deleted(self, name: str) -> bool:
        context = self._context
        return context.worker.call(
            context.driver.is_node_deleted, name, deadline=context.facts_deadline, node=name
        )

    def forget(self) -> None:
        """Forget the answers, because another agent may have managed the nodes meanwhile."""
        self._elsewhere.clear()
