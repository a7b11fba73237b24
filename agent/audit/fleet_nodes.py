"""The nodes of a fleet: the leases on them, those that were deleted, and the new ones of a pass.
Each of these stops once it is planned: many write their inventories in one request, and what the
store keeps of them in one transaction.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import cast

from agent.audit.context import AuditContext
from agent.audit.flushing import Steps
from agent.driver.interface import MarksNodes, NeedsLease
from agent.errors import AgentError, DriverError
from agent.http.bounded import LastCalls
from agent.model.finding import Problem
from agent.model.names import ProviderUuid, name_first, printable
from agent.model.report import NodeReport
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.flush import Flush, write_together
from agent.placement.server import PlacementStorage

LOG = logging.getLogger(__name__)


class FleetLeases:
    """Takes, renews and hands over the leases of one fleet."""

    def __init__(self, context: AuditContext) -> None:
        self._tracking = context.tracking
        # Checked once, because isinstance() on a Protocol takes as long as some audits.
        self._keeps_all = isinstance(context.driver, MarksNodes)
        needed = isinstance(context.driver, NeedsLease) and not context.observes
        self.shared = cast(NeedsLease, context.driver) if needed else None
        """The driver, if other agents see its nodes too; None otherwise, and in an agent that only
        observes, which must not keep another one from managing them.
        """

    def take(self, *, dry_run: bool) -> bool:
        """Take or renew the lease on all nodes, or in a dry run check that it is free. Return
        whether another agent may have had the nodes meanwhile.

        :raises StandingBy: another agent manages them.
        """
        return self.shared is not None and not self._tracking.shared_lease.hold(
            self.shared.lease(), dry_run=dry_run
        )

    def keep(self, nodes: Iterable[str]) -> None:
        """Keep the leases on the nodes that will not be audited, and release those of nodes that
        left.
        """
        if self._keeps_all or self._tracking.node_leases.has_inherited:
            self._tracking.node_leases.keep([ProviderUuid(uuid) for uuid in nodes])

    def renew(self) -> None:
        """Renew the leases on the nodes while no audit does.

        :raises StandingBy: another agent has them.
        :raises StoreError: the store cannot be written.
        """
        self._tracking.node_leases.renew()
        if self.shared is not None:
            self._tracking.shared_lease.hold(self.shared.lease())

    def hand_over(self, successor: "FleetLeases | None") -> None:
        """Leave the leases to those of the fleet that replaces this one on the same host, so that
        no other agent takes them in between.

        ``successor`` None: that fleet cannot be started yet. The leases stay as they are and expire
        if it never comes.
        """
        leases, shared = self._tracking.node_leases, self._tracking.shared_lease
        leases.hand_over(successor._tracking.node_leases if successor is not None else None)
        if successor is None:
            shared.leave()
        elif successor.shared is not None:
            shared.leave(successor.shared.lease())


# Seconds after which the driver is asked again about a node that it no longer lists and did not
# delete, in case it is deleted elsewhere meanwhile.
ASK_AGAIN = 600.0
# How many nodes may be deleted at once: this many, or this part of all. An account that lost its
# role sees no node, and is told of each that it does not exist.
MOST_DELETED, PART_DELETED = 3, 0.1


class DeletedNodes:
    """Asks the driver about nodes that it no longer lists, and remembers those not deleted.

    Where the driver says of more nodes than can be believed that they are deleted, none is.
    """

    def __init__(self, context: AuditContext, driver_name: str) -> None:
        self._context, self._driver_name = context, driver_name
        self._remembers = isinstance(context.driver, MarksNodes)
        # When the driver last said of a node that is no longer managed here that it is not deleted;
        # in seconds of the monotonic clock.
        self._elsewhere: dict[ProviderUuid, float] = {}
        # When it said that they are deleted of too many nodes to be believed.
        self._doubted: dict[ProviderUuid, float] = {}

    def find(
        self,
        listed: Collection[str],
        rows: Mapping[ProviderUuid, Row],
        errors: list[AgentError],
        *,
        believe: bool,
    ) -> dict[str, str]:
        """Return the names, by uuid, of the roots in ``rows`` that are ours, that are not
        ``listed``, and of which the driver says that they are deleted.

        Only an explicit answer counts, because a missing node may have moved to another agent. With
        a driver that marks its nodes, "not deleted" is remembered for a while. A failed call is
        added to ``errors``, and ends the questions of this pass.

        Of several nodes that are all missing, or of more than ``MOST_DELETED`` that are also more
        than ``PART_DELETED`` of all, the answer counts only with ``believe``.
        """
        deleted, now = {}, time.monotonic()
        context, storage = self._context, self._context.server.storage
        missing = {
            uuid: row
            for uuid, row in rows.items()
            if uuid not in listed and storage.journal(uuid).owns(uuid)
        }
        self._elsewhere = _recent(self._elsewhere, missing, now)
        self._doubted = _recent(self._doubted, missing, now)
        most = max(MOST_DELETED, len(rows) * PART_DELETED) if listed else 1
        if believe:
            most = len(missing)
        if len(self._doubted) > most:
            errors.append(self._not_believed(missing, len(rows)))
            return {}
        for uuid, row in missing.items():
            if uuid in self._elsewhere:
                continue
            try:
                answer = context.worker.call(
                    context.driver.is_node_deleted,
                    row.name,
                    deadline=context.facts_deadline,
                    node=row.name,
                )
            except DriverError as error:
                errors.append(error)
                break
            if answer:
                deleted[str(uuid)] = row.name
                if len(deleted) > most:
                    self._doubted = dict.fromkeys(map(ProviderUuid, deleted), now)
                    errors.append(self._not_believed(missing, len(rows)))
                    return {}
                continue
            if self._remembers:
                self._elsewhere[uuid] = now
            LOG.info(
                "node %s is not managed here any more, but it is not deleted either; its providers "
                "stay",
                printable(row.name),
            )
        return deleted

    def _not_believed(self, missing: Mapping[ProviderUuid, Row], count: int) -> DriverError:
        names = sorted(printable(row.name) for row in missing.values())
        return DriverError(
            f"the driver {self._driver_name} no longer lists {len(missing)} of the {count} that "
            "it had, and says that they are deleted: so many at once are not believed, and all "
            f"of them stay: {name_first(names)}",
            "check that the driver's account may still list the nodes, and with the account of "
            "another administrator whether they are there"
            + (": openstack baremetal node list" if self._driver_name == "ironic" else "")
            + "; if they are deleted, stop the agent, and see what others gave them and would be "
            "lost: agent --once --remove-deleted --dry-run; then: agent --once --remove-deleted",
        )

    def forget(self) -> None:
        """Forget the answers, because another agent may have managed the nodes meanwhile."""
        self._elsewhere.clear()
        self._doubted.clear()


def _recent(
    answers: Mapping[ProviderUuid, float], missing: Container[ProviderUuid], now: float
) -> dict[ProviderUuid, float]:
    """Return the answers about nodes that are still ``missing`` and that need not be asked about
    again.
    """
    return {uuid: at for uuid, at in answers.items() if uuid in missing and now - at < ASK_AGAIN}


MANY = 50


class AuditSteps:
    """One audit in its steps: ``flush`` is what it stopped before, ``report`` its result.

    ``forget`` drops what the process remembers of the node's tree.
    """

    def __init__(self, steps: Steps[NodeReport], forget: Callable[[], None]) -> None:
        self._steps, self._forget = steps, forget
        self.flush: Flush | None = None
        self.report: NodeReport | None = None

    def go_on(self) -> None:
        """Do the next step, if one is left."""
        if self.report is None:
            self._advance(lambda: next(self._steps))

    def end_failed(self, error: AgentError) -> None:
        """Do all steps that are left after the last one came to nothing."""
        if self.report is None:
            self._advance(lambda: self._steps.throw(error))
        self.end()

    def end_unsaved(self, error: AgentError) -> None:
        """Do all steps that are left, and report that the store could not take what was written.
        The next audit reads it anew.
        """
        self._forget()
        report = self.end()
        problem = Problem(error.code, error.message, error.remedy, error.fatal)
        self.report = replace(report, state="degraded", errors=(*report.errors, problem))

    def _advance(self, advance: Callable[[], Flush | None]) -> None:
        try:
            self.flush = advance()
        except StopIteration as end:
            self.flush, self.report = None, end.value

    def end(self) -> NodeReport:
        """Do all steps that are left."""
        while self.report is None:
            self.go_on()
        return self.report


class NewNodes:
    """Audits of new nodes that wait until there are ``MANY``. Threads share it."""

    def __init__(
        self, client: PlacementClient, storage: PlacementStorage, may_write: Callable[[], None]
    ) -> None:
        """Begin with none. ``may_write`` raises an error if this agent must not write any more."""
        self._client, self._storage, self._may_write = client, storage, may_write
        self._lock = threading.Lock()
        self._waiting: list[AuditSteps] = []
        self._closed = False

    def add(self, audit: AuditSteps) -> None:
        """Have the audit wait, or end it together with those that wait."""
        with self._lock:
            self._waiting.append(audit)
            ready = self._take() if self._closed or len(self._waiting) == MANY else []
        self._end(ready)

    def close(self) -> None:
        """End the audits that wait. Others that come do not wait."""
        with self._lock:
            self._closed, ready = True, self._take()
        self._end(ready)

    def _take(self) -> list[AuditSteps]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _end(self, audits: list[AuditSteps]) -> None:
        if audits:
            self._may_write()
            with LastCalls.apart():
                self._write(audits)

    def _write(self, audits: list[AuditSteps]) -> None:
        each = self._client.exchange.each
        try:
            with self._storage.together():
                for audit in audits:
                    audit.go_on()
        except AgentError as error:
            each(partial(AuditSteps.end_failed, error=error), audits)
            return
        each(AuditSteps.go_on, audits)
        write_together(self._client, [one.flush for one in audits if one.flush is not None])
        each(AuditSteps.go_on, audits)
        # The others may have more to send, which is not to wait for the transaction.
        whole = [one for one in audits if one.flush is not None and one.flush.result.complete]
        try:
            with self._storage.together():
                for audit in whole:
                    audit.go_on()
        except AgentError as error:
            for audit in whole:
                audit.end_unsaved(error)
        each(AuditSteps.end, audits)
