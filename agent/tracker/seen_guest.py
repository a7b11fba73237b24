"""One guest as the hypervisor shows it: the records that describe it, and what contradicts them.
Pure.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from agent.model.devices import MdevShare, UnitRecord
from agent.model.facts import Domain, DomainState
from agent.model.instance import Amounts, Flavor, Instance, PlacedCell, VmState
from agent.model.names import ConsumerUuid, format_cpu_list, name_first, printable
from agent.model.node_records import Claim, RecordChanges
from agent.numa.host import CellUsageError, HostCell, count_guests, is_displaced
from agent.numa.host_policy import HostPolicy, not_offered, pinned_cpus
from agent.pci.choice import free_devices
from agent.tracker.errors import InvalidTrackerRequest
from agent.tracker.node_state import NodeState
from agent.tracker.nova_commands import guest_name
from agent.tracker.reserving import guest_topology

SEEN = "seen-"
"""How the id of a flavor begins that was made from what the hypervisor shows."""


def seen_flavor(
    guest: Domain, vcpus: int, cells: Iterable[HostCell], mdevs: Iterable[MdevShare] = ()
) -> Flavor:
    """Return the flavor of a guest; guests that look the same get the same flavor. Its disk is 0,
    because the hypervisor does not show how much of the disk a guest takes.

    ``cells``: of the host, because they give the ordinary page size. ``mdevs``: the mediated
    devices that the guest has.
    """
    ordinary = {cell.id: cell.smallest_page_kib for cell in cells}
    placed = _whole(guest.cells, vcpus, guest.memory_mib) if guest.cells else ()
    memory = (
        sum(placed_cell.cell.memory_mib for placed_cell in placed) if placed else guest.memory_mib
    )
    resources = Counter(unit.resource_class for unit in guest.units)
    for share in mdevs:
        resources[share.resource_class] += share.count
    specs = (_specs(placed, ordinary) if placed else {}) | {
        f"resources:{name}": str(amount) for name, amount in sorted(resources.items())
    }
    digest = hashlib.sha256(json.dumps([vcpus, memory, specs], sort_keys=True).encode()).hexdigest()
    return Flavor(
        f"{SEEN}{digest[:16]}",
        f"as seen: {vcpus} CPUs, {memory} MiB",
        vcpus,
        memory,
        extra_specs=specs,
    )


def _whole(cells: tuple[PlacedCell, ...], vcpus: int, memory_mib: int) -> tuple[PlacedCell, ...]:
    """Return the cells with all CPUs and memory of the guest: what is shown in no cell of the host
    is added to the first one, because a flavor cannot express it otherwise.
    """
    # A flavor has no cells without CPUs either.
    cells = tuple(cell for cell in cells if cell.cell.cpus) or cells
    first, *others = cells
    lost = frozenset(range(vcpus)).difference(*(placed_cell.cell.cpus for placed_cell in cells))
    more = max(memory_mib - sum(placed_cell.cell.memory_mib for placed_cell in cells), 0)
    return (
        replace(
            first,
            cell=replace(
                first.cell, shared=first.cell.shared | lost, memory_mib=first.cell.memory_mib + more
            ),
        ),
        *others,
    )


def _specs(placed: tuple[PlacedCell, ...], ordinary: Mapping[int, int | None]) -> dict[str, str]:
    """Return the extra specs that ask for these cells, so that the guest keeps them when it
    moves.
    """
    shared, dedicated = (
        frozenset[int]().union(*kind)
        for kind in (
            (placed_cell.cell.shared for placed_cell in placed),
            (placed_cell.cell.dedicated for placed_cell in placed),
        )
    )
    specs = {"hw:numa_nodes": str(len(placed))}
    for index, placed_cell in enumerate(placed):
        specs |= {
            f"hw:numa_cpus.{index}": format_cpu_list(placed_cell.cell.cpus),
            f"hw:numa_mem.{index}": str(placed_cell.cell.memory_mib),
        }
    if dedicated:
        specs["hw:cpu_policy"] = "mixed" if shared else "dedicated"
    if dedicated and shared:
        specs["hw:cpu_dedicated_mask"] = format_cpu_list(dedicated)
    if dedicated and any(cell.reserved for cell in placed):
        specs["hw:emulator_threads_policy"] = "isolate"
    sizes = {
        cell.page_size_kib
        for cell in placed
        if cell.page_size_kib not in (None, ordinary.get(cell.host_cell))
    }
    if len(sizes) == 1:
        specs["hw:mem_page_size"] = str(sizes.pop())
    return specs


VM_STATES: Mapping[DomainState, VmState] = {
    "running": "active",
    "paused": "paused",
    "stopped": "stopped",
}
NOBODY = "unknown"
"""Project and user of a guest without that information."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a guest cannot be recorded as it is, and what can be done about it."""

    reason: str
    remedy: str


