"""A node with PCI devices, its agent and its guests on a real Placement; trees are compared as the
scenarios write them.
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent.driver.interface import HostContext
from agent.model.devices import DeviceRecord, DeviceRequest, PciDevice
from agent.model.facts import Cell, CpuFacts, HostFacts, Topology
from agent.model.instance import Flavor
from agent.model.names import ProviderUuid
from agent.model.report import NodeReport
from agent.numa.host_policy import HostPolicy
from agent.pci.choice import free_devices
from agent.pci.settings import PciSettings
from agent.tracker.stored_state import InstanceClaim, InstanceUpdate, Resources
from agent.tracker.tracker import Tracker
from agent.tree.policy import Layout, Policy
from agent.tree.reported_cards import MARKER
from drivers.host import HostDriver
from tests.support.agent import AgentUnderTest, ScriptedDriver
from tests.support.host_driver import host_conf
from tests.support.placement import PlacementServer
from tests.support.tracking import guest, instance, uuid_of
from tests.unit.pci import scene

NODE = "c1"
ROOT = "5f9c2a34-7d1e-4a8b-9c46-0000000000c1"
MARKS = {MARKER, "OWNER_NOVA"}
FLAVOR = Flavor("f", "F", 1, 1024)
CELLS = Topology((Cell(0, frozenset(range(8)), 8192), Cell(1, frozenset(range(8, 16)), 8192)))
DEDICATED = HostPolicy(
    frozenset({*range(4), *range(8, 12)}), frozenset({*range(4, 8), *range(12, 16)})
)


class DeviceHost:
    """``devices``: by their names in the scenarios. ``start`` is a new process with the
    ``device_spec`` given.

    ``strict``: cells count shared CPUs and memory too. ``connection``: the database of its store,
    None for a file.
    """

    def __init__(
        self,
        placement: PlacementServer,
        folder: Path,
        layout: Layout = "flat",
        policy: HostPolicy | None = None,
        *,
        strict: bool = False,
        connection: str | None = None,
    ) -> None:
        self.placement, self.folder, self.layout, self.host_policy, self.strict = (
            placement,
            folder,
            layout,
            policy or HostPolicy(),
            strict,
        )
        self.connection = connection
        self.devices: dict[str, PciDevice] = scene.host()
        self.numa = CELLS
        self.incomplete: dict[Any, str] = {}
        self.driver = ScriptedDriver(nodes={ROOT: NODE})
        self.driver.facts_of = lambda _name: self.facts()
        self.agent: AgentUnderTest | None = None
        self.values: tuple[Any, ...] = ()
        self.provider_files: Path | None = None

    def facts(self) -> HostFacts:
        """What the host shows now."""
        cells, devices = self.numa.cells, tuple(self.devices.values())
        cpu, memory = (
            CpuFacts(frozenset().union(*(one.cpus for one in cells))),
            sum(one.memory_mib for one in cells),
        )
        return HostFacts(
            NODE,
            time.time(),
            "QEMU",
            cpu=cpu,
            memory_mib=memory,
            disk_gib=0,
            numa=self.numa,
            pci=devices,
            incomplete=self.incomplete,
        )

    # --- the agent --------------------------------------------------------------------------------

    def start(
        self, *values: Any, report: bool = True, adopt: bool = False, **options: Any
    ) -> NodeReport:
        """A new process, whose first pass this is. ``values``: of device_spec; those from before,
        if none is given.
        """
        self.stop()
        self.values = values or self.values
        policy = Policy(self.host_policy, layout=self.layout, strict=self.strict)
        pci = PciSettings(scene.specs(*self.values, report=report), report=report)
        more = {"provider_files": self.provider_files, "connection": self.connection, **options}
        self.agent = AgentUnderTest(
            self.placement, self.folder, self.driver, policy=policy, pci=pci, **more
        )
        if adopt:
            self.agent.once(adopt=True)
        return self.agent.cycle(start=True)

    def without_specs(self, **options: Any) -> NodeReport:
        """A new process that offers nothing."""
        self.values = ()
        return self.start(**options)

    def cycle(self, *, start: bool = False) -> NodeReport:
        """One more pass. ``start``: as a daemon makes them all, so that one counts as its first
        until it gets through.
        """
        assert self.agent is not None
        return self.agent.cycle(start=start)

    def stop(self) -> None:
        """End the process."""
        if self.agent is not None:
            self.agent.stop()

    # --- guests -----------------------------------------------------------------------------------

    def claim(self, name: str, *devices: str) -> None:
        """A guest called ``name`` that has come and got ``devices``."""
        rows = {one: self.rows[one] for one in devices}
        self.ask(
            name,
            *(
                DeviceRequest(
                    uuid_of(f"{name}-{key}"),
                    1,
                    {**one.tags, "address": one.address, "type": one.type},
                )
                for key, one in rows.items()
            ),
        )

    def ask(
        self,
        name: str,
        *wanted: DeviceRequest,
        flavor: Flavor = FLAVOR,
        allocations: Resources | None = None,
    ) -> None:
        """A guest called ``name`` that has come and got what it wanted. ``allocations``: what the
        caller says that the scheduler gave it.
        """
        told = allocations or {}
        claim = InstanceClaim(
            id=uuid_of(f"claim-{name}"),
            node=ProviderUuid(ROOT),
            instance=instance(name, flavor),
            devices=wanted,
            allocations=told,
        )
        self.tracker.claim(claim)
        self.tracker.update(guest(name), InstanceUpdate(vm_state="active"))

    @property
    def tracker(self) -> Tracker:
        """Of the process that runs."""
        assert self.agent is not None
        return self.agent.tracking.tracker

    @property
    def rows(self) -> dict[str, DeviceRecord]:
        """All that is on record of devices, by their names or else addresses."""
        names = {str(one.address): name for name, one in {**scene.host(), **self.devices}.items()}
        return {
            names.get(address, address): one
            for address, one in self.tracker.view(ProviderUuid(ROOT)).devices.items()
        }

    @property
    def free(self) -> set[str]:
        """The devices that a guest can have."""
        found = {one.address for one in free_devices(self.tracker.view(ProviderUuid(ROOT)).devices)}
        return {name for name, one in self.rows.items() if one.address in found}

    @property
    def holders(self) -> dict[str, str]:
        """Of each device that is held: the uuid of the guest."""
        claims = self.tracker.view(ProviderUuid(ROOT)).claims
        return {
            name: claims[one.holder].instance
            for name, one in self.rows.items()
            if one.holder is not None
        }

    def cells_of(self, name: str) -> list[int]:
        """The host cells that the guest sits on."""
        return [
            one.host_cell
            for one in self.tracker.view(ProviderUuid(ROOT)).claims[uuid_of(f"claim-{name}")].cells
        ]

    def delete(self, name: str) -> None:
        """The guest is gone, as far as the records know."""
        self.tracker.update(guest(name), InstanceUpdate(deleted=True))

    def allocate(self, name: str, **amounts: int) -> None:
        """What the scheduler allocated to the guest: ``V20_=1`` is one of the class of V20's card;
        and CPU and memory.
        """
        held: dict[str, dict[str, int]] = {ROOT: {"VCPU": 1, "MEMORY_MB": 1024}}
        for device, amount in amounts.items():
            uuid = self.provider(device)
            held[uuid] = dict.fromkeys(self.placement.other.inventory(uuid), amount)
        self.placement.other.claim(held, guest(name))

    def release(self, name: str) -> None:
        """The guest's allocations go."""
        self.placement.other.release(guest(name))

    def allocated(self, name: str) -> dict[str, dict[str, int]]:
        """What the guest holds of the node's devices, by address."""
        held = self.placement.other.allocations(guest(name))["allocations"]
        names = {one["uuid"]: one["name"] for one in self.placement.other.tree(ROOT)}
        return {
            names[uuid].removeprefix(f"{NODE}_"): one["resources"]
            for uuid, one in held.items()
            if uuid != ROOT
        }

    # --- what there is ----------------------------------------------------------------------------

    def provider(self, device: str) -> str:
        """The uuid of the provider of a device's card, in Placement."""
        found = self.devices.get(device) or scene.host()[device]
        name = f"{NODE}_{str(found.physical_function or found.address).upper()}"
        return next(
            str(one["uuid"]) for one in self.placement.other.tree(ROOT) if one["name"] == name
        )

    @property
    def tree(self) -> list[str]:
        """The cards in Placement: ``0000:81:00.0: PGPU=1 {CUSTOM_PURPLE}``, without the marks that
        each has.
        """
        return sorted(_line(one) for one in self._cards())

    @property
    def parents(self) -> dict[str, str | None]:
        """The names of all providers but the root, and of their parents."""
        there = self.placement.dump()["providers"]
        names = {uuid: one["name"].removeprefix(f"{NODE}_") for uuid, one in there.items()}
        return {names[uuid]: names[one["parent"]] for uuid, one in there.items() if one["parent"]}

    def _cards(self) -> Iterable[dict[str, Any]]:
        return (
            one for one in self.placement.dump()["providers"].values() if MARKER in one["traits"]
        )


