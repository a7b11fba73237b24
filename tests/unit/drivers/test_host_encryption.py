"""SEV and TDX in /sys, and what cannot be read of them."""

import pytest

from agent.model.facts import PartialRead
from drivers.host import CAPACITIES, read_encryption
from drivers.host.sysfs import Sysfs
from tests.support.recorded_sysfs import RecordedSysfs


@pytest.fixture
def tree(tmp_path):
    return RecordedSysfs(tmp_path / "sys")


def amd(tree, **switches):
    for name, value in switches.items():
        tree.write(f"module/kvm_amd/parameters/{name}", value)


def contexts(tree):
    reading = read_encryption(Sysfs(tree.root))
    assert reading.faults == ()
    return reading.value and reading.value.contexts


@pytest.mark.parametrize("file", CAPACITIES)
def test_techniques_that_are_on_with_their_contexts(file, tree):
    amd(tree, sev="Y", sev_es="Y", sev_snp="N")
    tree.write(file, "sev 15\nsev_es 100")
    assert contexts(tree) == {"sev": 15, "sev_es": 100}


def test_snp_has_the_contexts_of_es(tree):
    amd(tree, sev="1", sev_es="1", sev_snp="1")
    tree.write(CAPACITIES[0], "sev 15\nsev_es 100")
    assert contexts(tree) == {"sev": 15, "sev_es": 100, "sev_snp": 100}


def test_a_technique_for_which_the_firmware_left_no_contexts_has_none(tree):
    amd(tree, sev="Y", sev_es="Y")
    tree.write(CAPACITIES[0], "sev_es 509")
    assert contexts(tree) == {"sev": 0, "sev_es": 509}


def test_without_the_controller_nobody_says_how_many(tree):
    amd(tree, sev="Y", sev_es="N")
    assert contexts(tree) == {"sev": None}


def test_tdx(tree):
    tree.write("module/kvm_intel/parameters/tdx", "Y")
    tree.write(CAPACITIES[0], "tdx 31")
    assert contexts(tree) == {"tdx": 31}


def test_a_host_on_which_all_is_off_or_unknown_has_none(tree):
    assert read_encryption(Sysfs(tree.root)) == PartialRead(None)
    amd(tree, sev="N", sev_es="0")
    tree.write(CAPACITIES[0], "garbled, but nobody asks")
    assert read_encryption(Sysfs(tree.root)) == PartialRead(None)


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("module/kvm_amd/parameters/sev", "maybe", "'maybe' is neither Y nor N"),
        (CAPACITIES[0], "sev max", "'sev max' is not a list of names and numbers"),
    ],
)
def test_what_cannot_be_understood_is_named_and_not_taken_for_nothing(file, text, fault, tree):
    amd(tree, sev="Y")
    tree.write(CAPACITIES[0], "sev 15")
    tree.write(file, text)
    assert read_encryption(Sysfs(tree.root)) == PartialRead(None, (f"{tree.root / file}: {fault}",))
