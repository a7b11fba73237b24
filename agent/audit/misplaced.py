"""The guests of one node that do not belong there any more, remembered between audits. Pure but for
that memory; asks nobody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import os_resource_classes as orc

from agent.explain.explanation import GuestHere, known_guest
from agent.model.facts import Domain
from agent.model.finding import Drift
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, name_first
from agent.model.node_records import Claim
from agent.model.provider_tree import ProviderTree
from agent.tracker import nova_commands
from agent.tracker.errors import InvalidTrackerRequest
from agent.tracker.node_state import NodeState
from agent.tracker.verdicts import free_device

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
            reasons = _reasons(state, instance, tree, now)
            drift = _drift(state, guest, shown.get(guest), reasons) if reasons else None
            found[guest] = _Answer(looked_at, drift, others if reasons or unsure else None)
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


def _reasons(
    state: NodeState, instance: Instance | None, tree: ProviderTree, now: float
) -> list[str]:
    """Return why the guest does not belong on the node; nothing if its flavor is not known."""
    if instance is None:
        return []
    try:
        guest = GuestHere.of(state, instance, tree, now, devices_in_placement=False)
    except InvalidTrackerRequest:
        # No host grants what contradicts itself.
        return []
    return guest.broken(now)


def _drift(
    state: NodeState, guest: ConsumerUuid, shown: Domain | None, reasons: list[str]
) -> Drift:
    called = nova_commands.guest_name(shown) if shown is not None else f"guest {guest}"
    return Drift(
        "misplaced-guest",
        "info",
        f"{called}: this host would not grant it any more: {name_first(reasons, MANY, '; ')}",
        f"none if it may stay so; to move it: {nova_commands.migrate(guest)}; all of it: agent "
        f"explain --guest {guest}",
        state.node.uuid,
        guest,
    )
