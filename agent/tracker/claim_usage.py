"""Usage by the claims of a node: what they use of its providers' inventories, which provider counts
each device, cell and mediated device, and what of each card is withheld from the scheduler. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import os_resource_classes as orc

from agent.model.devices import DeviceRecord, MdevParent, MdevSource, PciAddress
from agent.model.facts import HostFacts
from agent.model.instance import Instance, PlacedCell
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import Claim, Migration, RecordChanges
from agent.model.provider_tree import Provider, ProviderTree
from agent.numa.host import HostCell, Pages
from agent.tracker.errors import UnknownDevice, WrongState
from agent.tracker.node_state import NodeState
from agent.tree.host_tree import choose_layout
from agent.tree.node_trees import cell_name, is_cell_name, page_class, page_size, uuid_of_child
from agent.tree.policy import MdevPolicy, Policy
from agent.tree.reported_cards import (
    DeviceUse,
    DeviceUses,
    ReservedOfCard,
    Withheld,
    card_of,
    device_class,
    device_provider_name,
    device_providers,
)

ORDINARY_KIB = 4
"""The size of pages that have no class."""


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
        device_provider_name(tree.name_of(root), PciAddress.parse(device.card))
        for device in state.devices.values()
        if device.holder in state.claims
    )
    for provider in device_providers(tree, root):
        if (counted := device_class(provider)) is not None:
            amounts[provider.uuid] = Counter({counted: cards[provider.name]})
    for unit in state.units.values():
        amounts.setdefault(unit.provider, Counter())[unit.resource_class] += unit.holder is not None
    for (parent, name), count in _mdevs_of_guests(state).items():
        amounts.setdefault(parent, Counter())[name] += count
    return {
        uuid: {
            name: amount for name, amount in counts.items() if name in tree.provider(uuid).inventory
        }
        for uuid, counts in amounts.items()
        if tree.exists(uuid)
    }


def cells_of_claims(claims: Iterable[Claim], providers: Sequence[Provider]) -> tuple[HostCell, ...]:
    """Return the cells that ``claims`` and ``providers`` name, the root first, for those who have
    not asked the host: what is used of them can be counted, but what they have is unknown.
    """
    # Where the root counts the cells, one is enough to count nothing of each class.
    numbers = {
        0,
        *(placed.host_cell for claim in claims for placed in claim.cells),
        *(
            int(provider.name.rpartition("_NUMA")[2])
            for provider in providers
            if is_cell_name(provider.name, providers[0].name)
        ),
    }
    sizes = {page_size(counted) for provider in providers for counted in provider.inventory}
    pages = tuple(Pages(size, total=0) for size in {ORDINARY_KIB, *sizes} if size is not None)
    nothing: frozenset[int] = frozenset()
    return tuple(HostCell(number, nothing, nothing, 0, pages=pages) for number in sorted(numbers))


def _mdevs_of_guests(state: NodeState) -> Counter[tuple[ProviderUuid, str]]:
    """Return how many mediated devices the guests on record have, by provider and class: those of
    their claims, or of the hypervisor where it shows more.
    """
    sources = state.host.mdevs or ()
    on_record = {claim.instance for claim in state.claims.values()}
    claimed, shown = (Counter[tuple[ProviderUuid, str, ConsumerUuid]]() for _ in range(2))
    for claim in state.claims.values():
        for share in claim.mdevs:
            claimed[share.provider, share.resource_class, claim.instance] += share.count
    for source in sources:
        for guest in source.guests.keys() & on_record:
            shown[source.provider, source.resource_class, guest] += source.guests[guest]
    found = Counter({(source.provider, source.resource_class): 0 for source in sources})
    for (provider, name, _), count in (claimed | shown).items():
        found[provider, name] += count
    return found


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
    node, name, mdevs = state.node.uuid, state.node.name, state.host.mdevs
    if facts.complete("mdev") or not policy.mdev.types:
        parents, claims = facts.mdev or (), state.claims.values()
        mdevs = _mdev_sources(node, name, claims, parents, present, policy)
    return replace(
        state,
        host=replace(
            state.host,
            device_providers=_device_providers(node, name, state.devices, present),
            cell_providers=_cell_providers(node, name, state.cells, present, policy),
            mdevs=mdevs,
        ),
    )


def _device_providers(
    root: ProviderUuid, node: str, devices: Mapping[str, DeviceRecord], present: ProviderTree
) -> dict[str, ProviderUuid]:
    """Return the provider that counts each device: the one that Placement has, or the one that this
    pass creates, because claims come before the next pass. ``root``: the uuid of ``node``.

    Cards that are gone are included by their addresses: a guest with an allocation of such a card
    must not get another device instead.
    """
    names = {
        address: device_provider_name(node, device.parent or device.address)
        for address, device in devices.items()
    }
    counting = {
        address: uuid_of_child(present, root, name, node) for address, name in names.items()
    }
    children = (
        map(present.provider, present.get_provider_uuids(root)) if present.exists(root) else ()
    )
    # Found by their names alone, because their traits may have been removed by others.
    gone = {
        str(card): provider.uuid
        for provider in children
        if (card := card_of(provider.name, node)) is not None
        and provider.uuid not in counting.values()
    }
    return {**gone, **counting}


def _cell_providers(
    root: ProviderUuid,
    node: str,
    cells: Iterable[HostCell],
    present: ProviderTree,
    policy: Policy,
) -> dict[ProviderUuid, int]:
    """Return the cell that each provider counts, existing or created by this pass.

    Where the root counts all cells, these are the cell providers that are left of a nested layout,
    because the scheduler allocates from them until they are gone.
    """
    nested = choose_layout(policy, present, root) == "nested"
    names = {cell.id: cell_name(node, cell.id) for cell in cells}
    return {
        uuid_of_child(present, root, name, node): number
        for number, name in names.items()
        if nested or present.exists(name)
    }


def with_promised(
    policy: MdevPolicy, claims: Iterable[Claim], parents: Iterable[MdevParent]
) -> MdevPolicy:
    """Return the policy of mediated devices with those that claims have and that are not made."""
    if not policy.types:
        return policy
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
    return replace(policy, promised=dict(+missing))


def _mdev_sources(
    root: ProviderUuid,
    node: str,
    claims: Iterable[Claim],
    parents: Collection[MdevParent],
    present: ProviderTree,
    policy: Policy,
) -> tuple[MdevSource, ...]:
    """Return the ``parents`` of mediated devices, with the providers that count them, existing or
    created by this pass.
    """

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
            parent.total(kind.name),
            parent.numa_node,
            Counter(
                mdev.owner
                for mdev in parent.mdevs
                if mdev.owner is not None and mdev.type == kind.name
            ),
        )
        for parent, kind, total in with_promised(policy.mdev, claims, parents).dealt(parents)
        # What is allocated of the root does not say that it is of a parent that offers nothing.
        if total or kind.resource_class not in policy.on_root
    )


# --- what of the cards is in use, and what is withheld -------------------------------------------

# Placement decides what is withheld, because operators and the tools that clean devices set
# ``reserved`` there. Its value only counts if the provider had the recorded value before: a
# provider that was created anew or restored gets the recorded value again.
Seen = Mapping[PciAddress, ReservedOfCard | None]
"""What Placement has reserved of each card. None: the reserved amount cannot be attributed to
devices. Cards that Placement does not have are missing.
"""


def note_reserved_amounts(devices: Mapping[str, DeviceRecord], seen: Seen) -> RecordChanges:
    """Return the changes that bring the device records up to what Placement has reserved."""
    unclear = {address for address, found in seen.items() if found is None}
    after = [
        (device, _noted(device, seen.get(address)))
        for address, device in _heads(devices).items()
        if address not in unclear
    ]
    return RecordChanges(devices=tuple(now for before, now in after if now != before))


def clean_device(devices: Mapping[str, DeviceRecord], address: str) -> RecordChanges:
    """Return the change that records that the device was cleaned and frees the reserved part of its
    card; empty if there is nothing to do.

    :raises UnknownDevice: there is no device with that address.
    :raises WrongState: a guest has the device.
    """
    row = devices.get(address)
    if row is None:
        raise UnknownDevice(
            f"no device {printable(address)} on record", "see GET /v1/devices for their addresses"
        )
    if row.holder is not None:
        raise WrongState(
            f"device {address} is in use, by claim {row.holder}", "clean it once its guest is gone"
        )
    return (
        RecordChanges(devices=(replace(row, used=False, reserved=0, reservation_due=True),))
        if row.withheld
        else RecordChanges()
    )


def _heads(devices: Mapping[str, DeviceRecord]) -> Mapping[PciAddress, DeviceRecord]:
    """Return for each card the row that records what is reserved of it: the card's own, or the
    first of its functions if the host does not show the card.
    """
    heads: dict[str, DeviceRecord] = {}
    for _, device in sorted(devices.items()):
        last = heads.get(device.card)
        if (
            last is None
            or device.address == device.card
            or (device.withheld and not last.withheld and last.address != device.card)
        ):
            heads[device.card] = device
    return {PciAddress.parse(card): row for card, row in heads.items()}


def _noted(row: DeviceRecord, seen: ReservedOfCard | None) -> DeviceRecord:
    """Return the row after Placement was read. ``seen`` None: Placement does not have the card."""
    if seen is None:
        return replace(row, reservation_due=row.withheld)
    has_all = seen.reserved >= (seen.total if row.used else row.reserved)
    as_seen = replace(
        row, reserved=seen.reserved, reserved_at=seen.generation, reservation_due=False
    )
    if row.reservation_due:
        is_there = has_all if row.withheld else seen.reserved == 0
        return as_seen if is_there else row
    if seen.generation < row.reserved_at and not has_all:
        return replace(row, reservation_due=True)
    if row.used and not has_all:
        # ``reserved`` was lowered: the device is clean, unless a guest has it.
        return (
            replace(row, reservation_due=True)
            if row.holder is not None
            else replace(as_seen, used=False)
        )
    if row.one_time_use and not row.used and 0 < seen.total <= seen.reserved:
        # Reserved by an operator, or by an agent that has lost its store since: nobody has cleaned
        # the device.
        return replace(as_seen, used=True)
    return as_seen if seen.reserved != row.reserved or seen.generation < row.reserved_at else row


def device_uses(
    devices: Mapping[str, DeviceRecord],
    claims: Mapping[str, Claim],
    instances: Mapping[ConsumerUuid, Instance],
    migrations: Mapping[ConsumerUuid, Migration],
) -> DeviceUses:
    """Return the devices in use and the consumers that are settled, busy or known."""
    claimed, moving = set[ConsumerUuid](), set[ConsumerUuid]()
    for claim in claims.values():
        claimed.add(claim.instance)
        if claim.half != "only" or claim.state != "consumed":
            moving.add(claim.instance)
    held = [
        (device, claims[device.holder].instance)
        for device in devices.values()
        if device.holder is not None and device.holder in claims
    ]
    busy = {instance.uuid for instance in instances.values() if instance.task_state is not None} | {
        migration.instance for migration in migrations.values() if not migration.ended
    }
    known = claimed.union(instances, migrations)
    # How much is to be reserved of each card whose record differs from what Placement has, or that
    # withholds devices.
    withheld = {
        address: Withheld(None if device.used else device.reserved, due=device.reservation_due)
        for address, device in _heads(devices).items()
        if device.withheld or device.reservation_due
    }
    return DeviceUses(
        tuple(
            DeviceUse(
                PciAddress.parse(device.address),
                PciAddress.parse(device.card),
                owner,
                device.numa_node,
                bool(device.tags.get("physical_network")),
                (device.vendor_id, device.product_id),
            )
            for device, owner in held
        ),
        frozenset(claimed - moving),
        frozenset(busy),
        withheld,
        frozenset(known),
    )
