"""What is asked of libvirt because of the capabilities."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from agent.errors import DriverError
from drivers.libvirt.raw_capabilities import EmulatedMachine, capability_queries
from drivers.libvirt.settings import LibvirtSettings
from tests.support.libvirt_host import libvirt_conf

GUEST = (
    "<guest><os_type>hvm</os_type><arch "
    "name='{arch}'><emulator>/usr/bin/qemu-{arch}</emulator>{machines}{domains}</arch></guest>"
)
MACHINES = (
    "<machine "
    "canonical='pc-7.2'>pc</machine><machine>pc-7.2</machine><machine>pc-5.0</machine><machine>q35</machine>"
)
CPU = "<cpu><arch>{arch}</arch>{model}<feature name='vmx'/></cpu>"


def capabilities(*guests, arch="x86_64", model="<model>Haswell</model>"):
    return f"<capabilities><host>{CPU.format(arch=arch, model=model)}</host>{''.join(guests)}</capabilities>"


def guest(arch, machines=MACHINES, domains=("qemu", "kvm")):
    return GUEST.format(
        arch=arch, machines=machines, domains="".join(f"<domain type='{one}'/>" for one in domains)
    )


def settings(**changes):
    return replace(LibvirtSettings.from_options(libvirt_conf("none", virt_type="kvm")), **changes)


def models(found):
    return [ElementTree.fromstring(one).findtext("model") for one in found.cpus]


def test_each_emulator_is_asked_for_its_default_and_the_canonical_machines():
    found = capability_queries(
        capabilities(guest("x86_64"), guest("aarch64", "<machine>virt</machine>", ("qemu",))),
        settings(virt_type="qemu"),
    )
    x86, arm = "/usr/bin/qemu-x86_64", "/usr/bin/qemu-aarch64"
    assert found.machines == (
        EmulatedMachine("x86_64", x86, None),
        EmulatedMachine("x86_64", x86, "pc"),
        EmulatedMachine("x86_64", x86, "q35"),
        EmulatedMachine("aarch64", arm, None),
    )


@pytest.mark.parametrize("more", [{"arch": "aarch64"}, {"model": ""}], ids=["aarch64", "unknown"])
def test_a_cpu_that_cannot_be_expanded_is_not_asked_about(more):
    assert capability_queries(capabilities(**more), settings()).cpus == ()


def test_each_model_of_the_operator_is_expanded_whatever_is_in_its_name():
    found = capability_queries(
        capabilities(), settings(cpu_mode="custom", cpu_models=("Skylake", "<&'\">"))
    )
    assert models(found) == ["Skylake", "<&'\">"]


@pytest.mark.parametrize(
    "text", ["", "<capabilities>", "<capabilities/>", "<!DOCTYPE a><capabilities/>"]
)
def test_capabilities_that_make_no_sense_are_an_error(text):
    with pytest.raises(DriverError, match="capabilities"):
        capability_queries(text, settings())
