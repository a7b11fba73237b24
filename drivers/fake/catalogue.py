"""The catalogue of fake hosts of known size: rows of one table, among them ``fake.numa`` (two
sockets with two cells each, 64 CPUs with two threads a core, pages of 2 MiB and 1 GiB, two network
cards); ``fake.baremetal`` (many exclusive nodes); and ``fake.chaos``, the host of ``fake.numa``
with a driver that is slow, fails or reports incomplete facts, by a seed.
"""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from oslo_config import cfg

from agent.driver.interface import HostContext
from agent.errors import NotReady
from agent.model.facts import Cell, HostFacts, PagePool, Section, Topology
from drivers.fake.base import (
    NODE,
    BaseDriver,
    DescribedFacts,
    ProviderEntry,
    ShapesOutright,
    full_record,
    network_card,
    plain,
    processor,
    unknown_node,
)

# False ones are listed so that a host that had another fake driver before loses the capabilities
# that this one lacks.
CAPABILITIES: Mapping[str, bool] = {
    "COMPUTE_NET_ATTACH_INTERFACE": True,
    "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG": True,
    "COMPUTE_DEVICE_TAGGING": True,
    "COMPUTE_VOLUME_ATTACH_WITH_TAG": True,
    "COMPUTE_VOLUME_EXTEND": True,
    "COMPUTE_VOLUME_MULTI_ATTACH": True,
    "COMPUTE_TRUSTED_CERTS": True,
    "COMPUTE_ACCELERATORS": True,
    "COMPUTE_SAME_HOST_COLD_MIGRATE": False,
    "COMPUTE_RESCUE_BFV": False,
    "COMPUTE_EPHEMERAL_ENCRYPTION": False,
    "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS": False,
    "COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN": False,
}


class DescribedDriver(BaseDriver):
    """A driver whose nodes are all ``machine``. By default there is one node, named after the
    host.
    """

    def __init__(self, conf: cfg.ConfigOpts, machine: DescribedFacts) -> None:
        super().__init__(conf)
        self.machine = machine

    def node_names(self) -> Collection[str]:
        """Return the names of all nodes."""
        return (self.host.name,)

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:  # noqa: ARG002 - nothing is cached here
        """Return all nodes, uuid to name."""
        return {self.node_uuid(name): name for name in self.node_names()}

    def facts(self, name: str) -> HostFacts:
        """Return a snapshot of the node.

        :raises DriverError: there is no such node.
        """
        if name not in self.node_names():
            raise unknown_node(name)
        return replace(self.machine, name=name, taken_at=time.time())

    def is_node_deleted(self, name: str) -> bool:
        """Whether the node is not one of the driver's."""
        return name not in self.node_names()


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """A row of the catalogue. Called with the options, it makes a driver."""

    machine: DescribedFacts
    capable_of: frozenset[str] = frozenset()
    """Capabilities beside those of every fake driver."""
    predictable: bool = False
    """The node's uuid follows from its name alone."""

    def __call__(self, conf: cfg.ConfigOpts) -> "FakeDriver":
        """Return the driver of this host."""
        return (NestedDriver if self.machine.providers else FakeDriver)(conf, self)


class FakeDriver(DescribedDriver):
    """The driver of a host of the catalogue."""

    def __init__(self, conf: cfg.ConfigOpts, row: CatalogueRow) -> None:
        super().__init__(conf, row.machine)
        self._row = row

    def node_uuid(self, name: str) -> str:
        """Return the uuid of the node; a predictable one is the uuid5 of the name in the DNS
        namespace.
        """
        if self._row.predictable:
            return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
        return super().node_uuid(name)

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """Return the capabilities of every fake driver and of this host."""
        return {**CAPABILITIES, **dict.fromkeys(self._row.capable_of, True)}


class NestedDriver(ShapesOutright, FakeDriver):
    """The driver of a host of the catalogue that has providers of its own."""


CELLS, CORES_PER_CELL, MEMORY_MIB, DISK_GIB = 4, 8, 65536, 4096
CORES = CELLS * CORES_PER_CELL
SMALL_KIB, LARGE_KIB, HUGE_KIB = 4, 2048, 1048576
LARGE_PAGES, HUGE_PAGES = 4096, 8
LOCAL, SAME_SOCKET, OTHER_SOCKET = 10, 12, 32


def _socket(cell: int) -> int:
    return cell // 2


