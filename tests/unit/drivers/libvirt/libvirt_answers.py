"""What a libvirtd answers, made for tests: a host with most of what can be odd, and
nothing wrong.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.model.facts import DomainState, HostFacts
from drivers.libvirt.facts import facts_of
from drivers.libvirt.raw_capabilities import DeviceAnswer, DomainAnswer, RawCapabilities

FIXTURES = Path(__file__).parent / "xml"

ONLINE = frozenset({0, 1, 2, 3, 4, 5, 8})
MDEV = "c6e54b2d-9a0f-4d0e-8a4c-2f3e4d5c6b7a"
VPD = (
    "<capability type='vpd'><name>Card</name><fields "
    "access='readonly'><serial_number>{}</serial_number></fields></capability>"
)


def fixture(name: str) -> str:
    """The text of one of the XML files that were written for the tests."""
    return (FIXTURES / name).read_text(encoding="utf-8")


def node_name(address: str) -> str:
    """What libvirt calls a PCI function."""
    return "pci_" + address.replace(":", "_").replace(".", "_")


def pci(
    address: str,
    ids: str = "8086:1572",
    parent: str = "computer",
    more: str = "",
    driver: str = "",
    class_code: str = "0x020000",
    cell: int | None = None,
) -> DeviceAnswer:
    """A PCI function; ``more``: XML within its capability."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    vendor, product = ids.split(":")
    numa = "" if cell is None else f"<numa node='{cell}'/>"
    return DeviceAnswer(
        node_name(address),
        parent,
        f"<device><name>{node_name(address)}</name><parent>{parent}</parent>{f'<driver><name>{driver}</name></driver>' if driver else ''}<capability "
        f"type='pci'><class>{class_code}</class><domain>{int(domain, 16)}</domain><bus>{int(bus, 16)}</bus><slot>{int(slot, 16)}</slot><function>{int(function, 16)}</function><product "
        f"id='0x{product}'>A &amp; B</product><vendor "
        f"id='0x{vendor}'/>{more}{numa}</capability></device>",
    )


