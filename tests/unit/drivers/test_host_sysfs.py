"""Reading primitives: values as the kernel writes them, damaged ones, and links in recordings."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import DriverError
from drivers.host.sysfs import KERNEL_ROOT, Sysfs
from tests.support.recorded_sysfs import RecordedSysfs, cpu_map


@pytest.fixture
def tree(tmp_path: Path) -> RecordedSysfs:
    return RecordedSysfs(tmp_path / "sys")


def test_text_loses_the_padding_of_recordings(tree):
    tree.write("a/value", b"  42\n\0\0\0")
    assert Sysfs(tree.root).text("a/value") == "42"


def test_missing_file_is_none_or_an_error_that_names_it(tree):
    sysfs = Sysfs(tree.root)
    assert sysfs.optional_text("a/value") is None
    assert sysfs.optional_integer("a/value") is None
    with pytest.raises(DriverError, match=f"{tree.root}/a/value: no such file"):
        sysfs.text("a/value")
    with pytest.raises(DriverError, match=f"{tree.root}/a/value: no such file"):
        sysfs.integer("a/value")


def test_file_below_a_file_is_missing(tree):
    tree.write("a", "1")
    assert Sysfs(tree.root).optional_text("a/value") is None
    assert Sysfs(tree.root).names("a") == []


def test_folder_in_place_of_a_file_is_named(tree):
    tree.write("a/value/oops", "1")
    with pytest.raises(DriverError, match=f"{tree.root}/a/value: Is a directory"):
        Sysfs(tree.root).optional_text("a/value")


@pytest.mark.parametrize("text", ["", "x", "0x10", "1 2", "1_000", "--1", "1.5", "٣"])
def test_what_is_no_number_is_refused_with_its_text(tree, text):
    tree.write("n", text)
    with pytest.raises(DriverError, match="is not a number"):
        Sysfs(tree.root).integer("n")


def test_control_characters_of_a_value_are_escaped(tree):
    tree.write("n", b"1\x1b[31m\n2")
    with pytest.raises(DriverError) as caught:
        Sysfs(tree.root).integer("n")
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("text", ["0-", "-3", "3-1", "a", "0-99999999999"])
def test_cut_off_cpu_list_is_an_error_that_names_the_file(tree, text):
    tree.write("cpulist", text)
    with pytest.raises(DriverError, match=f"{tree.root}/cpulist: "):
        Sysfs(tree.root).optional_cpus("cpulist")


@pytest.mark.parametrize("cpus", [set(), {0}, {0, 1, 31}, {32}, {5, 7, 40, 95}, set(range(200))])
def test_cpu_maps_of_any_width(tree, cpus):
    tree.write("cpumap", cpu_map(cpus))
    assert Sysfs(tree.root).optional_cpus("cpulist", "cpumap") == cpus


def test_first_word_of_a_map_may_be_short(tree):
    tree.write("cpumap", "3,00000001")
    assert Sysfs(tree.root).optional_cpus("cpumap") == {0, 32, 33}


@pytest.mark.parametrize(
    "text", ["", "00000000,000f", "00000000,", "0xff", "0-3", "g", "000000000"]
)
def test_cut_off_cpu_map_is_an_error_because_its_words_would_shift(tree, text):
    tree.write("cpumap", text)
    with pytest.raises(DriverError, match="is not a map of CPUs"):
        Sysfs(tree.root).optional_cpus("cpumap")


def test_numbers_in_names_are_ascending_and_others_ignored(tree):
    for name in ("node10", "node2", "nodes", "possible", "node2x"):
        tree.write(f"node/{name}/value", "1")
    assert Sysfs(tree.root).numbers("node", r"node(\d+)") == [2, 10]


def test_absolute_link_of_a_recording_stays_in_it(tree):
    tree.write("devices/pci0000:00/dev/vendor", "0x8086")
    tree.link("bus/pci/devices/dev", "/sys/devices/pci0000:00/dev")
    assert Sysfs(tree.root).text("bus/pci/devices/dev/vendor") == "0x8086"


def test_links_in_the_middle_and_links_to_links_are_followed(tree):
    tree.write("real/deep/value", "7")
    tree.link("a/one", "../real")
    tree.link("a/two", "one/deep")
    assert Sysfs(tree.root).integer("a/two/value") == 7


@pytest.mark.parametrize(
    "target", ["/etc", "../../etc", "../../../../../../../../../../etc", "/sys/../etc"]
)
def test_link_out_of_a_recording_is_refused(tree, target):
    tree.link("a/dev", target)
    with pytest.raises(DriverError, match="leads out of the tree"):
        Sysfs(tree.root).optional_text("a/dev/hostname")


def test_links_in_a_circle_are_refused(tree):
    tree.link("a/one", "two")
    tree.link("a/two", "one")
    with pytest.raises(DriverError, match="go round in a circle"):
        Sysfs(tree.root).optional_text("a/one/value")


def test_folder_in_place_of_a_link_is_named(tree):
    tree.write("dev/physfn/vendor", "0x8086")
    with pytest.raises(DriverError, match=f"{tree.root}/dev/physfn: "):
        Sysfs(tree.root).link_name("dev/physfn")


def test_only_the_kernels_tree_is_live(tree):
    assert not Sysfs(tree.root).is_live
    assert not Sysfs(tree.root / "missing").is_live
    assert Sysfs(KERNEL_ROOT).is_live


@pytest.fixture
def somebody_else() -> Iterator[Path]:
    """A folder for all, and an unprivileged user in this process: root reads whatever its mode
    says.
    """
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        if os.getuid() == 0:
            os.seteuid(0)


def test_missing_permission_is_named_for_files_folders_and_links(somebody_else):
    tree = RecordedSysfs(somebody_else / "sys")
    tree.write("a/value", "1")
    tree.write("closed/value", "1")
    (tree.root / "a/value").chmod(0)
    (tree.root / "closed").chmod(0)
    sysfs = Sysfs(tree.root)
    if os.getuid() == 0:
        os.seteuid(65534)
    for read, path in (
        (sysfs.optional_text, "a/value"),
        (sysfs.optional_text, "closed/value"),
        (sysfs.names, "closed"),
        (sysfs.link_name, "closed/driver"),
        (sysfs.is_folder, "closed/topology"),
    ):
        with pytest.raises(DriverError, match=f"{tree.root}/{path}: Permission denied"):
            read(path)
    if os.getuid() == 0:
        os.seteuid(0)
    (tree.root / "closed").chmod(0o755)