def _distance(cell: int, other: int) -> int:
    if cell == other:
        return LOCAL
    return SAME_SOCKET if _socket(cell) == _socket(other) else OTHER_SOCKET


def _cell(number: int) -> Cell:
    # As Linux numbers them: first one thread of every core of the host, then the second threads.
    cores = range(number * CORES_PER_CELL, (number + 1) * CORES_PER_CELL)
    siblings = tuple(frozenset({core, core + CORES}) for core in cores)
    small_pages = (MEMORY_MIB * 1024 - LARGE_PAGES * LARGE_KIB - HUGE_PAGES * HUGE_KIB) // SMALL_KIB
    return Cell(
        id=number,
        cpus=frozenset().union(*siblings),
        memory_mib=MEMORY_MIB,
        pages=(
            PagePool(SMALL_KIB, small_pages),
            PagePool(LARGE_KIB, LARGE_PAGES, LARGE_PAGES),
            PagePool(HUGE_KIB, HUGE_PAGES, HUGE_PAGES),
        ),
        distances={other: _distance(number, other) for other in range(CELLS)},
        siblings=siblings,
        sockets=frozenset({_socket(number)}),
    )


NUMA = DescribedFacts(
    cpu=processor(frozenset(range(2 * CORES))),
    memory_mib=CELLS * MEMORY_MIB,
    disk_gib=DISK_GIB,
    numa=Topology(tuple(_cell(number) for number in range(CELLS))),
    pci=(
        *network_card("0000:18:00.0", numa_node=0, enabled=4, maximum=8),
        *network_card("0000:af:00.0", numa_node=2, enabled=4, maximum=8),
    ),
)


LARGE = plain(vcpus=1000, memory_mib=800_000, disk_gib=600_000)
MEDIUM = plain(vcpus=10, memory_mib=8192, disk_gib=1028)
SMALL = plain(vcpus=2, memory_mib=8192, disk_gib=1028)
# A child that has a class of its own.
MAGIC = ProviderEntry("$NODE-child", inventories={"CUSTOM_MAGIC": full_record({"total": 10})})
# Three network cards on cell 0, each with one virtual function.
CARDS = tuple(
    device
    for bus in (1, 2, 3)
    for device in network_card(f"0000:{bus:02x}:00.0", numa_node=0, enabled=1, maximum=1)
)
ENCRYPTION = "COMPUTE_EPHEMERAL_ENCRYPTION"

# The table: which names of drivers lead to which row stands with the entry points, in setup.cfg.
LARGE_HOST = CatalogueRow(LARGE)
MEDIUM_HOST = CatalogueRow(MEDIUM)
SMALL_HOST = CatalogueRow(SMALL)
NUMA_HOST = CatalogueRow(NUMA)
NESTED_HOST = CatalogueRow(replace(MEDIUM, providers=(MAGIC,)))
PCI_HOST = CatalogueRow(replace(SMALL, pci=CARDS))
PREDICTABLE_HOST = CatalogueRow(SMALL, predictable=True)
SAME_HOST = CatalogueRow(MEDIUM, frozenset({"COMPUTE_SAME_HOST_COLD_MIGRATE"}))
RESCUE_HOST = CatalogueRow(MEDIUM, frozenset({"COMPUTE_RESCUE_BFV"}))
ENCRYPTION_HOST = CatalogueRow(MEDIUM, frozenset({ENCRYPTION}))
LUKS_HOST = CatalogueRow(MEDIUM, frozenset({ENCRYPTION, f"{ENCRYPTION}_LUKS"}))
PLAIN_HOST = CatalogueRow(MEDIUM, frozenset({ENCRYPTION, f"{ENCRYPTION}_PLAIN"}))


NAMESPACE = uuid.UUID("6f1a3c52-8d0e-4b7b-9a55-2f7c0e9d41b6")
RESOURCE_CLASS = "CUSTOM_BAREMETAL_GOLD"


def baremetal_uuid(index: int) -> str:
    """Return the uuid, which is also the name, of a node: the same in every run and on every
    host.
    """
    return str(uuid.uuid5(NAMESPACE, str(index)))


