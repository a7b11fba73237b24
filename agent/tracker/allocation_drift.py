"""Drift of allocations: guests whose allocation is missing or differs from their claims on a node,
and what each guest should hold of the providers below the root. Pure; changes nothing.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import os_resource_classes as orc

from agent.model.facts import Domain, HostFacts
from agent.model.finding import Drift
from agent.model.instance import Flavor
from agent.model.inventory import Holdings, Resources
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import Claim, Migration
from agent.model.provider_tree import ProviderTree
from agent.tracker import nova_commands
from agent.tracker.allocations import AllocationShare, amounts_text
from agent.tracker.node_state import NodeState
from agent.tracker.nova_commands import guest_name
from agent.tracker.stored_state import TreeConsumers
from agent.tree.node_trees import OF_CELLS
from agent.tree.reported_cards import device_class, device_providers

Place = tuple[ProviderUuid, str]
"""A provider and one of its classes."""


@dataclass(frozen=True, slots=True)
class GuestShares:
    """The places whose holders follow from what guests have, and what each guest has of them."""

    cells: frozenset[Place]
    """Places that count the CPUs and the memory of a cell; a guest that floats may hold any."""
    devices: frozenset[Place]
    mdevs: frozenset[Place]
    """Places that count mediated devices."""
    due: Mapping[ConsumerUuid, Mapping[Place, int]]
    """By guest: what it has of these places."""
    floating: frozenset[ConsumerUuid]
    """The guests that are in no cell."""

    @classmethod
    def of(cls, state: NodeState, facts: HostFacts, tree: ProviderTree) -> Self:
        """Return the shares of the guests that ``state`` has claims of. ``tree``: of the node, as
        Placement has it.
        """
        cells, cards = _cell_places(state, tree), _card_places(state, tree)
        mdevs = _mdev_places(state, tree) if facts.complete("mdev") else {}
        owners = {claim.id: claim.instance for claim in state.claims.values()}
        due: dict[ConsumerUuid, Counter[Place]] = defaultdict(Counter)
        for claim in state.claims.values():
            due[claim.instance].update(
                {place: count for place, count in _of_cells(state, claim) if place in cells}
            )
        for device in state.devices.values():
            place = cards.get(state.host.device_providers.get(device.address))
            if device.holder in owners and place is not None:
                due[owners[device.holder]][place] += 1
        for parent in facts.mdev or ():
            for mdev in parent.mdevs:
                place = mdevs.get((parent.name, mdev.type))
                if mdev.owner is not None and place is not None:
                    due[mdev.owner][place] += 1
        return cls(
            cells,
            frozenset(cards.values()),
            frozenset(mdevs.values()),
            due,
            frozenset(claim.instance for claim in state.claims.values() if not claim.cells),
        )

    def counted_for(
        self, guest: ConsumerUuid, held: Holdings, *, of_cells: bool = False
    ) -> frozenset[Place]:
        """Return the places of which it is known what ``guest`` should hold. ``of_cells``: what it
        should hold of cells is known, whatever it holds.

        Those of cells only if it holds as much of their class as it has, or nothing at all, because
        other amounts have another cause; those of mediated devices only if it does not hold more
        than it has, because the devices of a stopped guest may not exist.
        """
        have, holds = Counter[str](), Counter[str]()
        for provider, name in self.cells | self.mdevs:
            have[name] += self._due_of(guest, (provider, name))
            holds[name] += held.get(provider, {}).get(name, 0)
        cells = frozenset[Place]() if guest in self.floating else self.cells
        return (
            self.devices
            | {
                place
                for place in cells
                if of_cells or not held or have[place[1]] == holds[place[1]]
            }
            | {place for place in self.mdevs if have[place[1]] >= holds[place[1]]}
        )

    def misplaced(self, guest: ConsumerUuid, held: Holdings, tree: ProviderTree) -> Iterator[str]:
        """Yield what ``guest`` holds otherwise than it has, for a message. ``held``: its allocation
        of the node's tree.
        """
        for uuid, name in sorted(self.counted_for(guest, held)):
            has, should = held.get(uuid, {}).get(name, 0), self._due_of(guest, (uuid, name))
            if has != should:
                yield f"{has} {name} of {printable(tree.name_of(uuid))} instead of {should}"

    def has_more_than_root(self, guest: ConsumerUuid) -> bool:
        """Return whether some of what ``guest`` has is counted below the root."""
        return any(self.due.get(guest, {}).values())

    def corrected(self, guest: ConsumerUuid, held: Holdings, *, of_cells: bool) -> Holdings:
        """Return ``held``, an allocation of ``guest``, with what it should hold of the places that
        are known, see :meth:`counted_for`.
        """
        found: dict[ProviderUuid, dict[str, int]] = {
            uuid: dict(resources) for uuid, resources in held.items()
        }
        for uuid, name in self.counted_for(guest, held, of_cells=of_cells):
            found.setdefault(uuid, {})[name] = self._due_of(guest, (uuid, name))
        return without_zeros(found)

    def _due_of(self, guest: ConsumerUuid, place: Place) -> int:
        return self.due.get(guest, {}).get(place, 0)


def without_zeros(held: Mapping[ProviderUuid, Resources]) -> Holdings:
    """Return ``held`` without amounts of 0, and without providers of which nothing is held."""
    rest = {
        uuid: {name: amount for name, amount in resources.items() if amount}
        for uuid, resources in held.items()
    }
    return {uuid: resources for uuid, resources in rest.items() if resources}


def _cell_places(state: NodeState, tree: ProviderTree) -> frozenset[Place]:
    """Return the places of the cells whose class the root does not have too."""
    root = state.node.uuid
    on_root = tree.provider(root).inventory.keys() if tree.exists(root) else frozenset[str]()
    return frozenset(
        (uuid, name)
        for uuid in state.host.cell_providers
        if tree.exists(uuid)
        for name in tree.provider(uuid).inventory.keys() & OF_CELLS - on_root
    )


def _of_cells(state: NodeState, claim: Claim) -> Iterable[tuple[Place, int]]:
    """Return what a claim has of each cell's provider."""
    found = Counter[Place]()
    providers = {number: uuid for uuid, number in state.host.cell_providers.items()}
    for placed in claim.cells:
        if (uuid := providers.get(placed.host_cell)) is not None:
            found[uuid, orc.PCPU] += len(placed.pinned_cpus)
            found[uuid, orc.VCPU] += len(placed.cell.shared)
            found[uuid, orc.MEMORY_MB] += placed.cell.memory_mib
    return found.items()


