"""Operator's options for PCI devices, read once; which object of ``device_spec`` offers which
device; and the device records that follow on a host.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Self

import os_traits
from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors
from agent.model.devices import DeviceRecord, PciAddress, PciDevice, Serves
from agent.model.names import ProviderUuid, printable
from agent.pci.device_request import OPTION as ALIAS
from agent.pci.device_request import Aliases, aliases
from agent.pci.device_spec import OPTION, DeviceSpec, device_specs
from agent.pci.option_value import class_of_ids, empty_keys


@dataclass(frozen=True, slots=True)
class PresentDevices:
    """All devices that a host shows, by address and by network interface."""

    by_address: Mapping[PciAddress, PciDevice]
    by_netdev: Mapping[str, PciDevice]
    children: Mapping[PciAddress, tuple[PciDevice, ...]]
    """The VFs of each PF."""

    @classmethod
    def of(cls, devices: Iterable[PciDevice]) -> Self:
        """Return the devices in the order of their addresses, with the relations of PFs and VFs."""
        ordered = sorted(devices, key=attrgetter("address"))
        children: dict[PciAddress, tuple[PciDevice, ...]] = {}
        for device in ordered:
            if device.physical_function is not None:
                children[device.physical_function] = (
                    *children.get(device.physical_function, ()),
                    device,
                )
        return cls(
            {device.address: device for device in ordered},
            {
                name: device
                for device in ordered
                for name in (device.netdev, *device.other_netdevs)
                if name is not None
            },
            children,
        )

    def __iter__(self) -> Iterator[PciDevice]:
        return iter(self.by_address.values())

    def parent(self, device: PciDevice) -> PciDevice | None:
        """Return the PF of a VF, if the host shows it."""
        return (
            self.by_address.get(device.physical_function)
            if device.physical_function is not None
            else None
        )

    def family(self, device: PciDevice) -> tuple[PciDevice, ...]:
        """Return the device with its PF and all VFs of that PF."""
        head = device.physical_function or device.address
        return (
            *(device for device in (self.by_address.get(head),) if device is not None),
            *self.children.get(head, ()),
        )

    def serial_number(self, device: PciDevice) -> str | None:
        """Return the serial number of the device's card. A VF without its own has that of its
        PF.
        """
        parent = self.parent(device)
        return device.serial_number or (parent.serial_number if parent is not None else None)

    def parent_ifname(self, device: PciDevice) -> str | None:
        """Return the PF's network interface, for a VF that has an interface itself."""
        parent = self.parent(device)
        return parent.netdev if parent is not None and device.netdev is not None else None

    def number(self, device: PciDevice) -> int | None:
        """Return the number of a VF among those of its PF."""
        parent = self.parent(device)
        return (
            parent.virtual_functions.index(device.address)
            if parent is not None and device.address in parent.virtual_functions
            else None
        )


VIRTUAL = frozenset({"type-VF", "vdpa"})


@dataclass(frozen=True, slots=True)
class Matched:
    """A device that guests may have, with the first object that offers it."""

    device: PciDevice
    spec: DeviceSpec

    @property
    def resource_class(self) -> str:
        """The class that counts it."""
        return self.spec.resource_class or class_of_ids(
            self.device.vendor_id, self.device.product_id
        )

    @property
    def one_time_use(self) -> bool:
        """Whether the device has to be cleaned after each guest before another guest may have
        it.
        """
        return bool(self.spec.one_time_use) and self.device.type not in VIRTUAL

    @property
    def traits(self) -> frozenset[str]:
        """The traits that its provider has because of it, without those that every device's
        provider has.
        """
        more = {
            os_traits.HW_PCI_LIVE_MIGRATABLE: self.spec.live_migratable,
            os_traits.HW_PCI_ONE_TIME_USE: self.one_time_use,
        }
        return self.spec.traits | {name for name, said in more.items() if said}


