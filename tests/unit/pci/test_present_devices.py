"""How the devices of a host stand to each other."""

from agent.pci.settings import PresentDevices
from tests.unit.pci.scene import host, physical, plain, present, virtual


def names(devices):
    return [str(device.address)[5:] for device in devices]


def test_family():
    on = present()
    everyone = ["81:02.0", "81:02.1", "81:02.2"]
    assert names(on.family(host()["F2"])) == names(on.family(host()["V21"])) == everyone
    assert names(on.family(host()["P0"])) == ["81:00.0"]


def test_family_of_a_function_whose_parent_is_not_shown():
    lost = virtual("V20", "F2")
    assert PresentDevices.of([lost]).family(lost) == (lost,)
    assert PresentDevices.of([lost]).parent(lost) is None


def test_serial_number_is_the_function_s_own_or_its_parent_s():
    on = present(
        F2=physical("F2", "V20", "V21", serial_number="MT1"),
        V20=virtual("V20", "F2", serial_number="MT2"),
    )
    assert [on.serial_number(one) for one in on.family(host()["F2"])] == ["MT1", "MT2", "MT1"]
    assert on.serial_number(host()["V30"]) is None


def test_number_of_a_function_is_its_place_among_those_of_its_parent():
    on = present(F2=physical("F2", "V21", "V20"))
    assert [on.number(host()[name]) for name in ("V20", "V21", "F2", "P0")] == [1, 0, None, None]
    assert present(F2=physical("F2")).number(host()["V20"]) is None


def test_interfaces():
    on = present(F2=physical("F2", netdev="ens1f0"), P0=plain("P0", netdev="ens2"))
    assert {name: str(one.address) for name, one in on.by_netdev.items()} == {
        "ens1f0": "0000:81:02.0",
        "ens2": "0000:81:00.0",
    }
