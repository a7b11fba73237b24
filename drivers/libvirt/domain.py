"""The guests as libvirt shows them, with the origin that nova wrote into their metadata, and the
host devices that their XML names, directly or behind an interface.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.errors import DriverError
from agent.model.devices import AssignableUnit, PciAddress
from agent.model.facts import Domain, Origin, Topology
from agent.model.instance import (
    LONGEST_NAME,
    LONGEST_SPEC,
    MOST_DISK_GIB,
    MOST_MEMORY_MIB,
    MOST_SPECS,
    MOST_VCPUS,
    Flavor,
)
from agent.model.names import ConsumerUuid, is_uuid, normal_uuid, number_of
from drivers.libvirt.guest_cells import placed_cells, ram_mib
from drivers.libvirt.pci import address_of
from drivers.libvirt.raw_capabilities import DomainAnswer, NodeDevice, NodeDeviceList
from drivers.libvirt.xml import (
    Element,
    child,
    fault,
    natural,
    parse,
    pci_address,
    read_each,
    text_of,
)

_BY_ADDRESS = (
    "hostdev[@type='pci']/source/address",
    "interface[@type='hostdev']/source/address",
    "disk[@type='nvme']/source/address",
)


@dataclass(frozen=True, slots=True)
class FunctionAliases:
    """Virtual functions by the other names under which guests use them."""

    interfaces: Mapping[str, PciAddress] = field(default_factory=dict)
    """By the name of the interface."""
    vdpa: Mapping[str, PciAddress] = field(default_factory=dict)
    """By the path of the vDPA device."""
    known: bool = True
    """Whether the host's devices could be listed."""


def function_aliases(devices: NodeDeviceList) -> FunctionAliases:
    """Return which interface or vDPA device leads to which virtual function. A function that cannot
    be parsed is left out: it is a fault of the PCI section.
    """
    addresses = {
        name: address
        for name, device in devices.by_name.items()
        if (address := _virtual_function(device)) is not None
    }

    def below(kind: str, element: str) -> Iterator[tuple[str, PciAddress]]:
        for device in devices.of_kind(kind):
            name = text_of(device.capability, element)
            if name and device.parent in addresses:
                yield name, addresses[device.parent]

    return FunctionAliases(dict(below("net", "interface")), dict(below("vdpa", "chardev")))


def _virtual_function(device: NodeDevice) -> PciAddress | None:
    if device.kind != "pci" or device.capability.find("capability[@type='phys_function']") is None:
        return None
    try:
        return address_of(device)
    except DriverError:
        return None


def pci_devices_of(domain: Element, aliases: FunctionAliases, what: str) -> tuple[PciAddress, ...]:
    """Return the PCI functions of a guest, ordered by address.

    :raises DriverError: an address is garbled.
    """
    devices = domain.find("devices")
    if devices is None:
        return ()
    named = {
        pci_address(address.get, f"{what}: host device")
        for path in _BY_ADDRESS
        for address in devices.findall(path)
    }
    behind = _behind_interfaces(devices.findall("interface"), aliases, what)
    return tuple(sorted(named | set(behind)))


def _behind_interfaces(
    interfaces: Iterable[Element], aliases: FunctionAliases, what: str
) -> Iterator[PciAddress]:
    """Yield the functions behind interfaces. An interface that is passed through as a whole takes
    its function with it; a shared one does not.

    :raises DriverError: the host's devices are not known.
    """
    for interface in interfaces:
        source = interface.find("source")
        if source is None:
            continue
        kind, name = interface.get("type"), source.get("dev", "")
        if not aliases.known and (kind == "vdpa" or source.get("mode") == "passthrough"):
            raise fault(
                what, f"the device of its interface {name[:40]!r} is unknown, as all of the host's"
            )
        if kind == "direct" and source.get("mode") == "passthrough" and name in aliases.interfaces:
            yield aliases.interfaces[name]
        elif kind == "vdpa" and name in aliases.vdpa:
            yield aliases.vdpa[name]


def mediated_devices_of(domain: Element, what: str) -> tuple[str, ...]:
    """Return the uuids of the mediated devices of a guest.

    :raises DriverError: one is no uuid.
    """
    uuids = [
        address.get("uuid", "")
        for address in domain.findall("devices/hostdev[@type='mdev']/source/address")
    ]
    for uuid in uuids:
        if not is_uuid(uuid):
            raise fault(what, f"{uuid[:40]!r} of a mediated device is no uuid")
    return tuple(sorted({normal_uuid(uuid) for uuid in uuids}))