def address_xml(address: str) -> str:
    """An ``<address>`` with attributes."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    return f"<address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/>"


def physical(address: str, most: int, *functions: str, **more: Any) -> DeviceAnswer:
    """A PF with those VFs."""
    return pci(
        address,
        more=(
            "<capability type='virt_functions' "
            f"maxCount='{most}'>{''.join(map(address_xml, functions))}</capability>"
        ),
        **more,
    )


def virtual(address: str, of: str, **more: Any) -> DeviceAnswer:
    """A VF."""
    return pci(
        address,
        **{"ids": "8086:154c", **more},
        more=f"<capability type='phys_function'>{address_xml(of)}</capability>",
    )


def net(
    name: str, of: str, mac: str = "3c:fd:fe:00:00:01", state: str = "down", features: str = ""
) -> DeviceAnswer:
    """A network interface of a PCI function."""
    parent = node_name(of)
    offload = "".join(f"<feature name='{one}'/>" for one in features.split())
    return DeviceAnswer(
        f"net_{name}_{mac.replace(':', '_')}",
        parent,
        f"<device><name>net</name><parent>{parent}</parent><capability "
        f"type='net'><interface>{name}</interface><address>{mac}</address>"
        f"<link state='{state}'/>{offload}<capability type='80203'/></capability></device>",
    )


def vdpa(number: int, of: str) -> DeviceAnswer:
    """A vDPA device of a VF."""
    return DeviceAnswer(
        f"vdpa_vdpa{number}",
        node_name(of),
        (
            f"<device><name>vdpa_vdpa{number}</name><capability "
            f"type='vdpa'><chardev>/dev/vhost-vdpa-{number}</chardev></capability></device>"
        ),
    )


def cuttable(address: str, **available: int) -> DeviceAnswer:
    """A PCI function that can be cut into mediated devices: of each type so many more (an
    underscore stands for a dash).
    """
    types = "".join(
        (
            "<type "
            f"id='{name.replace('_', '-')}'><name>T</name><deviceAPI>vfio-pci</deviceAPI><availableInstances>{count}</availableInstances></type>"
        )
        for name, count in available.items()
    )
    return pci(
        address,
        "10de:1eb8",
        class_code="0x030200",
        more=f"<capability type='mdev_types'>{types}</capability>",
        cell=0,
    )


def mdev(
    uuid: str, mdev_type: str, of: str | None = None, parent: str = "computer", path: str = ""
) -> DeviceAnswer:
    """A mediated device of a PCI function, or of something else; called as newer libvirts do where
    the function is given.
    """
    name = f"mdev_{uuid.replace('-', '_')}" + (
        f"_{node_name(of).removeprefix('pci_')}" if of else ""
    )
    where = f"<path>{path}</path>" if path else ""
    return DeviceAnswer(
        name,
        node_name(of) if of else parent,
        (
            f"<device><name>{name}</name>{where}<capability type='mdev'><type "
            f"id='{mdev_type}'/><iommuGroup number='1'/></capability></device>"
        ),
    )


PF, VF_0, VF_1, BRIDGE, WIDE, GPU = (
    "0000:3b:00.0",
    "0000:3b:02.0",
    "0000:3b:02.1",
    "0000:00:1f.0",
    "10000:00:04.0",
    "0000:06:00.0",
)
DEVICES = (
    DeviceAnswer(
        "computer",
        None,
        (
            "<device><name>computer</name><capability "
            "type='system'><product>P</product></capability></device>"
        ),
    ),
    pci(BRIDGE, "8086:a1c1", class_code="0x060100"),
    physical(PF, 4, VF_0, VF_1, cell=0, driver="i40e"),
    virtual(VF_0, PF, cell=0, driver="vfio-pci"),
    virtual(VF_1, PF, cell=0),
    pci(WIDE, "1af4:1001", class_code="0x010000", driver="virtio-pci"),
    cuttable(GPU, nvidia_35=14),
    net("ens4f0", PF, state="up", features="tso gso"),
    net("ens4f0v1", VF_1, "3c:fd:fe:00:00:02", features="tso gso"),
    vdpa(0, VF_1),
    mdev(MDEV, "nvidia-35", GPU),
    mdev("0f6c3d4e-5f60-4718-92a3-b4c5d6e7f809", "nvidia-35", GPU),
)


def domain(
    name: str, state: DomainState = "running", xml: str | None = None, uuid: str | None = None
) -> DomainAnswer:
    """A guest, from the fixture of that name if no XML is given."""
    text = fixture(f"{name}.xml") if xml is None else xml
    return DomainAnswer(
        uuid or text.partition("<uuid>")[2].partition("</uuid>")[0], name, state, text
    )


def answers(**changes: Any) -> RawCapabilities:
    """All of it; ``changes`` are fields of :class:`Answers`."""
    whole = RawCapabilities(
        libvirt_version=10_000_000,
        hypervisor_version=8_002_000,
        hypervisor_type="QEMU",
        info=("x86_64", 31913, 7, 2500, 1, 1, 4, 2),
        online=ONLINE,
        capabilities=fixture("capabilities.xml"),
        expanded=(
            (
                "<cpu><model fallback='allow'>Cascadelake-Server</model><feature policy='require' "
                "name='vmx'/><feature name='avx2'/></cpu>"
            ),
        ),
        domain_capabilities={("x86_64", "q35"): fixture("emulator.xml")},
        devices=DEVICES,
        domains=(domain("pinned_guest"), domain("floating_guest", "paused")),
        disk_gib=439,
    )
    return replace(whole, **changes)


def facts(
    told: RawCapabilities,
    *cpu_flags: str,
    vtpm: bool = True,
    file_backed_memory_mib: int = 0,
    **more: Any,
) -> HostFacts:
    """What comes of the answers."""
    return facts_of(
        told,
        "compute-1",
        1000.0,
        cpu_flags=cpu_flags,
        vtpm=vtpm,
        tpm_secrets=(),
        file_backed_memory_mib=file_backed_memory_mib,
        **more,
    )
