"""What the operator says in [libvirt]."""

import json
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from oslo_config import cfg

from agent.conf import options
from agent.driver import interface as drivers
from agent.errors import ConfigError, ConfigErrors, DriverError
from drivers.libvirt import LibvirtDriver, host
from drivers.libvirt.host import Namespace, configured_namespaces, read_disk_gib, read_units
from drivers.libvirt.raw_capabilities import EmulatedMachine, capability_queries
from drivers.libvirt.settings import DiskSettings, LibvirtSettings
from tests.support import libvirtd
from tests.support.libvirt_host import libvirt_conf


def settings(**given):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[])
    for name, value in given.items():
        conf.set_override(name, value, None if name == "instances_path" else "libvirt")
    return LibvirtSettings.from_options(conf)


@pytest.mark.parametrize(
    ("mode", "meant"), [("host-model", "host"), ("host-passthrough", "host"), ("none", "none")]
)
def test_modes_that_need_no_models(mode, meant):
    assert settings(cpu_mode=mode).cpu_mode == meant


def test_models_are_for_the_mode_custom_alone():
    assert settings(cpu_mode="custom", cpu_models=["Haswell", "Skylake"]).cpu_models == (
        "Haswell",
        "Skylake",
    )
    for wrong in (
        {"cpu_mode": "custom"},
        {"cpu_models": ["Haswell"]},
        {"cpu_mode": "none", "cpu_models": ["Haswell"]},
    ):
        with pytest.raises(ConfigError, match=r"^\[libvirt\] cpu_models"):
            settings(**wrong)


def test_a_volume_group_has_to_be_named():
    assert settings(images_type="lvm", images_volume_group="vg0").disk.volume_group == "vg0"
    with pytest.raises(ConfigError, match="images_volume_group"):
        settings(images_type="lvm")


def test_everything_wrong_with_the_section_is_told_at_once():
    libvirtd.binding()
    with pytest.raises(ConfigErrors) as caught:
        LibvirtDriver(
            libvirt_conf(
                "none", cpu_mode="custom", images_type="lvm", pmem_namespaces=["a:ns0", "b:ns0"]
            )
        )
    told = [one.message for one in caught.value.errors]
    assert [
        any(option in one for one in told)
        for option in ("cpu_models", "images_volume_group", "pmem_namespaces")
    ] == [True] * 3


# --- persistent memory for guests: what the option says, and what the host has ---


LISTED = [
    {
        "dev": "namespace0.0",
        "mode": "devdax",
        "size": 1073741824,
        "name": "ns0",
        "daxregion": {"devices": [{"chardev": "dax0.0"}]},
    },
    {
        "dev": "namespace0.1",
        "mode": "devdax",
        "size": 2147483648,
        "name": "ns1",
        "chardev": "dax0.1",
    },
    {"dev": "namespace1.0", "mode": "fsdax", "size": 4294967296, "blockdev": "pmem1"},
]


