"""What one audit gathers on its way, and the report that comes of it."""

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
from agent.placement.flush import Flushed
from agent.placement.plan import Plan
from agent.tracker.accounted import accounted
from agent.tracker.errors import NodeDegraded
from agent.tracker.node_state import NodeView
from agent.tree.allocation_repair import AllocationRepair

LOG = logging.getLogger(__name__)


def overcommitted(
    client: PlacementClient, flushed: Flushed, held: Container[ProviderUuid]
) -> list[Drift]:
    """The classes of which a smaller record leaves less than is used. Not of what is ``held``,
    which waits for just that to end.
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
            # All of it is reserved for whoever has it already, as a device for one time is.
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
    """How to audit. ``start``: reshapes are allowed, until the node was audited once. ``reread``:
    trust nothing saved.

    ``asked``: somebody asked for this audit, so that a refused node is tried again at once.
    """

    dry_run: bool = False
    adopt: bool = False
    start: bool = False
    reread: bool = False
    with_usages: bool = False
    asked: bool = False


@dataclass(frozen=True, slots=True)
class AuditedNode:
    """A node to audit. ``provisional``: its uuid was made up for a dry run without an identity."""

    uuid: ProviderUuid
    name: str
    driver: str
    provisional: bool = False


@dataclass(slots=True)
class AuditRun:
    """One audit under way. ``outcomes`` are in the order sent, over all attempts. ``forgot``: names
    had to be confirmed anew.

    ``earlier`` waits for the audits that began before this one. ``records``: what the records of
    the node show. ``tried``: consumers whose allocations could not be removed. ``incomplete``: the
    sections of the facts that could not be read. ``misfits``: what of the operator's files does not
    fit the node. ``judged``: whether it came as far as to say what drifts. ``devices`` and
    ``repair``: what came of the node's devices; ``unhealed``: why allocations of devices could not
    be corrected.
    """

    client: PlacementClient
    mode: AuditOptions
    earlier: Callable[[], object]
    attempts: int = 1
    outcomes: list[Outcome] = field(default_factory=list)
    errors: list[AgentError] = field(default_factory=list)
    drift: list[Drift] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    tree: ProviderTree = field(default_factory=ProviderTree)
    owned: frozenset[str] = frozenset()
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    records: NodeView | None = None
    forgot: bool = False
    tried: set[ConsumerUuid] = field(default_factory=set)
    hint: str | None = None
    incomplete: frozenset[Section] = frozenset()
    misfits: Sequence[AgentError] = ()
    devices: PlacedDeviceTree | None = None
    repair: AllocationRepair = field(default_factory=AllocationRepair)
    unhealed: str = ""
    judged: bool = False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - begun

    def counted(self, records: NodeView) -> None:
        """What the node's records show."""
        self.records, self.usage = records, records.usage

    def planned(self, plan: Plan, facts: HostFacts | None) -> None:
        """What a plan shows, in place of what an earlier attempt saw."""
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
        """The audit ended here."""
        self.errors = list(error.errors) if isinstance(error, ConfigErrors) else [error]

    @property
    def has_moved(self) -> bool:
        """Whether all is done that only a start may do."""
        return all(
            one.status == "done" for one in self.outcomes if isinstance(one.operation, Reshape)
        )

    def state(self) -> NodeState:
        """How the node stands after an audit that came to its end."""
        if self.errors or any(one.status in ("failed", "skipped") for one in self.outcomes):
            return "degraded"
        if not self.outcomes:
            return "in-sync"
        return "pending" if self.mode.dry_run else "changed"

    def report(
        self, node: AuditedNode, state: NodeState, tree: ProviderTree, owned: frozenset[str]
    ) -> NodeReport:
        """The report. ``tree``: what Placement has now; ``owned``: what of it is ours, as far as is
        written down.
        """
        counts = self.client.exchange.counts
        shown = self.tree if self.mode.dry_run else tree
        used = self.used or (
            accounted(self.records.state, shown) if self.records is not None else {}
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
    """Names and uuids that are somebody else's in Placement, found before or during the flush, and
    trees that are.
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
