"""All nodes of one driver: list them, audit several at a time, and report them together."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from agent.audit.node_audit import AuditContext, NodeAudit
from agent.audit.run import AuditedNode, AuditOptions
from agent.audit.unchanged_nodes import UnchangedNodes
from agent.driver.answers import chosen_nodes, managed_nodes
from agent.driver.interface import LooksAtInstances, MarksNodes, NeedsLease
from agent.errors import AgentBug, AgentError, DriverError, PlacementError, StandingBy, StoreError
from agent.model.names import ProviderUuid, printable
from agent.model.report import METHODS, NodeReport, Problem, Report
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.server import Server
from agent.tracker.errors import NodeHeldElsewhere
from agent.tracker.usage_step import UsageStep
from agent.tree.root_traits import agent_trait
from agent.version import agent_version

LOG = logging.getLogger(__name__)

# Seconds after which the backend is asked again about a node that it no longer lists and did not
# delete, in case it is deleted elsewhere meanwhile.
ASK_AGAIN = 600.0

Progress = Callable[[int], Callable[[str], None]]
"""Takes the number of nodes to audit; returns a function that is called with the name of each node
done.
"""


class Fleet:
    """The nodes of a process, each with its audit state."""

    def __init__(
        self,
        context: AuditContext,
        driver_name: str,
        host: str,
        workers: int,
        *,
        provisional: bool = False,
        notice: str = "",
        full_audit_interval: float = 600,
    ) -> None:
        self.context = context
        self._driver_name, self._host, self._workers = driver_name, host, workers
        self._provisional, self._notice = provisional, notice
        self._audits: dict[str, NodeAudit] = {}
        self._settled = UnchangedNodes(full_audit_interval)
        # When the backend last said of a node that is no longer managed here that it is not
        # deleted; in seconds of the monotonic clock, by uuid.
        self._elsewhere: dict[str, float] = {}
        # Checked once, because isinstance() on a Protocol takes as long as some audits.
        self._marks = context.driver if isinstance(context.driver, MarksNodes) else None
        self._leased = context.driver if isinstance(context.driver, NeedsLease) else None
        if isinstance(context.driver, LooksAtInstances) and context.records is not None:
            context.driver.with_instances(context.records.instances)

    def rehearsal(self) -> "Fleet":
        """Return a fleet for dry runs beside this one: its assumed changes stay its own and are not
        saved.
        """
        served = self.context.server
        context = replace(
            self.context,
            server=Server(served.transport, served.backend, served.storage, keep=False),
        )
        return Fleet(
            context,
            self._driver_name,
            self._host,
            self._workers,
            provisional=self._provisional,
            notice=self._notice,
        )

    def run(
        self,
        mode: AuditOptions,
        names: Sequence[str] = (),
        progress: Progress | None = None,
        *,
        refresh: bool = True,
    ) -> Report:
        """Audit every node, or those whose names match ``names`` or whose uuids are in ``names``.
        Never raises an :class:`AgentError`.

        If the driver marks its nodes, unchanged nodes are audited only from time to time, unless
        they are named. ``refresh`` False: the backend's last list of nodes is used.
        """
        begun = time.monotonic()
        client = self.context.server.client()
        errors: list[AgentError] = []
        nodes: Sequence[NodeReport] = ()
        try:
            # Only checked, because an agent that cannot list the nodes must not keep other agents
            # from managing them.
            self._hold(dry_run=True)
            nodes = self._pass(
                client,
                mode,
                names,
                progress or (lambda _count: lambda _name: None),
                errors,
                refresh=refresh,
            )
        except StandingBy as error:
            self._forget()
            if self.context.records is not None and not mode.dry_run:
                self.context.records.usage_step.set_listed_nodes(())
            errors.append(error)
        except AgentError as error:
            errors.append(error)
        except Exception as error:
            # A bug outside of any node's audit must not end the daemon.
            LOG.exception("a pass over all nodes")
            errors.append(AgentBug.of(error))
        server, counts = self.context.server, client.exchange.counts
        known = server.capabilities
        return Report(
            version=agent_version(),
            host=self._host,
            mode=server.backend,
            endpoint=known.endpoint if known else None,
            max_version=known.max_version if known else None,
            dry_run=mode.dry_run,
            nodes=nodes,
            requests={method: counts.get(method, 0) for method in METHODS},
            errors=tuple(Problem(one.code, one.message, one.remedy, one.fatal) for one in errors),
            seconds=time.monotonic() - begun,
            notice=self._notice,
        )

    def _pass(
        self,
        client: PlacementClient,
        mode: AuditOptions,
        names: Sequence[str],
        progress: Progress,
        errors: list[AgentError],
        *,
        refresh: bool,
    ) -> Sequence[NodeReport]:
        """Return the reports of one run: of the nodes audited, of those unchanged, and of those
        deleted.

        :raises AgentError: no node can be reported.
        """
        context = self.context
        found = managed_nodes(
            context.driver,
            context.worker,
            self._driver_name,
            context.nodes_deadline,
            refresh=refresh,
        )
        self._hold(dry_run=mode.dry_run)
        chosen, unknown = chosen_nodes(found, names, self._driver_name)
        errors += unknown
        rows = self._rows(client, mode, found, chosen)
        gone = {} if names else self._gone(found, rows or {}, errors)
        self._keep(found, mode)
        settled = {} if names else self._as_they_were(chosen, mode, rows)
        due = {uuid: name for uuid, name in chosen.items() if uuid not in settled}
        count = progress(len(due) + len(gone))
        audited = iter(self._audit_all(due, mode, rows, count))
        nodes = [settled[uuid] if uuid in settled else next(audited) for uuid in chosen]
        nodes += self._audit_all(gone, mode, rows, count, gone=True)
        if context.records is not None and not mode.dry_run:
            # After the audits, because ended records may prove until then whose leaked allocations
            # these are.
            self._tidy(context.records.usage_step)
        if not names:
            self._tell_absent(found, nodes)
        return tuple(nodes)

    @staticmethod
    def _tidy(usage_step: UsageStep) -> None:
        """Remove records that ended long ago. A failure is logged, because the nodes' reports must
        still be returned; the next pass tries again.
        """
        failure = ""
        try:
            usage_step.remove_ended_records()
        except StoreError as error:
            failure = str(error)
        if failure:
            LOG.warning("records of what has ended long ago were not removed: %s", failure)

    def _hold(self, *, dry_run: bool) -> None:
        """Take or renew the lease, or in a dry run check that it is free, if other agents see the
        driver's nodes too.

        :raises StandingBy: another agent manages them.
        """
        leases = self.context.records.shared_lease if self.context.records is not None else None
        if (
            self._leased is not None
            and leases is not None
            and not leases.hold(self._leased.lease(), dry_run=dry_run)
        ):
            self._forget()

    def _forget(self) -> None:
        """Forget everything that is remembered of the nodes, because another agent may have managed
        them meanwhile.
        """
        self._audits.clear()
        self._settled.keep(())
        self._elsewhere.clear()

    def _keep(self, found: Mapping[str, str], mode: AuditOptions) -> None:
        """Keep the leases on the nodes that will not be audited, and release those of nodes that
        left.
        """
        records = self.context.records
        if (
            records is not None
            and not mode.dry_run
            and (self._marks is not None or records.node_leases.has_inherited)
        ):
            records.node_leases.keep([ProviderUuid(uuid) for uuid in found])

    def keep_leases(self) -> None:
        """Renew the leases on the nodes while no audit does.

        :raises StandingBy: another agent has them.
        :raises StoreError: the store cannot be written.
        """
        records = self.context.records
        if records is not None:
            records.node_leases.renew()
            if self._leased is not None:
                records.shared_lease.hold(self._leased.lease())

    def hand_over(self, successor: "Fleet | None") -> None:
        """Leave the leases to the fleet that replaces this one on the same host, so that no other
        agent takes them in between.

        ``successor`` None: it cannot be started yet. The leases stay as they are and expire if it
        never comes.
        """
        mine, its = (
            self.context.records,
            successor.context.records if successor is not None else None,
        )
        if mine is None:
            return
        mine.node_leases.hand_over(its.node_leases if its is not None else None)
        if successor is None:
            mine.shared_lease.leave()
        elif successor._leased is not None:
            mine.shared_lease.leave(successor._leased.lease())

    def _as_they_were(
        self, chosen: Mapping[str, str], mode: AuditOptions, rows: Mapping[ProviderUuid, Row] | None
    ) -> dict[str, NodeReport]:
        """Return the reports of the nodes for which neither the driver nor Placement shows a
        change.
        """
        if self._marks is None:
            return {}
        self._settled.keep(chosen)
        for uuid in self._audits.keys() - chosen.keys():
            del self._audits[uuid]
        if rows is None or mode.reread or mode.with_usages or mode.adopt:
            return {}
        found, waiting = (
            {},
            self.context.records.usage_step.unpublished_nodes()
            if self.context.records is not None
            else frozenset(),
        )
        for uuid, name in chosen.items():
            report = (
                self._settled.report(uuid, self._marks.mark(name)) if uuid not in waiting else None
            )
            if report is not None and self._audits[uuid].unmoved(rows.get(ProviderUuid(uuid))):
                found[uuid] = report
        return found

    def _tell_absent(self, found: Mapping[str, str], nodes: Sequence[NodeReport]) -> None:
        """Report providers that the operator's files name and no node has. Nothing is reported
        until every node was seen, because an unseen node may have them.
        """
        sighted = [self._audit_of(uuid, name).sighted for uuid, name in found.items()]
        known = [keys for keys in sighted if keys is not None]
        if len(known) == len(sighted):
            names = {provider.name for node in nodes for provider in node.tree.providers()}
            self.context.absences.warn(
                self.context.provider_config, frozenset().union(*known), names
            )

    def _rows(
        self,
        client: PlacementClient,
        mode: AuditOptions,
        found: Mapping[str, str],
        chosen: Mapping[str, str],
    ) -> Mapping[ProviderUuid, Row] | None:
        """Return the roots that one request lists for many nodes. If Placement is unavailable, the
        nodes are still counted.

        :raises PlacementError: Placement is unavailable; found out here, so that it costs one
            request and is reported once.
        """
        if self.context.records is not None and not mode.dry_run:
            self.context.records.usage_step.set_listed_nodes([ProviderUuid(uuid) for uuid in found])
        try:
            self.context.server.connect(client, ask=mode.reread)
            return self._listed(client, found, chosen)
        except PlacementError:
            for uuid, name in chosen.items():
                self._audit_of(uuid, name).count(mode)
            raise

    def _listed(
        self, client: PlacementClient, found: Mapping[str, str], chosen: Mapping[str, str]
    ) -> Mapping[ProviderUuid, Row] | None:
        """Return all roots that carry this agent's mark, in one request; None where the node's own
        tree says as much.

        Needed for several nodes, and for a single one if the store has others that the driver no
        longer lists.
        """
        if len(chosen) == 1 < len(found):
            return None
        if len(found) == 1 and not self.context.server.storage.roots(self._host) - found.keys():
            return None
        return {
            row.uuid: row for row in client.providers_with_trait(agent_trait(self.context.agent))
        }

    def _gone(
        self, found: Mapping[str, str], rows: Mapping[ProviderUuid, Row], errors: list[AgentError]
    ) -> Mapping[str, str]:
        """Return the roots that are ours, that the driver no longer lists, and that its backend
        says are deleted.

        Only an explicit answer counts, because a missing node may have moved to another agent. With
        a driver that marks its nodes, "not deleted" is remembered for a while. A failed call is an
        error, and ends the questions of this pass.
        """
        gone, now, context = {}, time.monotonic(), self.context
        missing = {str(uuid): row for uuid, row in rows.items() if uuid not in found}
        self._elsewhere = {
            uuid: at
            for uuid, at in self._elsewhere.items()
            if uuid in missing and now - at < ASK_AGAIN
        }
        for uuid, row in missing.items():
            if uuid in self._elsewhere or not context.server.storage.journal(row.uuid).owns(
                row.uuid
            ):
                continue
            try:
                deleted = context.worker.call(
                    context.driver.is_node_deleted,
                    row.name,
                    deadline=context.facts_deadline,
                    node=row.name,
                )
            except DriverError as error:
                errors.append(error)
                break
            if deleted:
                gone[uuid] = row.name
            else:
                if self._marks is not None:
                    self._elsewhere[uuid] = now
                LOG.info(
                    (
                        "node %s is not managed here any more, but it is not deleted either; its "
                        "providers stay"
                    ),
                    printable(row.name),
                )
        return gone

    def _audit_all(
        self,
        nodes: Mapping[str, str],
        mode: AuditOptions,
        rows: Mapping[ProviderUuid, Row] | None,
        progress: Callable[[str], None],
        *,
        gone: bool = False,
    ) -> Sequence[NodeReport]:
        """Audit the nodes, the first one alone and the others in parallel; return their reports in
        the same order.
        """
        audits: list[Future[NodeReport]] = []

        def audit(place: int, uuid: str, name: str) -> NodeReport:
            """Audit one node; a bug becomes a failed report."""
            try:
                return audited(place, uuid, name)
            except AgentError:
                raise
            except Exception as error:
                # A bug beside the audit of a node, or in a driver: the other nodes are audited all
                # the same.
                LOG.exception("node %s", printable(name))
                bug = AgentBug.of(error)
                return NodeReport(
                    name,
                    uuid,
                    self._driver_name,
                    "failed",
                    errors=(Problem(bug.code, bug.message, bug.remedy),),
                )

        def audited(place: int, uuid: str, name: str) -> NodeReport:
            """Audit one node, under the lease and with the mark that it has before."""
            # Before each node, because all of them together may take longer than a lease lasts.
            self._hold(dry_run=mode.dry_run)
            one = self._audit_of(uuid, name)
            # Before the audit, so that a change during the audit is seen in the next pass.
            mark = self._marks.mark(name) if self._marks is not None else None
            report = one.run(
                mode,
                None if rows is None else _structure(one, rows),
                gone=gone,
                earlier=lambda: wait(audits[:place]),
            )
            if self._leased is not None:
                # The agent that has the node now releases it once it sees that the node left its
                # partition.
                problems = (
                    replace(problem, fatal=problem.fatal and problem.code != NodeHeldElsewhere.code)
                    for problem in report.errors
                )
                report = replace(report, errors=tuple(problems))
            if gone:
                self._audits.pop(uuid, None)
            elif not mode.dry_run and self._marks is not None:
                self._settled.audited(uuid, mark, report)
            progress(name)
            return report

        items = list(nodes.items())
        # The first node alone, because the others need not ask again for what it learns about
        # Placement.
        first, rest = items[:1], items[1:]
        reports = [audit(0, *item) for item in first]
        if rest:
            with ThreadPoolExecutor(self._workers, thread_name_prefix="audit") as pool:
                for place, item in enumerate(rest):
                    audits.append(pool.submit(audit, place, *item))
        return [*reports, *(one.result() for one in audits)]

    def _audit_of(self, uuid: str, name: str) -> NodeAudit:
        known = self._audits.get(uuid)
        if known is None or known.node.name != name:
            known = self._audits[uuid] = NodeAudit(
                AuditedNode(ProviderUuid(uuid), name, self._driver_name, self._provisional),
                self.context,
            )
        return known


def _structure(one: NodeAudit, rows: Mapping[ProviderUuid, Row]) -> Sequence[Row] | None:
    """Return what the list for all nodes says about one: enough for a known node without children,
    and for a new one.

    None: the node's tree has to be read by itself.
    """
    row, size = rows.get(one.node.uuid), len(one.placement_state.view.tree)
    if row is not None:
        return [row] if size == 1 else None
    return [] if size == 0 else None
