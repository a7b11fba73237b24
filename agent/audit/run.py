"""Options, state and result of one audit of one node, and the node report built from them."""

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from agent.audit.devices import PlacedDeviceTree
from agent.errors import (
    AdoptionNeeded,
    AgentError,
    ConfigErrors,
    ProviderIdentityConflict,
    ProviderNameConflict,
)
from agent.model.facts import HostFacts, Section
from agent.model.inventory import capacity
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.operation import Reshape, SetInventory
from agent.model.provider_tree import ProviderTree
from agent.model.report import (
    METHODS,
    STEPS,
    Drift,
    DriftKind,
    NodeReport,
    NodeState,
    Outcome,
    Problem,
    Usage,
)
from agent.placement.client import PlacementClient
from agent.placement.flush import FlushResult
from agent.placement.plan import Plan
from agent.tracker.claim_usage import provider_usage
from agent.tracker.errors import NodeDegraded
from agent.tracker.node_state import NodeView
from agent.tree.allocation_repair import AllocationRepair

LOG = logging.getLogger(__name__)


def overcommitted(
    client: PlacementClient, flushed: FlushResult, held: Container[ProviderUuid]
) -> list[Drift]:
    """Return drift for every resource class whose inventory was lowered below its usage.

    Providers in ``held`` are left out: their inventory was lowered on purpose and waits until the
    usage ends.
    """
    drift = []
    for one in flushed.outcomes:
        operation = one.operation
        if (
            one.status != "done"
            or not isinstance(operation, SetInventory)
            or operation.provider.uuid in held
        ):
            continue
        shrunk = [
            name
            for name, record in operation.new.items()
            if name in operation.old and capacity(record) < capacity(operation.old[name])
        ]
        used = client.usages(operation.provider.uuid) if shrunk else {}
        for name in shrunk:
            record, amount = operation.new[name], used.get(name, 0)
            # All of it is reserved for its present consumer, as with a one-time-use device.
            closed = record["reserved"] == record["total"] >= amount
            if amount > capacity(record) and not closed:
                text = (
                    f"over-committed {name} {amount} of {capacity(record)} on "
                    f"{printable(operation.provider.name)}"
                )
                LOG.warning(text)
                drift.append(
                    Drift(
                        "overcommitted",
                        "warning",
                        text,
                        "move consumers away; new claims are refused",
                        operation.provider.uuid,
                    )
                )
    return drift


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How to audit."""

    dry_run: bool = False
    """Plan and report, send nothing."""
    adopt: bool = False
    """Take over a tree that another agent or program wrote."""
    start: bool = False
    """Reshapes are allowed, as long as the node has not been audited before in this process."""
    reread: bool = False
    """Read the whole tree from Placement; trust no saved mirror."""
    with_usages: bool = False
    """Ask Placement for the usages that the report shows."""
    asked: bool = False
    """The audit was requested, so a refused node is tried again at once."""


@dataclass(frozen=True, slots=True)
class AuditedNode:
    """A node to audit."""

    uuid: ProviderUuid
    name: str
    driver: str
    provisional: bool = False
    """The uuid was generated for a dry run on a host without an identity."""


@dataclass(slots=True)
class AuditRun:
    """State of one audit under way."""

    client: PlacementClient
    mode: AuditOptions
    earlier: Callable[[], object]
    """Waits for the audits of other nodes that began before this one."""
    attempts: int = 1
    outcomes: list[Outcome] = field(default_factory=list)
    """In the order sent, over all attempts."""
    errors: list[AgentError] = field(default_factory=list)
    drift: list[Drift] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    """Duration of each step, in seconds."""
    tree: ProviderTree = field(default_factory=ProviderTree)
    owned: frozenset[str] = frozenset()
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    records: NodeView | None = None
    """What the records of the node show; None without records."""
    forgot: bool = False
    """The server had lost names that were known as confirmed; they had to be confirmed again."""
    tried: set[ConsumerUuid] = field(default_factory=set)
    """Consumers whose allocations could not be removed."""
    hint: str | None = None
    incomplete: frozenset[Section] = frozenset()
    """Sections of the facts that the driver could not read."""
    misfits: Sequence[AgentError] = ()
    """Errors of provider files that do not fit the node."""
    devices: PlacedDeviceTree | None = None
    """The desired tree with its devices; None until it was shaped."""
    repair: AllocationRepair = field(default_factory=AllocationRepair)
    """Corrections of the allocations of devices."""
    unhealed: str = ""
    """Why allocations of devices could not be corrected; empty if they could."""
    judged: bool = False
    """The audit came as far as a plan, so ``drift`` is complete."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the duration of the block to that of the step ``name``."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - begun

    def counted(self, records: NodeView) -> None:
        """Take over what the node's records show."""
        self.records, self.usage = records, records.usage

    def planned(self, plan: Plan, facts: HostFacts | None) -> None:
        """Set tree, drift and errors from a plan; the results of an earlier attempt are
        replaced.
        """
        shown, self.judged = self.records, True
        put = self.devices
        self.drift = [
            *(shown.drift if shown is not None else ()),
            *(put.drift if put else ()),
            *self.repair.drift,
            *plan.drift,
        ]
        self.tree, self.owned = plan.target.tree, frozenset(plan.target.journal.providers)
        self.errors = [*self.misfits, *(put.part.errors if put else ())]
        self.errors += [
            AgentError(text, "it was left as it is in Placement") for text in plan.target.invalid
        ]
        self.errors += plan.target.conflicts
        if shown is not None:
            self.errors += [
                NodeDegraded(
                    text, "correct or remove the record; until then nothing new is promised"
                )
                for text in shown.problems
            ]
        if facts is not None:
            self.errors += [
                AgentError(
                    (
                        f"facts of {printable(facts.name)}: {section} is not complete: "
                        f"{printable(why)}"
                    ),
                    "its last good values stay",
                )
                for section, why in sorted(facts.incomplete.items())
            ]

    def failed(self, error: AgentError) -> None:
        """Replace the errors by the error that ended the audit."""
        self.errors = list(error.errors) if isinstance(error, ConfigErrors) else [error]

    @property
    def has_moved(self) -> bool:
        """Whether every reshape was done; only an audit at the start may send one."""
        return all(
            one.status == "done" for one in self.outcomes if isinstance(one.operation, Reshape)
        )

    def state(self) -> NodeState:
        """Return the node's state after an audit that came to its end."""
        if self.errors or any(one.status in ("failed", "skipped") for one in self.outcomes):
            return "degraded"
        if not self.outcomes:
            return "in-sync"
        return "pending" if self.mode.dry_run else "changed"

    def report(
        self, node: AuditedNode, state: NodeState, tree: ProviderTree, owned: frozenset[str]
    ) -> NodeReport:
        """Return the report.

        ``tree`` and ``owned`` are what Placement has now and which of these providers the journal
        records as ours; used where no plan was made.
        """
        counts = self.client.exchange.counts
        shown = self.tree if self.mode.dry_run else tree
        used = self.used or (
            provider_usage(self.records.state, shown) if self.records is not None else {}
        )
        return NodeReport(
            name=node.name,
            uuid=node.uuid,
            driver=node.driver,
            state=state,
            attempts=self.attempts,
            outcomes=tuple(self.outcomes),
            drift=(*self.drift, *_conflicts(self.errors, node)),
            tree=shown,
            owned=self.owned or owned,
            used=used,
            usage=self.usage,
            requests={method: counts.get(method, 0) for method in METHODS},
            seconds=self.seconds,
            errors=tuple(
                Problem(one.code, one.message, one.remedy, one.fatal) for one in self.errors
            ),
            provisional=node.provisional,
            hint=self.hint,
            incomplete=self.incomplete,
            judged=self.judged,
        )


def _conflicts(errors: Iterable[AgentError], node: AuditedNode) -> Iterator[Drift]:
    """Yield drift for errors about names, uuids and trees that belong to another owner in
    Placement.
    """
    kinds: dict[type[AgentError], DriftKind] = {
        ProviderNameConflict: "name-conflict",
        ProviderIdentityConflict: "identity",
        AdoptionNeeded: "adoption-needed",
    }
    for error in errors:
        if (kind := kinds.get(type(error))) is not None:
            yield Drift(
                kind, "warning", error.message, error.remedy, error.data.get("uuid", node.uuid)
            )
