"""Whether the objects of ``device_spec`` that say ``remote_managed`` fit the cards that are there."""

from collections.abc import Iterable, Iterator

from agent.errors import ConfigError
from agent.model.devices import PciDevice
from agent.model.names import printable
from agent.pci.device_spec import OPTION, DeviceSpec
from agent.pci.matching import meant
from agent.pci.present_devices import PresentDevices


def misfits(specs: Iterable[DeviceSpec], present: PresentDevices) -> Iterator[ConfigError]:
    """Every object that says it of a PF, or of what is not there. One for several addresses is not checked."""
    for spec in specs:
        if not spec.remote_managed:
            continue
        if spec.devname is not None and spec.devname not in present.by_netdev:
            what = f"remote_managed of devname {printable(spec.devname)}, which the host does not have"
            yield _error(spec, what, f"interfaces: {', '.join(sorted(map(printable, present.by_netdev))) or 'none'}")
            continue
        single = meant(spec, present)
        device = present.by_address.get(single) if single is not None else None
        if device is not None and device.is_physical_function:
            yield from _of_physical_function(spec, device, present)


def _of_physical_function(spec: DeviceSpec, device: PciDevice, present: PresentDevices) -> Iterator[ConfigError]:
    virtual = _virtual_product_id(device, present)
    own_vendor = spec.vendor_id in (None, device.vendor_id)
    # Of a PF that tells nothing of its VFs, and has none now, any product but its own may be theirs.
    fitting = spec.product_id == virtual if virtual is not None else spec.product_id != device.product_id
    if own_vendor and spec.product_id is not None and fitting:
        return
    remedy = f"give vendor_id {device.vendor_id} and the product_id of its virtual functions{f', {virtual}' if virtual else ''}"
    if own_vendor and spec.product_id in (None, device.product_id):
        yield _error(spec, f"{device.address} is a physical function, which cannot be remote managed", remedy)
    else:
        ids = f"{spec.vendor_id or '*'}:{spec.product_id}" if spec.product_id is not None else f"{spec.vendor_id}:*"
        yield _error(spec, f"{ids} does not fit the virtual functions of {device.address}, {device.vendor_id}:{virtual or '*'}", remedy)


def _virtual_product_id(device: PciDevice, present: PresentDevices) -> str | None:
    """What a PF's VFs are: as it says itself, or as the first of them shows."""
    children = present.children.get(device.address, ())
    return device.virtual_function_product_id or (children[0].product_id if children else None)


def _error(spec: DeviceSpec, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"{OPTION} {spec.place}: {what}", remedy, option=OPTION, place=spec.place, key="remote_managed")
