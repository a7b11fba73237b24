"""The facts of a host from all that libvirt said: what is believed, and what is not complete."""

from dataclasses import replace

import pytest

from agent.model.facts import CpuFacts
from agent.model.topology import Cell, Topology
from drivers.libvirt.raw_capabilities import DeviceAnswer, KernelAnswer, KernelCpus
from tests.support.libvirt_answers import (
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
