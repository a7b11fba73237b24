"""A node full of guests, some on their way elsewhere, laid out in one way or another; what each of
them holds is worked out here once more.
"""

import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.model.devices import DeviceRequest, EncryptionFacts, PciDevice
from agent.model.facts import Cell, CpuFacts, HostFacts, PagePool, Topology
from agent.model.instance import Flavor, PlacedCell
from agent.model.names import ProviderUuid
from agent.model.node_records import Claim
from agent.numa.host_policy import HostPolicy
from agent.pci.settings import PciSettings
from agent.placement import clock
from agent.placement.mirror import Freshness
from agent.store.records import Records
from agent.store.store import open_store
from agent.tracker.stored_state import InstanceClaim, InstanceUpdate, MoveClaim
from agent.tree.policy import MdevPolicy, MdevType, Policy
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver
from tests.support.mdev_host import CHILD_06, CHILD_07, P06, P07, T1, parent
from tests.support.placement import PROJECT, USER, PlacementServer
from tests.support.tracking import Host, guest, instance, uuid_of
from tests.unit.pci import scene

SEV, VGPU, CONTEXT, PAGES = (
    f"{NAME}_amd_sev",
    "VGPU",
    "MEM_ENCRYPTION_CONTEXT",
    "CUSTOM_MEMORY_PAGE_2048",
)
STORAGE, AGGREGATE, ELSEWHERE = uuid_of("storage"), uuid_of("aggregate"), uuid_of("network")
EVERY_SEVENTH = 7
"""One guest of so many is on its way elsewhere, and a migration holds what it leaves behind; and another one is resized."""
RESIZED = 3
"""The number of the first of those that are resized where they are: they hold twice."""
LATER = (1001, 1009)
"""The numbers of guests that come later: they have no devices, but encrypted memory."""

_PLACED = {"hw:numa_nodes": "1"}
_PINNED = {"hw:cpu_policy": "dedicated"}
FLOATING = Flavor("floating", "floating", 1, 512, root_gb=1)
SHARED = Flavor("shared", "shared", 1, 512, root_gb=1, extra_specs=_PLACED)
PAGED = Flavor(
    "paged", "paged", 2, 512, root_gb=1, extra_specs={**_PLACED, "hw:mem_page_size": "2048"}
)
PINNED = Flavor("pinned", "pinned", 1, 512, root_gb=1, extra_specs=_PINNED)
SPLIT = Flavor("split", "split", 2, 1024, root_gb=2, extra_specs={**_PINNED, "hw:numa_nodes": "2"})
ISOLATED = replace(
    PINNED,
    id="isolated",
    name="isolated",
    extra_specs={**_PINNED, "hw:emulator_threads_policy": "isolate"},
)
MIXED = (FLOATING, SPLIT, PAGED, PINNED, ISOLATED)
"""A guest of each kind, one of which is on no cell."""
STRICT = (SHARED, SPLIT, PAGED, PINNED, ISOLATED)

_CPUS = 80
_CELLS = tuple(frozenset(range(first, first + _CPUS)) for first in (0, _CPUS))
_SHARED = frozenset(cpu for cell in _CELLS for cpu in sorted(cell)[:16])
SETS = HostPolicy(_SHARED, (_CELLS[0] | _CELLS[1]) - _SHARED)
TOPOLOGY = Topology(
    tuple(
        Cell(number, cpus, 131072, (PagePool(2048, 16384),)) for number, cpus in enumerate(_CELLS)
    )
)

_FUNCTIONS = 25
_CARDS = tuple(f"0000:a{number}:00.0" for number in range(4))
VF = "CUSTOM_PCI_8086_154C"


def _function(number: int) -> str:
    """The address of the virtual function that guest ``number`` has: the cards in turn give one."""
    card, place = number % len(_CARDS), number // len(_CARDS)
    return f"0000:a{card}:{1 + place // 8:02x}.{place % 8}"


def _devices() -> Iterator[PciDevice]:
    for number, card in enumerate(_CARDS):
        names = [_function(number + len(_CARDS) * place) for place in range(_FUNCTIONS)]
        yield scene.physical(card, *names, numa_node=number % 2, max_virtual_functions=32)
        yield from (scene.virtual(one, card, numa_node=number % 2) for one in names)


DEVICES = tuple(_devices())


