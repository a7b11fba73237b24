"""Usage by the claims of a node: what they use of its providers' inventories, and which provider
counts each device, cell and mediated device. Pure; returns nothing for a node without claims, nor
for classes that claims do not cover.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import os_resource_classes as orc

from agent.model.claim import Claim
from agent.model.facts import HostFacts
from agent.model.guest import PlacedCell
from agent.model.host_units import MdevParent, MdevSource
from agent.model.instance import Amounts, Instance, TaskState
from agent.model.inventory import capacity
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import ComputeNode
from agent.model.provider_tree import ProviderTree
from agent.model.report import Drift
from agent.numa.host import HostCell
from agent.tracker.node_state import NodeState
from agent.tracker.reservations import device_uses
from agent.tree.cell_tree import cell_name, page_class
from agent.tree.host_tree import choose_layout
from agent.tree.node_trees import uuid_of_child
from agent.tree.policy import MdevPolicy, Policy
from agent.tree.reported_cards import card_of, device_class, device_provider_name, device_providers

Stats = Mapping[str, int | str | None]

# Tasks that keep disks and networks busy.
IO_TASKS: frozenset[TaskState] = frozenset(
    {
        "resize_migrating",
        "rebuilding",
        "resize_prep",
        "image_snapshot",
        "image_backup",
        "rescuing",
        "unshelving",
    }
)


def stats(instances: Iterable[Instance], driver: Stats, failed_builds: int) -> Stats:
    """Return the counts of the ``instances`` that use resources of the node, with the values that
    the ``driver`` reports.
    """
    counts: Counter[str] = Counter(num_instances=0, io_workload=0)
    for instance in instances:
        if instance.removed:
            continue
        counts["num_instances"] += 1
        counts[f"num_vm_{instance.vm_state}"] += 1
        counts[f"num_task_{instance.task_state}"] += 1
        counts[f"num_os_type_{instance.os_type}"] += 1
        counts[f"num_proj_{instance.project_id}"] += 1
        counts["io_workload"] += instance.vm_state == "building" or instance.task_state in IO_TASKS
    return {"uptime": None, **driver, **counts, "failed_builds": failed_builds}


def overcommitted(node: ComputeNode, reserved: Amounts, used: Amounts) -> Iterator[Drift]:
    """Yield a drift for each resource of which more is ``used`` than the node may give. A resource
    that the driver never reported has no limit.
    """
    disk_mb = None if node.local_gb is None else node.local_gb * 1024
    kinds = (
        ("CPUs", node.vcpus, node.cpu_allocation_ratio, reserved.vcpus, used.vcpus),
        (
            "MiB of memory",
            node.memory_mb,
            node.ram_allocation_ratio,
            reserved.memory_mb,
            used.memory_mb,
        ),
        ("MiB of disk", disk_mb, node.disk_allocation_ratio, reserved.disk_mb, used.disk_mb),
    )
    for what, total, ratio, kept, taken in kinds:
        if total is not None and taken - kept > capacity(
            {"total": total, "reserved": kept, "allocation_ratio": ratio}
        ):
            text = (
                f"node {printable(node.name)}: {taken} {what} are promised, of {total} with a "
                f"ratio of {ratio:g}; {total - taken} are free"
            )
            yield Drift(
                "overcommitted",
                "warning",
                text,
                "move guests away, and claim with limits",
                node.uuid,
            )


def used_twice(state: NodeState) -> Iterator[Drift]:
    """Yield a drift for each device that a guest has whole while others have mediated devices of
    it.
    """
    mediated = state.mediated
    for device in state.devices.values() if mediated else ():
        parts = state.mediated_parts(device, mediated)
        if device.holder is not None and device.holder in state.claims and parts:
            guest = state.claims[device.holder].instance
            yield Drift(
                "held-device",
                "warning",
                (
                    f"instance {guest} has device {device.address} whole, and mediated devices of "
                    f"{', '.join(sorted(parts))} exist or are promised"
                ),
                f"move or delete that server, or those with the mediated devices of {min(parts)}",
                state.node.uuid,
                guest,
            )


def provider_usage(state: NodeState, tree: ProviderTree) -> Mapping[str, Mapping[str, int]]:
    """Return provider to resource class to amount, for the classes in the inventories of
    ``tree``.
    """
    root = state.node.uuid
    if not state.claims or not tree.exists(root):
        return {}
    used = state.used - state.host.reserved
    placed = [cell for claim in state.claims.values() for cell in claim.cells]
    # Where no provider has PCPU, the dedicated CPUs of pinned guests and of their emulators are
    # counted as shared ones.
    dedicated = any(orc.PCPU in provider.inventory for provider in tree.providers())
    cells = {
        cell.id: _of_cell(
            cell,
            0
            if dedicated
            else _pinned(placed_cell for placed_cell in placed if placed_cell.host_cell == cell.id),
        )
        for cell in state.cells
    }
    all_cells = Counter({orc.PCPU: 0})
    for counts in cells.values():
        all_cells.update(counts)
    vcpus = (
        used.vcpus
        + sum(len(cell.reserved) for cell in placed)
        - (_pinned(placed) if dedicated else 0)
    )
    own = {orc.VCPU: vcpus, orc.MEMORY_MB: used.memory_mb, orc.DISK_GB: -(-used.disk_mb // 1024)}
    amounts: dict[str, Counter[str]] = {root: Counter({**all_cells, **own})}
    for number, counts in cells.items():
        if tree.exists(name := cell_name(tree.name_of(root), number)):
            amounts[tree.provider(name).uuid] = counts
    cards = Counter(
        device_provider_name(tree.name_of(root), use.card) for use in device_uses(state).uses
    )
    for provider in device_providers(tree, root):
        if (counted := device_class(provider)) is not None:
            amounts[provider.uuid] = Counter({counted: cards[provider.name]})
    for unit in state.units.values():
        amounts.setdefault(unit.provider, Counter())[unit.resource_class] += unit.holder is not None
    return {
        uuid: {
            name: amount for name, amount in counts.items() if name in tree.provider(uuid).inventory
        }
        for uuid, counts in amounts.items()
        if tree.exists(uuid)
    }


def _pinned(placed: Iterable[PlacedCell]) -> int:
    return sum(len(cell.pinned_cpus) for cell in placed)


def _of_cell(cell: HostCell, pinned: int) -> Counter[str]:
    """Return the CPUs, the MiB of memory, and the MiB of each page size used in a cell. ``pinned``:
    the number of CPUs of pinned guests that are counted as shared ones.
    """
    pages = {page_class(pool.size_kib): pool.used * pool.size_kib // 1024 for pool in cell.pages}
    return Counter(
        {
            orc.PCPU: len(cell.pinned),
            orc.VCPU: cell.shared_used + pinned,
            orc.MEMORY_MB: cell.memory_used_mib,
            **pages,
        }
    )


def with_counting_providers(
    state: NodeState, facts: HostFacts, present: ProviderTree, policy: Policy
) -> NodeState:
    """Return the state with the providers that count the node's devices, cells and mediated
    devices. Parents of mediated devices that the driver did not report stay as they were.
    """
    known = facts.complete("mdev") or not policy.mdev.types
    mdevs = _mdev_sources(state, facts, present, policy) if known else state.host.mdevs
    return state.counted_by(
        _device_providers(state, present), _cell_providers(state, present, policy), mdevs
    )


def _device_providers(state: NodeState, present: ProviderTree) -> dict[str, ProviderUuid]:
    """Return the provider that counts each device: the one that Placement has, or the one that this
    pass creates, because claims come before the next pass.

    Cards that are gone are included by their addresses: a guest with an allocation of such a card
    must not get another device instead.
    """
    root, names = (
        state.node.uuid,
        {
            address: device_provider_name(state.node.name, device.parent or device.address)
            for address, device in state.devices.items()
        },
    )
    counting = {
        address: uuid_of_child(present, root, name, state.node.name)
        for address, name in names.items()
    }
    children = (
        map(present.provider, present.get_provider_uuids(root)) if present.exists(root) else ()
    )
    # Found by their names alone, because their traits may have been removed by others.
    gone = {
        str(card): provider.uuid
        for provider in children
        if (card := card_of(provider.name, state.node.name)) is not None
        and provider.uuid not in counting.values()
    }
    return {**gone, **counting}


def _cell_providers(
    state: NodeState, present: ProviderTree, policy: Policy
) -> dict[ProviderUuid, int]:
    """Return the cell that each provider counts, existing or created by this pass.

    Where the root counts all cells, these are the cell providers that are left of a nested layout,
    because the scheduler allocates from them until they are gone.
    """
    root = state.node.uuid
    nested = choose_layout(policy, present, root) == "nested"
    names = {cell.id: cell_name(state.node.name, cell.id) for cell in state.cells}
    return {
        uuid_of_child(present, root, name, state.node.name): number
        for number, name in names.items()
        if nested or present.exists(name)
    }


def with_promised(policy: MdevPolicy, state: NodeState, facts: HostFacts) -> MdevPolicy:
    """Return the policy of mediated devices with those that claims have and that are not made."""
    if not policy.types:
        return policy
    return replace(policy, promised=promised_mdevs(state.claims.values(), facts.mdev or ()))


def promised_mdevs(
    claims: Iterable[Claim], parents: Iterable[MdevParent]
) -> Mapping[tuple[str, str], int]:
    """Return by parent and type how many mediated devices ``claims`` have there that are not made
    yet.
    """
    claimed = Counter[tuple[str, str, ConsumerUuid | None]]()
    for claim in claims:
        for share in claim.mdevs:
            if share.parent is not None and share.type is not None:
                claimed[share.parent, share.type, claim.instance] += share.count
    made = Counter(
        (parent.name, mdev.type, mdev.owner) for parent in parents for mdev in parent.mdevs
    )
    missing = Counter[tuple[str, str]]()
    for (parent, kind, guest), count in claimed.items():
        missing[parent, kind] += max(count - made[parent, kind, guest], 0)
    return dict(+missing)


def _mdev_sources(
    state: NodeState, facts: HostFacts, present: ProviderTree, policy: Policy
) -> tuple[MdevSource, ...]:
    """Return the parents of mediated devices, with the providers that count them, existing or
    created by this pass.
    """
    root = state.node.uuid
    node = state.node.name

    def provider(parent: MdevParent, resource_class: str) -> ProviderUuid:
        name = parent.provider_name(node)
        if resource_class in policy.on_root:
            return root
        return uuid_of_child(present, root, name, node)

    return tuple(
        MdevSource(
            provider(parent, kind.resource_class),
            kind.resource_class,
            parent.name,
            kind.name,
            total,
            parent.numa_node,
            Counter(
                mdev.owner
                for mdev in parent.mdevs
                if mdev.owner is not None and mdev.type == kind.name
            ),
        )
        for parent, kind, total in with_promised(policy.mdev, state, facts).offered(
            facts.mdev or ()
        )
    )
