"""The guests of a node that nova-compute manages: what they have by the hypervisor, counted as
claims, and what their allocations have otherwise. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agent.model.allocation import Allocation, Resources
from agent.model.claim import Claim
from agent.model.facts import Domain
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import RecordedConsumers
from agent.model.report import Drift
from agent.tracker.allocation_drift import allocation_drift
from agent.tracker.allocations import AllocationShare, amounts_text, is_used_elsewhere
from agent.tracker.claim_usage import overcommitted
from agent.tracker.consumer_records import TreeConsumers
from agent.tracker.domains import import_guests
from agent.tracker.node_state import NodeView

HEAL = "nova-manage placement heal_allocations --instance"
SHOW = "openstack server show -c OS-EXT-SRV-ATTR:host -c OS-EXT-STS:task_state -c status"
UNSET = "openstack resource provider allocation unset --provider"


def with_observed_guests(view: NodeView, now: float) -> NodeView:
    """Return ``view`` with a claim for each guest that the hypervisor shows, and drift for the
    guests that have what others have too, or what the host does not offer. ``now``: seconds since
    the epoch.
    """
    if view.state.host.guests is None:
        return view
    found = import_guests(view.state, RecordedConsumers(), now)
    state = view.state.after(found.changes)
    drift = [
        Drift(
            "guest-conflict",
            "warning",
            f"{_name(seen.guest)}: {refusal.reason}",
            refusal.remedy,
            consumer=seen.guest.uuid,
        )
        for seen in found.guests
        for refusal in seen.refusals
    ]
    return replace(
        view,
        state=state,
        usage=state.usage,
        drift=(*drift, *overcommitted(state.node, state.host.reserved, state.used)),
    )


@dataclass(frozen=True, slots=True)
class ObservedShare:
    """The guests and the allocations of one node."""

    view: NodeView
    holding: AllocationShare
    whole: Mapping[ConsumerUuid, Allocation]
    """All allocations of the consumers of the node, also on other nodes, as far as they were read.
    """
    own: frozenset[ProviderUuid]
    """The providers of the node's tree."""

    @property
    def guests(self) -> Mapping[ConsumerUuid, Domain]:
        """The guests that the hypervisor shows."""
        return {guest.uuid: guest for guest in self.view.state.host.guests or ()}

    @property
    def records(self) -> TreeConsumers:
        """The claims of the guests, as the comparison of allocations takes them."""
        state = self.view.state
        return TreeConsumers(
            host=state.node.host,
            instances=state.instances,
            claims=tuple(state.claims.values()),
        )

    def strangers(self) -> list[ConsumerUuid]:
        """Return the consumers that are no guests of the node."""
        return sorted(self.holding.by_consumer().keys() - self.guests.keys())

    def drift(self) -> Iterator[Drift]:
        """Yield what the allocations have otherwise than the guests, each with the command of
        OpenStack that shows or mends it.
        """
        held, guests = self.holding.by_consumer(), self.guests
        moving = self._moves(held)
        for drift in allocation_drift(self.holding, self.records):
            if drift.kind != "missing-allocation":
                yield _for_nova(drift)
        for uuid in sorted(guests.keys() - held.keys()):
            yield self._missing(guests[uuid], moving.get(uuid))
        for uuid in sorted(guests.keys() & held.keys()):
            if self._is_elsewhere(uuid):
                yield self._on_two_nodes(guests[uuid])
        for uuid in self.strangers():
            if uuid not in moving.values() and uuid in self.whole:
                yield self._leftover(uuid, held)

    def _moves(self, held: Mapping[ConsumerUuid, Resources]) -> Mapping[ConsumerUuid, ConsumerUuid]:
        """Return the guests that move, each with the migration that holds its allocation here: the
        guest itself holds its allocation on the destination then.
        """
        free = self.strangers()
        found: dict[ConsumerUuid, ConsumerUuid] = {}
        for claim in self.view.state.claims.values():
            if claim.instance in held or not self._is_elsewhere(claim.instance):
                continue
            alike = (uuid for uuid in free if self._fits(claim, uuid))
            if (uuid := next(alike, None)) is not None:
                found[claim.instance] = uuid
                free.remove(uuid)
        return found

    def _fits(self, claim: Claim, consumer: ConsumerUuid) -> bool:
        """Return whether ``consumer`` holds what the guest of ``claim`` has."""
        consumers: Consumers = {
            provider: {claim.instance: held[consumer]}
            for provider, held in self.holding.consumers.items()
            if consumer in held
        }
        as_if = replace(self.holding, consumers=consumers)
        return not [*allocation_drift(as_if, replace(self.records, claims=(claim,)))]

    def _is_elsewhere(self, consumer: ConsumerUuid) -> bool:
        allocation = self.whole.get(consumer)
        return allocation is not None and is_used_elsewhere(allocation, self.own)

    def _missing(self, guest: Domain, migration: ConsumerUuid | None) -> Drift:
        """Return the drift of a guest that has no allocation on this node. ``migration``: the
        consumer that holds its allocation here while it moves.
        """
        if migration is not None:
            what = (
                f"moves: its allocation is on another node, and consumer {migration} holds it here"
            )
            remedy = f"none while the move goes on; else: {SHOW} {guest.uuid}"
        elif self._is_elsewhere(guest.uuid):
            what = "is here, and its allocation is on another node only"
            remedy = f"{SHOW} {guest.uuid}; if it belongs here: {HEAL} {guest.uuid} --force"
        else:
            what = "is here, but has no allocation: what it uses may be promised to another"
            remedy = f"{HEAL} {guest.uuid}"
        return Drift(
            "missing-allocation",
            "warning" if migration is None else "info",
            f"{_name(guest)} {what}",
            remedy,
            consumer=guest.uuid,
        )

    def _on_two_nodes(self, guest: Domain) -> Drift:
        return Drift(
            "allocation-mismatch",
            "warning",
            f"{_name(guest)} is here, and its allocation is on this node and on another one",
            f"{SHOW} {guest.uuid}; if it is not moving, take the allocation from the other node: "
            f"{UNSET} PROVIDER {guest.uuid}",
            consumer=guest.uuid,
        )

    def _leftover(self, consumer: ConsumerUuid, held: Mapping[ConsumerUuid, Resources]) -> Drift:
        """Return the drift of a consumer that is no guest of this node."""
        root, amounts = self.view.node, amounts_text(held[consumer])
        if self._is_elsewhere(consumer):
            return Drift(
                "orphaned-allocation",
                "warning",
                f"consumer {consumer} holds {amounts} here and on another node, and is no guest "
                "of this node: it was evacuated or has moved, or moves now",
                f"{SHOW} {consumer}; if it is on the other node and not moving: {UNSET} {root} "
                f"{consumer}",
                consumer=consumer,
            )
        twins = sorted(guest for guest in self.guests if held.get(guest) == held[consumer])
        like = f", as much as guest {twins[0]}" if twins else ""
        return Drift(
            "orphaned-allocation",
            "warning",
            f"consumer {consumer} holds {amounts} here{like}, and is no guest of this node: a "
            "migration that is over, a build that ended early, or a server that was deleted",
            f"nova-manage placement audit --resource_provider {root} says whether a server or a "
            "migration has this uuid; with --delete it removes the allocation if none has",
            consumer=consumer,
        )


def _name(guest: Domain) -> str:
    return f"guest {printable(guest.name)} ({guest.uuid})"


def _for_nova(drift: Drift) -> Drift:
    """Return the drift of a guest's amounts with the command that corrects them in nova."""
    return replace(drift, remedy=f"{HEAL} {drift.consumer} --force")
