"""One audit of one node: driver report → usage → desired tree → plan → flush."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import Self

from agent.audit.allocations import JudgedAllocations, NodeAllocations, flush_clearing
from agent.audit.devices import (
    LATER,
    NodeDevices,
    PlacedDeviceTree,
    Surpluses,
    device_hints,
    log_corrected,
)
from agent.audit.reshapes import ReshapeReads
from agent.audit.run import AuditedNode, AuditOptions, AuditRun, overcommitted
from agent.driver.answers import node_capabilities, node_facts
from agent.driver.interface import (
    Allocations,
    Driver,
    ReportsCapabilities,
    ShapesTree,
    UpdatesProviderTree,
)
from agent.driver.worker import DriverWorker
from agent.errors import (
    DRIVER_FAULT,
    AdoptionNeeded,
    AgentBug,
    AgentError,
    DriverError,
    GenerationConflict,
    InvalidTree,
    PlacementError,
    PlacementRefused,
    ProviderIdentityConflict,
    ProviderNameConflict,
    RecordConflict,
    ReshapeConflict,
    ReshapeFailed,
    ReshapeNeeded,
    StoreError,
)
from agent.model.mirror import ServerCapabilities
from agent.model.names import MAX_PROVIDER_NAME, printable
from agent.model.operation import AllocationOperation
from agent.model.provider import Provider, ProviderExists
from agent.model.provider_tree import ProviderTree
from agent.model.report import NodeReport, NodeState, Problem, Usage
from agent.pci.settings import PciSettings
from agent.placement import clock
from agent.placement.answers import Row
from agent.placement.consumers import usages
from agent.placement.flush import FlushContext, FlushResult, flush, predict_outcomes
from agent.placement.merge import ADOPT, Merge, Target, Usages, foreign_share
from agent.placement.merge_inputs import MergeInputs
from agent.placement.mirror import Freshness
from agent.placement.names import added_names, learn_traits
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import Plan, make_plan
from agent.placement.reshaping import AllocationMove, allocation_move, find_stranded
from agent.placement.retry import MAX_ATTEMPTS, conflict_wait
from agent.placement.rival_writers import RivalWriters
from agent.placement.server import Server
from agent.placement.tombstones import without_reappeared
from agent.provider_config.entry import Absences, Key, ProviderConfig
from agent.tracker.domains import guest_places
from agent.tracker.errors import NodeHeldElsewhere
from agent.tracker.reservations import device_uses
from agent.tracker.services import TrackerServices
from agent.tree.desired_tree import (
    DriverReport,
    desired_tree,
    with_novas_children,
    with_remote_managed_ports,
)
from agent.tree.device_providers import reserved_of_cards
from agent.tree.device_uses import DeviceUses
from agent.tree.host_tree import layout_hint
from agent.tree.policy import Policy
from agent.tree.provider_files import put_operators_files
from agent.tree.reshape.context import ReshapeContext
from agent.tree.root_traits import other_marks

LOG = logging.getLogger(__name__)

# Seconds until a refused node is tried again: after the first refusal, and at most.
FIRST_PAUSE = 120.0
LONGEST_PAUSE = 3600.0
TRIED_AGAIN = "it is tried again by itself, later each time, and at once after a reload"


@dataclass(frozen=True, slots=True)
class AuditContext:
    """What the audits of all nodes of a process share."""

    server: Server
    driver: Driver
    worker: DriverWorker
    policy: Policy
    agent: str
    """The name that marks the root providers of this agent."""
    cancelled: Event
    """Set when the process is to end; interrupts the waits between attempts."""
    facts_deadline: float = 60
    """Deadline of each call to the driver for one node, in seconds."""
    freshness: Freshness = field(default_factory=Freshness)
    records: TrackerServices | None = None
    """None: there are no records, so no usage is counted and no allocation is judged."""
    provider_config: ProviderConfig = field(default_factory=ProviderConfig)
    absences: Absences = field(default_factory=Absences)
    """Tracks which providers of the operator's files no node has."""
    pci: PciSettings = field(default_factory=PciSettings)
    nodes_deadline: float = 300
    """Deadline of the driver's list of nodes, in seconds."""


