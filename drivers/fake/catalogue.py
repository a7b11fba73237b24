"""The catalogue of fake hosts of known size, one class for each that differs."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from oslo_config import cfg

from drivers.fake.base import DescribedDriver, ShapesOutright
from drivers.fake.machine import Machine, ProviderEntry, full_record, network_card, plain

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
