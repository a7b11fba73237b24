"""The progress of one audit of one node, and the node report built from it."""

import logging
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from agent.audit.context import AuditedNode, AuditOptions
from agent.audit.observation import PlanOutcome
from agent.errors import (
    AdoptionNeeded,
    AgentError,
    ConfigErrors,
    ProviderIdentityConflict,
    ProviderNameConflict,
)
from agent.model.facts import Domain, HostFacts
from agent.model.finding import AuditState, Drift, DriftKind, Problem
from agent.model.inventory import capacity
from agent.model.mirror import Consumers
from agent.model.names import NORMAL_UUID, ConsumerUuid, ProviderUuid, printable
from agent.model.operation import CreateProvider, Reshape, SetInventory
from agent.model.provider_tree import ProviderTree
from agent.model.report import METHODS, STEPS, NodeReport, Outcome, Usage
from agent.placement.client import PlacementClient
from agent.placement.flush import FlushResult
from agent.tracker.claim_usage import provider_usage
from agent.tracker.node_state import NodeView
from agent.tracker.nova_commands import guest_name

LOG = logging.getLogger(__name__)


def shrunk_below_usage(
    client: PlacementClient, flushed: FlushResult, held: Container[ProviderUuid]
) -> list[Drift]:
    """Return drift for every resource class whose inventory was lowered below its usage.

    Providers in ``held`` are left out: their inventory was lowered on purpose and waits until the
    usage ends.
    """
    drift = []
    for outcome in flushed.outcomes:
        operation = outcome.operation
        if (
            outcome.status != "done"
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
                        "new claims are refused; move consumers of "
                        f"{amount - capacity(record)} away; who they are: "
                        "openstack resource provider show --allocations "
                        f"{operation.provider.uuid}",
                        operation.provider.uuid,
                    )
                )
    return drift


# Seconds until a refused node is tried again: after the first refusal, and at most.
FIRST_PAUSE = 120.0
LONGEST_PAUSE = 3600.0


@dataclass(frozen=True, slots=True)
class RefusedAudit:
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