def records_of(state: NodeState, guest: Domain, now: float) -> RecordChanges:
    """Return the records of a guest that nothing contradicts: its instance, one consumed claim, and
    its devices and units.
    """
    node, origin, flavor = state.node, guest.origin, _flavor(state, guest)
    volume_backed = origin is not None and origin.volume_backed
    instance = Instance(
        uuid=guest.uuid,
        project_id=origin.project_id if origin else NOBODY,
        user_id=origin.user_id if origin else NOBODY,
        flavor=flavor,
        image_properties=guest.image_properties,
        host=node.host,
        node=node.uuid,
        vm_state=VM_STATES[guest.state],
        volume_backed=volume_backed,
        created_at=now,
        updated_at=now,
    )
    claim = Claim(
        # The time is a part of the name, because a guest may be imported again after its first
        # claim was given back.
        id=str(uuid5(UUID(guest.uuid), f"{node.uuid} {now}")),
        purpose="instance",
        instance=guest.uuid,
        node=node.uuid,
        state="consumed",
        amounts=_amounts(guest, flavor.amounts(volume_backed=volume_backed)),
        cells=guest.cells,
        mdevs=_mdevs(state, guest),
        flavor_id=flavor.id,
        created_at=now,
        updated_at=now,
    )
    devices = [
        state.devices[str(address)].held_by(claim.id, "allocated") for address in guest.devices
    ]
    return RecordChanges(
        instances=(instance,),
        claims=(claim,),
        devices=tuple(devices),
        units=tuple(replace(row, holder=claim.id) for row in units_of(state.units.values(), guest)),
    )


def units_of(rows: Iterable[UnitRecord], guest: Domain) -> list[UnitRecord]:
    """Return the rows of the units that the guest is shown to have."""
    shown = {(unit.resource_class, unit.identifier) for unit in guest.units}
    return [row for row in rows if (row.resource_class, row.identifier) in shown]


def _mdevs(state: NodeState, guest: Domain) -> tuple[MdevShare, ...]:
    """Return the mediated devices of the guest. Those of types that are not offered are left out,
    because nobody else gets them.
    """
    return tuple(
        MdevShare(source.provider, source.resource_class, count, source.parent, source.type)
        for source in state.host.mdevs or ()
        if (count := source.guests.get(guest.uuid, 0))
    )


def contradictions(state: NodeState, guest: Domain) -> Iterator[Refusal]:
    """Yield why the guest cannot be recorded as it is shown."""
    yield from (
        [*_unclear(state, guest)] or [*_not_offered(state, guest)] or _taken_cpus(state, guest)
    )
    yield from _devices(state, guest)
    yield from _units(state, guest)
    if state.host.mdevs is None:
        yield Refusal(
            "the host's mediated devices are not known yet, of which it may have some",
            "try again after an audit; see what is missing: agent status",
        )


def _flavor(state: NodeState, guest: Domain) -> Flavor:
    return (
        guest.origin.flavor
        if guest.origin is not None
        else seen_flavor(guest, _vcpus(guest) or 0, state.cells, _mdevs(state, guest))
    )


def _vcpus(guest: Domain) -> int | None:
    """Return the number of its CPUs; None if it is not shown."""
    return _in_cells(guest) if guest.cells and guest.vcpus is None else guest.vcpus


def _in_cells(guest: Domain) -> int:
    return sum(len(placed_cell.cell.cpus) for placed_cell in guest.cells)


def _amounts(guest: Domain, promised: Amounts) -> Amounts:
    """Return the amounts of its flavor, or what it is shown to have where that is more."""
    return replace(
        promised,
        memory_mb=max(promised.memory_mb, guest.memory_mib),
        vcpus=max(promised.vcpus, _vcpus(guest) or 0),
    )