def _card_places(state: NodeState, tree: ProviderTree) -> Mapping[ProviderUuid | None, Place]:
    """Return the place of each provider that counts the devices of a card."""
    return {
        provider.uuid: (provider.uuid, name)
        for provider in device_providers(tree, state.node.uuid)
        if (name := device_class(provider)) is not None
    }


def _mdev_places(state: NodeState, tree: ProviderTree) -> Mapping[tuple[str, str], Place]:
    """Return the place that counts each type of mediated devices of each parent."""
    return {
        (source.parent, source.type): (source.provider, source.resource_class)
        for source in state.host.mdevs or ()
        if tree.exists(source.provider)
        and source.resource_class in tree.provider(source.provider).inventory
    }


# Groups of classes that stand for one amount of a claim.
CPU, MEMORY, DISK = ("VCPU", "PCPU"), ("MEMORY_MB",), ("DISK_GB",)
GROUPS = (CPU, MEMORY, DISK)
# A flavor that sizes a class itself: resources:VCPU, resources1:DISK_GB, resources_gpu:CUSTOM_X.
SIZED = re.compile(r"resources[A-Za-z0-9_-]*:([A-Z0-9_]+)")
MIB_IN_GIB = 1024


@dataclass(frozen=True, slots=True)
class Remedies:
    """How a guest gets its allocation, and how a wrong one is corrected."""

    giving: Callable[[ConsumerUuid], str] = lambda _guest: "give it its allocation again"
    correcting: Callable[[ConsumerUuid], str] = lambda _guest: "correct its allocation"


NO_COMMANDS = Remedies()
WHILE_IT_MOVES = "wait while the move goes on; once it has ended, the next audit compares again"


