"""The drift of a node: what guests on record have and the host does not, or has otherwise (cells
with other numbers, devices at other addresses, CPUs that went offline, pages that are gone, more
promised than there is). Claims that depend on it are refused, and nothing else. And what the host
lacks of what the options name. Pure.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from agent.errors import ConfigError
from agent.model.devices import DeviceRecord, PciDevice, UnitRecord
from agent.model.facts import Domain, HostFacts, Topology
from agent.model.finding import Drift
from agent.model.instance import Amounts, PlacedCell
from agent.model.inventory import capacity
from agent.model.names import ConsumerUuid, ProviderUuid, format_cpu_list, name_first, printable
from agent.model.node_records import Claim, ComputeNode, RecordChanges
from agent.numa.host import HostCell
from agent.numa.host_policy import HostPolicy, not_offered, pinned_cpus
from agent.tracker import nova_commands
from agent.tracker.node_state import NodeState, mediated_parts
from agent.tracker.seen_guest import Refusal, contradictions
from agent.tracker.verdicts import free_device

MOVED_REMEDY = (
    "once the hypervisor has these guests on the present cells and devices: agent guests import; "
    "until then no claim gets cells or devices that may be theirs"
)

HolderOfCells = tuple[str, tuple[PlacedCell, ...]]
"""How messages call a guest, and its cells."""


def moved_devices(
    devices: Mapping[str, DeviceRecord],
    claims: Mapping[str, Claim],
    here: Mapping[str, PciDevice],
    domains: Iterable[Domain],
    before: Collection[str],
) -> dict[str, str]:
    """Return the devices that guests on record have, by the addresses where they are now: present
    to recorded address. Devices that are gone are left out.

    A device is where the hypervisor shows its guest with another device of the kind, or else where
    the only free device of the kind with the same slot and function is. Nothing moved to an address
    of ``before``: another device was there. ``here``: the devices of the host, by address.
    """
    held = {row.address: row for row in devices.values() if row.holder in claims}
    lost = [
        row
        for row in held.values()
        if (device := here.get(row.address)) is None or not row.is_like(device)
    ]
    if not lost:
        return {}
    guests = {guest.uuid: guest for guest in domains}
    found: dict[str, str] = {}
    for row in sorted(lost, key=lambda row: row.address):
        guest = guests.get(claims[row.holder or ""].instance)
        shown = [str(address) for address in guest.devices] if guest is not None else []
        alike = [
            address
            for address, device in here.items()
            if address not in found and address not in held and row.is_like(device)
        ]
        places = [address for address in alike if address in shown] or _same_slot(
            row, [address for address in alike if address not in before], devices
        )
        if places:
            found[places[0]] = row.address
    return found


def _same_slot(
    row: DeviceRecord, alike: Iterable[str], devices: Mapping[str, DeviceRecord]
) -> list[str]:
    """Return the only one of these addresses that has the slot and function of ``row`` and that is
    offered; none if there are several.
    """
    slot = row.address.rpartition(":")[2]
    found = [
        address
        for address in alike
        if address.rpartition(":")[2] == slot
        and (other := devices.get(address)) is not None
        and other.serves == "guests"
    ]
    return found if len(found) == 1 else []


# --- drift ----------------------------------------------------------------------------------------


def drift_of_records(state: NodeState, policy: HostPolicy) -> Iterator[Drift]:
    """Yield the drift of the node's records that does not depend on how they were before."""
    node, devices, claims = state.node, state.devices, state.claims
    holders = {
        claim.instance: (f"instance {claim.instance}", claim.cells)
        for claim in claims.values()
        if claim.purpose != "devices"
    }
    yield from _lost_units(state.units.values(), claims, node.name)
    yield from _withdrawn_cpus(policy, claims.values(), node.uuid, node.name)
    yield from _moved_drift(state.host.moved_devices, devices, claims, state.displaced, state.cells)
    yield from offline_cpus(state.cells, holders, node.uuid)
    yield from overdrawn_pages(state.cells, holders, node.uuid, node.name)
    yield from overcommitted(node, state.host.reserved, state.used)
    if mediated := state.mediated:
        yield from _used_twice(devices, claims, mediated, node.uuid)