def units_of(
    domain: Element, namespaces: Mapping[str, AssignableUnit]
) -> tuple[AssignableUnit, ...]:
    """Return the namespaces of persistent memory that a guest has. ``namespaces``: those that the
    operator offers, by the path of their device; nobody else gets another one.
    """
    paths = (path.text or "" for path in domain.findall("devices/memory/source/path"))
    return tuple(namespaces[path] for path in paths if path in namespaces)


_TPM_MODELS = ("tpm-tis", "tpm-crb")


def image_properties_of(domain: Element) -> Mapping[str, str]:
    """Return the image properties that ask for the guest's emulated TPM; none without one."""
    tpm = domain.find("devices/tpm")
    backend = None if tpm is None else tpm.find("backend[@type='emulator']")
    if tpm is None or backend is None:
        return {}
    model, version = tpm.get("model", ""), backend.get("version", "")
    return ({"hw_tpm_version": version} if version in ("1.2", "2.0") else {}) | (
        {"hw_tpm_model": model} if model in _TPM_MODELS else {}
    )


# The version follows: 1.0 in older novas, 1.1 in newer ones.
_NAMESPACE = "{http://openstack.org/xmlns/libvirt/nova/"


def origin_of(domain: Element, what: str) -> Origin | None:
    """Return the flavor, project and user that nova wrote down; None if one is missing.

    :raises DriverError: the metadata are garbled.
    """
    instance = next(
        (
            element
            for element in domain.iterfind("metadata/*")
            if element.tag.startswith(_NAMESPACE) and element.tag.endswith("}instance")
        ),
        None,
    )
    if instance is None:
        return None
    space = {"nova": instance.tag[1:].partition("}")[0]}
    flavor, project, user = (
        instance.find(path, space)
        for path in ("nova:flavor", "nova:owner/nova:project", "nova:owner/nova:user")
    )
    if flavor is None or project is None or user is None:
        return None
    root = instance.find("nova:root", space)
    return Origin(
        flavor=_flavor(flavor, space, f"{what}: flavor in the metadata"),
        project_id=_name(project.get("uuid"), f"{what}: project in the metadata"),
        user_id=_name(user.get("uuid"), f"{what}: user in the metadata"),
        volume_backed=root is None
        or root.get("type") != "image"
        or not root.get("uuid")
        or _boots_from_volume(domain),
        # nova writes the element also for a flavor without any.
        specs_known=flavor.find("nova:extraSpecs", space) is not None,
    )


def _boots_from_volume(domain: Element) -> bool:
    """Return whether the first disk is a volume: nova names the image of a server beside a root
    volume too, if it was created with both. Only volumes have a serial number, their own uuid.
    """
    disks = {
        target.get("dev", ""): disk
        for disk in domain.findall("devices/disk")
        if disk.get("device", "disk") in ("disk", "lun")
        and (target := disk.find("target")) is not None
    }
    if not disks:
        return False
    first = min(disks, key=lambda name: (len(name), name[-1:], name))
    return is_uuid(disks[first].findtext("serial", ""))


def _flavor(element: Element, space: dict[str, str], what: str) -> Flavor:
    """Parse the flavor in nova's metadata, with the bounds that the local API has: a guest of more
    would take all memory of the agent.

    :raises DriverError: a part of it is missing, garbled, or beyond its bound.
    """
    name = _name(element.get("name"), what)
    specs = element.findall("nova:extraSpecs/nova:extraSpec", space)
    if len(specs) > MOST_SPECS:
        raise fault(what, f"it has {number_of(len(specs), 'extra spec')}, more than {MOST_SPECS}")

    def amount(field: str, most: int) -> int:
        found = element.find(f"nova:{field}", space)
        return 0 if found is None else natural(found.text, f"{what}: {field}", most)

    vcpus, memory = (
        natural(child(element, f"{{{space['nova']}}}{field}", what).text, f"{what}: {field}", most)
        for field, most in (("vcpus", MOST_VCPUS), ("memory", MOST_MEMORY_MIB))
    )
    if not vcpus:
        raise fault(what, "it has no CPUs")
    return Flavor(
        # Older novas write only the name, which identifies flavors as well.
        id=_name(element.get("id") or name, f"{what}: id"),
        name=name,
        vcpus=vcpus,
        memory_mb=memory,
        root_gb=amount("disk", MOST_DISK_GIB),
        ephemeral_gb=amount("ephemeral", MOST_DISK_GIB),
        swap_mb=amount("swap", MOST_MEMORY_MIB),
        extra_specs={
            _name(spec.get("name"), f"{what}: extra spec"): _value(spec.text or "", what)
            for spec in specs
            if spec.get("name")
        },
    )


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _name(text: str | None, what: str) -> str:
    """Return a name or id of nova.

    :raises DriverError: it is missing, too long, or has control characters.
    """
    if not text:
        raise fault(what, "it has no name")
    if len(text) > LONGEST_NAME:
        raise fault(what, f"{text[:40]!r} has {len(text)} characters, more than {LONGEST_NAME}")
    if _CONTROL.search(text):
        raise fault(what, f"{text[:40]!r} has control characters")
    return text