def _unclear(state: NodeState, guest: Domain) -> Iterator[Refusal]:
    """Yield why the CPUs and cells that are shown do not describe a guest."""
    vcpus = _vcpus(guest)
    if guest.origin is not None:
        if not guest.pinned and _asks_for_pinning(guest.origin.flavor):
            flavor = printable(guest.origin.flavor.name)
            yield Refusal(
                f"its flavor {flavor} asks for CPUs of its own, and it is pinned to none",
                "pin it, or start it anew with the flavor that it has",
            )
    elif not vcpus:
        yield Refusal(
            "the number of its CPUs is unknown",
            "write its flavor beside it, where the driver finds it",
        )
    elif vcpus < (in_cells := _in_cells(guest)):
        yield Refusal(
            f"its cells have {in_cells} CPUs, and all of it {vcpus}",
            "correct the guest's cells on the hypervisor",
        )
    else:
        try:
            guest_topology(_flavor(state, guest), {})
        except InvalidTrackerRequest as error:
            yield Refusal(
                f"its cells make no sense: {error.message}",
                "correct the guest's cells on the hypervisor",
            )


def _asks_for_pinning(flavor: Flavor) -> bool:
    """Return whether the flavor alone asks for pinned CPUs. False for a flavor that is invalid
    without its image, which is not known here.
    """
    try:
        topology = guest_topology(flavor, {})
    except InvalidTrackerRequest:
        return False
    return topology is not None and topology.pinned


def _not_offered(state: NodeState, guest: Domain) -> Iterator[Refusal]:
    """Yield why the guest's CPUs are not of the kind that the operator offers."""
    shared = frozenset[int]().union(*(cell.shared for cell in state.cells))
    dedicated = frozenset[int]().union(*(cell.dedicated | cell.offline for cell in state.cells))
    offered = HostPolicy(shared or None, dedicated or None)
    for error in not_offered(offered, [(guest.uuid, guest.cells)]):
        yield Refusal(error.message, error.remedy)
    if state.host.strict and not guest.cells:
        yield Refusal(
            "[compute] numa_mode is strict here, and it has no cells",
            "set numa_mode to mixed, or move it away",
        )


def _taken_cpus(state: NodeState, guest: Domain) -> Iterator[Refusal]:
    if is_displaced(state.cells, guest.cells):
        yield Refusal(
            "the hypervisor has it on a cell that the host does not have, or on CPUs of another "
            "cell than its memory",
            "give it present cells and CPUs of the host there, and import again",
        )
        return
    try:
        count_guests(state.cells, guest.cells)
    except CellUsageError as error:
        owners = sorted(
            {
                _called(state, claim.instance)
                for claim in state.claims.values()
                if pinned_cpus(claim.cells) & pinned_cpus(guest.cells)
            }
        )
        yield Refusal(
            error.message + (f", by {name_first(owners)}" if owners else ""),
            "pin one of them to other CPUs, or stop one" if owners else error.remedy,
        )


def _devices(state: NodeState, guest: Domain) -> Iterator[Refusal]:
    # A device that has to be cleaned after its present guest is that guest's all the same.
    free = {
        device.address
        for device in free_devices(
            {key: replace(device, used=False) for key, device in state.devices.items()}
        )
    }
    for address in sorted(str(device) for device in guest.devices):
        row = state.devices.get(address)
        if row is None or row.serves != "guests":
            yield Refusal(
                f"it has device {address}, which is not offered to guests",
                "offer the device in [pci] device_spec, or take it from the guest",
            )
        elif not row.present:
            yield Refusal(
                f"it has device {address}, which the host does not show any more",
                "take the device from the guest, or give it another one there, and import again",
            )
        elif row.holder is not None:
            yield Refusal(
                f"it has device {address}, which belongs to {_owner(state, row.holder)}",
                "take it from one of them",
            )
        elif address not in free:
            yield Refusal(
                f"it has device {address}, whose PF or VFs others have",
                "take the device from the guest, or theirs from them",
            )


def _units(state: NodeState, guest: Domain) -> Iterator[Refusal]:
    for row in units_of(state.units.values(), guest):
        if row.holder is not None:
            yield Refusal(
                f"it has unit {printable(row.identifier)} of {row.resource_class}, which belongs "
                f"to {_owner(state, row.holder)}",
                "take it from one of them",
            )


def _owner(state: NodeState, holder: str) -> str:
    """Return who has what that claim holds."""
    claim = state.claims.get(holder)
    return f"claim {holder}" if claim is None else _called(state, claim.instance)


def _called(state: NodeState, instance: ConsumerUuid) -> str:
    """Return the name and the uuid of an instance that the hypervisor shows; else its uuid."""
    shown = (guest for guest in state.host.guests or () if guest.uuid == instance)
    return next(map(guest_name, shown), f"instance {instance}")