def _moved_drift(
    moved: Mapping[str, str],
    devices: Mapping[str, DeviceRecord],
    claims: Mapping[str, Claim],
    displaced: Collection[str],
    cells: Iterable[HostCell],
) -> Iterator[Drift]:
    """Yield one drift for all cells and devices that moved under guests. ``moved``: see
    :func:`moved_devices`.
    """
    held = [claims[claim] for claim in sorted(displaced)]
    parts = [
        *_moved_cells(held, cells),
        *(
            f"device {old} may be at {new} now"
            for new, old in sorted(moved.items(), key=lambda pair: pair[1])
        ),
    ]
    if not parts:
        return
    held += [claims[devices[old].holder or ""] for old in moved.values()]
    guests = sorted({claim.instance for claim in held})
    yield Drift(
        "guest-conflict",
        "warning",
        f"the hardware changed under {name_first([f'instance {guest}' for guest in guests])}: "
        f"{name_first(parts, separator='; ')}",
        MOVED_REMEDY,
        held[0].node,
        guests[0] if len(guests) == 1 else None,
    )


def _moved_cells(displaced: Iterable[Claim], present: Iterable[HostCell]) -> Iterator[str]:
    """Yield which CPUs of which cells are on other cells now, and which cells are gone."""
    now = {cpu: cell.id for cell in present for cpu in cell.cpus}
    ids = {cell.id for cell in present}
    cpus: dict[tuple[int, int], set[int]] = defaultdict(set)
    gone: set[int] = set()
    for claim in displaced:
        for placed in claim.cells:
            before = placed.host_cell
            for cpu in placed.pinned_cpus:
                if now.get(cpu, before) != before:
                    cpus[before, now[cpu]].add(cpu)
            if before not in ids:
                gone.add(before)
    for (before, after), moved in sorted(cpus.items()):
        yield f"CPUs {format_cpu_list(moved)} of cell {before} are on cell {after}"
    for cell in sorted(gone):
        yield f"the host has no cell {cell}"


def overcommitted(node: ComputeNode, reserved: Amounts, used: Amounts) -> Iterator[Drift]:
    """Yield a drift for each resource of which more is ``used`` than the node may give. A resource
    that the driver never reported has no limit.
    """
    kinds = (
        ("CPUs", "cpu", node.vcpus, node.cpu_allocation_ratio, reserved.vcpus, used.vcpus),
        (
            "MiB of memory",
            "ram",
            node.memory_mb,
            node.ram_allocation_ratio,
            reserved.memory_mb,
            used.memory_mb,
        ),
        (
            "MiB of disk",
            "disk",
            node.disk_mb,
            node.disk_allocation_ratio,
            reserved.disk_mb,
            used.disk_mb,
        ),
    )
    for what, kind, total, ratio, kept, taken in kinds:
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
                "move guests away, and claim with limits"
                + _enough_ratio(kind, total - kept, taken - kept),
                node.uuid,
            )


def _enough_ratio(kind: str, offered: int, taken: int) -> str:
    """Return the way of a remedy that is a ratio with which so much may be taken; empty if none
    is.
    """
    if offered <= 0:
        return ""
    ratio = math.ceil(taken / offered * 100) / 100
    return f"; or if the host bears it: set [DEFAULT] {kind}_allocation_ratio = {ratio:g}"


def _used_twice(
    devices: Mapping[str, DeviceRecord],
    claims: Mapping[str, Claim],
    mediated: frozenset[str],
    node: ProviderUuid,
) -> Iterator[Drift]:
    """Yield a drift for each device that a guest has whole while others have mediated devices of
    it.
    """
    for device in devices.values():
        parts = mediated_parts(devices, device, mediated)
        if device.holder is not None and device.holder in claims and parts:
            guest = claims[device.holder].instance
            yield Drift(
                "held-device",
                "warning",
                (
                    f"instance {guest} has device {device.address} whole, and mediated devices of "
                    f"{name_first(sorted(parts))} exist or are promised"
                ),
                f"move that server away: {nova_commands.migrate(guest)}; or else, in "
                f"the same way, each server that has mediated devices of {min(parts)}",
                node,
                guest,
            )


