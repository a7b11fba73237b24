"""The plan of an audit of one node: a pure function of what was read, to the operations to send,
the repair of its devices' allocations among them, and the drift to tell, or to what has to be read
before more follows.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

from agent.audit.allocations import judge, needed_holdings
from agent.audit.name_conflict import guests_elsewhere
from agent.audit.observation import (
    Hold,
    Holdings,
    Judged,
    KnownHolders,
    LastingSurpluses,
    Need,
    Observation,
    PlanOutcome,
    Reread,
    Shaped,
    TreeObservation,
    WholeAllocations,
)
from agent.audit.shape import newly_stranded, plan_of, shape
from agent.errors import AgentError, ReshapeFailed
from agent.model.finding import Drift
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, name_first, printable
from agent.model.operation import Reshape
from agent.model.provider_tree import BaseTree, DesiredTree, ProviderTree
from agent.placement.merge import ADOPT, Merge, Target
from agent.placement.ownership import MergeInputs, foreign_inventory
from agent.placement.plan import Plan, make_plan
from agent.tracker.errors import NodeDegraded
from agent.tree.allocation_repair import (
    AllocationRepair,
    Counted,
    all_wrong,
    counted,
    holders_of_unknown_shares,
    plan_repair,
    strangers,
    surpluses,
    to_correct,
    unknown_shares,
    wrong_owners,
)
from agent.tree.desired_tree import STATUS_DISABLED
from agent.tree.node_trees import page_size


def plan_audit(seen: Observation) -> PlanOutcome:
    """Return what follows for a node: the tree that Placement should hold, the repair of its
    devices' allocations, the verdict on all its allocations, and the operations for all of that.
    """
    elsewhere = guests_elsewhere(seen) if seen.shaped is None and seen.may_be_elsewhere else None
    shaped = seen.shaped or elsewhere or seen.shape_again() or shape(seen)
    if isinstance(shaped, Need):
        return PlanOutcome(needs=shaped)
    repaired: AllocationRepair | Need = AllocationRepair()
    if seen.takes_care:
        repaired = needed_holdings(seen, shaped) or repair(seen, shaped)
    if isinstance(repaired, Need):
        judges = isinstance(repaired, Holdings)
        return PlanOutcome(needs=repaired, judges=judges, shaped=shaped)
    move = shaped.move or repaired.move
    if move is not None and (stranded := newly_stranded(seen, shaped, move)):
        return PlanOutcome(needs=Hold(stranded))
    judged = judge(seen)
    if isinstance(judged, Need):
        return PlanOutcome(needs=judged, judges=True, shaped=shaped)
    try:
        plan = shaped.plan if move is None else plan_of(seen, shaped.target, move)
    except ReshapeFailed as error:
        if repaired.move is None:
            raise
        # The other changes do not wait for the repair.
        return plan_audit(replace(seen, shaped=shaped, unrepaired=told(error)))
    # The next pass removes allocations if a reshape may concern the same consumers.
    reshapes = any(isinstance(operation, Reshape) for operation in plan.operations)
    removals = () if reshapes else judged.operations
    return PlanOutcome(
        shaped=shaped,
        plan=Plan((*plan.operations, *removals), plan.target, (), limited=plan.limited),
        repair=repaired,
        judged=judged,
        drift=tuple(_drift(seen, shaped, repaired, plan, judged)),
        errors=(
            *shaped.problems,
            *shaped.devices.errors,
            *plan.target.invalid,
            *plan.target.conflicts,
            *(
                NodeDegraded(
                    text, "correct or remove the record; until then nothing new is promised"
                )
                for text in seen.records.state.problems
            ),
            *(
                AgentError(
                    f"facts of {printable(seen.facts.name)}: {section} is not complete: "
                    f"{printable(why)}",
                    "its last good values stay",
                )
                for section, why in sorted(seen.facts.incomplete.items())
            ),
            *judged.errors,
        ),
    )


def _drift(
    seen: Observation, shaped: Shaped, repaired: AllocationRepair, plan: Plan, judged: Judged
) -> Iterator[Drift]:
    """Yield the drift of all parts of an audit."""
    yield from seen.records.drift
    yield from shaped.device_drift
    yield from repaired.drift
    yield from plan.drift
    yield from judged.drift
    if seen.policy.enabled:
        yield from _disabled(plan.target, seen.root)
    if seen.takes_care and seen.view.consumers.get(seen.root):
        yield from _used_of_others(seen)


def told(error: AgentError) -> str:
    """Return an error and its remedy in one line."""
    return f"{error.message}; {error.remedy}" if error.remedy else error.message


def plan_removal(seen: TreeObservation) -> PlanOutcome:
    """Return what follows for a node that was deleted: what is ours of its tree goes."""
    nothing = ProviderTree()
    inputs = MergeInputs.of(
        seen.named, seen.journal, BaseTree(nothing), DesiredTree(nothing), seen.root
    )
    target = Merge(inputs, seen.capabilities, seen.usages).target()
    named = target.with_names_of_others(seen.view.tree)
    plan = make_plan(seen.view, named, seen.capabilities, seen.root)
    return PlanOutcome(
        plan=replace(plan, drift=()),
        drift=(*plan.drift, *_lost_of_others(replace(inputs, keeps_foreign=True))),
        errors=(*plan.target.invalid, *plan.target.conflicts),
        removes_node=True,
    )


def _lost_of_others(inputs: MergeInputs) -> Iterator[Drift]:
    """Yield drift for each provider of a deleted node that somebody else gave something."""
    for uuid in filter(inputs.journal.owns, inputs.present.get_provider_uuids(inputs.root)):
        if others := inputs.kept_for_others(uuid):
            yield Drift(
                "foreign-provider",
                "info",
                f"{printable(inputs.present.provider(uuid).name)} is deleted with what somebody "
                f"else gave it: {name_first(others)}",
                "leave it if the node is deleted; nothing writes it again",
                uuid,
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


def _used_of_others(seen: Observation) -> Iterator[Drift]:
    """Yield drift for each class that somebody else put on the node's root, and of which consumers
    are known: it stays.
    """
    root, held = seen.root, seen.view.consumers[seen.root]
    # In a tree that is not adopted nothing says whose a class is.
    if not (seen.journal.adopted and seen.named.tree.exists(root)):
        return
    provider, own = seen.named.tree.provider(root), seen.journal.of(root)
    for name in sorted(foreign_inventory(provider, own, adopted=True)):
        amounts = {who: some[name] for who, some in sorted(held.items()) if name in some}
        if not amounts or page_size(name) is not None:
            continue
        removals = [
            f"agent allocation remove {who} {root} {name}={amount}"
            for who, amount in amounts.items()
        ]
        yield Drift(
            "foreign-provider",
            "info",
            f"{printable(provider.name)}: {name} was put there by somebody else, and stays; "
            f"{name_first([*amounts])} holds of it",
            f"leave it if it is meant so; else: {' && '.join(removals)} && openstack "
            "--os-placement-api-version 1.28 resource provider inventory delete "
            f"{root} --resource-class {name}",
            root,
        )


LOG = logging.getLogger(__name__)

LATER = "it is corrected in a later pass"


def repair(seen: Observation, shaped: Shaped) -> AllocationRepair | Need:
    """Return the corrections that the guests' allocations of devices need."""
    if not seen.uses.settled or not shaped.devices.providers:
        return AllocationRepair()
    count = counted(shaped.devices, shaped.target.tree, seen.uses)
    tree = seen.own_tree()
    ours = tuple(
        uuid
        for uuid in tree.get_provider_uuids()
        if uuid in shaped.target.journal.providers and tree.has_inventory(uuid)
    )
    if any(uuid not in seen.view.consumers for uuid in ours):
        return KnownHolders(ours)
    consumers, why_not = seen.consumers(ours), _why_not(seen, shaped)
    # The known consumers may be outdated, because giving back an allocation moves no generation;
    # those to be corrected are asked for again.
    reread = Reread("devices", _doubtful(seen, count, consumers, certain=bool(why_not)))
    if seen.needs_reread(reread):
        return reread
    target = shaped.target.tree
    drift = tuple(unknown_shares(count, consumers, seen.uses, target))
    if why_not:
        return AllocationRepair(drift=(*drift, *all_wrong(count, consumers, target, why_not)))
    found = _healed(seen, shaped, count, ours)
    if isinstance(found, Need):
        return found
    return replace(found, drift=(*drift, *found.drift))


