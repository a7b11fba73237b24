"""Moves between VCPU and PCPU: guests with dedicated CPUs that were counted as VCPU before the node
had PCPU, and the way back.
"""

from collections.abc import Sequence
from dataclasses import replace

import os_resource_classes as orc

from agent.errors import ReshapeFailed
from agent.model.guest import PlacedCell
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.tree.cell_tree import cell_name
from agent.tree.reshape.allocation_editor import AllocationEditor, reshape_failed
from agent.tree.reshape.class_moves import ClassMoves
from agent.tree.reshape.context import ReshapeContext


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
            what = (
                f"consumer {consumer} is pinned to {count} CPUs but holds only {amount} VCPU of "
                f"{printable(name)}"
            )
            raise ReshapeFailed(
                what,
                "correct its allocation with agent allocation, and reload the agent",
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
