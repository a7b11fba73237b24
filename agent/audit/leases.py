"""The leases of a fleet: on each of its nodes, and on all nodes of a driver that others see too."""

from collections.abc import Iterable

from agent.audit.context import AuditContext
from agent.driver.interface import MarksNodes, NeedsLease
from agent.model.names import ProviderUuid


class FleetLeases:
    """Takes, renews and hands over the leases of one fleet."""

    def __init__(self, context: AuditContext) -> None:
        self._records = context.records
        # Checked once, because isinstance() on a Protocol takes as long as some audits.
        self._keeps_all = isinstance(context.driver, MarksNodes)
        self.shared = context.driver if isinstance(context.driver, NeedsLease) else None
        """The driver, if other agents see its nodes too; None otherwise."""

    def hold(self, *, dry_run: bool) -> bool:
        """Take or renew the lease on all nodes, or in a dry run check that it is free. Return
        whether another agent may have had the nodes meanwhile.

        :raises StandingBy: another agent manages them.
        """
        return self.shared is not None and not self._records.shared_lease.hold(
            self.shared.lease(), dry_run=dry_run
        )

    def keep(self, nodes: Iterable[str]) -> None:
        """Keep the leases on the nodes that will not be audited, and release those of nodes that
        left.
        """
        if self._keeps_all or self._records.node_leases.has_inherited:
            self._records.node_leases.keep([ProviderUuid(uuid) for uuid in nodes])

    def renew(self) -> None:
        """Renew the leases on the nodes while no audit does.

        :raises StandingBy: another agent has them.
        :raises StoreError: the store cannot be written.
        """
        self._records.node_leases.renew()
        if self.shared is not None:
            self._records.shared_lease.hold(self.shared.lease())

    def hand_over(self, successor: "FleetLeases | None") -> None:
        """Leave the leases to those of the fleet that replaces this one on the same host, so that
        no other agent takes them in between.

        ``successor`` None: that fleet cannot be started yet. The leases stay as they are and expire
        if it never comes.
        """
        leases, shared = self._records.node_leases, self._records.shared_lease
        leases.hand_over(successor._records.node_leases if successor is not None else None)
        if successor is None:
            shared.leave()
        elif successor.shared is not None:
            shared.leave(successor.shared.lease())
