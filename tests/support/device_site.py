"""Two nodes of one agent with PCI devices on a real Placement, a scheduler that asks it for
candidates, and one who moves allocations along.
"""

import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.errors import AgentError
from agent.model.devices import DeviceRequest, PciDevice
from agent.model.facts import CpuFacts, HostFacts
from agent.model.instance import Flavor
from agent.model.names import ProviderUuid
from agent.model.report import NodeReport
from agent.pci.alias import aliases
from agent.pci.settings import PciSettings
from agent.store.mapping import METADATA
from agent.store.store import open_store
from agent.store.tables import CLAIM, COMPUTE_NODE, DEVICE, INSTANCE, LEASE, MIGRATION, UNIT
from agent.tree.policy import Layout, Policy
from tests.support.agent import AgentUnderTest, ScriptedDriver
from tests.support.device_account import Asked, DeviceAccount
from tests.support.device_host import CELLS
from tests.support.device_offers import ALIASES, CARDS, NAMES, values
from tests.support.placement import PlacementServer
from tests.unit.pci import scene

ROOTS: Mapping[str, ProviderUuid] = {
    name: ProviderUuid(f"5f9c2a34-7d1e-4a8b-9c46-0000000000{name}") for name in ("c1", "c2")
}
ROOM = {"VCPU": 1, "MEMORY_MB": 1024}
RECORDS = {table.name for table in (CLAIM, COMPUTE_NODE, DEVICE, INSTANCE, LEASE, MIGRATION, UNIT)}
DEVICE_OF = {address: name for name, address in NAMES.items()}

Holdings = Mapping[str, Mapping[str, int]]
"""Provider to class to amount."""


def flavor(asked: Iterable[tuple[str, int]]) -> Flavor:
    """A flavor that asks for devices by these aliases."""
    text = ",".join(f"{alias}:{count}" for alias, count in asked)
    return Flavor(
        text or "plain",
        text or "plain",
        1,
        1024,
        extra_specs={"pci_passthrough:alias": text} if text else {},
    )


def requests(asked: Iterable[Asked], id: str) -> tuple[DeviceRequest, ...]:
    """The same as a port asks, without aliases."""
    named = {one["name"]: one for one in ALIASES}
    return tuple(
        DeviceRequest(
            f"{id}-{one.alias}",
            one.count,
            {
                "product_id": named[one.alias]["product_id"],
                **({"type": "type-PF"} if one.alias == "pf" else {}),
            },
        )
        for one in asked
    )