@dataclass(frozen=True)
class Layout:
    """What the operator says. ``sets``: of CPUs; ``shared``: whether a storage in the node's
    aggregate shares its disk.

    ``devices``: whether guests can have virtual functions; ``reported``: and they are counted.
    """

    nested: bool = True
    strict: bool = False
    pages: bool = False
    sets: bool = True
    on_root: frozenset[str] = frozenset()
    shared: bool = False
    devices: bool = False
    reported: bool = False

    @property
    def pci(self) -> PciSettings:
        return PciSettings(
            scene.specs({"product_id": "154c"}, report=self.reported) if self.devices else (),
            report=self.reported,
        )

    @property
    def policy(self) -> Policy:
        return Policy(
            SETS if self.sets else HostPolicy(),
            layout="nested" if self.nested else "flat",
            strict=self.strict,
            page_classes=self.pages,
            on_root=self.on_root,
            mdev=MdevPolicy((MdevType(T1),)),
        )


@dataclass(frozen=True)
class Holder:
    """A consumer. ``number``: of its guest; ``parents``: of its mediated devices."""

    uuid: str
    number: int
    cells: tuple[PlacedCell, ...] = ()
    flavor: Flavor = FLOATING

    @property
    def parents(self) -> tuple[str, ...]:
        return ((), (CHILD_06,), (CHILD_07,), (CHILD_06, CHILD_07))[self.number // 2 % 4]

    def held(self, layout: Layout) -> dict[str, dict[str, int]]:
        """What it holds where the node is laid out so, by the names of the providers."""
        found: dict[str, Counter[str]] = {}

        def put(place: str, name: str, amount: int) -> None:
            found.setdefault(place, Counter())[name] += amount

        for one in self.cells:
            cell = f"{NAME}_NUMA{one.host_cell}" if layout.nested else NAME
            put(
                cell if layout.sets or layout.strict else NAME,
                "PCPU" if layout.sets else "VCPU",
                len(one.pinned_cpus),
            )
            put(cell if layout.strict else NAME, "VCPU", len(one.cell.shared))
            put(cell if layout.strict else NAME, "MEMORY_MB", one.cell.memory_mib)
            put(
                cell,
                PAGES,
                one.cell.memory_mib if layout.pages and one.page_size_kib == 2048 else 0,
            )
        if not self.cells:
            put(NAME, "VCPU", self.flavor.vcpus)
            put(NAME, "MEMORY_MB", self.flavor.memory_mb)
        put("storage" if layout.shared else NAME, "DISK_GB", self.flavor.root_gb)
        for device in self.parents:
            put(NAME if VGPU in layout.on_root else device, VGPU, 1)
        put(NAME if CONTEXT in layout.on_root else SEV, CONTEXT, self.number % 2)
        if (
            layout.reported
            and self.number < len(_CARDS) * _FUNCTIONS
            and self.uuid == guest(f"g{self.number}")
        ):
            # Who is on the move is healed when it is over.
            put(f"{NAME}_{_CARDS[self.number % len(_CARDS)].upper()}", VF, 1)
        put("network", "IPV4_ADDRESS", 1)
        counted = {
            place: {name: amount for name, amount in one.items() if amount}
            for place, one in found.items()
        }
        return {place: one for place, one in counted.items() if one}


@dataclass
class ReshapeHost:
    """The node, its agent's folder and Placement. ``holders``: all that hold something of it, by
    uuid.
    """

    placement: PlacementServer
    folder: Path
    layout: Layout
    holders: dict[str, Holder] = field(default_factory=dict)
    agent: AgentUnderTest | None = None

    def facts(self, name: str) -> HostFacts:
        """What the host shows: guests have mediated devices whether they are on their
        way or not.
        """
        owners: dict[str, list[str]] = {CHILD_06: [], CHILD_07: []}
        for number, devices in {one.number: one.parents for one in self.holders.values()}.items():
            for device in devices:
                owners[device].append(guest(f"g{number}"))
        parents = tuple(
            parent(name, {T1: 200 - len(owners[child])}, owners[child])
            for name, child in ((P06, CHILD_06), (P07, CHILD_07))
        )
        return HostFacts(
            name,
            time.time(),
            "QEMU",
            cpu=CpuFacts(frozenset(range(2 * _CPUS))),
            memory_mib=TOPOLOGY.memory_mib,
            disk_gib=5000,
            numa=TOPOLOGY,
            mdev=parents,
            encryption=EncryptionFacts({"sev": 500}),
            pci=DEVICES if self.layout.devices else (),
        )

    def start(self, layout: Layout | None = None, *, asking: bool = False) -> AgentUnderTest:
        """A new process, not yet begun, with the configuration of ``layout``. ``asking``: it asks
        who shares, whenever that was asked before.
        """
        self.layout = layout or self.layout
        # Who shares is asked no more often than operators say: what is new has come to be known
        # meanwhile.
        freshness = (
            Freshness(sharing=0.001) if self.share(self.layout.shared) or asking else Freshness()
        )
        if self.agent is not None:
            self.agent.stop()
        driver = ScriptedDriver()
        driver.facts_of = self.facts
        self.agent = AgentUnderTest(
            self.placement,
            self.folder,
            driver,
            policy=self.layout.policy,
            pci=self.layout.pci,
            freshness=freshness,
        )
        return self.agent

    def stop(self) -> None:
        """End the process."""
        if self.agent is not None:
            self.agent.stop()

    # --- who else there is ------------------------------------------------------------------------

    def prepare(self) -> None:
        """Others' providers: a storage, and a network of which every guest has an address."""
        other = self.placement.other
        for name, uuid, inventory in (
            ("storage", STORAGE, {"DISK_GB": 9000}),
            ("network", ELSEWHERE, {"IPV4_ADDRESS": 9000}),
        ):
            other.create_provider(name, uuid)
            other.set_inventory(uuid, inventory)
        other.set_traits(STORAGE, ["MISC_SHARES_VIA_AGGREGATE"])

    def share(self, shared: bool) -> bool:
        """Have the storage in the node's aggregate, or not. Returns whether that is new."""
        if shared == (AGGREGATE in self.placement.other.aggregates(STORAGE)):
            return False
        self.placement.other.set_aggregates(STORAGE, [AGGREGATE] if shared else [])
        return True

    # --- guests -----------------------------------------------------------------------------------

    def fill(self, count: int, flavors: Sequence[Flavor]) -> None:
        """Have ``count`` guests with claims, some of them moving, and what they hold in Placement.
        Ends the process.
        """
        assert self.agent is not None
        for number in range(count):
            self._claim(number, flavors[number % len(flavors)])
        for number in range(RESIZED, 0 if self.layout.devices else count, EVERY_SEVENTH):
            self._resize(number, flavors[number % len(flavors)])
        self.agent.stop()
        with open_store(self.folder) as store:
            records = Records(store)
            self._send_away(records, range(0, count, EVERY_SEVENTH))
            self._look(records)
        self.allocate(self.holders.values(), self.layout)

    def arrive(self, number: int, flavor: Flavor, layout: Layout) -> None:
        """One guest more, while the agent runs, by what the scheduler sees while the node is still
        laid out as ``layout``.
        """
        claim = self._claim(number, flavor)
        self.holders[claim.instance] = Holder(claim.instance, number, claim.cells, flavor)
        self.allocate([self.holders[claim.instance]], layout)

    def vanish(self, number: int) -> None:
        """A guest that is here is deleted, while the agent runs."""
        assert self.agent is not None
        del self.holders[guest(f"g{number}")]
        self.placement.other.release(guest(f"g{number}"))
        self.agent.tracking.tracker.update(guest(f"g{number}"), InstanceUpdate(deleted=True))

    def _claim(self, number: int, flavor: Flavor) -> Claim:
        assert self.agent is not None
        name, tracker = f"g{number}", self.agent.tracking.tracker
        devices: tuple[DeviceRequest, ...] = ()
        if self.layout.devices and number < len(_CARDS) * _FUNCTIONS:
            devices = (DeviceRequest(uuid_of(f"device-{name}"), 1, {"address": _function(number)}),)
        request = InstanceClaim(
            id=uuid_of(f"claim-{name}"),
            node=ProviderUuid(ROOT),
            instance=instance(name, flavor),
            devices=devices,
        )
        claim = tracker.claim(request).claim
        tracker.update(guest(name), InstanceUpdate(vm_state="active"))
        return claim

    def _resize(self, number: int, flavor: Flavor) -> None:
        """Have a guest resized where it is: it holds what it is to become, and its migration what
        it was.
        """
        assert self.agent is not None
        name, tracker, bigger = (
            f"g{number}",
            self.agent.tracking.tracker,
            replace(flavor, id="resized"),
        )
        tracker.update(guest(name), InstanceUpdate(task_state="resize_prep"))
        tracker.claim_move(
            MoveClaim(
                id=Host.move_id(name),
                type="resize",
                node=ProviderUuid(ROOT),
                instance=instance(name, flavor),
                flavor=bigger,
            )
        )

    def _send_away(self, records: Records, numbers: Sequence[int]) -> None:
        away = Host(
            "node-b",
            records,
            clock.now,
            self.facts("node-b"),
            policy=self.layout.policy,
            cells=self.layout.policy.host,
        )  # type: ignore[arg-type]
        away.audit(start=True)
        for number in numbers:
            away.move(f"g{number}", "live-migration")

    def _look(self, records: Records) -> None:
        """See by the records who holds for which guest, and where that is."""
        with records.reading() as reading:
            loaded = reading.load(ProviderUuid(ROOT))
        assert loaded is not None
        numbers = {guest(f"g{number}"): number for number in range(len(loaded.claims))}
        flavors = {one.uuid: one.flavor for one in loaded.instances}
        for one in loaded.claims:
            uuid = (
                one.migration if one.migration is not None and one.half == "old" else one.instance
            )
            self.holders[uuid] = Holder(
                uuid, numbers[one.instance], one.cells, flavors[one.instance]
            )

    # --- what they hold ---------------------------------------------------------------------------

    def allocate(self, holders: Iterable[Holder], layout: Layout) -> None:
        """Give each what it holds where the node is laid out so, as the scheduler does."""
        uuids = {one["name"]: uuid for uuid, one in self.placement.dump()["providers"].items()}
        bodies = {
            one.uuid: {
                "allocations": {
                    uuids[place]: {"resources": amounts}
                    for place, amounts in one.held(layout).items()
                },
                "project_id": PROJECT,
                "user_id": USER,
                "consumer_generation": None,
            }
            for one in holders
        }
        self.placement.other.call("POST", "/allocations", bodies)

    def held(self) -> dict[str, dict[str, dict[str, int]]]:
        """What each consumer holds in Placement, by the names of the providers."""
        dump = self.placement.dump()
        names = {uuid: one["name"] for uuid, one in dump["providers"].items()}
        return {
            consumer: {names[uuid]: dict(amounts) for uuid, amounts in one["allocations"].items()}
            for consumer, one in dump["consumers"].items()
            if one["allocations"]
        }

    def wanted(self, layout: Layout) -> dict[str, dict[str, dict[str, int]]]:
        """What each should hold where the node is laid out so."""
        return {uuid: one.held(layout) for uuid, one in self.holders.items()}


@dataclass(frozen=True)
class Kept:
    """A host as it was at one time."""

    database: sqlite3.Connection
    folder: Path
    layout: Layout
    holders: Mapping[str, Holder]

    @classmethod
    def of(cls, host: ReshapeHost, folder: Path) -> "Kept":
        """Keep ``host``, whose process has ended, in ``folder``."""
        host.stop()
        shutil.copytree(host.folder, folder, dirs_exist_ok=True)
        return cls(host.placement.snapshot(), folder, host.layout, dict(host.holders))

    def back(self, placement: PlacementServer, folder: Path) -> ReshapeHost:
        """The host again, on ``placement``."""
        placement.restore(self.database)
        placement.clear()
        shutil.copytree(self.folder, folder)
        return ReshapeHost(placement, folder, self.layout, dict(self.holders))


def populated(
    placement: PlacementServer, folder: Path, layout: Layout, flavors: Sequence[Flavor], count: int
) -> ReshapeHost:
    """A host of ``layout`` with ``count`` consumers, known to an agent that has ended."""
    host = ReshapeHost(placement, folder, layout)
    host.prepare()
    host.start().once()
    placement.other.set_aggregates(ROOT, [AGGREGATE])
    host.start().cycle(start=True)
    host.fill(count, flavors)
    host.start().once()
    report = host.start().once()
    assert (report.state, report.errors, host.held()) == ("in-sync", (), host.wanted(layout))
    return host
