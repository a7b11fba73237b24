"""The catalogue of fake hosts of known size, one class for each that differs: among them
``fake.numa`` (two sockets with two cells each, 64 CPUs with two threads a core, pages of 2 MiB and
1 GiB, two network cards) and ``fake.baremetal`` (many exclusive nodes).
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from oslo_config import cfg

from agent.model.topology import Cell, PagePool, Topology
from drivers.fake.base import (
    NODE,
    DescribedDriver,
    Machine,
    ProviderEntry,
    ShapesOutright,
    full_record,
    network_card,
    plain,
    processor,
)

LARGE = plain(vcpus=1000, memory_mib=800_000, disk_gib=600_000)
MEDIUM = plain(vcpus=10, memory_mib=8192, disk_gib=1028)
SMALL = plain(vcpus=2, memory_mib=8192, disk_gib=1028)

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


class FakeDriver(DescribedDriver):
    """``fake``: a large host without NUMA cells and devices.

    Also ``fake.local_identity`` and ``fake.caching``, which are the same to Placement.
    """

    described = LARGE
    capable_of: ClassVar[frozenset[str]] = frozenset()
    """Capabilities beside those of every fake driver."""

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """Return the capabilities of every fake driver and of this one."""
        return {**CAPABILITIES, **dict.fromkeys(self.capable_of, True)}


class SmallDriver(FakeDriver):
    """``fake.small``: a small host; also ``fake.power_event``, which is the same to Placement."""

    described = SMALL


class MediumDriver(FakeDriver):
    """``fake.medium``: a host of medium size."""

    described = MEDIUM


class MediumNestedDriver(ShapesOutright, MediumDriver):
    """``fake.medium_nested``: a host of medium size that has a child with a class of its own."""

    described: ClassVar[Machine] = replace(
        MEDIUM,
        providers=(
            ProviderEntry("$NODE-child", inventories={"CUSTOM_MAGIC": full_record({"total": 10})}),
        ),
    )


class PredictableUuidDriver(SmallDriver):
    """``fake.predictable_uuid``: a small host whose uuid follows from its name alone."""

    def node_uuid(self, name: str) -> str:
        """Return the uuid5 of the name in the DNS namespace."""
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


class MultiNodeDriver(FakeDriver):
    """``fake.multi_node``: large nodes that come and go while the agent runs. At first there is
    one, named after the host.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._names: tuple[str, ...] | None = None

    def set_nodes(self, names: Sequence[str]) -> None:
        """Set the nodes that the driver has from now on."""
        self._names = tuple(names)

    def node_names(self) -> Collection[str]:
        """Return the nodes as last set."""
        return super().node_names() if self._names is None else self._names


class PciDriver(SmallDriver):
    """``fake.pci``: a small host with three network cards on cell 0, each with one virtual
    function.
    """

    described: ClassVar[Machine] = replace(
        SMALL,
        pci=tuple(
            device
            for bus in (1, 2, 3)
            for device in network_card(f"0000:{bus:02x}:00.0", numa_node=0, enabled=1, maximum=1)
        ),
    )


class SameHostMigrateDriver(MediumDriver):
    """``fake.same_host_migrate``: a medium host that can migrate cold to itself."""

    capable_of = frozenset({"COMPUTE_SAME_HOST_COLD_MIGRATE"})


class BfvRescueDriver(MediumDriver):
    """``fake.bfv_rescue``: a medium host that can rescue instances with a root volume."""

    capable_of = frozenset({"COMPUTE_RESCUE_BFV"})


class EphemeralEncryptionDriver(MediumDriver):
    """``fake.ephemeral_encryption``: a medium host that can encrypt ephemeral disks."""

    capable_of = frozenset({"COMPUTE_EPHEMERAL_ENCRYPTION"})


class EphemeralEncryptionLuksDriver(MediumDriver):
    """``fake.ephemeral_encryption_luks``: the same, with LUKS."""

    capable_of = frozenset({"COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS"})


class EphemeralEncryptionPlainDriver(MediumDriver):
    """``fake.ephemeral_encryption_plain``: the same, with plain dm-crypt."""

    capable_of = frozenset({"COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN"})


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


MACHINE = Machine(
    cpu=processor(frozenset(range(2 * CORES))),
    memory_mib=CELLS * MEMORY_MIB,
    disk_gib=DISK_GIB,
    numa=Topology(tuple(_cell(number) for number in range(CELLS))),
    pci=(
        *network_card("0000:18:00.0", numa_node=0, enabled=4, maximum=8),
        *network_card("0000:af:00.0", numa_node=2, enabled=4, maximum=8),
    ),
)


class NumaDriver(FakeDriver):
    """``fake.numa``: a host with NUMA cells."""

    described = MACHINE


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

    described = Machine(
        providers=(ProviderEntry(NODE, inventories={RESOURCE_CLASS: full_record({"total": 1})}),)
    )

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._names = dict.fromkeys(
            baremetal_uuid(index) for index in range(conf.fake.baremetal_nodes)
        )

    def node_names(self) -> Collection[str]:
        """Return the uuids of all nodes."""
        return self._names

    def node_uuid(self, name: str) -> str:
        """Return the name: a node is named after its uuid."""
        return name
