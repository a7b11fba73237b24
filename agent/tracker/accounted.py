"""What the claims of a node use of its providers' inventories. Pure; nothing is said of a node without claims, nor of what they cannot tell."""

from collections import Counter
from collections.abc import Mapping

import os_resource_classes as orc

from agent.desired.cell_tree import cell_name
from agent.desired.device_names import device_class, device_provider_name, device_providers
from agent.model.provider_tree import ProviderTree
from agent.tracker.device_uses import device_uses
from agent.tracker.node_state import NodeState


def accounted(state: NodeState, tree: ProviderTree) -> Mapping[str, Mapping[str, int]]:
    """Provider to resource class to amount, for the classes that the providers of ``tree`` have."""
    root = state.node.uuid
    if not state.claims or not tree.exists(root):
        return {}
    used = state.used - state.host.reserved
    pins = {cell.id: len(cell.pinned) for cell in state.cells}
    guests_pinned = sum(len(placed.pins) for one in state.claims.values() for placed in one.cells)
    amounts: dict[str, Counter[str]] = {root: Counter({
        orc.VCPU: used.vcpus - guests_pinned, orc.MEMORY_MB: used.memory_mb, orc.DISK_GB: -(-used.disk_mb // 1024), orc.PCPU: sum(pins.values()),
    })}  # fmt: skip
    for cell in state.cells:
        if tree.exists(name := cell_name(tree.name_of(root), cell.id)):
            amounts[tree.provider(name).uuid] = Counter({orc.PCPU: pins[cell.id], orc.VCPU: cell.shared_used, orc.MEMORY_MB: cell.memory_used_mib})
    cards = Counter(device_provider_name(tree.name_of(root), use.card) for use in device_uses(state).uses)
    for one in device_providers(tree, root):
        if (counted := device_class(one)) is not None:
            amounts[one.uuid] = Counter({counted: cards[one.name]})
    for unit in state.units.values():
        amounts.setdefault(unit.provider, Counter())[unit.resource_class] += unit.holder is not None
    return {
        uuid: {name: amount for name, amount in one.items() if name in tree.provider(uuid).inventory} for uuid, one in amounts.items() if tree.exists(uuid)
    }