def match_devices(present: PresentDevices, specs: Sequence[DeviceSpec]) -> tuple[Matched, ...]:
    """Return every device that some object offers, by address. The first object that matches
    counts.
    """
    found = (
        (device, next((spec for spec in specs if matches(device, spec, present)), None))
        for device in present
    )
    return tuple(Matched(device, spec) for device, spec in found if spec is not None)


def matches(device: PciDevice, spec: DeviceSpec, present: PresentDevices) -> bool:
    """Return whether the object offers the device."""
    return (
        spec.vendor_id in (None, device.vendor_id)
        and spec.product_id in (None, device.product_id)
        and _is_there(device, spec, present)
        # By the serial number the service that programs the card finds it.
        and (
            not spec.remote_managed
            or (device.type in VIRTUAL and bool(present.serial_number(device)))
        )
    )


def meant(spec: DeviceSpec, present: PresentDevices) -> PciAddress | None:
    """Return the single address that the object means; None if it means several, or a network
    interface that the host does not have.
    """
    if spec.devname is None:
        return spec.address.single
    named = present.by_netdev.get(spec.devname)
    return named.address if named is not None else None


def _is_there(device: PciDevice, spec: DeviceSpec, present: PresentDevices) -> bool:
    single = meant(spec, present)
    if single is not None:
        # A PF's own address stands for its VFs too, so that an object can select the VFs of one
        # card by address and ids.
        head = present.by_address.get(single)
        through = (
            head is not None and head.is_physical_function and device.physical_function == single
        )
        return through or device.address == single
    return spec.devname is None and spec.address.matches(device.address)


def misfits(specs: Iterable[DeviceSpec], present: PresentDevices) -> Iterator[ConfigError]:
    """Yield an error for every object with ``remote_managed`` that means a PF itself, or a network
    interface that the host does not have. An object for several addresses is not checked.
    """
    for spec in specs:
        if not spec.remote_managed:
            continue
        if spec.devname is not None and spec.devname not in present.by_netdev:
            yield _error(
                spec,
                f"remote_managed of devname {printable(spec.devname)}, which the host does not "
                "have",
                f"interfaces: {', '.join(sorted(map(printable, present.by_netdev))) or 'none'}",
            )
            continue
        single = meant(spec, present)
        device = present.by_address.get(single) if single is not None else None
        if device is not None and device.is_physical_function:
            yield from _of_physical_function(spec, device, present)


def _of_physical_function(
    spec: DeviceSpec, device: PciDevice, present: PresentDevices
) -> Iterator[ConfigError]:
    virtual = _virtual_product_id(device, present)
    own_vendor = spec.vendor_id in (None, device.vendor_id)
    # A PF that does not report the product id of its VFs, and has none now, may have VFs with any
    # product id but its own.
    fitting = (
        spec.product_id == virtual if virtual is not None else spec.product_id != device.product_id
    )
    if own_vendor and spec.product_id is not None and fitting:
        return
    remedy = (
        f"give vendor_id {device.vendor_id} and the product_id of its virtual "
        f"functions{f', {virtual}' if virtual else ''}"
    )
    if own_vendor and spec.product_id in (None, device.product_id):
        yield _error(
            spec, f"{device.address} is a physical function, which cannot be remote managed", remedy
        )
    else:
        ids = (
            f"{spec.vendor_id or '*'}:{spec.product_id}"
            if spec.product_id is not None
            else f"{spec.vendor_id}:*"
        )
        yield _error(
            spec,
            (
                f"{ids} does not fit the virtual functions of {device.address}, "
                f"{device.vendor_id}:{virtual or '*'}"
            ),
            remedy,
        )


def _virtual_product_id(device: PciDevice, present: PresentDevices) -> str | None:
    """Return the product id of a PF's VFs: as the PF reports it, or that of the first VF."""
    children = present.children.get(device.address, ())
    return device.virtual_function_product_id or (children[0].product_id if children else None)