def _value(text: str, what: str) -> str:
    """Return the value of an extra spec.

    :raises DriverError: it is too long.
    """
    if len(text) > LONGEST_SPEC:
        raise fault(what, f"an extra spec has {len(text)} characters, more than {LONGEST_SPEC}")
    return text.strip()


EMULATOR_POLICY = "hw:emulator_threads_policy"


@dataclass(frozen=True, slots=True)
class Domains:
    """All guests that could be parsed, ordered by uuid."""

    value: tuple[Domain, ...]
    owners: Mapping[str, ConsumerUuid]
    """The guest of each mediated device, by the device's uuid."""
    faults: tuple[str, ...] = ()


def read_domains(
    answers: Iterable[DomainAnswer],
    aliases: FunctionAliases,
    topology: Topology | None,
    units: Iterable[AssignableUnit] = (),
) -> Domains:
    """Parse all guests. A guest that cannot be parsed becomes a fault; the others stay. ``units``:
    the namespaces of persistent memory.
    """
    namespaces = {f"/dev/{unit.metadata['device']}": unit for unit in units}
    faults: list[str] = []
    found = read_each(
        answers,
        lambda answer: _domain(answer, aliases, topology, namespaces),
        lambda guest: guest[0].uuid,
        faults,
        lambda answer, _uuid: fault(f"guest {answer.name}", f"another has its uuid {answer.uuid}"),
    )
    in_order = [found[uuid] for uuid in sorted(found)]
    # Stopped guests first, because a stopped guest may name a device that another guest has now.
    by_claim = sorted(in_order, key=lambda guest: guest[0].state != "stopped")
    owners = {mdev: domain.uuid for domain, mdevs in by_claim for mdev in mdevs}
    return Domains(tuple(domain for domain, _ in in_order), owners, tuple(faults))


def _domain(
    answer: DomainAnswer,
    aliases: FunctionAliases,
    topology: Topology | None,
    namespaces: Mapping[str, AssignableUnit],
) -> tuple[Domain, tuple[str, ...]]:
    """Parse one guest, and the uuids of its mediated devices. What another program wrote into its
    metadata may be garbled, and is no part of what the guest has.

    :raises DriverError: another part of its XML is missing or garbled.
    """
    what = f"guest {answer.name}"
    if not is_uuid(answer.uuid):
        raise fault(what, f"{answer.uuid[:40]!r} is no uuid")
    root = parse(answer.xml, what, "domain")
    vcpu = root.find("vcpu")
    origin, unreadable = None, None
    try:
        origin = origin_of(root, what)
    except DriverError as error:
        unreadable = error.message
    policy = origin.flavor.extra_specs.get(EMULATOR_POLICY) if origin is not None else None
    domain = Domain(
        uuid=ConsumerUuid(normal_uuid(answer.uuid)),
        name=answer.name,
        memory_mib=ram_mib(root, what),
        vcpus=None if vcpu is None else natural(vcpu.text, f"{what}: vcpu", MOST_VCPUS),
        state=answer.state,
        cells=placed_cells(root, topology, policy, what),
        devices=pci_devices_of(root, aliases, what),
        units=units_of(root, namespaces),
        image_properties=image_properties_of(root),
        origin=origin,
        unreadable_origin=unreadable,
    )
    return domain, mediated_devices_of(root, what)