@pytest.fixture
def ndctl(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def lists(text):
        (tmp_path / "listed").write_text(text)
        (tmp_path / "ndctl").write_text(f"#!/bin/sh\ncat {tmp_path}/listed\n")
        (tmp_path / "ndctl").chmod(0o755)

    return lists


def test_all_that_is_wrong_with_the_option_is_told_at_once():
    with pytest.raises(ConfigErrors) as caught:
        configured_namespaces(["a:ns0", "A:ns2", "ns1", "b:", "c d:ns3", "e:ns4|ns4", "f:n s"])
    told = [error.message for error in caught.value.errors]
    assert len(told) == 6
    assert sum("is no label with its namespaces" in one for one in told) == 4
    assert any("the label A is given 2 times" in one for one in told)
    assert any("the namespace ns4 is given 2 times" in one for one in told)


def test_a_namespace_that_the_host_does_not_have_is_an_error_that_says_which_it_has(ndctl):
    ndctl(json.dumps(LISTED[:1]))
    with pytest.raises(ConfigErrors, match="this host has no namespace ns1") as caught:
        read_units([Namespace("ns0", "a"), Namespace("ns1", "a")])
    assert "the host has ns0" in caught.value.remedy


def test_one_namespace_alone_and_none_are_told_as_ndctl_does(ndctl):
    ndctl(json.dumps(LISTED[0]))
    assert len(read_units([Namespace("ns0", "a")])) == 1
    ndctl("")
    with pytest.raises(ConfigErrors, match="no namespace ns0"):
        read_units([Namespace("ns0", "a")])


@pytest.mark.parametrize("text", ["{", "3", '["a"]', "[{}]", '[{"dev": "a"}]', "[" * 100_000])
def test_what_ndctl_would_never_say_is_an_error(ndctl, text):
    ndctl(text)
    with pytest.raises(DriverError, match="ndctl lists namespaces in a form"):
        read_units([Namespace("ns0", "a")])


# --- the disk for guests, told by commands that the tests put in the place of the real ones ---


GIB = 1024**3
LVM = DiskSettings("lvm", Path("/"), volume_group="vg0")
RBD = DiskSettings("rbd", Path("/"), pool="vms")


def pools(*found):
    return json.dumps(
        {
            "stats": {"total_bytes": 9 * GIB},
            "pools": [{"name": name, "id": 1, "stats": stats} for name, stats in found],
        }
    )


@pytest.fixture
def says(tmp_path, monkeypatch):
    """Put a command on the path that prints this; what it was called with."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def say(name, text, code=0, error=""):
        script = tmp_path / name
        (tmp_path / "output").write_text(text)
        (tmp_path / "error").write_text(error)
        script.write_text(
            f'#!/bin/sh\necho "$@" > {tmp_path}/called\ncat {tmp_path}/output; cat '
            f"{tmp_path}/error >&2; exit {code}\n"
        )
        script.chmod(0o755)
        return tmp_path / "called"

    return say


@pytest.mark.parametrize("text", ["", "4.5", "440g", "  1\n  2\n", "-1", "\u0664"])
def test_a_volume_group_without_a_number_is_an_error(says, text):
    says("vgs", text)
    with pytest.raises(DriverError, match="volume group vg0"):
        read_disk_gib(LVM)


def test_a_ceph_that_does_not_tell_replicas_apart_counts_what_is_used(says):
    called = says("ceph", pools(("vms", {"bytes_used": 10 * GIB, "max_avail": 90 * GIB})))
    assert read_disk_gib(RBD) == 100
    assert called.read_text().strip() == "df --format json"


def test_ceph_is_asked_as_the_configured_client(says):
    called = says("ceph", pools(("vms", {"stored": 0, "max_avail": GIB})))
    settings = DiskSettings(
        "rbd", Path("/"), pool="vms", ceph_conf="/etc/ceph/other.conf", ceph_user="nova"
    )
    assert read_disk_gib(settings) == 1
    assert called.read_text().strip() == "df --format json --id nova --conf /etc/ceph/other.conf"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"pools": [{"name": "other", "stats": {}}]}',
        '{"pools": [{"name": "vms", "stats": {}}]}',
        "[" * 100_000,
    ],
)
def test_a_pool_that_ceph_does_not_tell_is_an_error_that_names_it(says, text):
    says("ceph", text)
    with pytest.raises(DriverError, match="pool vms"):
        read_disk_gib(RBD)


def test_a_command_that_fails_says_why(says):
    says("vgs", "", code=5, error="  Cannot process volume group vg0\n\x1b[31mreally\n")
    with pytest.raises(DriverError, match=r"vgs failed with 5: \\x1b\[31mreally"):
        read_disk_gib(LVM)


def test_a_command_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(DriverError, match="the command ceph is not installed"):
        read_disk_gib(RBD)


def test_a_command_that_hangs_is_ended():
    begun = time.monotonic()
    with pytest.raises(DriverError, match="timed out"):
        host.output_of(["sleep", "600"], deadline=0.1)
    assert time.monotonic() - begun < 60


# --- without the Python binding of libvirt the driver says what to install, and the rest of its package can be used ---


def test_its_absence_is_told_with_the_command_that_mends_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "libvirt", None)
    for name in ("libvirt", "libvirt.LibvirtDriver"):
        with pytest.raises(ConfigError, match="the Python package of libvirt is missing") as caught:
            drivers.load(name, libvirt_conf("none"))
        assert "-m pip install 'libvirt-python" in caught.value.remedy


# --- what is asked of libvirt because of the capabilities ---


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


def asked_settings(**changes):
    return replace(LibvirtSettings.from_options(libvirt_conf("none", virt_type="kvm")), **changes)


def models(found):
    return [ElementTree.fromstring(one).findtext("model") for one in found.cpus]


def test_each_emulator_is_asked_for_its_default_and_the_canonical_machines():
    found = capability_queries(
        capabilities(guest("x86_64"), guest("aarch64", "<machine>virt</machine>", ("qemu",))),
        asked_settings(virt_type="qemu"),
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
    assert capability_queries(capabilities(**more), asked_settings()).cpus == ()


def test_each_model_of_the_operator_is_expanded_whatever_is_in_its_name():
    found = capability_queries(
        capabilities(), asked_settings(cpu_mode="custom", cpu_models=("Skylake", "<&'\">"))
    )
    assert models(found) == ["Skylake", "<&'\">"]


@pytest.mark.parametrize("text", ["", "<capabilities>", "<capabilities/>"])
def test_capabilities_that_make_no_sense_are_an_error(text):
    with pytest.raises(DriverError, match="capabilities"):
        capability_queries(text, asked_settings())