def _why_not(seen: Observation, shaped: Shaped) -> str:
    """Return why nothing can be corrected now; empty if it can."""
    return (
        (LATER if shaped.move else seen.unrepaired)
        or ("" if shaped.target.journal.adopted else ADOPT)
        or (LATER if shaped.target.invalid else "")
    )


def _doubtful(
    seen: Observation, count: Counted, consumers: Consumers, *, certain: bool
) -> frozenset[ConsumerUuid]:
    wrong = (
        wrong_owners(count, consumers)
        if certain
        else {
            *(owner for owner, *_ in surpluses(count, consumers)),
            *strangers(count, consumers),
        }
    )
    return frozenset({*holders_of_unknown_shares(count, consumers, seen.uses), *wrong})


def _healed(
    seen: Observation, shaped: Shaped, count: Counted, ours: tuple[ProviderUuid, ...]
) -> AllocationRepair | Need:
    """Return the repair of the allocations to correct."""
    consumers = seen.consumers(ours)
    lasting = LastingSurpluses(
        frozenset(
            surplus for surplus in surpluses(count, consumers) if surplus[0] not in seen.uses.busy
        )
    )
    if (lasting.seen or seen.has_surpluses) and seen.lacks(lasting):
        return lasting
    lowered = seen.answers.get(lasting, frozenset())
    whole = WholeAllocations("devices", tuple(to_correct(count, consumers, lowered)))
    if whole.consumers and seen.lacks(whole):
        return whole
    target, found = shaped.target.tree, seen.answers.get(whole, {})
    return plan_repair(count, consumers, found, target, ours, lowered)