class BaremetalDriver(ShapesOutright, DescribedDriver):
    """``[fake] baremetal_nodes`` nodes; each is one unit of one class and has no other
    resources.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        unit = ProviderEntry(NODE, inventories={RESOURCE_CLASS: full_record({"total": 1})})
        super().__init__(conf, DescribedFacts(providers=(unit,)))
        self._names = dict.fromkeys(
            baremetal_uuid(index) for index in range(conf.fake.baremetal_nodes)
        )

    def node_names(self) -> Collection[str]:
        """Return the uuids of all nodes."""
        return self._names

    def node_uuid(self, name: str) -> str:
        """Return the name: a node is named after its uuid."""
        return name


Disturbance = Literal["delay", "not-ready", "partial"]
MAX_DELAY = 0.02
"""Seconds."""
SECTIONS: tuple[Section, ...] = ("cpu", "memory", "disk", "numa", "pci")


class ChaosDriver:
    """Disturbs ``[fake] chaos_probability`` of the calls.

    What happens to the n-th call of a method depends on the seed, the method and n alone, so that
    the order of threads does not matter.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._inner = NUMA_HOST(conf)
        self._seed: int = conf.fake.chaos_seed
        self._probability: float = conf.fake.chaos_probability
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self.disturbed: Counter[Disturbance] = Counter()
        """How many calls were disturbed, by kind."""

    def start(self, host: HostContext) -> None:
        """Start undisturbed, because an agent that never starts shows nothing."""
        self._inner.start(host)

    def stop(self) -> None:
        """Stop undisturbed."""
        self._inner.stop()

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        """Return the host's only node.

        :raises NotReady: by chance.
        """
        self._maybe_disturb("nodes", ("delay", "not-ready"))
        return self._inner.nodes(refresh)

    def facts(self, name: str) -> HostFacts:
        """Return the facts of ``fake.numa``, by chance with wrong sections that are marked as
        incomplete.

        :raises NotReady: by chance.
        """
        dice = self._maybe_disturb("facts", ("delay", "not-ready", "partial"))
        facts = self._inner.facts(name)
        return facts if dice is None else _partial(facts, dice)

    def is_node_deleted(self, name: str) -> bool:
        """Whether it is another node than the host's.

        :raises NotReady: by chance.
        """
        self._maybe_disturb("is_node_deleted", ("delay", "not-ready"))
        return self._inner.is_node_deleted(name)

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """Return the capabilities of every fake driver, undisturbed, because a driver knows them
        without asking its backend.
        """
        return self._inner.capabilities_as_traits()

    def _maybe_disturb(self, method: str, kinds: tuple[Disturbance, ...]) -> Random | None:
        """Delay or fail this call, by chance. Return the random generator if its answer is to be
        partial.
        """
        with self._lock:
            self._calls[method] += 1
            number = self._calls[method]
            dice = Random(f"{self._seed} {method} {number}")
            if dice.random() >= self._probability:
                return None
            kind = dice.choice(kinds)
            self.disturbed[kind] += 1
        if kind == "not-ready":
            raise NotReady(
                f"fake.chaos: call {number} of {method} fails on purpose",
                "try again, or set [fake] chaos_probability = 0",
            )
        if kind == "delay":
            time.sleep(dice.uniform(0, MAX_DELAY))
            return None
        return dice


def _partial(facts: HostFacts, dice: Random) -> HostFacts:
    """Return ``facts`` with some sections marked as incomplete, each either missing or lacking a
    part, because no caller may rely on them.
    """
    chosen = dice.sample(SECTIONS, dice.randint(1, len(SECTIONS)))
    damaged: dict[str, Any] = {}
    for section in chosen:
        missing = dice.random() < 0.5
        damaged.update(_damage(facts, section, missing))
    return replace(
        facts, incomplete=dict.fromkeys(chosen, "fake.chaos: left out on purpose"), **damaged
    )


def _damage(facts: HostFacts, section: Section, missing: bool) -> dict[str, Any]:
    online = frozenset(sorted(facts.cpu.online)[::2]) if facts.cpu else frozenset[int]()
    less: Mapping[Section, tuple[str, Any]] = {
        "cpu": ("cpu", facts.cpu and replace(facts.cpu, online=online)),
        "memory": ("memory_mib", (facts.memory_mib or 0) // 2),
        "disk": ("disk_gib", (facts.disk_gib or 0) // 2),
        "numa": ("numa", facts.numa and Topology(facts.numa.cells[1:])),
        "pci": ("pci", (facts.pci or ())[1:]),
    }
    name, part = less[section]
    return {name: None if missing else part}
