"""The repair of the allocations of a node's devices: a pure function of what an audit has read,
which returns what else it needs to read; and what lasts from one audit to the next.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from agent.audit.observation import (
    KnownHolders,
    LastingSurpluses,
    Need,
    Observation,
    Reread,
    Shaped,
    WholeAllocations,
)
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, name_first
from agent.model.operation import Reshape
from agent.model.report import Outcome
from agent.placement.merge_inventory import ADOPT
from agent.tree.allocation_repair import (
    AllocationRepair,
    Counted,
    Surplus,
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

LOG = logging.getLogger(__name__)

# Seconds that a guest must have held more than its share before its allocation is lowered, because
# passes may follow each other at once.
LEAST_APART = 30.0
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


class Surpluses:
    """Shares of devices that guests of one node held in excess in earlier passes. Kept for the life
    of the process.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: Mapping[Surplus, float] = {}

    @property
    def remembered(self) -> bool:
        """Whether the last pass has seen some."""
        return bool(self._since)

    def lasting(self, seen: Collection[Surplus]) -> frozenset[Surplus]:
        """Return the surpluses of ``seen`` that every pass since an earlier one, long enough ago,
        has seen.
        """
        now, before = self._clock(), self._since
        self._since = {surplus: before.get(surplus, now) for surplus in seen}
        return frozenset(
            surplus
            for surplus, since in self._since.items()
            if surplus in before and now - since >= LEAST_APART
        )


def log_corrected(repair: AllocationRepair, outcomes: Iterable[Outcome]) -> None:
    """Log which instances' allocations of devices were corrected."""
    written = {
        consumer
        for outcome in outcomes
        if outcome.status == "done" and isinstance(outcome.operation, Reshape)
        for consumer in outcome.operation.allocations
    }
    if repair.move is not None and (corrected := sorted(written & repair.move.changed)):
        LOG.info("allocations of devices were corrected for instances %s", name_first(corrected))