def _line(one: dict[str, Any]) -> str:
    assert set(one["traits"]) >= MARKS, one["traits"]
    records = []
    for name, record in sorted(one["inventories"].items()):
        total, reserved = (
            record["total"],
            f" reserved {record['reserved']}" if record["reserved"] else "",
        )
        assert (
            record["max_unit"],
            record["min_unit"],
            record["step_size"],
            record["allocation_ratio"],
        ) == (total, 1, 1, 1.0)
        records.append(f"{name}={total}{reserved}")
    traits = sorted(set(one["traits"]) - MARKS)
    return f"{one['name'].removeprefix(NODE + '_')}: {', '.join(records)}" + (
        f" {{{', '.join(traits)}}}" if traits else ""
    )


def errors(report: NodeReport) -> str:
    """All that a report says went wrong, a line each."""
    assert all(one.remedy for one in report.errors)
    return "\n".join(one.message for one in report.errors)


# ---
# A node whose devices the driver ``host`` reads from a recording, which a test changes while its
# guests have some of them.


class RecordedHost(DeviceHost):
    """``root``: of the recording. Devices are called by their addresses."""

    def __init__(
        self, placement: PlacementServer, folder: Path, root: Path, layout: Layout
    ) -> None:
        super().__init__(placement, folder, layout)
        self.bus = root / "bus/pci/devices"
        self.devices = {}
        driver = HostDriver(host_conf(root))
        driver.start(HostContext(name=NODE, identity=ROOT, state_path=folder))
        self.driver: Any = driver

    def provider(self, device: str) -> str:
        """The uuid of the provider of a device's card, in Placement."""
        row = self.rows[device]
        name = f"{NODE}_{(row.parent or row.address).upper()}"
        return next(
            str(one["uuid"]) for one in self.placement.other.tree(ROOT) if one["name"] == name
        )

    def file(self, address: str, name: str) -> Path:
        """What the recording has of a device."""
        return self.bus / address / name