def offline_cpus(
    host: Iterable[HostCell], holders: Mapping[ConsumerUuid, HolderOfCells], node: ProviderUuid
) -> Iterator[Drift]:
    """Yield a drift for each guest that is pinned to CPUs that are offline."""
    offline = frozenset[int]().union(*(cell.offline for cell in host))
    for guest, (called, cells) in sorted(holders.items()) if offline else ():
        if lost := offline & pinned_cpus(cells):
            cpus = format_cpu_list(lost)
            yield Drift(
                "guest-conflict",
                "warning",
                f"{called} is pinned to CPUs {cpus}, which are offline",
                f"bring them online: chcpu --enable {cpus}; or move the guest away: "
                f"{nova_commands.migrate(guest)}",
                node,
                guest,
            )


def overdrawn_pages(
    host: Iterable[HostCell],
    holders: Mapping[ConsumerUuid, HolderOfCells],
    node: ProviderUuid,
    name: str,
) -> Iterator[Drift]:
    """Yield a drift for each cell and size of huge pages of which the guests have more than there
    are.
    """
    for cell in host:
        for pool in cell.huge_pages:
            pages = {
                guest: count
                for guest, (_, cells) in holders.items()
                if (count := _pages(cells, cell.id, pool.size_kib))
            }
            promised = sum(pages.values())
            if promised <= pool.total - pool.reserved:
                continue
            kept = f", of which {pool.reserved} are reserved" if pool.reserved else ""
            users = name_first(
                [f"{holders[guest][0]} {count}" for guest, count in sorted(pages.items())]
            )
            most = max(sorted(pages), key=lambda guest: pages[guest])
            yield Drift(
                "overcommitted",
                "warning",
                f"node {printable(name)}, cell {cell.id}: {promised} pages of "
                f"{pool.size_kib} KiB are promised, of {pool.total}{kept}: {users}",
                f"move a guest away: {nova_commands.migrate(most)}; or give the cell more pages: "
                f"echo {promised + pool.reserved} > "
                f"/sys/devices/system/node/node{cell.id}/hugepages/hugepages-{pool.size_kib}kB/"
                "nr_hugepages",
                node,
            )


