"""The test of a claim: whether a node has what a guest needs, and which of it the guest gets. Pure; changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.errors import AgentError
from agent.model.amounts import Amounts
from agent.model.assigned_unit import UnitRow
from agent.model.device_request import DeviceRequest
from agent.model.flavor import Flavor
from agent.model.guest import Guest, PciPolicy, PlacedCell
from agent.model.held_device import DeviceRow
from agent.model.names import printable
from agent.numa.fit import BudgetExceeded, NoFit, fit
from agent.numa.request import guest_of
from agent.numa.request_error import CONFLICTS, RequestError
from agent.pci.choice import Devices, Shortage, free_devices
from agent.pci.device_request import DeviceRequestError, device_requests, with_providers
from agent.pci.wanted import Nearness
from agent.tracker.choosing import choose_units
from agent.tracker.errors import FlavorImageConflict, InvalidDevices, InvalidTopology, ResourcesUnavailable
from agent.tracker.node_state import NodeState
from agent.tracker.requests import Limits, Resources


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one guest needs of a node. ``claim``: the id of the claim; ``devices``: those asked for beside the flavor's aliases."""

    claim: str
    flavor: Flavor
    image_properties: Mapping[str, str]
    volume_backed: bool
    limits: Limits
    allocations: Resources
    devices: tuple[DeviceRequest, ...]

    @property
    def amounts(self) -> Amounts:
        """Memory, CPUs and disk."""
        return self.flavor.amounts(volume_backed=self.volume_backed)


@dataclass(frozen=True, slots=True)
class Reserved:
    """What it gets. ``devices`` with what each was asked by."""

    amounts: Amounts
    cells: tuple[PlacedCell, ...]
    devices: tuple[tuple[DeviceRow, DeviceRequest], ...]
    units: tuple[UnitRow, ...]


def reserve(state: NodeState, wanted: Wanted) -> Reserved:
    """What the guest gets on the node.

    :raises InvalidRequest: flavor and image contradict each other or ask for something impossible.
    :raises ResourcesUnavailable: the node does not have it; every reason is named.
    """
    reasons = [*_over_limits(state.used + wanted.amounts, wanted.limits)]
    guest = guest_topology(wanted.flavor, wanted.image_properties)
    placed, chosen = _fitted(state, guest, wanted, reasons)
    units, short = choose_units(state.units.values(), wanted.allocations)
    if reasons + short:
        raise ResourcesUnavailable([*reasons, *short])
    return Reserved(wanted.amounts, placed, tuple(chosen), tuple(units))


def only_devices(state: NodeState, requests: tuple[DeviceRequest, ...]) -> tuple[tuple[DeviceRow, DeviceRequest], ...]:
    """Devices for a guest that is there already.

    :raises ResourcesUnavailable: there are not enough free ones.
    """
    chosen = Devices(free_devices(state.devices), requests).chosen(None)
    if isinstance(chosen, Shortage):
        raise ResourcesUnavailable([chosen.reason])
    return tuple(chosen)


def _over_limits(used: Amounts, limits: Limits) -> list[str]:
    pairs = (("memory", used.memory_mb, limits.memory_mb, " MiB"), ("vcpus", used.vcpus, limits.vcpus, ""), ("disk", used.disk_mb, limits.disk_mb, " MiB"))
    return [f"{name}: {amount}{unit} would be used, the limit is {limit}{unit}" for name, amount, limit, unit in pairs if limit is not None and amount > limit]


def guest_topology(flavor: Flavor, image_properties: Mapping[str, str]) -> Guest | None:
    """The topology that flavor and image ask for, None for a guest that floats.

    :raises InvalidRequest: they contradict each other or ask for something impossible.
    """
    try:
        return guest_of(flavor.vcpus, flavor.memory_mb, flavor.extra_specs, image_properties)
    except RequestError as error:
        kind = FlavorImageConflict if error.kind in CONFLICTS else InvalidTopology
        raise kind(f"flavor {printable(flavor.name)}: {error.message}", error.remedy) from error


def _fitted(
    state: NodeState, guest: Guest | None, wanted: Wanted, reasons: list[str]
) -> tuple[tuple[PlacedCell, ...], list[tuple[DeviceRow, DeviceRequest]]]:
    """Cells and devices, chosen together; what cannot be had is added to ``reasons``."""
    cells = state.cells
    nearness = Nearness({cell.id: cell.socket for cell in cells}, {cell.id: cell.distances for cell in cells})
    policy = guest.pci_policy if guest is not None else None
    devices = Devices(free_devices(state.devices), _device_requests(state, wanted, policy), policy or "legacy", nearness, state.host.device_providers)
    placed: tuple[PlacedCell, ...] = ()
    if guest is not None:
        if not cells:
            reasons.append("NUMA: the host shows no cells")
            return (), []
        try:
            placed = fit(cells, guest, limits=wanted.limits.cells, devices=devices if devices.wanted else None, strategy=state.host.strategy).cells
        except (NoFit, BudgetExceeded) as error:
            reasons.append(_told(error))
            return (), []
    elif state.host.strict:
        reasons.append("NUMA: [compute] numa_mode is strict here, and the guest has no topology")
        return (), []
    chosen = devices.chosen(frozenset(one.host_cell for one in placed) if placed else None)
    if isinstance(chosen, Shortage):
        reasons.append(chosen.reason)
        return placed, []
    return placed, chosen


def _device_requests(state: NodeState, wanted: Wanted, policy: PciPolicy | None) -> tuple[DeviceRequest, ...]:
    """What the flavor's aliases and the caller ask for, with the providers that the scheduler took it from."""
    try:
        asked = device_requests(wanted.flavor.extra_specs, state.host.aliases, policy, wanted.claim)
    except DeviceRequestError as error:
        raise InvalidDevices(f"flavor {printable(wanted.flavor.name)}: {error.message}", error.remedy) from error
    counted = {*state.host.device_providers.values()}
    return with_providers([*asked, *wanted.devices], {uuid: amounts for uuid, amounts in wanted.allocations.items() if uuid in counted})


def _told(error: AgentError) -> str:
    """The reason with what each guest cell met on each host cell."""
    misfits = error.data.get("misfits") or {}
    details = ", ".join(f"guest cell {row} on cell {cell}: {why}" for (row, cell), why in sorted(misfits.items()))
    return f"NUMA: {error.message}" + (f" ({details})" if details else "")
