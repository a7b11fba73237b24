"""The guests and the allocations of a node that nova-compute manages: what the allocations have
otherwise, each with the command that mends it. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import os_resource_classes as orc

from agent.model.allocation import Allocation, Resources
from agent.model.claim import Claim
from agent.model.facts import Domain
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, name_first
from agent.model.provider_tree import ProviderTree
from agent.model.report import Drift
from agent.tracker import nova_commands
from agent.tracker.allocation_drift import GROUPS, allocation_drift, sized_classes, wrong_groups
from agent.tracker.allocations import AllocationShare, amounts_text, is_used_elsewhere
from agent.tracker.consumer_records import TreeConsumers
from agent.tracker.guest_shares import GuestShares, without_zeros
from agent.tracker.node_state import NodeView
from agent.tracker.observed_guests import guest_name

MAX_NAMED = 3
# The types of nova's consumers; nova itself gives them none.
OF_NOVA = frozenset({None, "INSTANCE", "MIGRATION"})


@dataclass(frozen=True, slots=True)
class ObservedShare:
    """The guests and the allocations of one node."""

    view: NodeView
    holding: AllocationShare
    whole: Mapping[ConsumerUuid, Allocation]
    """All allocations of the consumers of the node, also on other nodes, as far as they were read.
    """
    tree: ProviderTree
    """The node's tree, as Placement has it."""
    sharing: frozenset[ProviderUuid]
    """The providers that share with the tree."""
    shares: GuestShares

    @property
    def own(self) -> frozenset[ProviderUuid]:
        """The providers of the node's tree."""
        return frozenset(self.tree.get_provider_uuids())

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
            unknown_specs=frozenset(
                uuid
                for uuid, guest in self.guests.items()
                if guest.origin is not None and not guest.origin.specs_known
            ),
        )

    def strangers(self) -> list[ConsumerUuid]:
        """Return the consumers that are no guests of the node."""
        return sorted(self.holding.by_consumer().keys() - self.guests.keys())

    def is_foreign(self, consumer: ConsumerUuid) -> bool:
        """Return whether a consumer is another service's, by its type."""
        allocation = self.whole.get(consumer)
        return allocation is not None and allocation.consumer_type not in OF_NOVA

    def misplaced(self) -> list[ConsumerUuid]:
        """Return the guests that hold something of another provider of the node than the one that
        counts what they have.
        """
        return [
            uuid
            for uuid in sorted({claim.instance for claim in self.view.state.claims.values()})
            if (held := self.holding.of(uuid))
            and any(True for _ in self.shares.misplaced(uuid, held, self.tree))
        ]

    def drift(self) -> Iterator[Drift]:
        """Yield what the allocations have otherwise than the guests, each with the command of
        OpenStack that shows or mends it.
        """
        held, guests = self.holding.by_consumer(), self.guests
        moving = self._moves(held)
        for drift in allocation_drift(self.holding, self.records):
            if drift.kind != "missing-allocation" and drift.consumer is not None:
                yield replace(drift, remedy=self._of_amounts(ConsumerUuid(drift.consumer)))
        yield from map(self._misplaced, self.misplaced())
        for uuid in sorted(guests.keys() - held.keys()):
            yield self._missing(guests[uuid], moving.get(uuid))
        for uuid in sorted(guests.keys() & held.keys()):
            if self.is_elsewhere(uuid):
                yield self._on_two_nodes(guests[uuid])
        for uuid in self.strangers():
            if self.is_foreign(uuid):
                yield self._foreign(uuid, held)
            elif uuid not in moving.values() and uuid in self.whole:
                yield self._leftover(uuid, held)

    def _moves(self, held: Mapping[ConsumerUuid, Resources]) -> Mapping[ConsumerUuid, ConsumerUuid]:
        """Return the guests that move, each with the migration that holds its allocation here: the
        guest itself holds its allocation on the destination then.
        """
        free = [uuid for uuid in self.strangers() if not self.is_foreign(uuid)]
        found: dict[ConsumerUuid, ConsumerUuid] = {}
        for claim in self.view.state.claims.values():
            if claim.instance in held or not self.is_elsewhere(claim.instance):
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

    def is_elsewhere(self, consumer: ConsumerUuid) -> bool:
        """Return whether a consumer has something of another node too."""
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
            remedy = f"none while the move goes on; else: {nova_commands.show(guest.uuid)}"
        elif self.is_elsewhere(guest.uuid):
            what = "is here, and its allocation is on another node only"
            remedy = (
                f"{nova_commands.show(guest.uuid)}; if it belongs here: "
                f"{nova_commands.heal(guest.uuid, force=True)}"
            )
        else:
            what = "is here, but has no allocation: what it uses may be promised to another"
            remedy = self._first(guest)
        return Drift(
            "missing-allocation",
            "warning" if migration is None else "info",
            f"{guest_name(guest)} {what}",
            remedy,
            consumer=guest.uuid,
        )

    def _first(self, guest: Domain) -> str:
        """Return how a guest gets an allocation: nova's own command gives it nothing but CPUs,
        memory and disk, and refuses a guest with a vGPU. Not where a part belongs to a provider
        that shares with the node, or is sized by the flavor itself.
        """
        compared = self._compared(guest.uuid)
        known = all(any(name in compared for name in group) for group in GROUPS)
        if guest.origin is not None and known and self.shares.has_more_than_root(guest.uuid):
            return self._replacement(guest.uuid)
        return nova_commands.heal(guest.uuid)

    def _compared(self, uuid: ConsumerUuid) -> frozenset[str]:
        """Return the classes of which it is known how much a guest should hold."""
        return self.holding.offered - sized_classes(uuid, self.records)

    def _misplaced(self, uuid: ConsumerUuid) -> Drift:
        """Return the drift of a guest that holds something of another provider of the node."""
        held = self.holding.of(uuid)
        what = "; ".join(self.shares.misplaced(uuid, held, self.tree))
        return Drift(
            "allocation-mismatch",
            "warning",
            f"{guest_name(self.guests[uuid])} holds {what}, by the CPUs, memory and "
            "devices that it has",
            self._replacement(uuid),
            consumer=uuid,
        )

    def _of_amounts(self, uuid: ConsumerUuid) -> str:
        """Return how the wrong amounts of a guest are corrected: nova's own command knows the root
        provider only.
        """
        whole = self.whole.get(uuid)
        if whole is None or whole.resources.keys() <= {self.view.node}:
            return nova_commands.heal(uuid, force=True)
        return self._replacement(uuid)

    def _replacement(self, uuid: ConsumerUuid) -> str:
        """Return the command that gives a guest the allocation of what it has."""
        whole, origin = self.whole.get(uuid), self.guests[uuid].origin
        if whole is None and origin is not None:
            whole = Allocation(uuid, {}, origin.project_id, origin.user_id, None)
        if whole is None:
            return nova_commands.show(uuid)
        right = {
            provider: dict(resources)
            for provider, resources in self.shares.corrected(uuid, whole.resources).items()
        }
        here = [resources for provider, resources in right.items() if provider in self.own]
        has = sum(map(Counter, here), Counter[str]())
        claims = [claim for claim in self.view.state.claims.values() if claim.instance == uuid]
        for group, amount in wrong_groups(claims, has, self._compared(uuid)):
            held = right.setdefault(self.view.node, {})
            rest = sum(has[name] - held.get(name, 0) for name in group)
            held.update(self._on_root(group, amount - rest, claims))
        command = nova_commands.replace_allocation(replace(whole, resources=without_zeros(right)))
        return f"{nova_commands.show(uuid)}; if it does nothing now: {command}"

    def _on_root(
        self, group: tuple[str, ...], amount: int, claims: list[Claim]
    ) -> Mapping[str, int]:
        """Return how the root counts an amount of a group: the CPUs that guests are pinned to apart
        from the others, if it offers both.
        """
        offered = self.tree.provider(self.view.node).inventory
        pinned = sum(len(cell.pinned_cpus) for claim in claims for cell in claim.cells)
        counted = {group[0]: amount}
        if orc.PCPU in group and orc.PCPU in offered:
            dedicated = min(pinned, amount)
            counted = {orc.PCPU: dedicated, group[0]: amount - dedicated}
        return {name: max(count, 0) for name, count in counted.items() if name in offered}

    def _on_two_nodes(self, guest: Domain) -> Drift:
        elsewhere = self.whole[guest.uuid].resources.keys() - self.own - self.sharing
        return Drift(
            "allocation-mismatch",
            "warning",
            f"{guest_name(guest)} is here, and its allocation is on this node and on another one",
            f"{nova_commands.show(guest.uuid)}; if it is not moving, take the allocation from the "
            f"other node: {nova_commands.unset(guest.uuid, elsewhere)}",
            consumer=guest.uuid,
        )

    def _foreign(self, consumer: ConsumerUuid, held: Mapping[ConsumerUuid, Resources]) -> Drift:
        kind = self.whole[consumer].consumer_type
        return Drift(
            "foreign-allocation",
            "info",
            f"consumer {consumer} of type {kind} holds {amounts_text(held[consumer])} here: it is "
            "another service's",
            "none; neither nova nor nova-manage knows it",
            consumer=consumer,
        )

    def _leftover(self, consumer: ConsumerUuid, held: Mapping[ConsumerUuid, Resources]) -> Drift:
        """Return the drift of a consumer that is no guest of this node."""
        root, amounts = self.view.node, amounts_text(held[consumer])
        if self.is_elsewhere(consumer):
            return Drift(
                "orphaned-allocation",
                "warning",
                f"consumer {consumer} holds {amounts} here and on another node, and is no guest "
                "of this node: it was evacuated or has moved, or moves now",
                f"{nova_commands.show(consumer)}; if it is on the other node and not moving: "
                f"{nova_commands.unset(consumer, self.holding.of(consumer))}",
                consumer=consumer,
            )
        twins = sorted(guest for guest in self.guests if held.get(guest) == held[consumer])
        like = f", as much as guest {name_first(twins, MAX_NAMED)}" if twins else ""
        return Drift(
            "orphaned-allocation",
            "warning",
            f"consumer {consumer} holds {amounts} here{like}, and is no guest of this node: a "
            "migration that is over, a build that ended early, or a server that was deleted",
            f"{nova_commands.audit(root)} lists it if it is neither a server nor a move under way; "
            f"then: {nova_commands.delete(consumer)}",
            consumer=consumer,
        )
