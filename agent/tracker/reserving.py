"""Test of a claim: whether a node has what a guest needs, and which resources the guest gets. Pure;
changes nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter

import os_resource_classes as orc

from agent.errors import AgentError, Undecided
from agent.model.devices import (
    PMEM_PREFIX,
    DeviceRecord,
    DeviceRequest,
    MdevShare,
    MdevSource,
    UnitRecord,
)
from agent.model.facts import Domain
from agent.model.instance import Amounts, Flavor, Guest, Instance, PciPolicy, PlacedCell
from agent.model.names import ProviderUuid, name_first, number_of, printable
from agent.numa.fit import NoFit, cells_named, fit
from agent.numa.flavor_and_image import CONFLICTS, GuestRequestError
from agent.numa.host import HostCell
from agent.numa.pair import Allocated
from agent.numa.request import guest_of
from agent.pci.choice import FreeDevices, Shortage, free_devices
from agent.pci.device_request import (
    EXTRA_SPEC,
    DeviceRequestError,
    Nearness,
    device_requests,
    matches,
    with_providers,
)
from agent.tracker.errors import (
    FlavorImageConflict,
    InvalidDevices,
    InvalidTopology,
    InvalidTrackerRequest,
    ResourcesUnavailable,
    ResourcesUndecided,
)
from agent.tracker.node_state import NodeState, mediated_parts
from agent.tracker.stored_state import ClaimLimits, InstanceClaim, MoveClaim, Resources
from agent.tree.node_trees import page_size


def choose_units(
    units: Iterable[UnitRecord],
    wanted: Resources,
    own: Collection[ProviderUuid],
    guests: Iterable[Domain] = (),
) -> tuple[list[UnitRecord], list[str]]:
    """Return the units to take, in the order of their identifiers, and the reasons why some are
    missing. ``own``: the root of the node and its cells. ``guests``: those that the hypervisor
    shows, because two guests that write to one namespace of persistent memory lose their data,
    whatever the records say.

    A provider and class without units here belongs to another node, or its class is not assigned as
    single units; persistent memory of an own provider always is, though the host may never have
    shown any.
    """
    shown = {(unit.resource_class, unit.identifier) for guest in guests for unit in guest.units}
    rows = sorted((unit for unit in units if unit.provider in wanted), key=attrgetter("identifier"))
    chosen, reasons = [], []
    for provider, resources in sorted(wanted.items()):
        for name, amount in sorted(resources.items()):
            known = [row for row in rows if row.provider == provider and row.resource_class == name]
            free = [
                unit
                for unit in known
                if unit.holder is None
                and unit.present
                and (unit.resource_class, unit.identifier) not in shown
            ]
            counted = known or (provider in own and name.startswith(PMEM_PREFIX))
            if counted and len(free) < amount:
                reasons.append(
                    f"{number_of(amount, 'unit')} of {name} wanted, {len(free) or 'none'} free"
                )
            else:
                chosen += free[:amount]
    return chosen, reasons


def choose_mdevs(
    sources: Iterable[MdevSource], promised: Iterable[MdevShare], wanted: Resources
) -> tuple[list[MdevShare], list[str]]:
    """Return the shares of the mediated devices' parents that the scheduler allocated, and the
    reasons why one has less than that. ``promised``: the shares of other claims.

    What is allocated counts before what could be dealt out to other parents, so a parent can give
    as many as it can have: how many there are of a type is decided by what Placement offers.
    """
    offered = [source for source in sources if source.provider in wanted]
    if not offered:
        # The claims are not looked at, because there may be thousands.
        return [], []
    promised, chosen, reasons = list(promised), [], []
    for provider, resources in sorted(wanted.items()):
        for name, amount in sorted(resources.items()):
            of_it = [
                source
                for source in offered
                if source.provider == provider and source.resource_class == name
            ]
            if not of_it:
                continue
            parents, types = {source.parent for source in of_it}, {source.type for source in of_it}
            taken = sum(
                share.count
                for share in promised
                if share.resource_class == name
                and (share.provider == provider or share.parent in parents)
            )
            free = max(sum(source.most for source in of_it) - taken, 0)
            if amount > free:
                reasons.append(
                    f"{number_of(amount, 'mediated device')} of {name} wanted on "
                    f"{name_first(sorted(parents))}, {free or 'none'} free"
                )
            chosen.append(
                MdevShare(
                    provider,
                    name,
                    amount,
                    *(found.pop() if len(found) == 1 else None for found in (parents, types)),
                )
            )
    return chosen, reasons


@dataclass(frozen=True, slots=True)
class Reservation:
    """The resources that a guest gets."""

    amounts: Amounts
    cells: tuple[PlacedCell, ...]
    devices: tuple[tuple[DeviceRecord, DeviceRequest], ...]
    """Each device with the request that it serves."""
    units: tuple[UnitRecord, ...]
    mdevs: tuple[MdevShare, ...] = ()


def reserve(
    state: NodeState, request: InstanceClaim | MoveClaim, instance: Instance, flavor: Flavor
) -> Reservation:
    """Return the resources that the instance of the request gets on the node, with this flavor.

    :raises InvalidTrackerRequest: flavor and image contradict each other or ask for something
        impossible.
    :raises ResourcesUnavailable: the node does not have them; every reason is named.
    :raises ResourcesUndecided: the search was given up.
    """
    guest = guest_topology(flavor, instance.image_properties)
    amounts = flavor.amounts(volume_backed=instance.volume_backed)
    reasons = [*_over_limits(state.used + amounts, request.limits)]
    with _search_errors():
        placed, chosen = _fit_cells_and_devices(state, guest, request, flavor, reasons)
    units, short = choose_units(
        state.units.values(),
        request.allocations,
        {state.node.uuid, *state.host.cell_providers},
        state.host.guests or (),
    )
    mdevs, few = choose_mdevs(
        state.host.mdevs or (),
        (share for claim in state.claims.values() for share in claim.mdevs),
        request.allocations,
    )
    if why := [*reasons, *short, *few, *_held_whole(state, mdevs)]:
        raise ResourcesUnavailable(why)
    return Reservation(amounts, placed, tuple(chosen), tuple(units), tuple(mdevs))


def whole_devices(state: NodeState) -> list[DeviceRecord]:
    """Return the devices that can be had whole: the free ones without those of which mediated
    devices exist or are promised.
    """
    free = free_devices(state.offered_devices)
    if not free or not (mediated := state.mediated):
        return free
    return [device for device in free if not mediated_parts(state.devices, device, mediated)]


def _held_whole(state: NodeState, shares: Iterable[MdevShare]) -> Iterator[str]:
    """Yield the reason for each parent of mediated devices that a guest has whole."""
    for parent in {share.parent for share in shares if share.parent is not None}:
        for device in state.devices.values():
            if device.holder is not None and mediated_parts(
                state.devices, device, frozenset({parent})
            ):
                yield f"mediated devices of {parent} wanted, and a guest has {device.address} whole"


def choose_devices(
    state: NodeState,
    requests: tuple[DeviceRequest, ...],
    cells: frozenset[int],
    policy: PciPolicy | None,
) -> tuple[tuple[DeviceRecord, DeviceRequest], ...]:
    """Return devices for a guest that is there already.

    The devices are as near to the guest's ``cells``, if it has any, as each request's own policy or
    else ``policy`` demands.

    :raises ResourcesUnavailable: there are not enough free devices.
    :raises ResourcesUndecided: the search was given up.
    """
    devices = FreeDevices(
        whole_devices(state),
        requests,
        policy or "legacy",
        _nearness(state.cells),
        state.host.device_providers,
    )
    with _search_errors():
        chosen = devices.chosen(cells or None)
    if isinstance(chosen, Shortage):
        raise ResourcesUnavailable([chosen.reason, *_withheld(state, requests)])
    return tuple(chosen)


def _withheld(state: NodeState, requests: Iterable[DeviceRequest]) -> Iterator[str]:
    """Yield a hint for each device that would serve a request if it were cleaned, or if it were
    certain that it is no guest's.
    """
    moved, mediated = state.host.moved_devices, state.mediated
    for device in sorted(state.devices.values(), key=attrgetter("address")):
        if (parts := mediated_parts(state.devices, device, mediated)) and any(
            matches(device, request) for request in requests
        ):
            yield f"guests have mediated devices of {name_first(sorted(parts))}"
        elif device.address in moved and any(matches(device, request) for request in requests):
            yield (
                f"device {device.address} may be {moved[device.address]} of a guest on record: see "
                "agent drift"
            )
        elif (
            device.used
            and device.holder is None
            and device.present
            and device.serves == "guests"
            and any(matches(device, request) for request in requests)
        ):
            yield (
                f"device {device.address} waits to be cleaned: lower its reserved in Placement, or "
                f"agent pci cleaned {device.address}"
            )


@contextmanager
def _search_errors() -> Iterator[None]:
    try:
        yield
    except Undecided as error:
        raise ResourcesUndecided(
            f"it is not decided whether the node has that: {error.message}", error.remedy
        ) from error


def _over_limits(used: Amounts, limits: ClaimLimits) -> list[str]:
    pairs = (
        ("memory", used.memory_mb, limits.memory_mb, " MiB"),
        ("vcpus", used.vcpus, limits.vcpus, ""),
        ("disk", used.disk_mb, limits.disk_mb, " MiB"),
    )
    return [
        f"{name}: {amount}{unit} would be used, the limit is {limit}{unit}"
        for name, amount, limit, unit in pairs
        if limit is not None and amount > limit
    ]


def guest_topology(flavor: Flavor, image_properties: Mapping[str, str]) -> Guest | None:
    """Return the topology that flavor and image ask for, None for a guest that floats.

    :raises InvalidTrackerRequest: they contradict each other or ask for something impossible.
    """
    try:
        return guest_of(flavor.vcpus, flavor.memory_mb, flavor.extra_specs, image_properties)
    except GuestRequestError as error:
        kind = FlavorImageConflict if error.kind in CONFLICTS else InvalidTopology
        raise kind(f"{_called(flavor)}: {error.message}", error.remedy) from error


def _called(flavor: Flavor) -> str:
    return f"flavor {printable(flavor.name)}" if flavor.name else "the flavor"


def needs_search(request: InstanceClaim) -> bool:
    """Return whether cells or devices have to be chosen for the guest, which may take long."""
    flavor = request.instance.flavor
    if request.devices or EXTRA_SPEC in flavor.extra_specs:
        return True
    try:
        return guest_topology(flavor, request.instance.image_properties) is not None
    except InvalidTrackerRequest:
        # The claim is refused before anything is chosen.
        return False


def _fit_cells_and_devices(
    state: NodeState,
    guest: Guest | None,
    request: InstanceClaim | MoveClaim,
    flavor: Flavor,
    reasons: list[str],
) -> tuple[tuple[PlacedCell, ...], list[tuple[DeviceRecord, DeviceRequest]]]:
    """Return cells and devices, chosen together. Adds the reasons for what is missing to
    ``reasons``.
    """
    if guest is not None or state.host.strict:
        state.check_cells_known()
    cells = state.cells
    policy = guest.pci_policy if guest is not None else None
    requests = _device_requests(state, request, flavor, policy)
    placed: tuple[PlacedCell, ...] = ()
    allocated = _allocated_of_cells(state, request.allocations)
    if guest is None and (misfit := _misfit_of_floating(state, allocated)) is not None:
        reasons.append(misfit)
        return (), []
    if guest is None and not requests:
        return (), []
    devices = FreeDevices(
        whole_devices(state),
        requests,
        policy or "legacy",
        _nearness(cells),
        state.host.device_providers,
    )
    if guest is not None:
        if not cells or state.displaced:
            reasons.append(
                "NUMA: guests on record are on cells that the host has otherwise now: see agent "
                "drift"
                if cells
                else "NUMA: the host shows no cells"
            )
            return (), []
        try:
            placed = fit(
                cells,
                guest,
                limits=request.limits.cells,
                networks=request.networks,
                devices=devices,
                allocated=allocated,
                strategy=state.host.strategy,
            ).cells
        except NoFit as error:
            reasons += [_misfit_text(error), *_withheld(state, requests)]
            return (), []
    chosen = devices.chosen(frozenset(cell.host_cell for cell in placed) if placed else None)
    if isinstance(chosen, Shortage):
        reasons += [chosen.reason, *_withheld(state, requests)]
        return placed, []
    return placed, chosen


def _misfit_of_floating(state: NodeState, allocated: Mapping[int, Allocated]) -> str | None:
    """Return why a guest without a topology cannot be on the node, None if it can."""
    if state.host.strict:
        return "NUMA: [compute] numa_mode is strict here, and the guest has no topology"
    if not state.host.shares_cpus:
        return (
            "CPUs: the node offers no shared CPUs (see [compute] cpu_shared_set), and the guest "
            "has no dedicated ones"
        )
    if allocated:
        named = cells_named([cell for cell, amounts in sorted(allocated.items()) if amounts])
        return f"NUMA: the scheduler allocated of {named}, and the guest has no topology"
    return None


def _nearness(cells: Sequence[HostCell]) -> Nearness:
    return Nearness(
        {cell.id: cell.socket for cell in cells}, {cell.id: cell.distances for cell in cells}
    )


def _allocated_of_cells(state: NodeState, allocations: Resources) -> Mapping[int, Allocated]:
    """Return what the scheduler allocated of each cell; empty if it allocated nothing of any cell,
    or gave no allocations.

    A class that was allocated of the root is not expected in cells: that allocation is older than
    the present layout of the tree.
    """
    of_cells = {
        cell: allocations.get(provider, {}) for provider, cell in state.host.cell_providers.items()
    }
    on_root = allocations.get(state.node.uuid, {})
    strict, has_pages = (
        state.host.strict,
        any(page_size(name) is not None for amounts in of_cells.values() for name in amounts),
    )

    def counted(amounts: Mapping[str, int], name: str) -> int | None:
        return None if name in on_root else amounts.get(name, 0)

    found = {
        cell: Allocated(
            counted(amounts, orc.PCPU),
            counted(amounts, orc.VCPU) if strict else None,
            counted(amounts, orc.MEMORY_MB) if strict else None,
            {
                size: amount
                for name, amount in amounts.items()
                if (size := page_size(name)) is not None
            }
            if has_pages
            else None,
        )
        for cell, amounts in of_cells.items()
    }
    return found if any(found.values()) else {}


def _device_requests(
    state: NodeState,
    request: InstanceClaim | MoveClaim,
    flavor: Flavor,
    policy: PciPolicy | None,
) -> tuple[DeviceRequest, ...]:
    """Return the requests of the flavor's aliases and of the caller, with the providers that the
    scheduler allocated them from.
    """
    try:
        asked = device_requests(flavor.extra_specs, state.host.aliases, policy, request.id)
    except DeviceRequestError as error:
        raise InvalidDevices(f"{_called(flavor)}: {error.message}", error.remedy) from error
    counted = {*state.host.device_providers.values()}
    return with_providers(
        [*asked, *request.devices],
        {uuid: amounts for uuid, amounts in request.allocations.items() if uuid in counted},
    )


def _misfit_text(error: AgentError) -> str:
    """Return the reason, with what prevented each guest cell on each host cell."""
    misfits = error.data.get("misfits") or {}
    details = ", ".join(
        f"guest cell {row} on cell {cell}: {why}" for (row, cell), why in sorted(misfits.items())
    )
    return f"NUMA: {error.message}" + (f" ({details})" if details else "")
