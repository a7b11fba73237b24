"""The parents of mediated devices on the host, with their existing devices, and the techniques by
which the host can encrypt the memory of guests.
"""

from agent.errors import DriverError
from agent.model.facts import PartialRead
from agent.model.host_units import (
    CAPACITIES,
    SWITCHES,
    EncryptionFacts,
    Mdev,
    MdevParent,
    contexts,
    is_on,
    parent_name,
    parse_capacities,
)
from agent.model.names import is_uuid
from drivers.host.sysfs import Sysfs

FOLDER = "class/mdev_bus"


def read_parents(sysfs: Sysfs) -> PartialRead[tuple[MdevParent, ...] | None]:
    """Return all parents, ordered by name; None on a kernel without mediated devices. A parent that
    cannot be read becomes a fault; the others stay.
    """
    parents: list[MdevParent] = []
    faults: dict[str, str] = {}
    try:
        if not sysfs.is_folder(FOLDER):
            return PartialRead(None)
        for name in sysfs.names(FOLDER):
            try:
                parents.append(_parent(sysfs, name))
            except DriverError as error:
                faults[name] = error.message
        # A parent that was removed while it was read is no fault: the kernel no longer lists it.
        listed = sysfs.names(FOLDER) if faults else ()
    except DriverError as error:
        return PartialRead((), (error.message,))
    return PartialRead(
        tuple(parents), tuple(fault for name, fault in faults.items() if name in listed)
    )


def _parent(sysfs: Sysfs, name: str) -> MdevParent:
    """Read one parent with its types and devices.

    :raises DriverError: a file is missing, garbled or cannot be read.
    """
    folder = f"{FOLDER}/{name}"
    try:
        usual = parent_name(name)
    except ValueError as error:
        raise sysfs.fault(folder, str(error)) from error
    bus = sysfs.link_name(f"{folder}/subsystem")
    if bus is None:
        raise sysfs.fault(f"{folder}/subsystem", "no such link")
    types = sysfs.names(f"{folder}/mdev_supported_types")
    cell = sysfs.optional_integer(f"{folder}/numa_node")
    return MdevParent(
        name=usual,
        bus=bus,
        available={
            kind: sysfs.integer(f"{folder}/mdev_supported_types/{kind}/available_instances")
            for kind in types
        },
        mdevs=tuple(device for kind in types for device in _devices(sysfs, folder, kind)),
        # -1 is the kernel's word for "the firmware does not say".
        numa_node=None if cell is None or cell < 0 else cell,
    )


def _devices(sysfs: Sysfs, folder: str, mdev_type: str) -> list[Mdev]:
    """Return the devices of a type, without owners, which only a hypervisor knows."""
    return [
        Mdev(name.lower(), mdev_type)
        for name in sysfs.names(f"{folder}/mdev_supported_types/{mdev_type}/devices")
        if is_uuid(name)
    ]


def read_encryption(sysfs: Sysfs) -> PartialRead[EncryptionFacts | None]:
    """Return the techniques that are switched on, None if none is. The number of contexts is known
    only with the cgroup controller ``misc``.
    """
    try:
        on = [technique for technique, path in SWITCHES.items() if _is_on(sysfs, path)]
        capacities = _capacities(sysfs) if on else {}
    except DriverError as error:
        return PartialRead(None, (error.message,))
    return PartialRead(
        EncryptionFacts({technique: contexts(technique, capacities) for technique in on})
        if on
        else None
    )


def _is_on(sysfs: Sysfs, path: str) -> bool:
    try:
        return is_on(sysfs.optional_text(path))
    except ValueError as error:
        raise sysfs.fault(path, str(error)) from error


def _capacities(sysfs: Sysfs) -> dict[str, int] | None:
    for path in CAPACITIES:
        text = sysfs.optional_text(path)
        if text is not None:
            try:
                return parse_capacities(text)
            except ValueError as error:
                raise sysfs.fault(path, str(error)) from error
    return None