def _pages(cells: Iterable[PlacedCell], cell: int, size_kib: int) -> int:
    """Return how many pages of that size a guest has of a cell; a part of one takes a whole."""
    return sum(
        -(-placed.cell.memory_mib * 1024 // size_kib)
        for placed in cells
        if placed.host_cell == cell and placed.page_size_kib == size_kib
    )


# --- records as the hypervisor shows the guests now -----------------------------------------------


def recorded_anew(
    state: NodeState, guest: Domain, now: float
) -> tuple[RecordChanges, tuple[Refusal, ...]] | None:
    """Return the changes that record a guest as the hypervisor shows it now, or why that is
    impossible; None if the hardware did not change under the guest, or while it moves. A device
    that is gone, and that the hypervisor does not show with the guest, is not the guest's any more.
    """
    mine = state.claims_of(guest.uuid)
    claim = next((one for one in mine if one.purpose != "devices"), None)
    if claim is None or claim.half != "only":
        return None
    held = {
        row.address: row for row in state.devices.values() if row.holder in {one.id for one in mine}
    }
    shown = {str(address) for address in guest.devices}
    lost = held.keys() & set(state.host.moved_devices.values()) | {
        address for address, row in held.items() if not row.present and address not in shown
    }
    if claim.id not in state.displaced and not lost:
        return None
    left = [row for address, row in sorted(held.items()) if lost and address not in shown]
    freed = RecordChanges(
        claims=(replace(claim, state="released"),), devices=tuple(map(free_device, left))
    )
    if refusals := (*contradictions(_without(state, held, freed), guest),):
        return RecordChanges(), refusals
    new = [state.devices[address] for address in sorted(shown - held.keys())] if lost else []
    return (
        RecordChanges(
            claims=(replace(claim, cells=guest.cells, updated_at=now),),
            devices=(
                *map(free_device, left),
                *(replace(row.held_by(claim.id, "allocated"), present=True) for row in new),
            ),
        ),
        (),
    )


def _without(state: NodeState, held: Mapping[str, DeviceRecord], freed: RecordChanges) -> NodeState:
    """Return the state without the guest: its claim is released, its devices are free, and what
    moved is where it moved to.
    """
    without, moved = state.after(freed), state.host.moved_devices
    devices = {
        address: free_device(row)
        if address in held
        else replace(row, present=row.present or address in moved)
        for address, row in without.devices.items()
    }
    return replace(without, devices=devices)


def option_errors(facts: HostFacts, policy: HostPolicy) -> Iterator[ConfigError]:
    """Yield an error for each option that names CPUs or cells which the host does not have, as far
    as the driver reported them completely.

    Only checked at the start, because CPUs and cells that the host loses later are just not offered
    any more.
    """
    cpu = facts.cpu if facts.complete("cpu") else None
    if cpu is not None:
        guests = [(guest.uuid, guest.cells) for guest in facts.domains or ()]
        yield from policy.offline(cpu.online, cpu.sleeping, guests)
        if facts.numa is not None and facts.complete("numa"):
            yield from policy.contradictions(facts.numa, cpu.online)


def unreservable_pages(numa: Topology, policy: HostPolicy) -> Iterator[Drift]:
    """Yield a drift for each reservation of huge pages that the host cannot give in full. What is
    there is reserved.
    """
    for what, remedy in policy.unreservable(numa):
        yield Drift("overcommitted", "warning", f"{what}; what is there is reserved", remedy)


def nothing_left(name: str, reserved_mib: int) -> Drift:
    """Return the drift of a node of which all the memory is reserved. nova goes on, too."""
    return Drift(
        "disabled",
        "warning",
        f"[DEFAULT] reserved_host_memory_mb: all {reserved_mib} of MEMORY_MB are reserved: no "
        f"guest is scheduled to {printable(name)}",
        f"set [DEFAULT] reserved_host_memory_mb to less than {reserved_mib}",
    )


def lost_devices(
    devices: Mapping[str, DeviceRecord],
    claims: Mapping[str, Claim],
    moved: Collection[str],
    shown: Iterable[PciDevice],
    name: str,
    *,
    reported: bool,
) -> Iterator[Drift]:
    """Yield a drift for each device that is gone from the host, that a guest has, and that no
    provider counts. ``moved``: recorded addresses of devices that may be at others; they are told
    as that. ``shown``: the devices of the host. ``name``: of the node.

    ``reported``: providers count the devices, except those of networks.
    """
    here = {str(device.address): device for device in shown}
    for address, row in sorted(devices.items()):
        counted = reported and not row.tags.get("physical_network")
        holder = claims.get(row.holder or "")
        if row.present or holder is None or address in moved or counted:
            continue
        if (device := here.get(address)) is not None and row.is_like(device):
            continue
        yield Drift(
            "held-device",
            "warning",
            f"node {printable(name)}: device {address} is gone, but instance {holder.instance} has "
            "it; it stays counted",
            f"bring it back; or move the server away: {nova_commands.migrate(holder.instance)}; if "
            "the guest runs without it, have that recorded: agent guests import",
            row.node,
            holder.instance,
        )


def _lost_units(
    units: Iterable[UnitRecord], claims: Mapping[str, Claim], name: str
) -> Iterator[Drift]:
    """Yield a drift for each unit that is gone and that a claim has. It stays counted."""
    for unit in units:
        if not unit.present and unit.holder is not None:
            guest = claims[unit.holder].instance if unit.holder in claims else None
            moving = f"; or move the guest away: {nova_commands.migrate(guest)}" if guest else ""
            yield Drift(
                "held-device",
                "warning",
                f"unit {printable(unit.identifier)} of class {unit.resource_class} is gone from "
                f"node {printable(name)}, and claim {unit.holder} has it",
                f"configure it again{moving}",
                unit.provider,
                guest,
            )


def _withdrawn_cpus(
    policy: HostPolicy, claims: Iterable[Claim], node: ProviderUuid, name: str
) -> Iterator[Drift]:
    """Yield a drift for guests whose CPUs the operator does not offer any more. All of it stays
    counted.
    """
    guests = [(claim.instance, claim.cells) for claim in claims if claim.purpose != "devices"]
    for error in not_offered(policy, guests):
        guest = error.data.get("guest")
        yield Drift(
            "guest-conflict",
            "warning",
            f"node {printable(name)}: {error.message}",
            error.remedy,
            node,
            ConsumerUuid(guest) if guest else None,
        )
