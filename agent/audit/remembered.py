"""What audits of one node remember from one to the next: surpluses of devices, and the guests that
do not belong on the node any more; and of a node that nova-compute manages all allocations of its
consumers, and what nova's API tells of them, asked for only if there is something to explain.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import os_resource_classes as orc

from agent.explain.explanation import NO_HOST, GuestHere, known_guest
from agent.http.nova_api import NovaApi, NovaNotAsked
from agent.model.facts import Domain
from agent.model.finding import Drift, DriftKind
from agent.model.instance import Instance
from agent.model.inventory import Allocation, Holdings
from agent.model.names import ConsumerUuid, name_first
from agent.model.node_records import Claim
from agent.model.nova_answers import NovaAnswers
from agent.model.provider_tree import ProviderTree
from agent.placement import clock
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES, PlacementClient
from agent.placement.node_state import NodePlacementState
from agent.tracker import nova_commands
from agent.tracker.errors import InvalidTrackerRequest
from agent.tracker.node_state import NodeState
from agent.tracker.nova_explanations import NovaExplanations, asked_about
from agent.tracker.observed_share import ObservedShare
from agent.tracker.verdicts import free_device
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


CPUS = frozenset({orc.VCPU, orc.PCPU})
MANY = 3
"""How many reasons a message names."""


@dataclass(frozen=True, slots=True)
class _Ground:
    """What of a node decides which guests belong there: facts and options, and no guest."""

    host: Any
    devices: Any
    providers: Any

    @classmethod
    def of(cls, state: NodeState, tree: ProviderTree) -> Self:
        host = state.host
        return cls(
            (host.cells, host.strategy, host.strict, host.shares_cpus, host.aliases),
            [
                replace(free_device(device), used=False, reserved=0, reserved_at=0, version=0)
                for device in state.devices.values()
            ],
            [(one.uuid, one.inventory, one.traits) for one in tree.providers()],
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was found of one guest."""

    guest: Any
    """Its record and its claims then."""
    drift: Drift | None
    others: Any
    """What of the node beside it the answer depends on; None: nothing."""


class MisplacedGuests:
    """Finds the misplaced guests of one node. Looks at a guest again only when the guest, the facts
    or the options changed.
    """

    def __init__(self) -> None:
        self._state: NodeState | None = None
        self._tree: ProviderTree | None = None
        self._ground: _Ground | None = None
        self._answers: dict[ConsumerUuid, _Answer] = {}

    def drift(self, state: NodeState, tree: ProviderTree, now: float) -> list[Drift]:
        """Return the drift of each misplaced guest. ``tree``: the node's, as Placement should hold
        it. ``now``: seconds since the epoch.
        """
        if state is not self._state or tree is not self._tree:
            self._state, self._tree = state, tree
            # Where no CPUs are offered, flavors ask for other things than their CPUs and memory.
            offers_cpus = any(CPUS & provider.inventory.keys() for provider in tree.providers())
            if guests := _settled(state.claims.values(), state.instances) if offers_cpus else {}:
                self._look(guests, state, tree, now)
            else:
                # As on most nodes of a backend.
                self._ground, self._answers = None, {}
        return [found.drift for found in self._answers.values() if found.drift is not None]

    def _look(
        self,
        guests: Mapping[ConsumerUuid, list[Claim]],
        state: NodeState,
        tree: ProviderTree,
        now: float,
    ) -> None:
        ground = _Ground.of(state, tree)
        if ground != self._ground:
            self._ground, self._answers = ground, {}
        shown = {guest.uuid: guest for guest in state.host.guests or ()}
        # A guest that was denied, or that could not be judged, is looked at again once others may
        # have let go of what it needs, or records that contradict each other may be corrected.
        found, host = {}, state.host
        others = (
            state.claims,
            (state.problems, state.uncounted, host.cells_known),
            (host.mediated, host.moved_devices),
        )
        # A node that promises nothing new now says nothing of its cells and devices either.
        unsure = bool(state.problems or state.uncounted)
        for guest, claims in sorted(guests.items()):
            instance, last = (
                known_guest(state.instances.get(guest), shown.get(guest)),
                self._answers.get(guest),
            )
            looked_at = (instance, claims)
            if last is not None and last.guest == looked_at and last.others in (None, others):
                found[guest] = last
                continue
            drift = _judged(state, instance, shown.get(guest), tree, now)
            found[guest] = _Answer(looked_at, drift, others if drift or unsure else None)
        self._answers = found


def _settled(
    claims_here: Iterable[Claim], instances: Mapping[ConsumerUuid, Instance]
) -> Mapping[ConsumerUuid, list[Claim]]:
    """Return the claims of each guest, without the guests that move or are being built."""
    found: dict[ConsumerUuid, list[Claim]] = {}
    for claim in claims_here:
        found.setdefault(claim.instance, []).append(claim)
    return {
        guest: claims
        for guest, claims in found.items()
        if (instance := instances.get(guest)) is not None
        and not instance.moving
        and all(claim.half == "only" and claim.state == "consumed" for claim in claims)
    }


def _judged(
    state: NodeState,
    instance: Instance | None,
    shown: Domain | None,
    tree: ProviderTree,
    now: float,
) -> Drift | None:
    """Return the drift of a guest that does not belong on the node, or whose flavor no node grants;
    None if it may stay, or its flavor is not known.
    """
    if instance is None:
        return None
    uuid, node = instance.uuid, state.node.uuid
    called = nova_commands.guest_name(shown) if shown is not None else f"guest {uuid}"
    try:
        guest = GuestHere.of(state, instance, tree, now, devices_in_placement=False)
    except InvalidTrackerRequest as error:
        return Drift(
            "contradictory-flavor",
            "info",
            f"{called}: {NO_HOST}: {error.message}",
            f"leave it if it may stay as it is; else resize it to a flavor that is right "
            f"({error.remedy}); the same once more: agent explain --guest {uuid}",
            node,
            uuid,
        )
    if not (reasons := guest.broken(now)):
        return None
    return Drift(
        "misplaced-guest",
        "info",
        f"{called}: this host would not grant it any more: {name_first(reasons, MANY, '; ')}",
        f"leave it if it may stay; to move it: {nova_commands.migrate(uuid)}; all of it: agent "
        f"explain --guest {uuid}",
        node,
        uuid,
    )
