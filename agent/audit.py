"""One audit of one node: facts → usage → desired tree → plan → flush, and nothing else."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import cast

from agent.desired.policy import Policy
from agent.desired.wish import Findings, desired_tree
from agent.driver import Allocations, Driver, ReportsCapabilities, ShapesTree, UpdatesProviderTree
from agent.driver_worker import DriverWorker
from agent.errors import (
    AgentError,
    ConfigErrors,
    GenerationConflict,
    PlacementError,
    PlacementRefused,
    ProviderIdentityConflict,
    ProviderNameConflict,
    ReshapeFailed,
    ReshapeNeeded,
)
from agent.model.inventory import capacity
from agent.model.journal import Journal, Ownership
from agent.model.mirror import Knowledge, View
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.operation import Operation, SetInventory
from agent.model.provider_tree import ProviderTree
from agent.model.report import METHODS, STEPS, Drift, NodeReport, NodeState, Outcome, Problem, Usage
from agent.placement.client import Client, Row
from agent.placement.consumers import collect, usages
from agent.placement.flush import Flushed, flush
from agent.placement.mirror import Freshness, refreshed
from agent.placement.names import learn_traits
from agent.placement.ownership import Merge, Target, Usages, foreign_share
from agent.placement.plan import Plan, make_plan
from agent.placement.reshaping import Move
from agent.placement.retry import MAX_ATTEMPTS, conflict_wait
from agent.placement.server import Server

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mode:
    """How to audit. ``start``: reshapes are allowed. ``reread``: trust nothing that was saved."""

    dry_run: bool = False
    adopt: bool = False
    start: bool = False
    reread: bool = False
    with_usages: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A node to audit. ``provisional``: its uuid was made up for a dry run without an identity."""

    uuid: ProviderUuid
    name: str
    driver: str
    provisional: bool = False


@dataclass(frozen=True, slots=True)
class House:
    """What all nodes of a process share. ``identity``: the uuid that names this agent. Deadlines in seconds."""

    server: Server
    driver: Driver
    worker: DriverWorker
    policy: Policy
    identity: str
    cancelled: Event
    facts_deadline: float = 60
    freshness: Freshness = field(default_factory=Freshness)


@dataclass(slots=True)
class _Pass:
    """What one audit has gathered so far."""

    client: Client
    mode: Mode
    attempts: int = 1
    outcomes: list[Outcome] = field(default_factory=list)
    errors: list[AgentError] = field(default_factory=list)
    drift: list[Drift] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    tree: ProviderTree = field(default_factory=ProviderTree)
    usage: Usage = field(default_factory=Usage)
    incomplete: bool = False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - begun