@dataclass(frozen=True, slots=True)
class _RefusedAudit:
    """The report of a refused node, and when the node is tried again."""

    report: NodeReport
    until: float
    """By the monotonic clock, in seconds."""
    pause: float
    """Seconds."""

    @classmethod
    def of(cls, report: NodeReport, now: float, before: Self | None) -> Self:
        """Return a refusal at ``now``; the pause doubles with each refusal in a row, up to the
        limit.
        """
        pause = min(before.pause * 2, LONGEST_PAUSE) if before is not None else FIRST_PAUSE
        # Outcomes, requests and times belong to the one audit that had them.
        return cls(
            replace(report, attempts=1, outcomes=(), requests={}, seconds={}), now + pause, pause
        )


@dataclass(frozen=True, slots=True)
class _UncountedSections:
    """Result of counting a node outside of an audit: its usage, or the error that prevented it."""

    usage: Usage = field(default_factory=Usage)
    error: AgentError | None = None


class NodeAudit:
    """Audits one node repeatedly and keeps state between audits. Not thread-safe: one audit at a
    time.
    """

    def __init__(self, node: AuditedNode, context: AuditContext) -> None:
        self.node, self.context = node, context
        self.placement_state = NodePlacementState(context.server, node.uuid)
        # ``_started``: one audit has passed the checks of a start. ``_moved``: every reshape that
        # only a start (or the audit after a takeover) may do is done.
        self._started = self._moved = False
        # ``_counted``: an audit has counted the node. ``_uncertain``: the last count failed, so the
        # lease may have been lost.
        self._counted, self._uncertain = False, False
        self._refusal: _RefusedAudit | None = None
        self.rivals, self._surpluses = RivalWriters(time.monotonic), Surpluses(time.monotonic)
        # The entries of the operator's files that match a provider here; None until a tree was
        # seen.
        self.sighted: frozenset[Key] | None = None

    def run(
        self,
        mode: AuditOptions,
        rows: Sequence[Row] | None = None,
        *,
        gone: bool = False,
        earlier: Callable[[], object] = lambda: None,
    ) -> NodeReport:
        """Audit the node and return its report. Never raises an :class:`AgentError`: errors are in
        the report.

        ``rows``: the node's structure in Placement, if one list for many nodes already brought it.
        ``gone``: the driver says that the node was deleted; the providers of its tree that are ours
        are deleted. ``earlier`` waits for the audits of other nodes that began before this one.
        """
        if (
            self._refusal is not None
            and not (mode.reread or mode.asked or gone)
            and time.monotonic() < self._refusal.until
        ):
            return self._paused(self._refusal.report, mode)
        record, begun = AuditRun(self.context.server.client(), mode, earlier), time.monotonic()
        state: NodeState = "failed"
        try:
            self._check_name()
            with record.step("facts"):
                driver_report = None if gone else self._facts()
                record.incomplete = frozenset(
                    driver_report.facts.incomplete if driver_report else ()
                )
            with record.step("usage"):
                rows = rows if self._count(record, driver_report) else None
            for record.attempts in range(1, MAX_ATTEMPTS + 1):
                if record.attempts > 1:
                    # Allocations made in between are on record by now.
                    with record.step("usage"):
                        self._count(record, driver_report)
                if self._attempt(record, driver_report, rows if record.attempts == 1 else None):
                    break
            self._look_back(record)
            state, self._started, self._moved = (
                record.state(),
                self._started or record.has_moved,
                self._moved or record.has_moved,
            )
        except AdoptionNeeded as error:
            # Nothing is written, in this pass and in later ones, until the operator decides.
            state, record.tree = "degraded", self.placement_state.own_tree()
            record.failed(error)
        except AgentError as error:
            # A failed allocation repair is tried again; a failed layout change needs the operator.
            state = (
                "refused"
                if isinstance(error, ReshapeFailed) and record.repair.move is None
                else "failed"
            )
            record.failed(error)
        except Exception as error:
            # A bug, or facts that no code expects: the other nodes are audited all the same.
            LOG.exception("node %s", printable(self.node.name))
            # The remembered state may be the cause of the error, or half updated.
            self.placement_state.forget()
            record.failed(AgentBug.of(error))
        record.seconds["total"] = time.monotonic() - begun
        report = record.report(
            self.node,
            state,
            self.placement_state.own_tree(),
            frozenset(self.placement_state.journal.providers),
        )
        self._refusal = (
            _RefusedAudit.of(report, time.monotonic(), self._refusal)
            if state == "refused"
            else None
        )
        return report

    def unmoved(self, row: Row | None) -> bool:
        """Whether Placement has the node as this agent last saw it.

        ``row``: the node's root provider. False for a node with children, because the root alone
        says too little about them.
        """
        tree = self.placement_state.view.tree
        if row is None or len(tree) != 1 or not tree.exists(row.uuid):
            return False
        known = tree.provider(row.uuid)
        return (known.name, known.generation, self.placement_state.view.above) == (
            row.name,
            row.generation,
            row.parent_uuid,
        )

    def count(self, mode: AuditOptions) -> None:
        """Count the node from facts and records alone, so that claims work while Placement is
        unavailable.

        Errors are logged.
        """
        if (
            self.context.records is not None
            and not mode.dry_run
            and (error := self._counted_apart(mode).error) is not None
        ):
            LOG.warning("node %s: %s", printable(self.node.name), error)

    def _counted_apart(self, mode: AuditOptions) -> _UncountedSections:
        """Count the node from facts and records; errors are in the result."""
        record = AuditRun(self.context.server.client(), mode, lambda: None)
        try:
            self._count(record, self._facts())
        except AgentError as error:
            return _UncountedSections(error=error)
        except Exception as error:
            # As in an audit: the other nodes are counted all the same.
            LOG.exception("node %s could not be counted", printable(self.node.name))
            return _UncountedSections(error=AgentBug.of(error))
        return _UncountedSections(record.usage)

    def _paused(self, told: NodeReport, mode: AuditOptions) -> NodeReport:
        """Return the report of a refused node whose pause is not over. The node is still counted
        and keeps its lease.

        ``told``: the report of the refusal.
        """
        apart = self._counted_apart(mode)
        if apart.error is None:
            return replace(told, usage=apart.usage)
        problem = Problem(
            apart.error.code, apart.error.message, apart.error.remedy, apart.error.fatal
        )
        return replace(told, errors=(*told.errors, problem))

    def _attempt(
        self, record: AuditRun, driver_report: DriverReport | None, rows: Sequence[Row] | None
    ) -> bool:
        """Make one attempt, from refreshing the mirror to the end of the flush. Return whether it
        was the last one needed.
        """
        placement_state, root = self.placement_state, self.node.uuid
        try:
            with record.step("tree"):
                held = self._mirror(record, rows)
                self._note_reserved(record)
                target, move = self._desired(record, driver_report, held)
                if move is not None and self._holds_stranded(target, move):
                    target, move = self._desired(
                        record, driver_report, placement_state.held_usages(record.client)
                    )
                judged = self._judged(record, driver_report, target)
            with record.step("plan"):
                plan = self._make_plan(record, target, move)
                plan, withheld = self.rivals.withhold(judged.added_to(plan))
                record.planned(plan, driver_report.facts if driver_report else None)
                record.errors += judged.errors
            if record.mode.dry_run:
                record.outcomes, conflicts = predict_outcomes(
                    record.client,
                    plan,
                    placement_state.capabilities,
                    root,
                    FlushContext(owned=placement_state.journal.providers),
                )
                record.errors += conflicts
                record.outcomes += withheld
                placement_state.assume(plan)
                return True
            with record.step("flush"):
                flushed = self._flush_judged(record, plan, judged)
                if driver_report is None or not driver_report.facts.exclusive:
                    # An exclusive node is reserved while it has a consumer, so its usage exceeds
                    # its capacity.
                    record.drift += overcommitted(
                        record.client, flushed, placement_state.journal.held
                    )
        except GenerationConflict as conflict:
            return self._again(record, conflict)
        except RecordConflict as conflict:
            # Another agent wrote the journal: the next count shows which agent has the node.
            placement_state.forget()
            return self._again(record, conflict)
        except ReshapeFailed as error:
            if record.repair.move is None or record.attempts == MAX_ATTEMPTS:
                raise
            # The repair is left out of the next attempt, so that the other changes do not wait for
            # it.
            record.unhealed = f"{error.message}; {error.remedy}" if error.remedy else error.message
            return False
        self.rivals.record_sent(flushed.outcomes)
        log_corrected(record.repair, flushed.outcomes)
        if flushed.conflict is not None:
            if (
                isinstance(flushed.conflict, ReshapeConflict)
                and record.repair.move is not None
                and record.attempts == MAX_ATTEMPTS - 1
            ):
                # The last attempt is made without the repair, for all other changes.
                record.unhealed = flushed.conflict.message
            return self._again(record, flushed.conflict)
        record.outcomes += withheld
        # Another attempt is needed where providers in use could not be deleted (they are planned as
        # held), or where devices were removed to be created at another place. A node that is gone
        # is tried again if Placement no longer had all of its tree, because no next pass will.
        again = driver_report is None and flushed.missing and record.attempts < MAX_ATTEMPTS
        return not (
            flushed.held
            or again
            or (record.devices is not None and record.devices.anew and flushed.complete)
        )

    def _check_name(self) -> None:
        """Raise :class:`InvalidTree` if Placement cannot take the node's name."""
        name = self.node.name
        if not 1 <= len(name) <= MAX_PROVIDER_NAME:
            what = (
                f"node {printable(name[:60])!r}...: its name has {len(name)} characters, "
                f"Placement takes 1 to {MAX_PROVIDER_NAME}"
            )
            raise InvalidTree(what, "give it another name where the driver finds it")

    # --- facts and usage --------------------------------------------------------------------------

    def _facts(self) -> DriverReport:
        """Return the driver report: facts, capabilities and the driver's function that shapes the
        tree.
        """
        driver, name = self.context.driver, self.node.name
        asked = self.context.worker, self.node.driver, name, self.context.facts_deadline
        call = partial(self.context.worker.call, deadline=self.context.facts_deadline, node=name)
        facts = node_facts(driver, *asked)
        capabilities = (
            node_capabilities(driver, *asked) if isinstance(driver, ReportsCapabilities) else {}
        )

        def shape(tree: ProviderTree, allocations: Allocations | None) -> None:
            try:
                if isinstance(driver, UpdatesProviderTree):
                    call(driver.update_provider_tree, tree, name, allocations)
                elif isinstance(driver, ShapesTree):
                    call(driver.shape, tree, facts, allocations)
            except DriverError as error:
                raise self._explained(error) from error

        return DriverReport(
            facts, capabilities, shape, shape_all=isinstance(driver, UpdatesProviderTree)
        )

    def _explained(self, error: DriverError) -> AgentError:
        """Return a clearer error for a driver that failed to shape its tree, if the cause is
        known.
        """
        cause = error.__cause__
        if not isinstance(cause, ProviderExists):
            return error
        name, there = printable(cause.name), cause.there
        theirs = (
            there is not None
            and self.placement_state.view.tree.exists(there.uuid)
            and not self.placement_state.journal.owns(there.uuid)
        )
        if there is not None and there.name == cause.name and theirs:
            return ProviderNameConflict(
                (
                    f"{self.node.driver} makes provider {name!r}, but provider {there.uuid}, which "
                    "is somebody else's, has that name in the tree"
                ),
                (
                    "delete or rename that provider; a driver that is to share it has to ask "
                    "exists() before it calls new_child()"
                ),
                holder=there.uuid,
                uuid=cause.uuid,
            )
        what = (
            f"driver error: {self.node.driver} calls new_child() for {name!r}, {cause.uuid}, but "
            "the tree has a provider of that name or uuid already"
        )
        return DriverError(what, "the driver has to ask exists() before it calls new_child()")

    def _count(self, record: AuditRun, driver_report: DriverReport | None) -> bool:
        """Count what is used and claimed on the node. Without records, only the host's own
        reservations count.

        Returns whether the remembered state of Placement is valid; it is not if another agent may
        have had the node since the last audit.
        """
        remembered = True
        policy, records, mode = self.context.policy, self.context.records, record.mode
        if driver_report is None:
            if records is not None and not mode.dry_run:
                records.usage_step.mark_deleted(self.node.uuid)
        elif records is not None:
            start, present = mode.start and not self._started, self.placement_state.view.tree
            uncertain, self._uncertain = self._uncertain, True
            found = records.usage_step.audit(
                self.node.uuid, driver_report.facts, present, start=start, dry_run=mode.dry_run
            )
            # Also after a first count that failed: what was read for its report may be older than
            # changes by another agent.
            if uncertain or (self._counted and found.taken):
                self.placement_state.forget()
                # The other agent may have had another layout.
                remembered = self._moved = False
                found = records.usage_step.audit(
                    self.node.uuid,
                    driver_report.facts,
                    self.placement_state.view.tree,
                    start=start,
                    dry_run=mode.dry_run,
                )
            self._counted, self._uncertain = True, False
            record.counted(found)
        elif driver_report.facts.cpu is not None:
            record.usage = Usage(
                policy.reserved_cpus, policy.reserved_memory_mib, policy.reserved_disk_mib
            )
        return remembered

    # --- the mirror -------------------------------------------------------------------------------

    def _mirror(self, record: AuditRun, rows: Sequence[Row] | None) -> Usages:
        """Refresh the mirror; return the usages of everything that is held until it is free."""
        first, mode, placement_state = record.attempts == 1, record.mode, self.placement_state
        self.context.server.connect(record.client)
        try:
            placement_state.refresh(
                record.client,
                replace(self.context.freshness, everything=mode.reread and first),
                rows,
            )
        except PlacementRefused as error:
            if error.status in (404, 406):
                # A missing provider would give an empty list, so the call or its microversion is
                # missing: check whether the server is too old.
                self.context.server.connect(record.client, ask=True)
            raise
        self._check_identity(record)
        if mode.adopt:
            placement_state.adopt()
        return placement_state.held_usages(record.client)

    def _check_identity(self, record: AuditRun) -> None:
        """Check that the root provider is this node: it is never renamed, and no other agent may
        have it.

        :raises ProviderIdentityConflict: the root has another name.
        :raises ProviderNameConflict: in a dry run, another provider has the node's name.
        :raises NodeHeldElsewhere: the root carries another agent's mark.
        """
        tree, node = self.placement_state.view.tree, self.node
        if tree.exists(node.uuid):
            if (name := tree.name_of(node.uuid)) != node.name:
                raise ProviderIdentityConflict(
                    (
                        f"provider {node.uuid} is called {printable(name)!r} in Placement, the "
                        f"node {printable(node.name)!r}"
                    ),
                    "rename the provider back, or set [DEFAULT] host to its name",
                )
            if not record.mode.adopt:
                self._check_mark(tree.provider(node.uuid))
        elif (
            record.mode.dry_run and (holder := record.client.provider_named(node.name)) is not None
        ):
            raise ProviderNameConflict(
                (
                    f"the name {printable(node.name)!r} of provider {node.uuid} is held by "
                    f"provider {holder.uuid} in Placement"
                ),
                (
                    f"if this is the same host, write {holder.uuid} into the compute_id file of "
                    "the store"
                ),
            )

    def _check_mark(self, root: Provider) -> None:
        """Check that the root carries no other agent's mark, except one that the journal records:
        agents that share a store share the journal, and the lease decides between them.

        :raises NodeHeldElsewhere: it carries one.
        """
        context = self.context
        marks = (
            other_marks(root.traits, context.agent)
            - self.placement_state.journal.of(root.uuid).traits
        )
        if not marks:
            return
        if context.records is not None:
            context.records.usage_step.stop_claims(self.node.uuid)
        whose = (
            f"the mark of another agent, which has a store of its own: {', '.join(sorted(marks))}"
        )
        raise NodeHeldElsewhere(
            f"the root provider of node {printable(self.node.name)} carries {whose}",
            (
                "stop one of the two; this one takes the node over by agent --once --adopt --node "
                f"{self.node.uuid}, or once that trait is gone"
            ),
        )

    # --- the desired tree -------------------------------------------------------------------------

    def _desired(
        self, record: AuditRun, driver_report: DriverReport | None, held: Usages
    ) -> tuple[Target, AllocationMove | None]:
        """Return the node's desired tree merged with what others own there, and the move of
        allocations that it needs, if any.
        """
        placement_state, root = self.placement_state, self.node.uuid
        view, journal = placement_state.view, placement_state.journal
        if driver_report is None:
            return Merge(
                MergeInputs.of(view, journal, ProviderTree(), ProviderTree(), root),
                placement_state.capabilities,
                held,
            ).target(), None
        whole = driver_report.shape_all and view.tree.exists(root)
        base = (
            without_reappeared(view.tree.scoped(root), journal)
            if whole
            else foreign_share(view, journal, root, self.node.name)
        )
        move, facts = None, driver_report.facts
        reshape_context = self._reshape_context(record, driver_report)
        try:
            desired = self._shape(base, driver_report, reshape_context, None)
        except ReshapeNeeded as needed:
            if view.tree.exists(root) and not journal.adopted:
                what = (
                    f"{printable(self.node.name)}: inventory and its allocations would move, but "
                    "the tree is not adopted"
                )
                raise AdoptionNeeded(what, ADOPT) from needed
            if not reshape_context.start:
                raise
            desired, move = self._reshaped_tree(
                record, base, driver_report, reshape_context, needed
            )
        layout = (
            None
            if driver_report.shape_all
            else layout_hint(facts, self.context.policy, view.tree, root)
        )
        record.hint = (
            "; ".join(
                filter(None, [layout, *device_hints(facts, self.context.policy, self.context.pci)])
            )
            or None
        )
        put = record.devices = self._put_devices(record, base, desired, driver_report)
        by = put.taken_over(
            MergeInputs.of(view, journal, base, desired, root, take_over=record.mode.adopt)
        )
        by = by if driver_report.shape_all else with_novas_children(by)
        applied = put_operators_files(
            self.context.provider_config,
            by,
            self.context.policy.owner_trait,
            kept=bool(facts.incomplete),
        )
        record.misfits, self.sighted = applied.problems, applied.found
        capabilities = self._names_learned(record, applied.tree)
        merge = Merge(
            replace(by, desired=applied.tree),
            capabilities,
            held,
            applied.configured,
            exclusive=facts.exclusive,
            incomplete=bool(facts.incomplete),
        )
        target = merge.target()
        record.repair = self._devices(record).repair(
            record.client, put, target, why_not=LATER if move else record.unhealed
        )
        return target, move or record.repair.move

    def _devices(self, record: AuditRun) -> NodeDevices:
        uses = device_uses(record.records.state) if record.records is not None else DeviceUses()
        return NodeDevices(
            self.placement_state,
            self.node.uuid,
            self.context.pci,
            self.context.policy,
            uses,
            self._surpluses,
        )

    def _put_devices(
        self,
        record: AuditRun,
        base: ProviderTree,
        desired: ProviderTree,
        driver_report: DriverReport,
    ) -> PlacedDeviceTree:
        """Return ``desired`` with the providers of the node's devices."""
        start, adopt = record.mode.start and not self._started, record.mode.adopt
        return self._devices(record).put(
            record.client, base, desired, driver_report.facts, start=start, adopt=adopt
        )

    def _names_learned(self, record: AuditRun, desired: ProviderTree) -> ServerCapabilities:
        """Return the server's capabilities, with the traits that the desired tree adds looked up
        before planning, so that the plan is exact.
        """
        traits, classes = added_names(self.placement_state.view.tree, desired)
        if not self.placement_state.capabilities.has_confirmed(traits, classes):
            # Nodes of one kind add the same names: the first audit alone asks for them and creates
            # them.
            record.earlier()
        return self.context.server.learn(
            learn_traits(record.client, self.placement_state.capabilities, traits, clock.now())
        )

    def _reshape_context(self, record: AuditRun, driver_report: DriverReport) -> ReshapeContext:
        """Return what a reshape needs to know about the guests."""
        state = record.records.state if record.records is not None else None
        places = guest_places(state, driver_report.facts.domains or ())
        return ReshapeContext(
            driver_report.facts,
            self.context.policy,
            places,
            start=record.mode.start and not self._moved,
        )

    def _shape(
        self,
        base: ProviderTree,
        driver_report: DriverReport,
        reshape_context: ReshapeContext,
        allocations: Allocations | None,
    ) -> ProviderTree:
        """Return the desired tree of the node before it is merged with what others own."""
        context, journal, present = (
            self.context,
            self.placement_state.journal,
            self.placement_state.view.tree,
        )
        driver_report = with_remote_managed_ports(
            driver_report, context.pci.remote_managed(driver_report.facts), present, self.node.uuid
        )
        return desired_tree(
            base,
            present,
            self.node.uuid,
            driver_report,
            context.policy,
            journal,
            context.agent,
            reshape_context,
            allocations,
        )

    def _reshaped_tree(
        self,
        record: AuditRun,
        base: ProviderTree,
        driver_report: DriverReport,
        reshape_context: ReshapeContext,
        needed: ReshapeNeeded,
    ) -> tuple[ProviderTree, AllocationMove | None]:
        """Return the desired tree of a node whose allocations have to move, and the move; None if
        no allocation had to move after all.
        """
        moving = ReshapeReads.read(record.client, self.placement_state, reshape_context)
        edited = moving.edited()
        LOG.info("node %s: %s", printable(self.node.name), needed.message)
        try:
            desired = self._shape(base, driver_report, moving.reshape_context, edited)
        except ReshapeNeeded as error:
            what = (
                f"driver error: {self.node.driver} asks for a reshape of "
                f"{printable(self.node.name)} although it was given the allocations"
            )
            raise ReshapeFailed(what, DRIVER_FAULT) from error
        move = allocation_move(moving.before, edited)
        return desired, None if needed.data.get("only_if_held") and not move.changed else move

    def _holds_stranded(self, target: Target, move: AllocationMove) -> bool:
        """Hold inventories that the node no longer has while consumers of ``move`` go on using
        them. Return whether there is more to hold than before.
        """
        known, by_driver = (
            self.placement_state.journal.held,
            isinstance(self.context.driver, UpdatesProviderTree | ShapesTree),
        )
        left = (
            find_stranded(self.placement_state.own_tree(), target.tree, move, by_driver=by_driver)
            if target.journal.adopted
            else {}
        )
        new = {
            uuid: classes
            for uuid, classes in left.items()
            if not classes <= known.get(uuid, frozenset())
        }
        self.placement_state.hold(new)
        return bool(new)

    def _judged(
        self, record: AuditRun, driver_report: DriverReport | None, target: Target
    ) -> JudgedAllocations:
        """Return which of the node's allocations are to be removed, and the drift of the others."""
        context = self.context
        if context.records is None or record.records is None or driver_report is None:
            return JudgedAllocations()
        allocations = NodeAllocations(
            self.placement_state,
            context.records.consumer_records,
            record.records,
            context.policy.purge_after,
            context.freshness.consumers,
        )
        # A provider that is to be deleted keeps its allocations until then.
        owned = {*self.placement_state.journal.providers, *target.journal.providers}
        return allocations.judged(record.client, owned, driver_report.facts, record.tried)

    # --- the flush --------------------------------------------------------------------------------

    def _make_plan(self, record: AuditRun, target: Target, move: AllocationMove | None) -> Plan:
        """Return the operations that lead from the view to ``target``; planned again if the server
        offers a newer microversion than before and the first plan had to do without one.
        """
        placement_state, root = self.placement_state, self.node.uuid
        plan = make_plan(placement_state.view, target, placement_state.capabilities, root, move)
        if plan.limited and self.context.server.offers_more(record.client):
            plan = make_plan(placement_state.view, target, placement_state.capabilities, root, move)
        return plan

    def _flush_judged(self, record: AuditRun, plan: Plan, judged: JudgedAllocations) -> FlushResult:
        """Flush the plan, and note which evacuations its removals clear."""
        records = self.context.records
        return (
            flush_clearing(records.consumer_records, judged, lambda: self._flush(record, plan))
            if records is not None
            else self._flush(record, plan)
        )

    def _flush(self, record: AuditRun, plan: Plan) -> FlushResult:
        """Write the intended ownership to the journal, send the plan, write down the results."""
        placement_state = self.placement_state
        owned = placement_state.journal.providers
        plan, skipped = placement_state.intend(plan)
        before = FlushContext(not record.forgot, [one.operation for one in skipped], owned)
        try:
            flushed = flush(
                record.client,
                plan,
                placement_state.view,
                placement_state.capabilities,
                self.node.uuid,
                clock.now(),
                before,
            )
        except ReshapeFailed:
            placement_state.doubt()
            raise
        record.forgot |= flushed.forgot
        record.errors += [*flushed.errors, *([flushed.outage] if flushed.outage else [])]
        # Of a plan that is thrown away only the done operations are reported: the others come again
        # in the next plan.
        if (
            flushed.conflict is None
            and any(error.data.get("limited") for error in flushed.errors)
            and self.context.server.offers_more(record.client)
        ):
            flushed.conflict = GenerationConflict("Placement offers more by now")
        planned_again = flushed.conflict is not None or (
            bool(flushed.held) and record.attempts < MAX_ATTEMPTS
        )
        record.outcomes += [
            one for one in flushed.outcomes if one.status == "done" or not planned_again
        ]
        record.outcomes += skipped
        record.tried |= {
            one.operation.old.consumer
            for one in flushed.outcomes
            if isinstance(one.operation, AllocationOperation) and one.status == "failed"
        }
        # Last, because the outcomes are reported even if they cannot be written down.
        placement_state.record(plan, flushed)
        return flushed

    def _again(self, record: AuditRun, conflict: AgentError) -> bool:
        """Wait before the next attempt. A conflict is normal on a busy host: everything is read and
        planned again, up to a limit.

        :raises GenerationConflict: this was the last attempt.
        :raises ReshapeFailed: this was the last attempt, and a reshape met the conflict.
        :raises PlacementError: cancelled while waiting.
        """
        LOG.debug(
            "node %s, attempt %s: %s", printable(self.node.name), record.attempts, conflict.message
        )
        if (
            record.attempts == MAX_ATTEMPTS
            and isinstance(conflict, ReshapeConflict)
            and record.repair.move is None
        ):
            raise ReshapeFailed(
                f"{MAX_ATTEMPTS} attempts failed, last: {conflict.message}", TRIED_AGAIN
            ) from conflict
        if record.attempts == MAX_ATTEMPTS:
            what = (
                f"{printable(self.node.name)}: {MAX_ATTEMPTS} attempts met changes by others, "
                f"last: {conflict.message}"
            )
            raise GenerationConflict(what, "it is tried again in the next pass") from conflict
        if conflict_wait(record.attempts, self.context.cancelled):
            raise PlacementError("cancelled while waiting to try again") from conflict
        return False

    def _note_reserved(self, record: AuditRun) -> None:
        """Write to the records what Placement has as reserved of the PCI providers; operators and
        device cleaners set it there.
        """
        records, view = self.context.records, self.placement_state.view
        if records is not None and record.records is not None and self.context.pci.report:
            seen = reserved_of_cards(view.tree, self.node.uuid, self.placement_state.journal)
            record.records = records.usage_step.note_reserved(
                record.records, seen, dry_run=record.mode.dry_run
            )

    # --- after the flush --------------------------------------------------------------------------

    def _look_back(self, record: AuditRun) -> None:
        """Save what was only read, and ask for usages if the report shows them."""
        if not record.mode.dry_run:
            try:
                self.placement_state.save()
                self._note_reserved(record)
                if (
                    self.context.records is not None
                    and record.records is not None
                    and record.state() in ("in-sync", "changed")
                ):
                    self.context.records.usage_step.mark_published(
                        self.node.uuid, record.records.version
                    )
            except RecordConflict as conflict:
                # A claim was made just now: the next audit publishes it too.
                LOG.debug("node %s: %s", printable(self.node.name), conflict.message)
            except StoreError as error:
                # Everything is written in Placement; the next audit writes it down.
                record.errors.append(error)
        if record.hint and not self._started:
            LOG.info("node %s: %s", printable(self.node.name), record.hint)
        if record.mode.with_usages:
            tree = self.placement_state.own_tree()
            record.used = {
                str(uuid): used
                for uuid, used in usages(
                    record.client, {one.uuid: 0 for one in tree.providers() if one.inventory}
                ).items()
            }
