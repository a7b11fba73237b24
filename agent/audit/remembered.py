"""What the reads of one node remember from one audit to the next: surpluses of devices; and of a
node that nova-compute manages all allocations of its consumers, and what nova's API tells of them,
asked for only if there is something to explain.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from agent.http.nova_api import NovaApi, NovaNotAsked
from agent.model.finding import Drift, DriftKind
from agent.model.inventory import Allocation, Holdings
from agent.model.names import ConsumerUuid
from agent.model.nova_answers import NovaAnswers
from agent.placement import clock
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES, PlacementClient
from agent.placement.node_state import NodePlacementState
from agent.tracker.nova_explanations import NovaExplanations, asked_about
from agent.tracker.observed_share import ObservedShare
from agent.tree.allocation_repair import Surplus

# Seconds after which nova is asked again if holders are never read again.
_REFRESH = 600.0
# Seconds after which nova is asked again about guests of which nothing is wrong.
_HOUR = 3600.0


# Seconds that a guest must have held more than its share before its allocation is lowered, because
# passes may follow each other at once.
LEAST_APART = 30.0


@dataclass(slots=True)
class AskedNova:
    """The answers of nova for one node. Kept for the life of the process: the same drift is asked
    about again only after ``refresh`` seconds, the same guests without drift only after an hour;
    after an error nothing is asked before ``refresh`` seconds.
    """

    api: NovaApi | None
    """None: nova is not to be asked."""
    host: str
    refresh: float
    """Seconds."""
    _about: frozenset[tuple[DriftKind, ConsumerUuid]] = frozenset()
    _guests: frozenset[ConsumerUuid] = frozenset()
    _asked_at: float = 0.0
    _answers: NovaAnswers = field(default_factory=NovaAnswers)
    _error: NovaNotAsked | None = None

    def explained(self, drift: Sequence[Drift], share: ObservedShare) -> tuple[Drift, ...]:
        """Return the drift with what nova tells of it, and of the guests; if nova gives no answer,
        with a warning that says so.
        """
        about, guests = asked_about(drift), frozenset(share.guests)
        if self.api is None or not (about or guests):
            return tuple(drift)
        wait = (self.refresh or _REFRESH) if about or self._error else _HOUR
        new = not about <= self._about or not guests <= self._guests
        if clock.now() - self._asked_at >= wait or (new and self._error is None):
            self._about, self._guests = about, guests
            moving = share.moves().values()
            self._ask(self.api, {*guests, *moving, *(consumer for _, consumer in about)}, guests)
        found = tuple(NovaExplanations(self._answers, share).of(drift))
        if self._error is None:
            return found
        what = (
            f"nova was not asked: {self._error.message}; what is told rests on the hypervisor alone"
        )
        return (*found, Drift("nova-not-asked", "warning", what, self._error.remedy))

    def _ask(
        self,
        api: NovaApi,
        consumers: Collection[ConsumerUuid],
        guests: Collection[ConsumerUuid],
    ) -> None:
        self._answers, self._error = NovaAnswers(), None
        try:
            self._answers = api.answers(self.host, consumers, guests)
        except NovaNotAsked as error:
            self._error = error
        # After the answer, because a nova that hangs would be asked again at once.
        self._asked_at = clock.now()


@dataclass(frozen=True, slots=True)
class _WholeAllocation:
    """All allocations of a consumer, as they were when they were read."""

    here: Holdings
    """What the consumer had of the node then; something else now means that it was written since.
    """
    found: Allocation | None
    read_at: float
    """Seconds since the epoch."""


@dataclass(slots=True)
class GuestAllocationsRead:
    """All allocations of the consumers of one node. Kept for the life of the process, so that a
    pass in which nothing changed reads none.
    """

    placement_state: NodePlacementState
    refresh: float
    """Seconds in which every allocation is read again, one a pass; 0 for never."""
    _whole: dict[ConsumerUuid, _WholeAllocation] = field(default_factory=dict)

    def read(
        self, client: PlacementClient, held: Mapping[ConsumerUuid, Holdings]
    ) -> Mapping[ConsumerUuid, Allocation]:
        """Return all allocations of the consumers, of which ``held`` is what they hold of the node;
        those that were written since are read again, and in a pass without other requests the one
        that was read first.
        """
        now = clock.now()
        known = {
            uuid: whole
            for uuid, whole in self._whole.items()
            if uuid in held and held[uuid] == whole.here
        }
        due: Sequence[ConsumerUuid] = sorted(held.keys() - known.keys())
        if not due and known and self.refresh and sum(client.exchange.counts.values()) <= 1:
            oldest = min(known, key=lambda uuid: known[uuid].read_at)
            due = [oldest] if now - known[oldest].read_at >= self.refresh else []
        typed = self.placement_state.capabilities.offers(CONSUMER_TYPES)
        found = self.placement_state.allocations(
            client, due, CONSUMER_TYPES if typed else ALLOCATIONS
        )
        self._whole = known | {
            uuid: _WholeAllocation(held[uuid], found.get(uuid), now) for uuid in due
        }
        return {uuid: whole.found for uuid, whole in self._whole.items() if whole.found is not None}


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
