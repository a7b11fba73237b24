"""The host driver: its one node, complete and incomplete facts, this very machine."""

import shutil
from pathlib import Path

import psutil
import pytest

from agent.errors import ConfigError, NotReady
from agent.model.devices import PciAddress, PciDevice
from drivers.host import _version, pci, sysfs
from drivers.host.sysfs import Sysfs
from tests.support.host_driver import CONTEXT, started
from tests.support.recorded_sysfs import RecordedSysfs, smt_host


@pytest.fixture
def tree(tmp_path: Path) -> RecordedSysfs:
    return smt_host(tmp_path / "sys")


def test_mediated_devices_and_encryption_that_cannot_be_read_fully_are_named(tree):
    tree.write("class/mdev_bus/mtty/mdev_supported_types/mtty-2/available_instances", "24")
    tree.write("module/kvm_amd/parameters/sev", "?")
    facts = started(tree.root).facts(CONTEXT.name)
    assert (facts.mdev, facts.encryption) == ((), None)
    assert set(facts.incomplete) == {"mdev", "encryption"}
    tree.link("class/mdev_bus/mtty/subsystem", "../../../class/mtty")
    tree.write("module/kvm_amd/parameters/sev", "Y")
    facts = started(tree.root).facts(CONTEXT.name)
    assert [one.provider_name("cn1") for one in facts.mdev] == ["cn1_mtty_mtty"]
    assert (facts.encryption.contexts, facts.incomplete) == ({"sev": None}, {})


def test_missing_root_is_refused_at_start_with_the_option(tmp_path):
    with pytest.raises(
        ConfigError, match=rf"\[host\] sysfs_root = {tmp_path}/none: no such folder"
    ) as caught:
        started(tmp_path / "none")
    assert "devices/system/cpu" in caught.value.remedy


def test_root_that_cannot_be_looked_at_is_refused_at_start(tmp_path):
    (tmp_path / "sys").symlink_to("sys")
    with pytest.raises(ConfigError, match=r"\[host\] sysfs_root = .*symbolic links"):
        started(tmp_path / "sys")


def test_folder_above_the_sysfs_is_refused_at_start(tree):
    with pytest.raises(ConfigError, match=r"\[host\] sysfs_root = .*: it is not a sysfs"):
        started(tree.root.parent)


def test_root_with_a_link_out_of_it_is_refused_at_start(tmp_path):
    (tmp_path / "sys/devices").mkdir(parents=True)
    (tmp_path / "sys/devices/system").symlink_to("/etc")
    with pytest.raises(ConfigError, match=r"\[host\] sysfs_root = .*leads out of the tree"):
        started(tmp_path / "sys")


def test_root_that_vanishes_is_worth_asking_again(tree):
    driver = started(tree.root)
    shutil.rmtree(tree.root)
    with pytest.raises(NotReady, match="no such folder"):
        driver.facts(CONTEXT.name)


def test_memory_of_the_running_machine_is_the_kernels_total_whatever_its_cells_say(
    tree, monkeypatch
):
    monkeypatch.setattr(sysfs, "KERNEL_ROOT", tree.root)
    tree.write("devices/system/node/node8/meminfo", "")
    facts = started(tree.root).facts(CONTEXT.name)
    assert facts.memory_mib == psutil.virtual_memory().total // 2**20 != facts.numa.memory_mib
    assert list(facts.incomplete) == ["numa"]


def test_kernel_that_does_not_tell_its_memory_makes_memory_incomplete(tree, monkeypatch, tmp_path):
    monkeypatch.setattr(sysfs, "KERNEL_ROOT", tree.root)
    driver = started(tree.root)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    assert "total memory" in driver.facts(CONTEXT.name).incomplete["memory"]


def test_bad_cell_of_a_recording_makes_memory_incomplete_too_because_it_is_the_sum(tree):
    tree.write("devices/system/node/node8/meminfo", "")
    facts = started(tree.root).facts(CONTEXT.name)
    assert set(facts.incomplete) == {"memory", "numa"}
    assert facts.incomplete["memory"] == facts.incomplete["numa"]
    assert [cell.id for cell in facts.numa.cells] == [0, 9, 250]
    assert facts.complete("cpu")


def test_bad_list_of_cpus_makes_cpu_and_numa_incomplete(tree):
    tree.cpus_online("0-")
    facts = started(tree.root).facts(CONTEXT.name)
    assert set(facts.incomplete) == {"cpu", "numa"}


def test_disk_is_the_file_system_of_the_nearest_existing_parent(tree, tmp_path):
    (tmp_path / "nova").mkdir()
    expected = psutil.disk_usage(str(tmp_path)).total // 2**30
    for folder in (tmp_path / "nova", tmp_path / "nova/instances/deeper"):
        assert started(tree.root, folder).facts(CONTEXT.name).disk_gib == expected


def test_disk_that_cannot_be_read_is_incomplete_and_names_the_option(tree, tmp_path):
    too_long = tmp_path / ("x" * 300)
    facts = started(tree.root, too_long / "instances").facts(CONTEXT.name)
    assert facts.disk_gib is None
    assert list(facts.incomplete) == ["disk"]
    assert facts.incomplete["disk"].startswith(f"[DEFAULT] instances_path = {too_long}/instances: ")


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("6.1.20-amd64", 6001020),
        ("5.10", 5010000),
        ("6.18.44+", 6018044),
        ("4.18.0-553.el8.x86_64", 4018000),
        ("odd", 0),
    ],
)
def test_kernel_version_as_a_number(release, version):
    assert _version(release) == version