@dataclass(slots=True)
class AuditRun:
    """The progress of one audit over its attempts, which is reported whatever ends the audit."""

    client: PlacementClient
    options: AuditOptions
    attempts: int = 1
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    """Duration of each step, in seconds."""
    facts: HostFacts | None = None
    """None until the driver has reported, and of a node that was deleted."""
    records: NodeView | None = None
    """What the records of the node show; None until it was counted."""
    planned: PlanOutcome = field(default_factory=PlanOutcome)
    """What followed in the last attempt that came as far; without a plan until then."""
    tree: ProviderTree = field(default_factory=ProviderTree)
    """What a dry run shows: the tree that the last plan leads to."""
    outcomes: list[Outcome] = field(default_factory=list)
    """In the order sent, over all attempts."""
    errors: list[AgentError] = field(default_factory=list)
    """Of the last plan and of its flush, or what ended the audit."""
    drift: list[Drift] = field(default_factory=list)
    """Of the last plan and of its flush."""
    in_placement: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The usages of each provider, if Placement was asked for them."""
    forgot: bool = False
    """The server had lost names that were known as confirmed; they had to be confirmed again."""
    tried: set[ConsumerUuid] = field(default_factory=set)
    """Consumers whose allocations could not be removed."""
    unrepaired: str = ""
    """Why allocations of devices could not be corrected; empty if they could."""

    @property
    def reading_options(self) -> AuditOptions:
        """The options for the reads of an attempt: only the first one reads everything again."""
        first = self.attempts == 1
        return self.options if first else replace(self.options, reread=False)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the duration of the block to that of the step ``name``."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - begun

    def take_plan(self, planned: PlanOutcome) -> None:
        """Take over the plan of an attempt; drift and errors of an earlier attempt are replaced."""
        assert planned.plan is not None
        self.planned, self.tree = planned, planned.plan.target.tree
        self.drift, self.errors = list(planned.drift), list(planned.errors)

    def fail(self, error: AgentError) -> None:
        """Replace the errors by the error that ended the audit."""
        self.errors = list(error.errors) if isinstance(error, ConfigErrors) else [error]

    def conflicts_of(self, uuid: ProviderUuid) -> list[ProviderNameConflict]:
        """Return the conflicts about the name of the provider with this uuid: one, or none."""
        return [
            error
            for error in self.errors
            if isinstance(error, ProviderNameConflict) and error.data["uuid"] == uuid
        ]

    @property
    def has_moved(self) -> bool:
        """Whether every reshape was done: that of a layout, which only an audit at the start plans,
        and the correction of devices' allocations, which any audit may plan.
        """
        return all(
            outcome.status == "done"
            for outcome in self.outcomes
            if isinstance(outcome.operation, Reshape)
        )

    def state(self) -> AuditState:
        """Return the node's state after an audit that came to its end."""
        if self.errors or any(outcome.status in ("failed", "skipped") for outcome in self.outcomes):
            return "degraded"
        if not self.outcomes:
            return "in-sync"
        return "pending" if self.options.dry_run else "changed"

    def _not_judged(self, node: AuditedNode, observes: bool) -> str:
        """Return that the allocations were not judged, where neither the driver nor a record tells
        of guests; else empty. A node that is new in Placement has no allocations.
        """
        facts, records = self.facts, self.records
        if facts is None or records is None or facts.domains is not None:
            return ""
        on_record = not observes and bool(records.state.claims)
        created = any(
            isinstance(outcome.operation, CreateProvider)
            and outcome.operation.provider.uuid == node.uuid
            for outcome in self.outcomes
        )
        if on_record or created or not facts.complete("domains"):
            return ""
        return f"allocations were not judged, because driver {node.driver} cannot list guests"

    def report(
        self,
        node: AuditedNode,
        state: AuditState,
        tree: ProviderTree,
        owned: frozenset[str],
        consumers: Consumers,
        *,
        observes: bool,
    ) -> NodeReport:
        """Return the report.

        ``tree`` and ``owned`` are what Placement has now and which of these providers the journal
        records as ours; used where no plan was made. ``consumers``: who is known to hold what.
        """
        counts = self.client.exchange.counts
        # An observer shows what is there.
        foreseen = self.options.dry_run and not (observes and tree.exists(node.uuid))
        shown = self.tree if foreseen else tree
        plan, shaped = self.planned.plan, self.planned.shaped
        planned = plan.target.journal.providers if plan is not None else {}
        hint = shaped.hint if shaped is not None else None
        on_record = provider_usage(self.records.state, shown) if self.records is not None else {}
        return NodeReport(
            name=node.name,
            uuid=node.uuid,
            driver=node.driver,
            state=state,
            attempts=self.attempts,
            outcomes=tuple(self.outcomes),
            drift=_with_names(
                (*self.drift, *_conflicts(self.errors, node)),
                self.facts.domains if self.facts is not None else None,
            ),
            tree=shown,
            owned=frozenset(planned) or owned,
            used=on_record,
            in_placement=self.in_placement,
            consumers=consumers,
            usage=self.records.usage if self.records is not None else Usage(),
            requests={method: counts.get(method, 0) for method in METHODS},
            seconds=self.seconds,
            errors=tuple(
                Problem(error.code, error.message, error.remedy, error.fatal)
                for error in self.errors
            ),
            # One that Placement has is not made up: the driver gave it.
            provisional=node.provisional and not tree.exists(node.uuid),
            layout=shaped.layout if shaped is not None else None,
            hint="; ".join(filter(None, [hint, self._not_judged(node, observes)])) or None,
            incomplete=frozenset(self.facts.incomplete) if self.facts is not None else frozenset(),
            judged=plan is not None,
        )


# Not where the name is there already: guest one (UUID).
_GUEST = re.compile(rf"(?<!\()(?:(?:instance|guest|consumer) )?\b({NORMAL_UUID.pattern})")


def _with_names(drift: Sequence[Drift], guests: Sequence[Domain] | None) -> tuple[Drift, ...]:
    """Return ``drift`` with the name of each guest that the hypervisor shows before its uuid."""
    if not drift or not guests:
        return tuple(drift)
    names = {guest.uuid: guest_name(guest) for guest in guests if guest.name != guest.uuid}

    def named(found: re.Match[str]) -> str:
        return names.get(ConsumerUuid(found[1]), found[0])

    return tuple(replace(one, detail=_GUEST.sub(named, one.detail)) for one in drift)


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
