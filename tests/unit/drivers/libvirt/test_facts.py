"""The facts of a host from all that libvirt said: what is believed, and what is not complete."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.errors import DriverError
from agent.model.devices import PciDevice
from agent.model.facts import Cell, CpuFacts, PagePool, Topology
from drivers.libvirt.capabilities import (
    CORES_FILE,
    add_sleeping_cpus,
    read_capabilities,
    read_topology,
    write_topology,
)
from drivers.libvirt.domain_capabilities import Sev, read_emulators
from drivers.libvirt.pci import read_mdevs, read_pci
from drivers.libvirt.raw_capabilities import (
    DeviceAnswer,
    KernelAnswer,
    KernelCpus,
    read_node_devices,
)
from drivers.libvirt.traits import emulator_traits
from tests.support.recordings import ABSENT, HOSTS, of_each
from tests.unit.drivers.libvirt.libvirt_answers import (
    DEVICES,
    ONLINE,
    answers,
    domain,
    facts,
    fixture,
    pci,
)

OWNER = "7b1d5f0e-2a52-4c36-9be0-0d5a9f6a9e01"
BROKEN = DeviceAnswer("pci_0000_07_00_0", "computer", "<device><capability type='pci'>")


def test_what_a_host_has():
    found = facts(answers())
    assert (found.name, found.taken_at, found.hypervisor_type, found.hypervisor_version) == (
        "compute-1",
        1000.0,
        "QEMU",
        8_002_000,
    )
    assert (found.memory_mib, found.disk_gib) == (31913, 439)
    assert found.cpu == CpuFacts(
        ONLINE, "x86_64", "Cascadelake-Server", "Intel", frozenset({"vmx", "avx2"})
    )
    assert [
        len(part or ()) for part in (found.numa.cells, found.pci, found.mdev, found.domains)
    ] == [4, 6, 1, 2]
    assert found.incomplete == {}


def test_encryption_by_kernel_and_domain_capabilities():
    found = facts(answers(kernel=KernelAnswer({"sev": "Y", "sev_es": "Y", "sev_snp": "N"})))
    assert found.encryption.contexts == {"sev": 15, "sev_es": 100}


def test_backend_that_cannot_tell_tells_nothing():
    found = facts(
        answers(
            hypervisor_type="TEST",
            expanded=(),
            domain_capabilities={},
            devices=None,
            domains=None,
            capabilities=fixture("capabilities.xml"),
        )
    )
    assert (found.pci, found.mdev, found.domains, found.encryption) == (None, None, None, None)
    assert found.incomplete == {}
    assert not [name for name, has in found.traits.items() if has and name.startswith("COMPUTE_")]
    assert "HW_CPU_X86_AVX2" not in found.traits
    assert found.traits["HW_CPU_X86_VMX"] is True


NO_CELLS = "<capabilities><host><cpu><arch>x86_64</arch></cpu></host></capabilities>"


def test_a_host_of_which_no_cell_is_listed_is_one_with_what_the_kernel_says_of_its_cores():
    kernel = KernelCpus(
        siblings={0: "0,4", 4: "0,4", 1: "1,4", 2: "x", 3: "3,6"},
        packages={0: "0", 3: "-1", 7: "9"},
        memory_mib=5000,
    )
    found = facts(
        answers(capabilities=NO_CELLS, kernel_cpus=kernel, info=("x86_64", 0, 7, 0, 0, 0, 0, 0))
    )
    assert (found.incomplete, found.memory_mib, found.traits["HW_CPU_HYPERTHREADING"]) == (
        {},
        5000,
        True,
    )
    assert found.numa == Topology(
        (
            Cell(
                0,
                ONLINE,
                5000,
                distances={0: 10},
                siblings=tuple(map(frozenset, ({0, 4}, {1}, {2}, {3}, {5}, {8}))),
                sockets=frozenset({0}),
            ),
        )
    )
    assert facts(answers(capabilities=NO_CELLS, hypervisor_type="TEST")).numa is None


def test_what_could_not_be_asked_is_incomplete():
    asked = {
        section: (f"{section} hangs",) for section in ("disk", "pci", "mdev", "domains", "traits")
    }
    found = facts(
        answers(
            devices=None,
            domains=None,
            disk_gib=None,
            domain_capabilities={},
            expanded=(),
            faults=asked,
        )
    )
    assert {section: found.incomplete[section] for section in asked} == {
        section: f"{section} hangs" for section in asked
    }
    # Without domain capabilities nobody knows how many contexts libvirt has.
    assert set(found.incomplete) == {*asked, "encryption"}
    assert all(found.traits.values())


@pytest.mark.parametrize(
    ("changes", "sections"),
    [
        ({"capabilities": "<capabilities><host>"}, {"cpu", "numa", "traits"}),
        (
            {"capabilities": fixture("capabilities.xml").replace("8388608", "much")},
            {"numa", "traits"},
        ),
        ({"online": frozenset()}, {"cpu", "numa", "traits"}),
        ({"info": ("x", 0, 0, 0, 0, 0, 0, 0)}, {"memory"}),
        ({"expanded": ("<cpu>",)}, {"traits"}),
        ({"domain_capabilities": {("x86_64", "pc"): "<"}}, {"traits", "encryption"}),
        ({"kernel": KernelAnswer({"sev": "?"})}, {"encryption"}),
        ({"devices": (*DEVICES, BROKEN)}, {"pci", "mdev"}),
        (
            {
                "devices": (
                    *DEVICES,
                    replace(pci("0000:07:00.0"), xml=pci("0000:07:00.0").xml.replace("0x8086", "")),
                )
            },
            {"pci"},
        ),
        ({"devices": (*DEVICES, replace(BROKEN, name="net_eth9_1"))}, {"pci"}),
        ({"devices": (*DEVICES, replace(BROKEN, name="mdev_1"))}, {"mdev"}),
        (
            {"domains": (domain("pinned_guest"), domain("bad", xml="<domain>", uuid=OWNER))},
            {"domains"},
        ),
    ],
    ids=(
        "capabilities",
        "one-cell",
        "no-cpu",
        "no-memory",
        "features",
        "domain-capabilities",
        "kernel",
        "device",
        "function",
        "interface",
        "mdev",
        "guest",
    ),
)
def test_one_thing_that_cannot_be_understood_makes_its_section_incomplete_and_no_other(
    changes, sections
):
    whole, found = facts(answers()), facts(answers(**changes))
    assert set(found.incomplete) == sections
    for section, part in (
        ("memory", "memory_mib"),
        ("numa", "numa"),
        ("pci", "pci"),
        ("mdev", "mdev"),
        ("traits", "traits"),
    ):
        if section not in sections and "domains" not in sections:
            assert getattr(found, part) == getattr(whole, part)


def test_where_traits_are_incomplete_only_those_are_told_that_are_there():
    traits = facts(
        answers(
            domain_capabilities={("x86_64", "pc"): "<", ("x86_64", "q35"): fixture("emulator.xml")}
        )
    ).traits
    assert traits["COMPUTE_STORAGE_BUS_VIRTIO"] is True
    assert set(traits.values()) == {True}


def test_many_faults_are_one_line():
    bad = tuple(replace(BROKEN, name=f"pci_0000_07_00_{n}") for n in range(7))
    assert facts(answers(devices=(*DEVICES, *bad))).incomplete["pci"].endswith("; and 4 more")


def test_kernel_that_tells_libvirt_neither_memory_nor_cpus_is_asked_by_its_cells():
    found = facts(answers(info=None, online=None))
    # Those of which the capabilities say where they are.
    assert found.cpu.online == ONLINE
    assert found.numa == facts(answers()).numa
    assert found.memory_mib == found.numa.memory_mib == 4095 + 8192 + 2048
    assert found.incomplete == {}


def test_where_the_cells_tell_and_one_of_them_is_garbled_nobody_knows_the_memory():
    found = facts(
        answers(
            info=None,
            online=None,
            capabilities=fixture("capabilities.xml").replace("8388608", "much"),
        )
    )
    assert set(found.incomplete) == {"memory", "numa", "traits"}
    assert found.cpu.online == ONLINE


# --- dedicated CPUs that sleep ---


ALL = frozenset(range(8))


def cores(*sets):
    return tuple(map(frozenset, sets))


AWAKE = Topology(
    (
        Cell(0, frozenset(range(4)), 1024, siblings=cores({0, 2}, {1, 3}), sockets=frozenset({0})),
        Cell(
            1, frozenset(range(4, 8)), 1024, siblings=cores({4, 6}, {5, 7}), sockets=frozenset({1})
        ),
    )
)


def seen(*sleeping: int) -> Topology:
    """What libvirt tells of the same host while these sleep."""
    gone = frozenset(sleeping)
    return Topology(
        tuple(
            Cell(
                one.id,
                one.cpus - gone,
                one.memory_mib,
                siblings=tuple(core - gone for core in one.siblings if core - gone),
                sockets=one.sockets if one.cpus - gone else frozenset(),
            )
            for one in AWAKE.cells
        )
    )


def test_what_was_never_seen_awake_is_on_the_cell_that_the_kernel_tells_and_a_core_of_its_own():
    first, second = add_sleeping_cpus(
        seen(3, 5), ALL - {3, 5}, frozenset({3, 5}), {3: 0}, None
    ).cells
    assert (first.cpus, first.siblings) == (frozenset(range(4)), cores({0, 2}, {1}, {3}))
    # Nobody knows where 5 is.
    assert (second.cpus, second.siblings) == (frozenset({4, 6, 7}), cores({4, 6}, {7}))


def test_cores_are_learned_as_cpus_wake_up_in_turn():
    only_two = add_sleeping_cpus(
        seen(0, 1, 3), ALL - {0, 1, 3}, frozenset({0, 1, 3}), {0: 0, 1: 0, 3: 0}, None
    )
    assert only_two.cells[0].siblings == cores({0}, {1}, {2}, {3})
    with_zero = add_sleeping_cpus(
        seen(1, 3), ALL - {1, 3}, frozenset({1, 3}), {1: 0, 3: 0}, only_two
    )
    assert with_zero.cells[0].siblings == cores({0, 2}, {1}, {3})
    assert add_sleeping_cpus(seen(), ALL, frozenset(), {}, with_zero) == AWAKE


def test_a_core_that_is_another_one_now_is_forgotten():
    now = Topology(
        (Cell(0, frozenset({0, 1, 2}), 1024, siblings=cores({0, 1}, {2})), AWAKE.cells[1])
    )
    (cell, _) = add_sleeping_cpus(
        now,
        ALL - {3},
        frozenset({3}),
        {3: 0},
        Topology((Cell(0, frozenset(range(4)), 0, siblings=cores({0, 3}, {1, 2})),)),
    ).cells
    assert cell.siblings == cores({0, 1}, {2}, {3})


def test_a_thread_that_is_offline_for_good_is_in_no_core():
    assert add_sleeping_cpus(seen(2, 3), ALL - {2, 3}, frozenset({3}), {}, AWAKE).cells[
        0
    ].siblings == cores({0}, {1, 3})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"cells": [{}]}',
        '{"cells": 1}',
        '{"cells": [{"id": "x", "cpus": [], "siblings": [], "sockets": []}]}',
    ],
)
def test_what_cannot_be_used_of_a_memory_is_left_out(tmp_path, text):
    (tmp_path / CORES_FILE).write_text(text)
    assert read_topology(tmp_path) is None


def test_a_folder_that_cannot_be_written_loses_only_the_memory(tmp_path):
    write_topology(tmp_path / "nowhere", AWAKE)
    assert read_topology(tmp_path / "nowhere") is None


# --- the host's CPUs and NUMA cells from its capabilities ---


HOST = fixture("capabilities.xml")


def cells(xml: str, online: frozenset[int] = ONLINE):
    return read_capabilities(xml, online).topology


def one_cell(inside: str, online: frozenset[int] = frozenset({0, 1})):
    return cells(
        f"<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells>{inside}</cells></topology></host></capabilities>",
        online,
    )


def test_sparse_memory_only_and_memoryless_cells_are_all_there_with_their_offline_cpus():
    reading = cells(HOST)
    assert reading.faults == ()
    assert reading.value.cells == (
        Cell(
            0,
            frozenset(range(4)),
            4095,
            (PagePool(2048, 512), PagePool(1048576, 1)),
            {0: 10, 8: 20, 250: 80},
            (frozenset({0, 2}), frozenset({1, 3})),
            frozenset({0}),
        ),
        Cell(
            8,
            frozenset(range(4, 8)),
            8192,
            (PagePool(2048, 0),),
            {},
            (frozenset({4}), frozenset({5})),
            frozenset({1}),
        ),
        Cell(9, frozenset({8}), 0, (), {}, (frozenset({8}),)),
        Cell(250, frozenset(), 2048),
    )


def test_siblings_that_are_offline_do_not_count():
    assert cells(HOST, frozenset({0, 1, 3})).value.cells[0].siblings == (
        frozenset({0}),
        frozenset({1, 3}),
    )


def test_an_older_libvirt_tells_no_siblings_sockets_or_distances():
    reading = one_cell(
        "<cell id='0'><memory>1048576</memory><cpus><cpu id='0'/><cpu id='1'/></cpus></cell>"
    )
    assert reading.value.cells == (
        Cell(0, frozenset({0, 1}), 1024, siblings=(frozenset({0}), frozenset({1}))),
    )
    assert not reading.value.smt


@pytest.mark.parametrize(
    ("sizes", "pools"),
    [((64, 2048), [2048]), ((4, 64, 2048), [64, 2048]), ((2048,), [2048]), ((), [])],
)
def test_ordinary_pages_are_no_pool_whatever_their_size(sizes, pools):
    pages = "".join(f"<pages unit='KiB' size='{size}'>7</pages>" for size in sizes)
    assert [
        pool.size_kib for pool in one_cell(f"<cell id='0'>{pages}</cell>").value.cells[0].pages
    ] == pools


def test_host_without_cells_has_no_topology():
    assert one_cell("").value is None


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("<cell/>", "cell without id: nothing is not a number"),
        ("<cell id='-1'/>", "cell -1: -1 is negative"),
        ("<cell id='7'/>", "cell 7: listed twice"),
        (
            "<cell id='1'><memory unit='GiB'>1</memory></cell>",
            "cell 1: its memory is in 'GiB', not KiB",
        ),
        ("<cell id='1'><memory>much</memory></cell>", "cell 1: memory: 'much' is not a number"),
        ("<cell id='1'><pages size='x'>1</pages></cell>", "cell 1: pages: 'x' is not a number"),
        (
            "<cell id='1'><distances><sibling id='0'/></distances></cell>",
            "cell 1: distances: nothing is not a number",
        ),
        (
            "<cell id='1'><cpus><cpu id='0'/><cpu id='0'/></cpus></cell>",
            "cell 1: a CPU is listed twice",
        ),
        (
            "<cell id='1'><cpus><cpu id='0' siblings='1'/></cpus></cell>",
            "cell 1: the siblings of CPU 0 contradict those of another",
        ),
        (
            (
                "<cell id='1'><cpus><cpu id='0' siblings='0-1'/><cpu id='1' "
                "siblings='1'/></cpus></cell>"
            ),
            None,
        ),
        (
            (
                "<cell id='1'><cpus><cpu id='0' siblings='0'/><cpu id='1' "
                "siblings='0-1'/></cpus></cell>"
            ),
            "cell 1: the siblings of CPU 1 contradict",
        ),
        (
            "<cell id='1'><cpus><cpu id='0' siblings='0-99999'/></cpus></cell>",
            "cell 1: CPU 0: '0-99999' names more than libvirt knows",
        ),
        (
            "<cell id='1'><cpus><cpu id='0' socket_id='one'/></cpus></cell>",
            "cell 1: CPU 0: socket_id: 'one' is not a number",
        ),
    ],
    ids=range(13),
)
def test_cell_that_cannot_be_understood_is_set_aside_and_the_others_stay(cell, what):
    reading = one_cell(f"<cell id='7'><memory>2048</memory></cell>{cell}")
    assert Cell(7, frozenset(), 2) in reading.value.cells
    assert (len(reading.value.cells), len(reading.faults)) == ((1, 1) if what else (2, 0))
    assert all(fault.startswith(f"capabilities: {what}") for fault in reading.faults)


@pytest.mark.parametrize(
    ("xml", "what"),
    [
        ("<capabilities/>", "no <host>"),
        ("<capabilities><host/></capabilities>", "no architecture"),
        (HOST[:-40], "malformed XML"),
        ("<domain/>", "not 'capabilities'"),
    ],
    ids=("no-host", "no-arch", "cut-off", "another"),
)
def test_capabilities_that_cannot_be_understood_at_all(xml, what):
    with pytest.raises(DriverError, match=what):
        read_capabilities(xml, ONLINE)


# --- xML of real hosts, against the facts that another reader made of it (``facts.json``); it is not part of this tree ---


FACTS: Mapping[str, Mapping[str, Any]] = (
    json.loads((HOSTS / "facts.json").read_text()) if (HOSTS / "facts.json").exists() else {}
)


def of_kind(kind: str) -> Any:
    return pytest.mark.parametrize(
        "name", of_each(name for name, told in FACTS.items() if told["kind"] == kind)
    )


def text(name: str) -> str:
    return (HOSTS / name).read_text(encoding="utf-8")


def devices(name: str) -> list[DeviceAnswer]:
    root = ElementTree.fromstring(text(name))
    return [
        DeviceAnswer(
            one.findtext("name"),
            one.findtext("parent"),
            ElementTree.tostring(one, encoding="unicode"),
        )
        for one in (root.findall("device") if root.tag == "devices" else [root])
    ]


@of_kind("capabilities")
def test_capabilities(name):
    told = FACTS[name]
    online = frozenset(cpu for cell in told["per_cell"] for cpu in cell["cpus"])
    found = read_capabilities(text(name), online)
    assert found.architecture == "x86_64"
    topology = found.topology.value
    assert (found.topology.faults, topology.memory_mib, topology.smt) == (
        (),
        told["total_memory_mb"],
        told["smt"] > 1,
    )
    for cell, expected in zip(topology.cells, told["per_cell"], strict=True):
        assert (cell.id, sorted(cell.cpus), cell.memory_mib) == (
            expected["id"],
            expected["cpus"],
            expected["memory_mb"],
        )
        assert {str(pool.size_kib): pool.total for pool in cell.pages} == expected["hugepages"]
        assert {str(other): distance for other, distance in cell.distances.items()} == expected[
            "distances"
        ]
        assert sorted(cell.sockets) == expected["sockets"]
        # An older libvirt tells no siblings: then each CPU is a core.
        assert len(cell.siblings) == (expected["sibling_sets"] or len(cell.cpus))
        assert max(map(len, cell.siblings), default=0) == (
            expected["threads"] or min(len(cell.cpus), 1)
        )


@of_kind("devices")
def test_all_node_devices_of_a_host(name):
    told = FACTS[name]
    reading = read_pci(read_node_devices(devices(name)), {})
    assert (reading.faults, len(reading.value)) == ((), told["pci"])
    physical = {
        str(one.address): [one.max_virtual_functions, len(one.virtual_functions)]
        for one in reading.value
        if one.is_physical_function
    }
    assert physical == told.get("pfs", {})
    assert sum(one.is_virtual_function for one in reading.value) == told["vfs"]
    assert sorted({one.numa_node for one in reading.value} - {None}) == told["numa_nodes"]
    assert {f"0x{one.vendor_id}/0x{one.product_id}" for one in reading.value} == set(
        told["by_product"]
    )


@of_kind("device")
def test_one_node_device(name):
    told = FACTS[name]
    nodes = read_node_devices(devices(name))
    assert [one.kind for one in nodes.by_name.values()] == told["caps"]
    functions, parents = read_pci(nodes, {}), read_mdevs(nodes, {})
    assert functions.faults == ()
    assert [_told(one) for one in functions.value] == (
        [_expected(told)] if "pci" in told["caps"] else []
    )
    assert {
        key: count for one in parents.value or () for key, count in one.available.items()
    } == told.get("mdev_types", {})


def _told(device: PciDevice) -> tuple[Any, ...]:
    return (
        str(device.address),
        device.vendor_id,
        device.product_id,
        device.class_code,
        device.numa_node,
        device.is_physical_function,
        device.max_virtual_functions,
        [str(one) for one in device.virtual_functions],
        None if device.physical_function is None else str(device.physical_function),
        device.serial_number,
    )


def _expected(told: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        told["address"],
        told["vendor"].removeprefix("0x"),
        told["product"].removeprefix("0x"),
        int(told["class"], 16) if told.get("class") else None,
        told["numa_node"],
        told.get("is_pf", False),
        told.get("max_vfs", 0),
        told.get("vfs", []),
        told.get("pf"),
        told.get("vpd_serial"),
    )


@of_kind("domcaps")
def test_domain_capabilities(name):
    told = FACTS[name]
    reading = read_emulators({(told["arch"], told["machine"]): text(name)})
    [emulator] = reading.value
    assert (reading.faults, emulator.architecture) == ((), told["arch"])
    # The table of facts says nothing of the lists; these are by eye.
    encrypted = "amdsev" in name
    assert emulator.sev == (Sev(59, 450) if encrypted else None)
    assert emulator.launch_security == (frozenset({"sev", "sev-snp"}) if encrypted else frozenset())
    traits = emulator_traits(reading.value, 10_000_000, 7_002_000, vtpm=True)
    prefix = "COMPUTE_STORAGE_BUS_"
    assert {
        trait.removeprefix(prefix)
        for trait, has in traits.items()
        if has and trait.startswith(prefix)
    } == {"IDE", "FDC", "SCSI", "VIRTIO", "USB", "SATA"}
    assert traits["COMPUTE_SECURITY_TPM_2_0"]
    assert traits["COMPUTE_SECURITY_TPM_1_2"] is False


def test_recorded_mediated_device_without_a_parent_is_named():
    name = "libvirt/mdev_3627463d_b7f0_4fea_b468_f1da537d301b.xml"
    if name not in FACTS:
        pytest.skip(ABSENT)
    reading = read_mdevs(read_node_devices(devices(name)), {})
    assert reading.value == ()
    assert reading.faults[0].endswith(
        "its parent computer is not among the devices that can be cut"
    )