def allocation_drift(
    holding: AllocationShare, records: TreeConsumers, remedies: Remedies = NO_COMMANDS
) -> Iterator[Drift]:
    """Yield a drift for each guest that is on the node, or that left it and may come back, whose
    allocation is missing or differs from its claims.

    A guest that is still being built is skipped. While a move goes on, the migration is the
    consumer of the source's half.
    """
    for guest in _guests(holding, records):
        if not guest.holders:
            giving = remedies.giving(guest.instance)
            yield _missing(guest.instance, guest.left, holding.node, giving)
        elif guest.wrong:
            yield Drift(
                "allocation-mismatch",
                "warning",
                f"instance {guest.instance} holds {'; '.join(guest.wrong)}",
                remedies.correcting(guest.instance)
                if guest.holders == (guest.instance,)
                else WHILE_IT_MOVES,
                consumer=guest.instance,
            )


def holders_of_other_amounts(
    holding: AllocationShare, records: TreeConsumers
) -> frozenset[ConsumerUuid]:
    """Return the consumers whose amounts would be reported as wrong or missing, because the
    difference may have arisen after the tree was read.
    """
    return frozenset(
        holder
        for guest in _guests(holding, records)
        if guest.wrong or not guest.holders
        for holder in guest.holders or guest.may_hold
    )


@dataclass(frozen=True, slots=True)
class _Guest:
    """One guest with the consumers that hold its allocations."""

    instance: ConsumerUuid
    may_hold: tuple[ConsumerUuid, ...]
    """The consumers that may hold allocations for it."""
    holders: tuple[ConsumerUuid, ...]
    """The consumers of ``may_hold`` that do hold allocations."""
    wrong: tuple[str, ...] = ()
    """How their amounts differ from the claims."""
    left: Migration | None = None
    """Its migration that is over and still holds an allocation."""


def _guests(holding: AllocationShare, records: TreeConsumers) -> Iterator[_Guest]:
    """Yield each guest that has claims, compared with its allocations."""
    held, promised, moves = holding.by_consumer(), _claims_of_guests(records), records.moves()
    for instance in sorted(promised):
        may_hold = (instance, *(move.uuid for move in moves.get(instance, ()) if not move.ended))
        holders = tuple(consumer for consumer in may_hold if held.get(consumer))
        if holders:
            has = sum((Counter(held[holder]) for holder in holders), Counter[str]())
            compared = holding.offered - sized_classes(instance, records)
            wrong = tuple(_differences(promised[instance], has, compared))
            yield _Guest(instance, may_hold, holders, wrong)
        else:
            yield _Guest(
                instance,
                may_hold,
                (),
                left=next((move for move in moves.get(instance, ()) if move.uuid in held), None),
            )


def _claims_of_guests(records: TreeConsumers) -> Mapping[ConsumerUuid, list[Claim]]:
    """Return the claims of every guest that has arrived on the node."""
    claims: dict[ConsumerUuid, list[Claim]] = {}
    for claim in records.claims:
        if claim.open and claim.purpose != "devices":
            claims.setdefault(claim.instance, []).append(claim)
    return {
        instance: opened
        for instance, opened in claims.items()
        if any(claim.state == "consumed" for claim in opened)
    }


def _missing(
    instance: ConsumerUuid, left: Migration | None, node: ProviderUuid, giving: str
) -> Drift:
    """Return the drift of a guest without an allocation. ``left``: its migration that is over and
    still holds an allocation here.
    """
    if left is not None:
        detail = (
            f"instance {instance} has no allocation here; its migration {left.uuid}, which is "
            f"over ({left.status}), still holds one"
        )
        return Drift(
            "missing-allocation",
            "warning",
            detail,
            f"agent allocation remove-tree {left.uuid} {node}; then {giving}",
            consumer=instance,
        )
    detail = (
        f"instance {instance} is counted here, but has no allocation: what it uses may be "
        "promised to another"
    )
    remedy = f"{giving}; or if it is gone for good: agent guests forget {instance}"
    return Drift("missing-allocation", "warning", detail, remedy, consumer=instance)


