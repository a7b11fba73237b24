"""All nodes of one driver: list them, audit several at a time, and report them together.

Jobs run one after the other as long as they compute, on more threads as soon as they wait: threads
of one process share one interpreter lock. Jobs that wait for a server gain from more threads; jobs
that only compute lose by them, because each change of threads costs time.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TypeVar

from agent.audit.context import AuditContext, AuditedNode, AuditOptions, AuditOrder
from agent.audit.fleet_nodes import AuditSteps, DeletedNodes, FleetLeases, NewNodes
from agent.audit.flushing import Steps
from agent.audit.node_audit import NodeAudit
from agent.driver.answers import chosen_nodes, managed_nodes
from agent.driver.interface import LooksAtInstances, MarksNodes
from agent.errors import AgentBug, AgentError, PlacementError, StandingBy, StoreError
from agent.http.bounded import LastCalls
from agent.model.finding import WELL, Problem
from agent.model.names import ProviderUuid, printable
from agent.model.report import METHODS, LastFound, NodeReport, Report, last_found
from agent.placement import clock
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.server import Server
from agent.tracker.errors import NodeHeldElsewhere
from agent.tracker.node_state import NodeState
from agent.tree.desired_tree import agent_trait
from agent.version import agent_version

T = TypeVar("T")

# In seconds: how often it is decided whether one more thread would help.
LOOK = 0.02
# The part of the time in which a process that only computes uses a CPU, at least.
BUSY = 0.5
# In seconds: how long new nodes wait for the last audits, so that one request serves them all.
PATIENCE = 5.0
# Divisor that spreads the full audits: the first four hex digits of a node's uuid give a fraction
# below 0.5 of the interval, added to the first half of it.
SPREAD = 131072


def results_side_by_side(jobs: Iterable[Callable[[], T]], most: int, name: str) -> list[T]:
    """Run ``jobs`` in their order on at most ``most`` threads, called ``name`` with a number.
    Return their results in the same order.

    The first exception of a job is raised after all jobs have ended.
    """
    waiting = deque((job, Future[T]()) for job in jobs)
    futures = [future for _, future in waiting]
    ended = Event()
    with ThreadPoolExecutor(most, thread_name_prefix=name) as pool:
        pool.submit(_work, waiting, ended)
        threads = 1
        while waiting and threads < most:
            left, wall, cpu = len(waiting), time.monotonic(), time.process_time()
            ended.wait(LOOK)
            computed = time.process_time() - cpu >= BUSY * (time.monotonic() - wall)
            if waiting and not (computed and len(waiting) < left):
                # Without another thread, those that there are do it all.
                with suppress(RuntimeError):
                    pool.submit(_work, waiting, ended)
                threads += 1
    return [future.result() for future in futures]


def _work(waiting: deque[tuple[Callable[[], T], Future[T]]], ended: Event) -> None:
    """Run waiting jobs until none is left."""
    while True:
        try:
            job, future = waiting.popleft()
        except IndexError:
            ended.set()
            return
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - raised again with the results
            future.set_exception(error)


LOG = logging.getLogger(__name__)

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
        notice: str = "",
        full_audit_interval: float = 600,
    ) -> None:
        self.context = context
        self._driver_name, self._host, self._workers = driver_name, host, workers
        self._notice = notice
        self._audits: dict[str, NodeAudit] = {}
        # The nodes of which the store had nothing when the pass began.
        self._unsaved: Collection[str] = ()
        # The only node of which the store has something; this agent alone adds others.
        self._alone = frozenset[str]()
        self._full_audit_interval = full_audit_interval
        # What the store has of earlier audits, by node; None before it was asked.
        self._found: dict[str, LastFound] | None = None
        self._deleted, self.leases = DeletedNodes(context, driver_name), FleetLeases(context)
        # Checked once, because isinstance() on a Protocol takes as long as some audits.
        self._marks = context.driver if isinstance(context.driver, MarksNodes) else None
        if isinstance(context.driver, LooksAtInstances):
            context.driver.with_instances(context.tracking.instances)

    def dry_run_fleet(self) -> "Fleet":
        """Return a fleet for dry runs beside this one: its assumed changes stay its own and are not
        saved.
        """
        served = self.context.server
        context = replace(
            self.context,
            server=Server(served.transport, served.backend, served.storage, keep=False),
            order=AuditOrder(),
        )
        return Fleet(
            context,
            self._driver_name,
            self._host,
            self._workers,
            notice=self._notice,
        )

    def states(self) -> Mapping[str, NodeState]:
        """Return the records and the capacity of each node, by uuid, as its last audit counted
        them, in a dry run too. Nodes that could not be counted are left out.
        """
        return {
            uuid: audit.records.state
            for uuid, audit in self._audits.items()
            if audit.records is not None
        }

    def run(
        self,
        options: AuditOptions,
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
            self._take_leases(dry_run=True)
            nodes = self._pass(
                client,
                options,
                names,
                progress or (lambda _count: lambda _name: None),
                errors,
                refresh=refresh,
            )
        except StandingBy as error:
            self._forget()
            if not options.dry_run:
                self.context.tracking.usage_step.set_listed_nodes(())
            errors.append(error)
        except AgentError as error:
            errors.append(error)
            if not (options.dry_run or names):
                self._save_failure(error)
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
            dry_run=options.dry_run,
            nodes=nodes,
            requests={method: counts.get(method, 0) for method in METHODS},
            errors=tuple(
                Problem(error.code, error.message, error.remedy, error.fatal) for error in errors
            ),
            seconds=time.monotonic() - begun,
            notice=self._notice,
            observes=self.context.observes,
        )

    def _pass(
        self,
        client: PlacementClient,
        options: AuditOptions,
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
        self._take_leases(dry_run=options.dry_run)
        chosen, unknown = chosen_nodes(found, names, self._driver_name)
        errors += unknown
        rows = self._rows(client, options, found, chosen)
        if rows is not None:
            options = replace(options, on_mirror=False)
        deleted = {}
        if rows is not None and not (names or context.observes):
            deleted = self._deleted.find(found, rows, errors, believe=options.remove_deleted)
        if not options.dry_run:
            self.leases.keep(found)
        unchanged = {} if names else self._unchanged_reports(chosen, options, rows)
        due = {uuid: name for uuid, name in chosen.items() if uuid not in unchanged}
        count = progress(len(due) + len(deleted))
        audited = iter(self._audit_all(client, due, options, rows, count))
        nodes = [unchanged[uuid] if uuid in unchanged else next(audited) for uuid in chosen]
        nodes += self._audit_all(client, deleted, options, rows, count, deleted=True)
        if not options.dry_run:
            # After the audits, because ended records may prove until then whose leaked allocations
            # these are. A failure does not keep the nodes' reports back; the next pass tries again.
            try:
                context.tracking.usage_step.remove_ended_records()
            except StoreError as error:
                LOG.warning("records of what has ended long ago were not removed: %s", error)
            left = [node for node in nodes if node.uuid in chosen or node.state not in WELL]
            self._save_found(left, whole=not (names or errors))
        if not names:
            self._tell_absent(found, nodes)
        return tuple(nodes)

    def _save_found(self, nodes: Sequence[NodeReport], *, whole: bool) -> None:
        """Save what was found where it is not what the audits before found. A failure is logged,
        because the nodes' reports must still be returned; the next pass tries again. ``whole``: the
        host has no other nodes.
        """
        now = clock.now()

        def found(before: Mapping[str, LastFound]) -> dict[str, LastFound]:
            return {
                node.uuid: last_found(node, self._host, before.get(node.uuid), now)
                for node in nodes
            }

        self._save(found, whole=whole)

    def _save_failure(self, error: AgentError) -> None:
        """Save for each node that the pass failed, because what was found before may be otherwise
        by now.
        """
        problem, now = Problem(error.code, error.message, error.remedy, error.fatal), clock.now()

        def failed(before: Mapping[str, LastFound]) -> dict[str, LastFound]:
            return {
                uuid: found
                if found.errors == (problem,)
                else replace(found, state="failed", errors=(problem,), found_at=now)
                for uuid, found in before.items()
            }

        self._save(failed, whole=False)

    def _save(
        self, find: Callable[[Mapping[str, LastFound]], dict[str, LastFound]], *, whole: bool
    ) -> None:
        storage = self.context.server.storage
        try:
            if self._found is None:
                self._found = {found.root: found for found in storage.last_found(self._host)}
            before = self._found
            found = find(before)
            new = [one for uuid, one in found.items() if one is not before.get(uuid)]
            gone = before.keys() - found.keys() if whole else frozenset()
            if new or gone:
                storage.save_found(self._host, new, gone)
                self._found = found if whole else before | found
        except StoreError as error:
            LOG.warning("what the audits found was not saved: %s", error)

    def _take_leases(self, *, dry_run: bool) -> None:
        """Take or renew the lease, or in a dry run check that it is free, if other agents see the
        driver's nodes too.

        :raises StandingBy: another agent manages them.
        """
        if self.leases.take(dry_run=dry_run):
            self._forget()

    def _forget(self) -> None:
        """Forget everything that is remembered of the nodes, because another agent may have managed
        them meanwhile.
        """
        self._audits.clear()
        self._unsaved, self._found = (), None
        self._deleted.forget()

    def _unchanged_reports(
        self,
        chosen: Mapping[str, str],
        options: AuditOptions,
        rows: Mapping[ProviderUuid, Row] | None,
    ) -> dict[str, NodeReport]:
        """Return the reports of the nodes for which neither the driver nor Placement shows a
        change.
        """
        if self._marks is None:
            return {}
        for uuid in self._audits.keys() - chosen.keys():
            del self._audits[uuid]
        unknown = rows is None and not options.on_mirror
        if unknown or options.reread or options.with_usages or options.adopt:
            return {}
        found, now = {}, time.monotonic()
        audited = self._audits.keys() - self.context.tracking.usage_step.unpublished_nodes()
        for uuid in audited & chosen.keys():
            audit = self._audits[uuid]
            report = audit.last_report(self._marks.mark(chosen[uuid]), now)
            if report is not None and (rows is None or audit.unmoved(rows.get(audit.node.uuid))):
                found[uuid] = report
        return found

    def _tell_absent(self, found: Mapping[str, str], nodes: Sequence[NodeReport]) -> None:
        """Report providers that the operator's files name and no node has. Nothing is reported
        until every node was seen, because an unseen node may have them.
        """
        if not self.context.provider_config.entries:
            return
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
        options: AuditOptions,
        found: Mapping[str, str],
        chosen: Mapping[str, str],
    ) -> Mapping[ProviderUuid, Row] | None:
        """Return the roots that one request lists for many nodes; None also where the mirror is to
        suffice. If Placement is unavailable, the nodes are still counted.

        :raises PlacementError: Placement is unavailable; found out here, so that it costs one
            request and is reported once.
        """
        self.context.tracking.consumer_records.begin_pass()
        self._unsaved = ()
        if not options.dry_run:
            usage_step = self.context.tracking.usage_step
            usage_step.set_listed_nodes([ProviderUuid(uuid) for uuid in found])
            self._unsaved = usage_step.read_versions([ProviderUuid(uuid) for uuid in chosen])
        try:
            self.context.server.connect(client, ask=options.reread)
            if options.on_mirror and all(
                self._audit_of(uuid, name).placement_state.mirrored for uuid, name in chosen.items()
            ):
                return None
            return self._listed(client, found, chosen)
        except PlacementError:
            for uuid, name in chosen.items():
                self._audit_of(uuid, name).count(options)
            raise

    def _listed(
        self, client: PlacementClient, found: Mapping[str, str], chosen: Mapping[str, str]
    ) -> Mapping[ProviderUuid, Row] | None:
        """Return all roots that carry this agent's mark, in one request; None where the node's own
        tree says as much.

        Needed for several nodes, and for a single one if the store has others that the driver no
        longer lists.
        """
        # The roots of another program do not carry the mark.
        if self.context.observes or len(chosen) == 1 < len(found):
            return None
        if found.keys() != self._alone:
            storage = self.context.server.storage
            alone = len(found) == 1 and not storage.roots(self._host) - found.keys()
            self._alone = frozenset(found) if alone else frozenset()
        if self._alone:
            return None
        return {
            row.uuid: row for row in client.providers_with_trait(agent_trait(self.context.agent))
        }

    def _audit_all(
        self,
        client: PlacementClient,
        nodes: Mapping[str, str],
        options: AuditOptions,
        rows: Mapping[ProviderUuid, Row] | None,
        progress: Callable[[str], None],
        *,
        deleted: bool = False,
    ) -> Sequence[NodeReport]:
        """Audit the nodes, the first one alone and the others in parallel; return their reports in
        the same order. ``deleted``: the driver says that they were deleted.
        """
        order = self.context.order
        close_surplus = self.context.server.transport.close_surplus_connections
        new_nodes = NewNodes(
            client,
            self.context.server.storage,
            partial(self._take_leases, dry_run=options.dry_run),
        )

        def audit(uuid: str, name: str) -> Steps[NodeReport]:
            """Audit one node; a bug becomes a failed report."""
            try:
                report = yield from self._audit_one(uuid, name, options, rows, deleted=deleted)
            except AgentError:
                raise
            except Exception as error:
                # A bug beside the audit of a node, or in a driver: the other nodes are audited all
                # the same.
                LOG.exception("node %s", printable(name))
                bug = AgentBug.of(error)
                problem = Problem(bug.code, bug.message, bug.remedy)
                return NodeReport(name, uuid, self._driver_name, "failed", errors=(problem,))
            finally:
                order.end(ProviderUuid(uuid))
            progress(name)
            return report

        def begin(uuid: str, steps: AuditSteps) -> None:
            """Audit one node as far as it need not wait for other new nodes."""
            steps.go_on()
            if steps.report is None:
                order.end(ProviderUuid(uuid))
                new_nodes.add(steps)

        def write_rest() -> None:
            # A node that hangs does not hold the others.
            order.wait_for_all(PATIENCE)
            new_nodes.close()

        audits = {
            uuid: AuditSteps(audit(uuid, name), partial(self._forget_tree, uuid))
            for uuid, name in nodes.items()
        }
        items = list(audits.items())
        # The first node alone, because the others need not ask again for what it learns about
        # Placement.
        for _, first in items[:1]:
            first.end()
        if rest := items[1:]:
            order.begin(ProviderUuid(uuid) for uuid, _ in rest)
            jobs: list[Callable[[], None]] = [partial(begin, *item) for item in rest]
            jobs.append(write_rest)
            calls = LastCalls(len(jobs), close_surplus)
            results_side_by_side([partial(calls.run, job) for job in jobs], self._workers, "audit")
        close_surplus()
        return [steps.end() for steps in audits.values()]

    def _audit_one(
        self,
        uuid: str,
        name: str,
        options: AuditOptions,
        rows: Mapping[ProviderUuid, Row] | None,
        *,
        deleted: bool,
    ) -> Steps[NodeReport]:
        """Audit one node, under the lease and with the mark that it has before."""
        # Before each node, because all of them together may take longer than a lease lasts.
        self._take_leases(dry_run=options.dry_run)
        audit = self._audit_of(uuid, name)
        # Before the audit, so that a change during the audit is seen in the next pass.
        mark = self._marks.mark(name) if self._marks is not None else None
        own = self.context.identity
        # The list has no root that only nova has written, which the host's own node may have.
        known = (
            None
            if rows is None or (own is not None and own.uuid == uuid)
            else _structure(audit, rows)
        )
        steps = audit.remove(options, known) if deleted else audit.run(options, known)
        report = yield from steps
        if self.leases.shared is not None:
            # The agent that has the node now releases it once it sees that the node left its
            # partition.
            problems = (
                replace(problem, fatal=problem.fatal and problem.code != NodeHeldElsewhere.code)
                for problem in report.errors
            )
            report = replace(report, errors=tuple(problems))
        if deleted:
            self._audits.pop(uuid, None)
        elif not options.dry_run and self._marks is not None:
            # It is audited again all the same after at least half of the interval, and a part of
            # the other half that its uuid decides.
            pause = self._full_audit_interval * (0.5 + int(uuid[:4], 16) / SPREAD)
            audit.remember(report, mark, time.monotonic() + pause)
        return report

    def _forget_tree(self, uuid: str) -> None:
        if uuid in self._audits:
            self._audits[uuid].placement_state.forget()

    def _audit_of(self, uuid: str, name: str) -> NodeAudit:
        known = self._audits.get(uuid)
        if known is None or known.node.name != name:
            known = self._audits[uuid] = NodeAudit(
                AuditedNode(ProviderUuid(uuid), name, self._driver_name, self.context.provisional),
                self.context,
            )
            if uuid in self._unsaved:
                known.placement_state.begin_empty()
        return known


def _structure(audit: NodeAudit, rows: Mapping[ProviderUuid, Row]) -> Sequence[Row] | None:
    """Return what the list for all nodes says about the node of ``audit``: enough for a known node
    without children, and for a new one.

    None: the node's tree has to be read by itself.
    """
    row, size = rows.get(audit.node.uuid), len(audit.placement_state.view.tree)
    if row is not None:
        return [row] if size == 1 else None
    return [] if size == 0 else None