class DeviceSite:
    """``account``: what its hosts show, and what of it is offered. ``start`` is a new process."""

    def __init__(self, placement: PlacementServer, folder: Path, account: DeviceAccount) -> None:
        self.placement, self.folder, self.account = placement, folder, account
        self.layout: Layout = "nested"
        self.report = True
        self.driver = ScriptedDriver(nodes={str(uuid): name for name, uuid in ROOTS.items()})
        self.driver.facts_of = self.facts
        self.agent: AgentUnderTest | None = None

    def facts(self, name: str) -> HostFacts:
        """What a host shows now."""
        host = self.account.hosts[name]
        told = (
            {"pci": tuple(self._devices(name))}
            if host.answers
            else {"incomplete": {"pci": "no answer"}}
        )
        return HostFacts(
            name,
            time.time(),
            "QEMU",
            cpu=CpuFacts(frozenset(range(16))),
            memory_mib=16384,
            disk_gib=0,
            numa=CELLS,
            **told,
        )

    def _devices(self, name: str) -> Iterable[PciDevice]:
        host = self.account.hosts[name]
        for card, functions in CARDS.items():
            numa, present = host.numa.get(card), [one for one in functions if one in host.there]
            if card in host.there and functions:
                yield scene.physical(NAMES[card], *(NAMES[one] for one in present), numa_node=numa)
                yield from (
                    scene.virtual(NAMES[one], NAMES[card], numa_node=numa) for one in present
                )
            elif card in host.there:
                yield scene.plain(NAMES[card], numa_node=numa)

    # --- the agent --------------------------------------------------------------------------------

    def start(self) -> Mapping[str, NodeReport]:
        """A new process, whose first pass this is."""
        self.stop()
        offered = scene.specs(*values(self.account.choices), report=self.report)
        known, _ = aliases(map(json.dumps, ALIASES), report=True)
        settings = PciSettings(offered, known, report=self.report)
        self.agent = AgentUnderTest(
            self.placement,
            self.folder,
            self.driver,
            policy=Policy(layout=self.layout),
            pci=settings,
        )
        return self.cycle()

    def cycle(self) -> Mapping[str, NodeReport]:
        """One more pass, as a daemon makes them."""
        assert self.agent is not None
        return {one.name: one for one in self.agent.period(start=True).nodes}

    def stop(self) -> None:
        """End the process."""
        if self.agent is not None:
            self.agent.stop()

    @property
    def tracker(self) -> Any:
        """That of the process."""
        assert self.agent is not None
        return self.agent.tracking.tracker

    def rows(self, node: str) -> Mapping[str, Any]:
        """The node's devices as memory has them, by their names in the scenarios."""
        return {
            DEVICE_OF[address]: one
            for address, one in self.tracker.view(ROOTS[node]).devices.items()
        }

    def records(self, node: str) -> Mapping[str, Any]:
        """The same as the store has them."""
        assert self.agent is not None
        with self.agent.records.reading() as reading:
            found = reading.load(ROOTS[node])
        assert found is not None
        return {DEVICE_OF[one.address]: one for one in found.devices}

    # --- Placement --------------------------------------------------------------------------------

    def candidates(self, node: str, classes: Sequence[str]) -> list[Holdings]:
        """What Placement offers for a guest with one device of each of ``classes``; nothing, if it
        does not know one of them.
        """
        groups = "".join(f"&resources_D{number}={name}:1" for number, name in enumerate(classes))
        query = f"resources=VCPU:1,MEMORY_MB:1024{groups}&group_policy=none&in_tree={ROOTS[node]}"
        answer = self.placement.other.call(
            "GET", f"/allocation_candidates?{query}", expect=(200, 400)
        )
        found = answer.json()["allocation_requests"] if answer.status_code == 200 else []
        return [
            {uuid: one["resources"] for uuid, one in each["allocations"].items()} for each in found
        ]

    def provider(self, node: str, name: str) -> str | None:
        """The uuid of a provider, by its name after that of the node; empty for the root."""
        full = f"{node}_{NAMES.get(name, name).upper()}" if name else node
        return next(
            (
                uuid
                for uuid, one in self.placement.dump()["providers"].items()
                if one["name"] == full
            ),
            None,
        )

    def cards(self, node: str, held: Holdings) -> dict[str, Mapping[str, int]]:
        """What of a node's cards is in an allocation, by the card's name in the scenarios; in the
        order of the providers.
        """
        providers, names = (
            self.placement.dump()["providers"],
            {f"{node}_{NAMES[card].upper()}": card for card in CARDS},
        )
        return {
            names[name]: amounts
            for uuid, amounts in sorted(held.items())
            if (name := providers[uuid]["name"]) in names
        }

    # --- another of the same ----------------------------------------------------------------------

    def copy(self, placement: PlacementServer, folder: Path) -> "DeviceSite":
        """The same hosts with the same claims, an agent that remembers nothing of Placement, and a
        Placement that is empty.
        """
        other = DeviceSite(placement, folder, self.account)
        other.layout, other.report = self.layout, self.report
        assert self.agent is not None
        self.stop()
        with (
            open_store(self.folder) as source,
            open_store(folder) as target,
            source.reading() as reading,
            target.writing() as writing,
        ):
            for table in METADATA.sorted_tables:
                rows = (
                    [dict(one) for one in reading.execute(table.select()).mappings()]
                    if table.name in RECORDS
                    else []
                )
                if rows:
                    writing.execute(table.insert(), rows)
        return other

    def remove(self) -> None:
        """Leave nothing."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def error_of(action: Any) -> AgentError | None:
    """What an operation is refused with."""
    try:
        action()
    except AgentError as error:
        return error
    return None
