"""The test of a claim: whether a node has what a guest needs, and which of it the guest gets. Pure; changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.errors import AgentError
from agent.model.amounts import Amounts
from agent.model.assigned_unit import UnitRow
from agent.model.flavor import Flavor
from agent.model.guest import Guest, PlacedCell
from agent.model.held_device import DeviceRow
from agent.model.names import printable
from agent.numa.fit import BudgetExceeded, NoFit, fit
from agent.numa.request import guest_of
from agent.numa.request_error import CONFLICTS, RequestError
from agent.tracker.choosing import FreeDevices, Shortage, choose_devices, choose_units, free_devices
from agent.tracker.errors import FlavorImageConflict, InvalidTopology, ResourcesUnavailable
from agent.tracker.node_state import NodeState
from agent.tracker.requests import DeviceRequest, Limits, Resources


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one guest needs of a node."""

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
    guest = _guest(wanted)
    placed, chosen = _fitted(state, guest, wanted, reasons)
    units, short = choose_units(state.units.values(), wanted.allocations)
    if reasons + short:
        raise ResourcesUnavailable([*reasons, *short])
    return Reserved(wanted.amounts, placed, tuple(chosen), tuple(units))


def only_devices(state: NodeState, requests: tuple[DeviceRequest, ...]) -> tuple[tuple[DeviceRow, DeviceRequest], ...]:
    """Devices for a guest that is there already.

    :raises ResourcesUnavailable: there are not enough free ones.
    """
    chosen = choose_devices(free_devices(state.devices), requests)
    if isinstance(chosen, Shortage):
        raise ResourcesUnavailable([chosen.reason])
    return tuple(chosen)


def _over_limits(used: Amounts, limits: Limits) -> list[str]:
    pairs = (("memory", used.memory_mb, limits.memory_mb, " MiB"), ("vcpus", used.vcpus, limits.vcpus, ""), ("disk", used.disk_mb, limits.disk_mb, " MiB"))
    return [f"{name}: {amount}{unit} would be used, the limit is {limit}{unit}" for name, amount, limit, unit in pairs if limit is not None and amount > limit]


def _guest(wanted: Wanted) -> Guest | None:
    flavor = wanted.flavor
    try:
        return guest_of(flavor.vcpus, flavor.memory_mb, flavor.extra_specs, wanted.image_properties)
    except RequestError as error:
        kind = FlavorImageConflict if error.kind in CONFLICTS else InvalidTopology
        raise kind(f"flavor {printable(flavor.name)}: {error.message}", error.remedy) from error


def _fitted(
    state: NodeState, guest: Guest | None, wanted: Wanted, reasons: list[str]
) -> tuple[tuple[PlacedCell, ...], list[tuple[DeviceRow, DeviceRequest]]]:
    """Cells and devices, chosen together; what cannot be had is added to ``reasons``."""
    free = free_devices(state.devices)
    if guest is None:
        chosen = choose_devices(free, wanted.devices)
        if isinstance(chosen, Shortage):
            reasons.append(chosen.reason)
            return (), []
        return (), chosen
    if not state.cells:
        reasons.append("NUMA: the host shows no cells")
        return (), []
    devices = FreeDevices(free, wanted.devices, state.cells, guest.pci_policy or "legacy")
    try:
        found = fit(state.cells, guest, limits=wanted.limits.cells, devices=devices if devices.wanted else None, strategy=state.host.strategy)
    except (NoFit, BudgetExceeded) as error:
        reasons.append(_told(error))
        return (), []
    got = devices.chosen(frozenset(one.host_cell for one in found.cells))
    return found.cells, [] if isinstance(got, Shortage) else got


def _told(error: AgentError) -> str:
    """The reason with what each guest cell met on each host cell."""
    misfits = error.data.get("misfits") or {}
    details = ", ".join(f"guest cell {row} on cell {cell}: {why}" for (row, cell), why in sorted(misfits.items()))
    return f"NUMA: {error.message}" + (f" ({details})" if details else "")
