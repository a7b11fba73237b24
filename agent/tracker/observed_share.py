"""The guests and the allocations of a node that nova-compute manages: what the allocations have
otherwise, each with the command that mends it. Pure.
"""

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.model.facts import Domain
from agent.model.finding import Drift
from agent.model.inventory import Allocation, Holdings, Resources
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, name_first
from agent.model.node_records import Claim
from agent.model.provider_tree import ProviderTree
from agent.tracker import nova_commands
from agent.tracker.allocation_drift import (
    GROUPS,
    GuestShares,
    allocation_drift,
    by_class,
    sized_classes,
    without_zeros,
    wrong_groups,
)
from agent.tracker.allocations import AllocationShare, amounts_text, is_used_elsewhere
from agent.tracker.node_state import NodeView
from agent.tracker.nova_commands import guest_name
from agent.tracker.stored_state import TreeConsumers

MAX_NAMED = 3
DAY = 86_400
"""Seconds; what was allocated so long ago is no build and no move that is under way."""
DESTROYS_EVACUATED = "nova-compute destroys the guest of an evacuated server when it starts"
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
    now: float
    """Seconds since the epoch."""

    @property
    def host(self) -> str:
        """The host's name in nova."""
        return self.view.state.node.host

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
                if guest.unreadable_origin is not None
                or (guest.origin is not None and not guest.origin.specs_known)
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
        moving = self.moves()
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
                yield self.leftover(uuid)

    def moves(self) -> Mapping[ConsumerUuid, ConsumerUuid]:
        """Return the guests that may move, each with a consumer that may be the migration and hold
        its allocation here: the guest itself holds one on the destination then. Equal amounts prove
        neither. A migration holds nothing but the source's share.
        """
        held = self.holding.by_consumer()
        free = [
            uuid
            for uuid in self.strangers()
            if not (self.is_foreign(uuid) or self.is_elsewhere(uuid))
            and self._may_be_under_way(uuid)
        ]
        found: dict[ConsumerUuid, ConsumerUuid] = {}
        for claim in self.view.state.claims.values():
            if claim.instance in held or not self.is_elsewhere(claim.instance):
                continue
            alike = (uuid for uuid in free if self._fits(claim, uuid))
            if (uuid := next(alike, None)) is not None:
                found[claim.instance] = uuid
                free.remove(uuid)
        return found

    def _may_be_under_way(self, consumer: ConsumerUuid) -> bool:
        whole = self.whole.get(consumer)
        written_at = whole.written_at if whole is not None else None
        return written_at is None or self.now - written_at < DAY

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
        consumer that may hold it here while the guest moves.
        """
        if migration is not None:
            what = (
                f"may be moving: its allocation is on another node, and consumer {migration} holds "
                f"as much here, which may be its migration, or left over{self._twins(migration)}"
            )
            remedy = f"wait while the move goes on; else: {nova_commands.show(guest.uuid)}"
        elif self.is_elsewhere(guest.uuid):
            what = "is here, and its allocation is on another node only"
            left = nova_commands.if_elsewhere(guest.uuid, self.host, self.removal(guest.uuid))
            remedy = (
                f"if nova has it on another host: {DESTROYS_EVACUATED}; a guest that a move has "
                f"left behind: {left}; if it does not move and belongs here: "
                f"{self.healed(guest.uuid)}"
            )
        else:
            what = "is here, but has no allocation: what it uses may be promised to another"
            remedy = f"{nova_commands.started(guest.uuid)}; else: {self.healed(guest.uuid)}"
        return Drift(
            "missing-allocation",
            "warning" if migration is None else "info",
            f"{guest_name(guest)} {what}",
            remedy,
            consumer=guest.uuid,
        )

    def healed(self, uuid: ConsumerUuid) -> str:
        """Return how a guest gets an allocation here in place of none, or of one elsewhere: nova's
        own command gives it nothing but CPUs, memory and disk, and refuses a guest with a vGPU. Not
        where a part belongs to a provider that shares with the node, or is sized by the flavor.
        """
        known = self._is_known(uuid)
        if known and self.shares.has_more_than_root(uuid):
            return self._replacement(uuid, self.own | self.sharing)
        if self.is_elsewhere(uuid):
            return self._if_at_rest(uuid, nova_commands.heal(uuid, force=True))
        return nova_commands.heal(uuid)

    def giving(self, uuid: ConsumerUuid) -> str:
        """Return the command that gives a guest on record, which holds nothing anywhere, the
        allocation of what it has.
        """
        instance = self.view.state.instances.get(uuid)
        record = {
            "allocations": self._right(uuid, {}),
            "project_id": instance.project_id if instance else "PROJECT",
            "user_id": instance.user_id if instance else "USER",
            "consumer_generation": None,
        }
        printed = f"printf %s {shlex.quote(json.dumps(record, sort_keys=True))}"
        put = f"agent allocation put {uuid}"
        if instance is None or not self._is_known(uuid):
            return (
                f"give it its allocation again: {printed} > FILE; with what is missing written "
                f"into the file, then: {put} FILE"
            )
        return f"give it its allocation again: {printed} | {put} /dev/stdin"

    def correcting(self, uuid: ConsumerUuid) -> str:
        """Return the commands that make the allocation of a guest on record what it has here."""
        held = self.holding.of(uuid)
        right = self._right(uuid, held)
        less, more = ([*_changes(uuid, *pair)] for pair in ((right, held), (held, right)))
        if not (less or more):
            show = f"agent allocation show {uuid} --format json > FILE"
            return (
                f"correct its allocation: {show}; with the right amounts in the file, then: "
                f"agent allocation put {uuid} FILE"
            )
        removals = [f"agent allocation remove {change}" for change in less]
        additions = [f"agent allocation add {change}" for change in more]
        # A consumer that holds nothing is forgotten, with its project.
        keeps = any(
            min(amount, right.get(provider, {}).get(name, 0))
            for provider, resources in held.items()
            for name, amount in resources.items()
        )
        commands = [*removals, *additions] if keeps else [*additions, *removals]
        return f"correct its allocation: {' && '.join(commands)}"

    def removal(self, uuid: ConsumerUuid) -> str:
        """Return the command that removes a guest from this host."""
        return nova_commands.destroy(uuid, running=self.guests[uuid].state != "stopped")

    def _if_at_rest(self, uuid: ConsumerUuid, command: str) -> str:
        return nova_commands.if_at_rest(uuid, self.host, command)

    def _compared(self, uuid: ConsumerUuid) -> frozenset[str]:
        """Return the classes of which it is known how much a guest should hold."""
        return self.holding.offered - sized_classes(uuid, self.records)

    def _is_known(self, uuid: ConsumerUuid) -> bool:
        compared = self._compared(uuid)
        return all(any(name in compared for name in group) for group in GROUPS)

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
        on_root = whole is None or whole.resources.keys() <= {self.holding.node}
        below = self._is_known(uuid) and self.shares.has_more_than_root(uuid)
        if on_root and not below:
            return self._if_at_rest(uuid, nova_commands.heal(uuid, force=True))
        return self._replacement(uuid)

    def _replacement(self, uuid: ConsumerUuid, kept: Collection[ProviderUuid] | None = None) -> str:
        """Return the command that gives a guest the allocation of what it has. ``kept``: the
        providers of which it keeps what it holds; None for all.
        """
        whole, origin = self.whole.get(uuid), self.guests[uuid].origin
        if whole is None:
            owner = (origin.project_id, origin.user_id) if origin is not None else ("", "")
            whole = Allocation(uuid, {}, *owner, None)
        present = {
            provider: resources
            for provider, resources in whole.resources.items()
            if kept is None or provider in kept
        }
        right = self._right(uuid, present)
        command = nova_commands.replace_allocation(replace(whole, resources=right))
        return self._if_at_rest(uuid, command)

    def _right(self, uuid: ConsumerUuid, present: Holdings) -> Holdings:
        """Return ``present``, an allocation of a guest, with what the guest has of this node."""
        right = {
            provider: dict(resources)
            for provider, resources in self.shares.corrected(
                uuid, present, of_cells=self._is_known(uuid)
            ).items()
        }
        here = [resources for provider, resources in right.items() if provider in self.own]
        has = sum(map(Counter, here), Counter[str]())
        claims = [claim for claim in self.view.state.claims.values() if claim.instance == uuid]
        for group, amount in wrong_groups(claims, has, self._compared(uuid)):
            held = right.setdefault(self.holding.node, {})
            rest = sum(has[name] - held.get(name, 0) for name in group)
            held.update(self._on_root(group, amount - rest, claims))
        return without_zeros(right)

    def _on_root(
        self, group: tuple[str, ...], amount: int, claims: list[Claim]
    ) -> Mapping[str, int]:
        """Return how the root counts an amount of a group."""
        offered = self.tree.provider(self.holding.node).inventory.keys()
        due = dict.fromkeys(group, 0) | by_class(group, max(amount, 0), claims, offered)
        return {name: count for name, count in due.items() if name in offered}

    def _on_two_nodes(self, guest: Domain) -> Drift:
        elsewhere = self.whole[guest.uuid].resources.keys() - self.own - self.sharing
        return Drift(
            "allocation-mismatch",
            "warning",
            f"{guest_name(guest)} is here, and its allocation is on this node and on another one",
            "if nova has it on another host and does not move it, start nova-compute here: it "
            "destroys the guest of an evacuated server and gives its share here back; if nova has "
            f"it here: {self._if_at_rest(guest.uuid, nova_commands.unset(guest.uuid, elsewhere))}",
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

    def leftover(self, consumer: ConsumerUuid) -> Drift:
        """Return the drift of a consumer that is no guest of this node."""
        held, delete = self.holding.of(consumer), nova_commands.delete(consumer)
        amounts = amounts_text(self.holding.by_consumer()[consumer])
        if self.is_elsewhere(consumer):
            unset = nova_commands.unset(consumer, held)
            return Drift(
                "orphaned-allocation",
                "warning",
                f"consumer {consumer} holds {amounts} here and on another node, and is no guest "
                "of this node: it was evacuated or has moved, or moves now",
                "if it is on the other node and does not move: "
                f"{nova_commands.if_elsewhere(consumer, self.host, unset)}",
                consumer=consumer,
            )
        under_way = "is under way or " if self._may_be_under_way(consumer) else ""
        # nova-manage lists consumers of one provider.
        provider = self.holding.node if self.holding.node in held else min(held)
        return Drift(
            "orphaned-allocation",
            "warning",
            f"consumer {consumer} holds {amounts} here{self._twins(consumer)}, and is no guest of "
            f"this node: a build or a move that {under_way}ended early, a migration that is over "
            "or died, or a server that was deleted",
            "if it is a migration whose server does not move: "
            f"{nova_commands.if_died(consumer, self.host, delete)}; if nova does not know it: "
            f"{nova_commands.if_orphaned(consumer, provider, delete)}",
            consumer=consumer,
        )

    def _twins(self, consumer: ConsumerUuid) -> str:
        """Return which guests hold as much as a consumer that is none, for a message."""
        held = self.holding.by_consumer()
        twins = sorted(guest for guest in self.guests if held.get(guest) == held[consumer])
        if not twins:
            return ""
        return f", as much as guest {name_first(twins, MAX_NAMED)} by an allocation of its own"


def _changes(consumer: ConsumerUuid, before: Holdings, after: Holdings) -> Iterator[str]:
    """Yield what ``after`` has more than ``before``, as the commands of allocations take it."""
    for provider, resources in sorted(after.items()):
        known = before.get(provider, {})
        more = {
            name: amount - known.get(name, 0)
            for name, amount in sorted(resources.items())
            if amount > known.get(name, 0)
        }
        if more:
            amounts = " ".join(f"{name}={amount}" for name, amount in more.items())
            yield f"{consumer} {provider} {amounts}"
