"""The plan of one attempt of an audit. Pure but for the memory of rival writers."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.audit.allocations import JudgedAllocations
from agent.audit.shape import Observed
from agent.errors import AgentError
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid, printable
from agent.model.report import Drift, Outcome
from agent.placement.merge import Target
from agent.placement.plan import Plan
from agent.placement.rival_writers import RivalWriters
from agent.tracker.errors import NodeDegraded
from agent.tracker.node_state import NodeView
from agent.tree.allocation_repair import AllocationRepair
from agent.tree.desired_tree import STATUS_DISABLED


@dataclass(frozen=True, slots=True)
class PlannedAudit:
    """The plan of one attempt, with what the report shows of it."""

    plan: Plan
    repair: AllocationRepair
    """Corrections of the allocations of devices."""
    judged: JudgedAllocations
    """The removals at the end of the plan."""
    withheld: tuple[Outcome, ...] = ()
    """The outcomes of operations that another writer would change back now."""
    drift: tuple[Drift, ...] = ()
    errors: tuple[AgentError, ...] = ()
    exclusive: bool = False
    """One consumer takes the whole node, see HostFacts."""
    recreates: bool = False
    """Some PCI providers are removed, to be created again at another place."""
    removes_node: bool = False
    """The node was deleted, so its providers go."""


def plan_audit(
    observed: Observed,
    plan: Plan,
    repair: AllocationRepair,
    judged: JudgedAllocations,
    rivals: RivalWriters,
    enabled: bool | None,
) -> PlannedAudit:
    """Return the plan of an attempt: ``plan`` with the removals of allocations, without what
    another writer would change back now. ``enabled``: whether the operator's switch is on.
    """
    plan, withheld = rivals.withhold(judged.added_to(plan))
    devices, facts = observed.desired.devices, observed.report.facts
    return PlannedAudit(
        plan,
        repair,
        judged,
        tuple(withheld),
        (
            *observed.records.drift,
            *devices.drift,
            *repair.drift,
            *plan.drift,
            *(_disabled(plan.target, observed.records.node) if enabled else ()),
        ),
        (
            *observed.desired.files.problems,
            *devices.part.errors,
            *_of_target(plan.target),
            *_of_records(observed.records),
            *_of_facts(facts),
            *judged.errors,
        ),
        facts.exclusive,
        devices.anew,
    )


def plan_removal(plan: Plan, rivals: RivalWriters) -> PlannedAudit:
    """Return the plan of an attempt for a node that was deleted."""
    plan, withheld = rivals.withhold(plan)
    return PlannedAudit(
        plan,
        AllocationRepair(),
        JudgedAllocations(),
        tuple(withheld),
        plan.drift,
        tuple(_of_target(plan.target)),
        removes_node=True,
    )


def _disabled(target: Target, root: ProviderUuid) -> Iterator[Drift]:
    """Yield drift if somebody else disabled a node that the operator's switch enables."""
    if STATUS_DISABLED in target.tree.provider(root).traits:
        traits = "openstack --os-placement-api-version 1.6 resource provider trait"
        yield Drift(
            "disabled",
            "warning",
            f"{printable(target.tree.name_of(root))} has {STATUS_DISABLED}, which somebody else "
            "set, although [DEFAULT] enabled = true: no new guest is scheduled to it",
            # The client replaces all traits or none.
            f"{traits} set {root} $({traits} list {root} -f value | grep -vx {STATUS_DISABLED} | "
            "sed 's/^/--trait /')",
            root,
        )


def _of_target(target: Target) -> Iterator[AgentError]:
    for text in target.invalid:
        yield AgentError(
            text,
            "give the host a shorter name: [DEFAULT] host"
            if "its name has" in text
            else "it was left as it is in Placement",
        )
    yield from target.conflicts


def _of_records(records: NodeView) -> Iterator[AgentError]:
    for text in records.problems:
        yield NodeDegraded(text, "correct or remove the record; until then nothing new is promised")


def _of_facts(facts: HostFacts) -> Iterator[AgentError]:
    for section, why in sorted(facts.incomplete.items()):
        yield AgentError(
            f"facts of {printable(facts.name)}: {section} is not complete: {printable(why)}",
            "its last good values stay",
        )