class NodeAudit:
    """Audits one node again and again, remembering what need not be asked twice. One audit at a time."""

    def __init__(self, node: Node, house: House) -> None:
        self.node, self.house = node, house
        self._view: View | None = None
        self._saved: View | None = None
        self._journal: Journal | None = None
        self._unknown_outcome = False
        self._refused: list[Operation] = []

    def run(self, mode: Mode, rows: Sequence[Row] | None = None) -> NodeReport:
        """Audit the node. ``rows``: its structure in Placement, if a list for many nodes already brought it.

        Never raises an :class:`AgentError`: what went wrong is in the report.
        """
        audit = _Pass(self.house.server.client(), mode)
        begun = time.monotonic()
        state: NodeState = "failed"
        try:
            with audit.step("facts"):
                findings = self._facts()
            with audit.step("usage"):
                audit.usage = self._usage(findings)
            audit.incomplete = bool(findings.facts.incomplete)
            for audit.attempts in range(1, MAX_ATTEMPTS + 1):
                if self._attempt(audit, findings, rows if audit.attempts == 1 else None):
                    break
            state = self._state(audit)
        except ReshapeFailed as error:
            state = "refused"
            self._note(audit, error)
        except AgentError as error:
            self._note(audit, error)
        audit.seconds["total"] = time.monotonic() - begun
        return self._report(audit, state)

    def known_size(self) -> int:
        """How many providers the node had in Placement when that was last read; 0 if it never was."""
        self._load()
        return len(self._known_view.tree)

    # --- the five steps ---------------------------------------------------------------------------------------

    def _facts(self) -> Findings:
        """Step 1: all that the driver knows of the node."""
        driver, name = self.house.driver, self.node.name
        call = partial(self.house.worker.call, deadline=self.house.facts_deadline, node=name)
        facts = call(driver.facts, name)
        capabilities = call(driver.capabilities_as_traits) if isinstance(driver, ReportsCapabilities) else {}

        def shape(tree: ProviderTree, allocations: Allocations | None) -> None:
            if isinstance(driver, UpdatesProviderTree):
                call(driver.update_provider_tree, tree, name, allocations)
            elif isinstance(driver, ShapesTree):
                call(driver.shape, tree, facts, allocations)

        whole = isinstance(driver, UpdatesProviderTree)
        return Findings(facts, capabilities, shape if whole or isinstance(driver, ShapesTree) else None, whole)

    def _usage(self, findings: Findings) -> Usage:
        """Step 2: what is promised on the node. Without records, the host's own share is all that counts."""
        policy = self.house.policy
        if findings.facts.cpu is None:
            return Usage()
        return Usage(policy.reserved_cpus, policy.reserved_memory_mib, policy.reserved_disk_mib)

    def _attempt(self, audit: _Pass, findings: Findings, rows: Sequence[Row] | None) -> bool:
        """Steps 3 to 5 on a fresh mirror. Returns whether that is the end of it."""
        try:
            with audit.step("tree"):
                held = self._mirror(audit, rows)
                target, move = self._desired(audit, findings, held)
            with audit.step("plan"):
                plan = make_plan(self._known_view, target, self._knowledge, self.node.uuid, move)
            self._look(audit, plan, findings)
            if audit.mode.dry_run:
                audit.outcomes = [Outcome(one) for one in plan.operations]
                return True
            with audit.step("flush"):
                flushed = self._flush(audit, plan)
        except GenerationConflict as conflict:
            return self._again(audit, conflict)
        if flushed.conflict is not None:
            return self._again(audit, flushed.conflict)
        return not flushed.held

    # --- mirror -----------------------------------------------------------------------------------------------

    def _load(self) -> None:
        server = self.house.server
        if self._view is None:
            self._saved = self._view = server.storage.view(server.transport.endpoint, self.node.uuid)

    @property
    def _known_view(self) -> View:
        return self._view or View()

    @property
    def _known_journal(self) -> Journal:
        if self._journal is None:
            self._journal = self.house.server.storage.journal(self.node.uuid)
        return self._journal

    @property
    def _knowledge(self) -> Knowledge:
        """What is known of the server. In use only after the mirror has connected."""
        return cast(Knowledge, self.house.server.knowledge)

    def _mirror(self, audit: _Pass, rows: Sequence[Row] | None) -> Usages:
        """Bring the view up to date; returns what is used of the classes and providers that only wait to become free."""
        server, node, mode = self.house.server, self.node, audit.mode
        first = audit.attempts == 1
        server.connect(audit.client, ask=mode.reread and first)
        self._load()
        suspects = self._known_view.tree.get_provider_uuids() if self._unknown_outcome else ()
        freshness = replace(self.house.freshness, everything=mode.reread and first)
        self._view = refreshed(audit.client, self._known_view, node.uuid, time.time(), freshness, suspects, rows)
        self._unknown_outcome = False
        self._check_identity(audit)
        if mode.adopt:
            self._journal = replace(self._known_journal, adopted=True)
        present = self._view.tree
        return usages(audit.client, {uuid: 0 for uuid in self._known_journal.held if present.exists(uuid)})

    def _check_identity(self, audit: _Pass) -> None:
        """The root has to be the node: its name is never changed from here, and nobody else may have it."""
        tree, node = self._known_view.tree, self.node
        if tree.exists(node.uuid) and (name := tree.name_of(node.uuid)) != node.name:
            raise ProviderIdentityConflict(
                f"provider {node.uuid} is called {printable(name)!r} in Placement, the node {printable(node.name)!r}",
                "rename the provider back, or set [DEFAULT] host to its name",
            )
        if audit.mode.dry_run and not tree.exists(node.uuid) and (holder := audit.client.provider_named(node.name)) is not None:
            raise ProviderNameConflict(
                f"the name {printable(node.name)!r} of provider {node.uuid} is held by provider {holder.uuid} in Placement",
                f"if this is the same host, write {holder.uuid} into the compute_id file of the store",
            )

    # --- desired tree -----------------------------------------------------------------------------------------

    def _desired(self, audit: _Pass, findings: Findings, held: Usages) -> tuple[Target, Move | None]:
        """Step 3: the desired tree, merged with what others have there."""
        view, journal, root = self._known_view, self._known_journal, self.node.uuid
        whole = findings.shape_all and view.tree.exists(root)
        base = view.tree.scoped(root) if whole else foreign_share(view, journal, root, self.node.name)
        move = None
        try:
            wish = self._wish(base, findings, None)
        except ReshapeNeeded as needed:
            wish, move = self._reshaped_wish(audit, base, findings, needed)
        present = view.tree
        new_traits = {name for one in wish.providers() for name in one.traits if not (present.exists(one.uuid) and name in present.provider(one.uuid).traits)}
        knowledge = self.house.server.learned(learn_traits(audit.client, self._knowledge, new_traits, time.time())) if new_traits else self._knowledge
        return Merge(view, journal, knowledge, base, wish, root, held).target(), move

    def _wish(self, base: ProviderTree, findings: Findings, allocations: Allocations | None) -> ProviderTree:
        house = self.house
        return desired_tree(base, self._known_view.tree, self.node.uuid, findings, house.policy, self._known_journal, house.identity, allocations)

    def _reshaped_wish(self, audit: _Pass, base: ProviderTree, findings: Findings, needed: ReshapeNeeded) -> tuple[ProviderTree, Move]:
        """The wish of a driver that has to move allocations, and how it moved them; only at a start."""
        if not audit.mode.start:
            raise needed
        before = collect(audit.client, self._known_view.tree, self.node.uuid)
        edited = {str(uuid): one.as_driver_dict() for uuid, one in before.items()}
        try:
            wish = self._wish(base, findings, edited)
        except ReshapeNeeded as error:
            raise ReshapeFailed(
                f"driver error: {self.node.driver} asks for a reshape of {printable(self.node.name)} although it was given the allocations",
                "report this to whoever wrote the driver",
            ) from error
        lost = before.keys() - edited.keys()
        if lost:
            raise ReshapeFailed(f"driver error: {self.node.driver} dropped consumer {min(lost)}", "report this to whoever wrote the driver")
        return wish, Move(before, {ConsumerUuid(uuid): before[ConsumerUuid(uuid)].edited(record) for uuid, record in edited.items() if uuid in before})

    # --- flush ------------------------------------------------------------------------------------------------

    def _flush(self, audit: _Pass, plan: Plan) -> Flushed:
        """Step 5: write down what will be ours, send the plan, write down what came of it."""
        server, node = self.house.server, self.node
        refused = [one for one in plan.operations if one in self._refused]
        plan = replace(plan, operations=tuple(one for one in plan.operations if one not in refused))
        self._keep_journal(_either(self._known_journal, plan.target.journal) if plan.operations else plan.target.journal)
        try:
            flushed = flush(audit.client, plan, self._known_view, self._knowledge, node.uuid, time.time())
        except ReshapeFailed:
            self._unknown_outcome = True
            raise
        if flushed.forgot:
            server.forget(flushed.knowledge)
        else:
            server.learned(flushed.knowledge)
        self._view = flushed.view
        self._unknown_outcome = flushed.outage is not None or flushed.conflict is not None
        self._keep_view()
        journal = plan.target.journal if flushed.complete else self._known_journal
        self._keep_journal(replace(journal, held={**journal.held, **flushed.held}))
        self._refused += [one.operation for one in flushed.outcomes if one.status == "failed" and _refused_for_good(flushed, one)]
        audit.errors += flushed.errors
        if flushed.outage is not None:
            audit.errors.append(flushed.outage)
        given_up = flushed.conflict is not None
        audit.outcomes += [one for one in flushed.outcomes if one.status == "done" or not given_up]
        audit.outcomes += [Outcome(one, "skipped", "Placement refused exactly this before") for one in refused]
        audit.drift += self._overcommitted(audit.client, flushed)
        return flushed

    def _keep_journal(self, journal: Journal) -> None:
        self.house.server.storage.save_journal(self.node.uuid, journal)
        self._journal = journal

    def _keep_view(self) -> None:
        if self._view is not None and self._view is not self._saved:
            self.house.server.storage.save_view(self.house.server.transport.endpoint, self.node.uuid, self._saved, self._view)
            self._saved = self._view

    def _again(self, audit: _Pass, conflict: PlacementError) -> bool:
        """Whether to give up. A conflict is normal on a busy host: everything is read and planned anew."""
        LOG.debug("node %s, attempt %s: %s", printable(self.node.name), audit.attempts, conflict.message)
        self._unknown_outcome = False
        if audit.attempts == MAX_ATTEMPTS:
            raise GenerationConflict(f"{printable(self.node.name)}: {MAX_ATTEMPTS} attempts met changes by others, last: {conflict.message}",
                                     "it is tried again in the next pass") from conflict
        if conflict_wait(audit.attempts, self.house.cancelled):
            raise PlacementError("cancelled while waiting to try again") from conflict
        return False

    def _overcommitted(self, client: Client, flushed: Flushed) -> list[Drift]:
        """What a smaller inventory left over-committed; the server accepts that without a word."""
        drift = []
        for one in flushed.outcomes:
            operation = one.operation
            if one.status != "done" or not isinstance(operation, SetInventory) or operation.provider.uuid in self._known_journal.held:
                continue
            shrunk = [name for name, record in operation.new.items() if name in operation.old and capacity(record) < capacity(operation.old[name])]
            used = client.usages(operation.provider.uuid) if shrunk else {}
            for name in shrunk:
                if used.get(name, 0) > capacity(operation.new[name]):
                    text = f"over-committed {name} {used[name]} of {capacity(operation.new[name])} on {printable(operation.provider.name)}"
                    LOG.warning(text)
                    drift.append(Drift("overcommitted", "warning", text, "move consumers away; new claims are refused", operation.provider.uuid))
        return drift

    # --- report -----------------------------------------------------------------------------------------------

    def _look(self, audit: _Pass, plan: Plan, findings: Findings) -> None:
        """What the report shows of this plan, in place of what an earlier attempt saw."""
        audit.drift = list(plan.drift)
        audit.tree = plan.target.tree
        audit.errors = [AgentError(text, "it was left as it is in Placement") for text in plan.target.invalid]
        audit.errors += [
            AgentError(f"facts of {printable(self.node.name)}: {section} is not complete: {printable(why)}", "the last good values stay")
            for section, why in sorted(findings.facts.incomplete.items())
        ]

    def _state(self, audit: _Pass) -> NodeState:
        if audit.incomplete or audit.errors or any(one.status in ("failed", "skipped") for one in audit.outcomes):
            return "degraded"
        if not audit.outcomes:
            return "in-sync"
        return "pending" if audit.mode.dry_run else "changed"

    def _note(self, audit: _Pass, error: AgentError) -> None:
        audit.errors = [*(error.errors if isinstance(error, ConfigErrors) else (error,))]
        if isinstance(error, ProviderNameConflict):
            audit.drift = [Drift("name-conflict", "warning", error.message, error.remedy, self.node.uuid)]
        elif isinstance(error, ProviderIdentityConflict):
            audit.drift = [Drift("identity", "warning", error.message, error.remedy, self.node.uuid)]

    def _report(self, audit: _Pass, state: NodeState) -> NodeReport:
        tree = audit.tree if audit.mode.dry_run else self._own_tree()
        counts = audit.client.exchange.counts
        return NodeReport(
            name=self.node.name, uuid=self.node.uuid, driver=self.node.driver, state=state, attempts=audit.attempts,
            outcomes=tuple(audit.outcomes), drift=tuple(audit.drift), tree=tree, owned=frozenset(self._known_journal.providers),
            usage=audit.usage, requests={method: counts.get(method, 0) for method in METHODS}, seconds=audit.seconds,
            errors=tuple(Problem(one.code, one.message, one.remedy) for one in audit.errors), provisional=self.node.provisional,
        )  # fmt: skip

    def _own_tree(self) -> ProviderTree:
        tree, root = self._known_view.tree, self.node.uuid
        return tree.subtree(root) if tree.exists(root) else ProviderTree()


def _either(before: Journal, after: Journal) -> Journal:
    """What is ours if any part of the way from ``before`` to ``after`` has been done: written down before it is sent."""
    providers = {
        uuid: Ownership(one.classes | other.classes, one.traits | other.traits, one.aggregates | other.aggregates)
        for uuid in (*before.providers, *after.providers)
        for one, other in [(before.of(uuid), after.of(uuid))]
    }
    return Journal(providers, after.adopted, {**before.held, **after.held})


def _refused_for_good(flushed: Flushed, outcome: Outcome) -> bool:
    """Whether sending the same again would only bring the same 400."""
    texts = {str(error) for error in flushed.errors if isinstance(error, PlacementRefused) and error.status == 400}
    return outcome.error in texts


