import pytest

from drivers.ironic.node import NONE, Properties


def test_everything_that_can_be_read_is():
    said = {
        "cpus": "8",
        "memory_mb": 16384,
        "local_gb": "500",
        "cpu_arch": "AMD64",
        "capabilities": "boot_mode:uefi, secure_boot:true,a:b:c",
    }
    found = Properties.of(said)
    assert (found.cpus, found.memory_mb, found.local_gb, found.architecture, found.doubts) == (
        8,
        16384,
        500,
        "x86_64",
        (),
    )
    assert found.capabilities == (("a", "b:c"), ("boot_mode", "uefi"), ("secure_boot", "true"))


@pytest.mark.parametrize(
    "nothing", [None, {}, [], "cpus", {"cpus": None, "cpu_arch": "", "capabilities": ""}]
)
def test_nothing_said_is_nothing_known_and_no_doubt(nothing):
    assert Properties.of(nothing) == NONE


@pytest.mark.parametrize("bad", ["many", "8.5", -1, "-1", 1.5, True, [8], {}])
def test_an_amount_that_is_none_counts_as_zero_and_is_told(bad):
    found = Properties.of({"cpus": bad, "memory_mb": "512"})
    assert (found.cpus, found.memory_mb) == (0, 512)
    (doubt,) = found.doubts
    assert doubt.startswith("cpus = ")


def test_malformed_capabilities_are_left_out_and_told_the_others_stay():
    found = Properties.of({"capabilities": "boot_mode:uefi,,lonely,:v,k:,x:1"})
    assert found.capabilities == (("boot_mode", "uefi"), ("x", "1"))
    assert len(found.doubts) == 4
    assert "'lonely'" in found.doubts[1]


def test_capabilities_may_be_a_mapping_but_nothing_else():
    assert Properties.of({"capabilities": {"boot_mode": "bios"}}).capabilities == (
        ("boot_mode", "bios"),
    )
    found = Properties.of({"capabilities": 7})
    assert (found.capabilities, len(found.doubts)) == ((), 1)


def test_what_is_told_of_a_doubt_is_short_and_has_no_control_characters():
    (doubt,) = Properties.of({"cpus": "\x1b[31m" + "9" * 200 + "x"}).doubts
    assert "\x1b" not in doubt
    assert len(doubt) < 100