def test_each_file_is_read_once(tree, monkeypatch):
    driver = started(tree.root)
    read: list[Path] = []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: (read.append(self), original(self))[1])
    driver.facts(CONTEXT.name)
    existing = [path for path in read if path.exists()]
    assert len(existing) == len(set(existing)) > 0


# --- pCI functions ---


PF, VF_0, VF_1 = (
    PciAddress.parse(text) for text in ("0000:3b:00.0", "0000:3b:02.0", "0000:3b:02.1")
)
BRIDGE, WIDE = PciAddress.parse("0000:00:1f.0"), PciAddress.parse("10000:00:04.0")


def test_devices_with_their_relations_by_address(tree):
    reading = pci.read_devices(Sysfs(tree.root))
    assert reading.faults == ()
    assert reading.value == (
        PciDevice(BRIDGE, "8086", "a1c1", 0x060100),
        PciDevice(
            PF,
            "8086",
            "1572",
            0x020000,
            0,
            virtual_functions=(VF_0, VF_1),
            max_virtual_functions=4,
            kernel_driver="i40e",
        ),
        PciDevice(VF_0, "8086", "154c", 0x020000, 0, physical_function=PF),
        PciDevice(VF_1, "8086", "154c", 0x020000, 0, physical_function=PF),
        PciDevice(WIDE, "1af4", "1001", 0x010000, kernel_driver="virtio-pci"),
    )


def test_class_and_cell_may_be_missing(tree):
    tree.remove("devices/pci0000:00/0000:00:1f.0/class")
    tree.remove("devices/pci0000:00/0000:00:1f.0/numa_node")
    assert pci.read_devices(Sysfs(tree.root)).value[0] == PciDevice(BRIDGE, "8086", "a1c1")


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("vendor", "", "is not 0x and 4 hexadecimal digits"),
        ("vendor", "0x80", "is not 0x and 4 hexadecimal digits"),
        ("device", "8086", "is not 0x and 4 hexadecimal digits"),
        ("device", "0x80860", "is not 0x and 4 hexadecimal digits"),
        ("class", "0x0200", "is not 0x and 6 hexadecimal digits"),
        ("numa_node", "one", "is not a number"),
        ("sriov_totalvfs", "lots", "is not a number"),
    ],
)
def test_malformed_device_is_set_aside_and_named(tree, file, text, what):
    tree.write(f"devices/pci0000:3b/0000:3b:00.0/{file}", text)
    reading = pci.read_devices(Sysfs(tree.root))
    assert [device.address for device in reading.value] == [BRIDGE, VF_0, VF_1, WIDE]
    assert len(reading.faults) == 1
    assert f"{tree.root}/bus/pci/devices/0000:3b:00.0/{file}: " in reading.faults[0]
    assert what in reading.faults[0]


@pytest.mark.parametrize("link", ["physfn", "virtfn3"])
def test_relation_to_what_is_no_device_is_named(tree, link):
    tree.link(f"devices/pci0000:3b/0000:3b:00.0/{link}", "../nowhere")
    reading = pci.read_devices(Sysfs(tree.root))
    assert PF not in {device.address for device in reading.value}
    assert f"{link}: 'nowhere' is not a PCI address" in reading.faults[0]


def test_device_without_identity_is_set_aside(tree):
    tree.remove("devices/pci0000:00/0000:00:1f.0/vendor")
    reading = pci.read_devices(Sysfs(tree.root))
    assert BRIDGE not in {device.address for device in reading.value}
    assert "0000:00:1f.0/vendor: no such file" in reading.faults[0]


def test_link_to_a_device_that_the_recording_lacks_is_named(tree):
    shutil.rmtree(tree.root / "devices/pci0000:00")
    reading = pci.read_devices(Sysfs(tree.root))
    assert [device.address for device in reading.value] == [PF, VF_0, VF_1, WIDE]
    assert len(reading.faults) == 1


def test_name_that_is_no_address_is_named_with_its_control_characters_escaped(tree):
    tree.link("bus/pci/devices/0000:00\n", "../../../devices/pci0000:00/0000:00:1f.0")
    reading = pci.read_devices(Sysfs(tree.root))
    assert len(reading.value) == 5
    assert r"0000:00\n: " in reading.faults[0]


def test_link_out_of_the_recording_sets_the_device_aside(tree):
    tree.link("bus/pci/devices/0000:00:1f.0", "../../../../../devices")
    assert "leads out of the tree" in pci.read_devices(Sysfs(tree.root)).faults[0]


def test_device_unplugged_while_it_is_read_is_no_fault(tree):
    class Unplugging(Sysfs):
        def optional_text(self, path: str) -> str | None:
            if (
                path.endswith("1f.0/class")
                and (tree.root / "bus/pci/devices/0000:00:1f.0").is_symlink()
            ):
                tree.remove("bus/pci/devices/0000:00:1f.0")
            return super().optional_text(path)

    reading = pci.read_devices(Unplugging(tree.root))
    assert [device.address for device in reading.value] == [PF, VF_0, VF_1, WIDE]
    assert reading.faults == ()


def test_bus_that_cannot_be_listed_is_not_a_bus_without_devices(tree):
    shutil.rmtree(tree.root / "bus/pci/devices")
    tree.link("bus/pci/devices", "/elsewhere")
    reading = pci.read_devices(Sysfs(tree.root))
    assert reading.value == ()
    assert f"{tree.root}/bus/pci/devices: " in reading.faults[0]
