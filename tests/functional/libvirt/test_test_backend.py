"""libvirt's own test backend, within this process: node devices and their events as one likes them,
and who is not let in.
"""

import time

import pytest

from agent.errors import NotReady
from drivers.libvirt.binding import binding
from tests.support.libvirt_host import node_of, started
from tests.support.service_manager import until

DEFAULT = "test:///default"

NODE = """\
<node>
  <cpu><mhz>6000</mhz><model>i986</model><active>8</active><nodes>2</nodes><sockets>2</sockets><cores>2</cores><threads>2</threads></cpu>
  <memory>8192000</memory>{more}
</node>
"""
PCI = """\
<device><name>{name}</name><parent>computer</parent><capability type='pci'>
  <domain>0</domain><bus>{bus}</bus><slot>{slot}</slot><function>0</function><product id='0x{product}'/><vendor id='0x{vendor}'/>{more}
</capability></device>
"""
MDEV = "c6e54b2d-9a0f-4d0e-8a4c-2f3e4d5c6b7a"
FUNCTION = (
    "<capability type='{kind}'><address domain='0x0000' bus='0x3b' slot='0x0{slot}' "
    "function='0x0'/></capability>"
)
TYPES = """\
<capability type='mdev_types'>
  <type id='nvidia-35'><name>GRID</name><deviceAPI>vfio-pci</deviceAPI><availableInstances>14</availableInstances></type>
</capability>
"""
DEVICES = "".join(
    [
        PCI.format(
            name="pci_0000_3b_00_0",
            bus=59,
            slot=0,
            vendor="8086",
            product="1572",
            more=FUNCTION.format(kind="virt_functions", slot=2),
        ),
        PCI.format(
            name="pci_0000_3b_02_0",
            bus=59,
            slot=2,
            vendor="8086",
            product="154c",
            more=FUNCTION.format(kind="phys_function", slot=0),
        ),
        PCI.format(
            name="pci_0000_06_00_0", bus=6, slot=0, vendor="10de", product="1eb8", more=TYPES
        ),
        f"<device><name>mdev_{MDEV.replace('-', '_')}_0000_06_00_0</name><parent>pci_0000_06_00_0</parent><capability "
        "type='mdev'>"
        f"<type id='nvidia-35'/><uuid>{MDEV}</uuid><iommuGroup number='4'/></capability></device>",
    ]
)
VIRTUAL_ADAPTER = """\
<device><parent>scsi_host1</parent><capability type='scsi_host'>
  <capability type='fc_host'><wwnn>1111222233334444</wwnn><wwpn>5555666677778888</wwpn></capability>
</capability></device>
"""


@pytest.fixture
def uri(tmp_path):
    def described(more):
        file = tmp_path / "node.xml"
        file.write_text(NODE.format(more=more))
        return f"test://{file}"

    return described


def test_devices_of_a_file_are_told_with_their_relations(uri):
    with started(uri(DEVICES)) as driver:
        facts = driver.facts(node_of(driver))
    assert facts.incomplete == {}
    assert facts.hypervisor_type == "TEST"
    assert [
        (str(one.address), one.type, f"{one.vendor_id}:{one.product_id}") for one in facts.pci
    ] == [
        ("0000:06:00.0", "type-PCI", "10de:1eb8"),
        ("0000:3b:00.0", "type-PF", "8086:1572"),
        ("0000:3b:02.0", "type-VF", "8086:154c"),
    ]
    (parent,) = facts.mdev
    assert (parent.name, [one.uuid for one in parent.mdevs], parent.total("nvidia-35")) == (
        "0000:06:00.0",
        [MDEV],
        15,
    )


def test_what_the_backend_does_not_have_is_left_out_and_not_incomplete():
    with started(DEFAULT) as driver:
        facts = driver.facts(node_of(driver))
    assert facts.incomplete == {}
    assert (
        [cell.id for cell in facts.numa.cells],
        [one.name for one in facts.domains],
        facts.pci,
    ) == ([0, 1], ["test"], ())
    assert "COMPUTE_ARCH_X86_64" not in facts.traits


def test_devices_that_come_and_go_are_told_of():
    libvirt, told = binding(), []
    with started(DEFAULT, told.append) as driver:
        # All who open it in one process share it.
        other = libvirt.open(DEFAULT)
        try:
            device = other.nodeDeviceCreateXML(VIRTUAL_ADAPTER)
            until(lambda: told == [node_of(driver)], lambda: told)
            device.destroy()
            until(lambda: len(told) == 2, lambda: told)
        finally:
            other.close()
    time.sleep(0.05)
    assert len(told) == 2


def test_a_callback_that_raises_stops_no_other(capfd):
    libvirt, told = binding(), []

    def refuses(node):
        told.append(node)
        raise RuntimeError("not now")

    with started(DEFAULT, refuses):
        other = libvirt.open(DEFAULT)
        try:
            for _ in range(2):
                other.nodeDeviceCreateXML(VIRTUAL_ADAPTER).destroy()
            until(lambda: len(told) == 4, lambda: told)
        finally:
            other.close()
    assert "not now" in capfd.readouterr().err


def test_nobody_is_asked_for_a_password(uri):
    with pytest.raises(
        NotReady,
        match=r"cannot connect to test:.*authentication.*\(let the agent in without a password",
    ):
        with started(uri("<auth><user password='secret'>somebody</user></auth>")):
            pass
