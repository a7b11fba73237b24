"""Moves of allocations of classes that go from the root to its children or back (cells, parents of
mediated devices, encryption techniques), and from VCPU to PCPU or back: which providers count a
class before and after a change, and how a guest's amount spreads over its cells.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import os_resource_classes as orc

from agent.errors import ReshapeFailed
from agent.model.instance import PlacedCell
from agent.model.inventory import capacity
from agent.model.names import ConsumerUuid, ProviderUuid, number_of, printable
from agent.model.provider_tree import ProviderTree
from agent.tree.children import CHILDREN
from agent.tree.node_trees import OF_CELLS, NodeTrees, cell_name, is_cell_name, page_size
from agent.tree.reshape.allocation_editor import (
    AllocationEditor,
    ReshapeContext,
    check_room,
    reshape_failed,
)

CellShare = Callable[[PlacedCell], int]
"""Computes how much of a class a guest cell holds."""


def cell_shares(resource_class: str) -> Iterator[CellShare]:
    """Yield the ways in which a guest cell's share of the class may have been counted.

    The host CPU of an emulator is in PCPU or not; where there is no PCPU, pinned CPUs are in VCPU.
    """
    if resource_class == orc.PCPU:
        yield lambda cell: len(cell.pins) + len(cell.reserved)
        yield lambda cell: len(cell.pins)
    elif resource_class == orc.VCPU:
        yield lambda cell: len(cell.cell.shared)
        yield lambda cell: len(cell.cell.cpus)
        yield lambda cell: len(cell.cell.cpus) + len(cell.reserved)
    elif resource_class == orc.MEMORY_MB:
        yield lambda cell: cell.cell.memory_mib
    elif (size := page_size(resource_class)) is not None:
        yield lambda cell: cell.cell.memory_mib if cell.page_size_kib == size else 0


def counted_by_cells(resource_class: str) -> bool:
    """Whether the cells of a guest show where its share of the class is."""
    return resource_class in OF_CELLS or page_size(resource_class) is not None


def shares_by_cell(
    resource_class: str, amount: int, cells: Sequence[PlacedCell], root: str
) -> Mapping[str, int] | None:
    """Return ``amount`` by the names of the cells of the node called ``root``; None if the guest's
    cells add up to another amount.
    """
    for share_of in cell_shares(resource_class):
        shares = Counter[str]()
        for cell in cells:
            shares[cell_name(root, cell.host_cell)] += share_of(cell)
        if sum(shares.values()) == amount:
            return {name: share for name, share in shares.items() if share}
    return None


OF_CHILDREN = frozenset({orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT})
"""Classes that are counted by children other than cells."""
ALWAYS = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, *OF_CHILDREN})
"""Classes that may always move; page classes are added where there are some."""


@dataclass(frozen=True, slots=True)
class ClassMove:
    """A resource class, and the providers that count it before and after a change of the tree."""

    resource_class: str
    before: frozenset[ProviderUuid]
    after: frozenset[ProviderUuid]

    @property
    def left(self) -> frozenset[ProviderUuid]:
        """The providers that do not count it any more."""
        return self.before - self.after

    def crosses(self, root: ProviderUuid) -> bool:
        """Whether the class goes from the root to its children or back; a class that only loses a
        child does not.
        """
        return bool(self.before and self.after and self.left) and (root in self.before) != (
            root in self.after
        )


ClassMoves = Mapping[str, ClassMove]
"""By resource class."""


def class_moves(trees: NodeTrees) -> ClassMoves:
    """Return the move of each class from the tree in Placement to the desired one, ordered by
    class: of all that may always move, and of pages where there are some.
    """
    before = _counting_providers(trees.present, trees.root)
    after = _counting_providers(trees.desired, trees.root)
    names = sorted(ALWAYS | before.keys() | after.keys())
    return {
        name: ClassMove(name, frozenset(before.get(name, ())), frozenset(after.get(name, ())))
        for name in names
    }


def _counting_providers(tree: ProviderTree, root: ProviderUuid) -> dict[str, set[ProviderUuid]]:
    """Return the node's providers by the classes that they count, as far as the core counts them:
    other inventories are moved by their drivers.
    """
    found: dict[str, set[ProviderUuid]] = {}
    name = tree.name_of(root) if tree.exists(root) else ""
    # In one walk, because every pass needs it.
    for uuid in tree.get_provider_uuids_in_tree(root) if name else ():
        provider = tree.provider(uuid)
        is_root_or_cell = uuid == root or is_cell_name(provider.name, name)
        for resource_class in provider.inventory:
            if (
                resource_class in OF_CHILDREN
                or (is_root_or_cell and counted_by_cells(resource_class))
                or (uuid == root and resource_class == orc.DISK_GB)
            ):
                found.setdefault(resource_class, set()).add(uuid)
    return found


LOG = logging.getLogger(__name__)
NAMED_AT_MOST = 5
"""Consumers in one remedy."""


def move_between_root_and_children(
    move: ClassMove, trees: NodeTrees, reshape_context: ReshapeContext, editor: AllocationEditor
) -> None:
    """Move the allocations of the class from where it is not counted any more.

    :raises ReshapeFailed: it is unknown where a share goes, or there is no room for it.
    """
    desired, node, resource_class = trees.desired, trees.name, move.resource_class
    consumers_without_cells: list[str] = []
    for consumer, provider, amount in editor.holders(resource_class, move.left):
        if trees.root in move.after:
            shares: Mapping[str, int] | None = {node: amount}
        elif counted_by_cells(resource_class):
            cells = reshape_context.places.cells.get(consumer, ())
            shares = shares_by_cell(resource_class, amount, cells, node)
        else:
            shares = _shares_by_device(resource_class, consumer, amount, node, reshape_context)
        if shares is None:
            consumers_without_cells.append(consumer)
            continue
        editor.take(consumer, provider, resource_class, amount)
        for target, share in shares.items():
            check_room(desired, target, resource_class, consumer, share)
            editor.give(consumer, desired.provider(target).uuid, resource_class, share)
    if consumers_without_cells:
        raise reshape_failed(
            (
                f"{resource_class} of {printable(node)} would move from the root to its cells, but "
                "it is unknown which cells have what is used"
            ),
            consumers_without_cells,
            (
                "set [compute] tree_layout and numa_mode back, or move these consumers away first; "
                "have guests that run here recorded: agent guests import"
            )
            + "".join(
                f"; if nova has no server or migration {one}, end what it holds: agent allocation "
                f"remove-tree {one} {trees.root}"
                for one in sorted({*consumers_without_cells})[:NAMED_AT_MOST]
            ),
        )


def may_leave_cells(move: ClassMove, root: ProviderUuid, reshape_context: ReshapeContext) -> bool:
    """Whether some cells that counted the class are gone, others count it now, and it is known
    where what is held of the former goes.
    """
    numa, places = reshape_context.facts.numa, reshape_context.places.cells
    return (
        reshape_context.optional_moves
        and counted_by_cells(move.resource_class)
        and bool(move.left and move.after)
        and root not in move.before | move.after
        and (any(places.values()) or (numa is not None and bool(numa.shared_by)))
    )


def follow_cells(
    move: ClassMove, trees: NodeTrees, reshape_context: ReshapeContext, editor: AllocationEditor
) -> None:
    """Move what is held of cells that are gone to the cells where the guests are now.

    What is held by a consumer whose cells are unknown, or has no room there, stays: the cell is
    held, and drift says so. Where NUMA nodes share CPUs there is only one cell to go to.
    """
    name, resource_class, numa = trees.name, move.resource_class, reshape_context.facts.numa
    held: dict[ConsumerUuid, dict[ProviderUuid, int]] = {}
    for consumer, provider, amount in editor.holders(resource_class, move.before | move.after):
        held.setdefault(consumer, {})[provider] = amount
    used = Counter[ProviderUuid]()
    for of_consumer in held.values():
        used.update(of_consumer)
    for consumer, of_consumer in sorted(held.items()):
        if of_consumer.keys().isdisjoint(move.left):
            continue
        amount = sum(of_consumer.values())
        cells = reshape_context.places.cells.get(consumer, ())
        shares = shares_by_cell(resource_class, amount, cells, name)
        if shares is None and numa is not None and numa.shared_by:
            shares = {cell_name(name, 0): amount}
        after = used - Counter(of_consumer) + _by_uuid(shares or {}, trees.desired)
        if shares is None or not _has_room(after, move, trees.desired):
            continue
        used = after
        for provider, share in of_consumer.items():
            editor.take(consumer, provider, resource_class, share)
        for target, share in shares.items():
            editor.give(consumer, trees.desired.provider(target).uuid, resource_class, share)


def _by_uuid(shares: Mapping[str, int], tree: ProviderTree) -> Counter[ProviderUuid]:
    """Return the shares by the uuids of the providers; those of a provider that ``tree`` lacks are
    on none.
    """
    return Counter(
        {
            tree.provider(name).uuid if tree.exists(name) else ProviderUuid(""): share
            for name, share in shares.items()
        }
    )


def _has_room(used: Counter[ProviderUuid], move: ClassMove, tree: ProviderTree) -> bool:
    """Whether every provider has the class, and room for what is ``used`` of it; those that are
    left aside.
    """
    return all(
        uuid in move.after
        and amount <= capacity(tree.provider(uuid).inventory[move.resource_class])
        for uuid, amount in used.items()
        if uuid not in move.left
    )


def _shares_by_device(
    resource_class: str,
    consumer: ConsumerUuid,
    amount: int,
    root: str,
    reshape_context: ReshapeContext,
) -> Mapping[str, int]:
    """Return, by provider name, how many of the first ``amount`` mediated devices of a consumer are
    there, in the order of their parents.

    :raises ReshapeFailed: fewer devices of the consumer are known.
    """
    if resource_class == orc.MEM_ENCRYPTION_CONTEXT:
        # Only SEV was on the root: the other techniques had children from the start.
        return {CHILDREN["sev"].name(root): amount}
    owner = reshape_context.places.moving.get(consumer, consumer)
    providers = [
        parent.provider_name(root)
        for parent in sorted(reshape_context.facts.mdev or (), key=lambda parent: parent.name)
        for device in parent.mdevs
        if device.owner == owner
        and (kind := reshape_context.policy.mdev.type_of(parent.name)) is not None
        and kind.resource_class == orc.VGPU
        and kind.name == device.type
    ]
    if len(providers) < amount:
        found = (
            f"only {number_of(len(providers), 'device')} of it found"
            if providers
            else "no guest with devices is known by that name"
        )
        raise ReshapeFailed(
            (
                f"VGPU of {printable(root)} would move from the root to its parents, but consumer "
                f"{consumer} has {amount} of it and {found}"
            ),
            "end its move or delete its allocation, and reload the agent",
            consumer=consumer,
        )
    if len(providers) > amount:
        LOG.warning(
            (
                "consumer %s has %d devices but only %d VGPU in Placement: those of the first "
                "parents count"
            ),
            consumer,
            len(providers),
            amount,
        )
    return Counter(providers[:amount])


def becomes_dedicated(moves: ClassMoves, reshape_context: ReshapeContext) -> bool:
    """Whether the node gets its first PCPU while guests are pinned: so far they hold VCPU."""
    pcpu = moves[orc.PCPU]
    return bool(
        moves[orc.VCPU].before
        and not pcpu.before
        and pcpu.after
        and reshape_context.policy.host.dedicated
        and reshape_context.places.pinned
    )


def becomes_shared(moves: ClassMoves, reshape_context: ReshapeContext) -> bool:
    """Whether the operator removed the dedicated CPU set: consumers of PCPU will hold VCPU."""
    pcpu = moves[orc.PCPU]
    return bool(
        pcpu.before
        and not pcpu.after
        and moves[orc.VCPU].after
        and reshape_context.policy.host.dedicated is None
    )


def swap_cpu_classes(
    moves: ClassMoves,
    reshape_context: ReshapeContext,
    editor: AllocationEditor,
    present: ProviderTree,
    root: ProviderUuid,
) -> ClassMoves:
    """Swap VCPU and PCPU in the allocations, each share on its provider in ``present``. Return the
    moves that remain, computed as if the swapped classes had always been so.

    :raises ReshapeFailed: a guest has fewer VCPU than CPUs that it is pinned to, or VCPU would go
        while it is used.
    """
    vcpu, pcpu = moves[orc.VCPU], moves[orc.PCPU]
    if becomes_dedicated(moves, reshape_context):
        _dedicate(vcpu.before, reshape_context, editor, present, root)
        pcpu = replace(pcpu, before=vcpu.before)
    elif becomes_shared(moves, reshape_context):
        for consumer, provider, amount in editor.holders(orc.PCPU, pcpu.before):
            editor.take(consumer, provider, orc.PCPU, amount)
            editor.give(consumer, provider, orc.VCPU, amount)
        vcpu, pcpu = (
            replace(vcpu, before=vcpu.before | pcpu.before),
            replace(pcpu, before=frozenset()),
        )
    if not vcpu.after and (
        users := [consumer for consumer, *_ in editor.holders(orc.VCPU, vcpu.before)]
    ):
        raise reshape_failed(
            f"VCPU of {printable(present.name_of(root))} would be removed while it is used",
            users,
            "set cpu_shared_set, or move these consumers away first",
        )
    return {**moves, orc.VCPU: vcpu, orc.PCPU: pcpu}


def _dedicate(
    providers: frozenset[ProviderUuid],
    reshape_context: ReshapeContext,
    editor: AllocationEditor,
    present: ProviderTree,
    root: ProviderUuid,
) -> None:
    """Turn VCPU of pinned guests on ``providers`` into PCPU.

    :raises ReshapeFailed: a guest has fewer VCPU than CPUs that it is pinned to.
    """
    name, pinned = present.name_of(root), reshape_context.places.pinned
    for consumer, provider, amount in editor.holders(orc.VCPU, providers):
        cells = [
            cell
            for cell in pinned.get(consumer, ())
            if provider == root or present.name_of(provider) == cell_name(name, cell.host_cell)
        ]
        count = _dedicated_amount(cells, amount)
        if count > amount:
            raise ReshapeFailed(
                (
                    f"consumer {consumer} is pinned to {count} CPUs but holds only {amount} VCPU "
                    f"of {printable(name)}"
                ),
                f"agent allocation add {consumer} {provider} {orc.VCPU}={count - amount}; then: "
                "agent reload",
                consumer=consumer,
            )
        if count:
            editor.take(consumer, provider, orc.VCPU, count)
            editor.give(consumer, provider, orc.PCPU, count)


def _dedicated_amount(cells: Sequence[PlacedCell], amount: int) -> int:
    """Return how much of ``amount`` are dedicated CPUs: those that the guest is pinned to, and that
    of the emulator if it was counted.
    """
    pins = sum(len(cell.pins) for cell in cells)
    emulator = sum(len(cell.reserved) for cell in cells)
    total = sum(len(cell.cell.cpus) for cell in cells) + emulator
    return pins + emulator if amount == total else pins