def _error(spec: DeviceSpec, what: str, remedy: str) -> ConfigError:
    return ConfigError(
        f"{OPTION} {spec.place}: {what}",
        remedy,
        option=OPTION,
        place=spec.place,
        key="remote_managed",
    )


def device_rows(
    node: ProviderUuid, present: PresentDevices, specs: Sequence[DeviceSpec]
) -> Iterator[DeviceRecord]:
    """Yield a free record for each device that ``specs`` offer, by address.

    All functions of the same card get a record too, so that a function is not given away while
    another one of its card is in use.
    """
    offered = {match.device.address: match for match in match_devices(present, specs)}
    for device in present:
        match = offered.get(device.address)
        if match is not None:
            yield _row(
                node, device, "guests", _tags(match, present), one_time_use=match.one_time_use
            )
        elif any(relative.address in offered for relative in present.family(device)):
            # The host's use of a PF leaves its VFs usable: only a VF that the host uses makes its
            # PF unusable.
            yield _row(
                node,
                device,
                "host" if device.is_virtual_function and device.host_use is not None else "nobody",
                {},
            )


def _row(
    node: ProviderUuid,
    device: PciDevice,
    serves: Serves,
    tags: Mapping[str, str],
    *,
    one_time_use: bool = False,
) -> DeviceRecord:
    parent = device.physical_function
    return DeviceRecord(
        node=node,
        address=str(device.address),
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        type=device.type,
        parent=str(parent) if parent is not None else None,
        numa_node=device.numa_node,
        tags=tags,
        serves=serves,
        one_time_use=one_time_use,
    )


def _tags(match: Matched, present: PresentDevices) -> dict[str, str]:
    tags = dict(match.spec.tags)
    if match.device.type != "type-PCI":
        # Always there, so that a request can exclude such devices.
        tags["remote_managed"] = "true" if match.spec.remote_managed else "false"
    interface = present.parent_ifname(match.device)
    return {**tags, "parent_ifname": interface} if interface is not None else tags


@dataclass(frozen=True, slots=True)
class PciSettings:
    """The options for PCI devices."""

    specs: tuple[DeviceSpec, ...] = ()
    aliases: Aliases = field(default_factory=dict)
    report: bool = False
    """Whether devices become providers in Placement."""
    warnings: tuple[str, ...] = ()
    """Settings that may be mistakes, a line each."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the settings of the options.

        :raises ConfigErrors: all options that are wrong on any host.
        """
        report = conf.pci.report_in_placement
        specs, errors = device_specs(conf.pci.device_spec, report=report)
        named, more = aliases(conf.pci.alias, report=report)
        ConfigErrors.raise_if_any([*errors, *more])
        empty = (
            empty_keys(OPTION, conf.pci.device_spec, lists=True, meant=("physical_network",)),
            empty_keys(ALIAS, conf.pci.alias, lists=False),
        )
        return cls(specs, named, report, tuple(line for lines in empty for line in lines))

    def rows(
        self, node: ProviderUuid, devices: Sequence[PciDevice] | None
    ) -> tuple[DeviceRecord, ...] | None:
        """Return the records of the node's ``devices``, all free; None if these are not known,
        which is not the same as none.
        """
        if devices is None:
            return None
        return tuple(device_rows(node, PresentDevices.of(devices), self.specs))

    def remote_managed(self, devices: Sequence[PciDevice] | None) -> bool | None:
        """Return whether any function is offered that another processor programs, in use or not;
        None if the node's ``devices`` are not known.
        """
        if devices is None:
            return None
        return any(
            match.spec.remote_managed
            for match in match_devices(PresentDevices.of(devices), self.specs)
        )

    def misfits(self, devices: Sequence[PciDevice] | None) -> Iterable[ConfigError]:
        """Yield the contradictions between the settings and the node's ``devices``; none if these
        are not known.
        """
        return () if devices is None else misfits(self.specs, PresentDevices.of(devices))
