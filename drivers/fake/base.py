"""What the fake drivers share: a described machine, its sections of facts, and the providers that
are listed beside them.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from oslo_config import cfg

from agent.driver.interface import Allocations, HostContext
from agent.errors import DriverError, NotReady
from agent.model.devices import PciAddress, PciDevice
from agent.model.facts import CpuFacts, HostFacts
from agent.model.inventory import Inventories, Number, Record, completed
from agent.model.names import number_of, printable
from agent.model.provider_tree import ProviderTree

ETHERNET = 0x020000
ETHERNET_VENDOR, ETHERNET_PF, ETHERNET_VF = "8086", "1528", "1515"


def function_after(address: PciAddress, count: int) -> PciAddress:
    """Return the ``count``-th function after ``address`` on its bus; functions beyond the seventh
    go on in the next slot.

    :raises ValueError: the bus ends before.
    """
    slot, function = divmod(address.slot * 8 + address.function + count, 8)
    if slot > 0x1F:
        raise ValueError(
            f"bus {address.bus:02x} has no room for {number_of(count, 'function')} after {address}"
        )
    return PciAddress(address.domain, address.bus, slot, function)


def network_card(text: str, numa_node: int, enabled: int, maximum: int) -> tuple[PciDevice, ...]:
    """Return a network card at the address ``text`` with ``enabled`` of ``maximum`` virtual
    functions directly after it.
    """
    address = PciAddress.parse(text)
    functions = tuple(function_after(address, index + 1) for index in range(enabled))
    card = PciDevice(
        address,
        ETHERNET_VENDOR,
        ETHERNET_PF,
        class_code=ETHERNET,
        numa_node=numa_node,
        virtual_functions=functions,
        max_virtual_functions=maximum,
    )
    virtual = (
        PciDevice(
            function,
            ETHERNET_VENDOR,
            ETHERNET_VF,
            class_code=ETHERNET,
            numa_node=numa_node,
            physical_function=address,
        )
        for function in functions
    )
    return card, *virtual


NODE = "$NODE"
"""Stands for the node's name in names of providers."""


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """A provider that is listed, with its complete inventory records."""

    name: str
    """``$NODE`` stands for the node's name; ``$NODE`` alone is the root."""
    parent: str = NODE
    """As ``name``."""
    inventories: Inventories = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


def full_record(record: Record) -> dict[str, Number]:
    """Return ``record`` with all six fields, so that no value is left from Placement; ``max_unit``
    defaults to ``total``.
    """
    return completed(record, {"max_unit": record["total"]})


def name_on_node(text: str, node: str) -> str:
    """Return ``text`` with ``$NODE`` replaced by the node's name."""
    return text.replace(NODE, node)


def add_entries(tree: ProviderTree, node: str, entries: Iterable[ProviderEntry]) -> None:
    """Put ``entries``, parents first, into the tree of ``node``; what a provider has already stays.

    :raises DriverError: an entry does not fit the tree.
    """
    for entry in entries:
        name, parent = name_on_node(entry.name, node), name_on_node(entry.parent, node)
        try:
            if name != node and tree.exists(name):
                # The child may exist, kept for a foreign provider below it, and now belong below
                # another parent.
                tree.reparent(name, parent)
            elif name != node:
                tree.new_child(name, parent)
            tree.update_inventory(name, {**tree.provider(name).inventory, **entry.inventories})
            tree.add_traits(name, *entry.traits)
            tree.add_aggregates(name, *entry.aggregates)
        except ValueError as error:
            raise DriverError(
                f"node {node}: provider {name} cannot be put below {parent}: {error}",
                f"describe {parent} as a provider of its own, or choose another name",
            ) from error


MODEL, VENDOR = "Nehalem", "Intel"
FEATURES = frozenset(
    {"sse", "sse2", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "lahf_lm", "nx", "lm"}
)


@dataclass(frozen=True, slots=True)
class DescribedFacts(HostFacts):
    """The facts of a described machine, which also list providers beyond those that the core
    derives.
    """

    name: str = ""
    taken_at: float = 0.0
    hypervisor_type: str = "fake"
    hypervisor_version: int = 1000
    providers: tuple[ProviderEntry, ...] = ()
    """Parents first."""


def processor(online: frozenset[int]) -> CpuFacts:
    """Return the processor of every fake host, with these CPUs."""
    return CpuFacts(online, architecture="x86_64", model=MODEL, vendor=VENDOR, features=FEATURES)


def plain(vcpus: int, memory_mib: int, disk_gib: int) -> DescribedFacts:
    """Return a machine without NUMA cells and devices."""
    return DescribedFacts(
        cpu=processor(frozenset(range(vcpus))), memory_mib=memory_mib, disk_gib=disk_gib
    )


class BaseDriver:
    """A driver that needs to know its host and nothing else."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        self._host: HostContext | None = None

    @property
    def host(self) -> HostContext:
        """The host the driver was started for.

        :raises NotReady: it was not started.
        """
        if self._host is None:
            raise NotReady("the fake driver has not been started", "start it first")
        return self._host

    def start(self, host: HostContext) -> None:
        """Remember the host; there is nothing to connect to."""
        self._host = host

    def stop(self) -> None:
        """Forget the host."""
        self._host = None

    def node_uuid(self, name: str) -> str:
        """Return the uuid of a node: the host's identity for the node named after the host, else
        derived from the identity and the name.
        """
        if name == self.host.name:
            return self.host.identity
        return str(uuid.uuid5(uuid.UUID(self.host.identity), name))


def unknown_node(name: str) -> DriverError:
    """Return the error for a node that the driver does not have."""
    return DriverError(
        f"the fake driver has no node {printable(name)}", "ask for one of the driver's nodes"
    )


class ShapesOutright:
    """Mixin for drivers whose machines list providers beside the facts."""

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Allocations | None) -> None:  # noqa: ARG002 - nothing moves
        """Add the listed providers.

        :raises DriverError: one does not fit the tree, or the facts are another driver's.
        """
        if not isinstance(facts, DescribedFacts):
            raise DriverError(
                f"node {facts.name}: the facts do not come from a fake driver",
                "shape with the facts of the same driver",
            )
        add_entries(tree, facts.name, facts.providers)