def at_rest(guests: Collection[Domain], records: TreeConsumers) -> Mapping[ConsumerUuid, Domain]:
    """Return those of the guests of the hypervisor that have one claim and do not move."""
    moves = records.moves()
    claimed = Counter(claim.instance for claim in records.claims if claim.purpose != "devices")
    return {
        guest.uuid: guest
        for guest in guests
        if claimed[guest.uuid] == 1
        and all(move.ended for move in moves.get(guest.uuid, ()))
        and (known := records.instances.get(guest.uuid)) is not None
        and known.task_state is None
    }


def on_two_hosts(guest: Domain, host: str, elsewhere: Collection[ProviderUuid]) -> Drift:
    """Return the drift of a guest of ``host`` whose allocation is on providers ``elsewhere`` too:
    it was evacuated, and the host was not fenced; or something was left over there.
    """
    uuid = guest.uuid
    removal = nova_commands.destroy(uuid, running=guest.state != "stopped")
    rest = [f"agent allocation remove-tree {uuid} {provider}" for provider in sorted(elsewhere)]
    return Drift(
        "allocation-mismatch",
        "warning",
        f"{guest_name(guest)} is here, and its allocation is on this node and on another one",
        f"if nova has it on another host: {nova_commands.if_elsewhere(uuid, host, removal)}; then, "
        f"once an audit does not see it any more: agent guests forget {uuid}; if nova has it here: "
        f"{nova_commands.if_at_rest(uuid, host, *rest)}",
        consumer=uuid,
    )


def _differences(claims: list[Claim], has: Resources, compared: frozenset[str]) -> Iterator[str]:
    for group, amount in wrong_groups(claims, has, compared):
        due = by_class(group, amount, claims, compared)
        present = {name: has[name] for name in group if name in has} or dict.fromkeys(due, 0)
        right = str(amount) if due.keys() == present.keys() and len(due) == 1 else amounts_text(due)
        yield f"{amounts_text(present)} instead of {right}"


def wrong_groups(
    claims: list[Claim], has: Resources, compared: frozenset[str]
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield each group of classes of which the amounts ``has`` differ from the claims, with the
    right sum. ``compared``: the classes that can be compared.
    """
    for group, amount in zip(GROUPS, _amounts(claims), strict=True):
        # A class of the group that is not compared may hold the rest.
        present = {name: has[name] for name in group if name in has}
        if (
            any(name in compared for name in group)
            and all(name in compared for name in present)
            and sum(present.values()) != amount
        ):
            yield group, amount


def by_class(
    group: tuple[str, ...], amount: int, claims: list[Claim], offered: Collection[str]
) -> dict[str, int]:
    """Return how an amount of a group is held: the CPUs that guests are pinned to apart from the
    others, where they are offered apart.
    """
    pinned = sum(len(cell.pinned_cpus) for claim in claims for cell in claim.cells)
    dedicated = min(pinned, amount) if orc.PCPU in group and orc.PCPU in offered else 0
    due = {group[0]: amount - dedicated}
    if dedicated:
        due[orc.PCPU] = dedicated
    return {name: count for name, count in due.items() if count} or due


def _amounts(claims: list[Claim]) -> tuple[int, int, int]:
    """Return the CPUs, including the emulator's; MiB of memory; GiB of disk, rounded up for each
    claim as they were when the allocation was made.
    """
    return (
        sum(
            claim.amounts.vcpus + sum(len(cell.reserved) for cell in claim.cells)
            for claim in claims
        ),
        sum(claim.amounts.memory_mb for claim in claims),
        sum(-(-claim.amounts.disk_mb // MIB_IN_GIB) for claim in claims),
    )


def sized_classes(instance: ConsumerUuid, records: TreeConsumers) -> frozenset[str]:
    """Return the classes of each group in which a flavor of the guest sizes a class itself, or may
    do so.
    """
    if instance in records.unknown_specs:
        return frozenset(name for group in GROUPS for name in group)
    known = records.instances.get(instance)
    flavors: list[Flavor] = (
        [
            flavor
            for flavor in (known.flavor, known.old_flavor, known.new_flavor)
            if flavor is not None
        ]
        if known
        else []
    )
    named = {
        found.group(1)
        for flavor in flavors
        for spec in flavor.extra_specs
        if (found := SIZED.fullmatch(spec))
    }
    return frozenset(name for group in GROUPS if named & {*group} for name in group)
