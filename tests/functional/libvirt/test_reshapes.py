"""What guests of a real libvirtd tell is enough to move what they hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.numa.host_policy import HostPolicy
from agent.tree.policy import MdevPolicy, MdevType, Policy
from drivers.libvirt import LibvirtDriver
from tests.support.agent import AgentUnderTest
from tests.support.libvirt_host import IDENTITY, Operator, guest_uuid, node_of, started
from tests.support.libvirtd import Libvirtd
from tests.support.placement import PlacementServer
from tests.support.tracking import uuid_of

PINNED = """\
<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>
<numatune><memory mode='strict' nodeset='0'/><memnode cellid='0' mode='strict' nodeset='0'/></numatune>
<cpu><numa><cell id='0' cpus='0' memory='16' unit='MiB'/></numa></cpu>
"""
SHARED, DEDICATED = HostPolicy(), HostPolicy(frozenset({0}), frozenset({1}))


@pytest.fixture
def driver(libvirtd: Libvirtd) -> Iterator[LibvirtDriver]:
    with started(libvirtd.uri) as one:
        yield one


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_a_guest_that_libvirt_shows_pinned_holds_pcpu_from_now_on_and_vcpu_again(
    layout: Any,
    driver: LibvirtDriver,
    operator: Operator,
    placement: PlacementServer,
    tmp_path: Path,
) -> None:
    operator.define("pinned", nova=True, more=PINNED)
    operator.define("floating", nova=True)

    def agent(host: HostPolicy) -> AgentUnderTest:
        return AgentUnderTest(placement, tmp_path, driver, policy=Policy(host, layout=layout))

    def held() -> dict[str, dict[str, dict[str, int]]]:
        dump, node = placement.dump(), node_of(driver)
        names = {uuid: one["name"].replace(node, "node") for uuid, one in dump["providers"].items()}
        found = {
            name: dump["consumers"][guest_uuid(name)]["allocations"]
            for name in ("pinned", "floating")
        }
        return {
            name: {names[uuid]: dict(resources) for uuid, resources in one.items()}
            for name, one in found.items()
        }

    assert agent(SHARED).once().errors == ()
    for name in ("pinned", "floating"):
        placement.other.claim({IDENTITY: {"VCPU": 1, "MEMORY_MB": 16}}, guest_uuid(name))
    floating = {"node": {"VCPU": 1, "MEMORY_MB": 16}}
    assert agent(DEDICATED).once().errors == ()
    on_cell = {"node": {"MEMORY_MB": 16}, "node_NUMA0": {"PCPU": 1}}
    assert held() == {
        "pinned": {"node": {"MEMORY_MB": 16, "PCPU": 1}} if layout == "flat" else on_cell,
        "floating": floating,
    }
    assert agent(DEDICATED).once().state == "in-sync"
    assert agent(SHARED).once().errors == ()
    assert held() == {"pinned": floating, "floating": floating}


NODE = """\
<node>
  <cpu><mhz>2000</mhz><model>x86_64</model><active>8</active><nodes>2</nodes><sockets>2</sockets><cores>2</cores><threads>1</threads></cpu>
  <memory>8388608</memory>
  <device><name>computer</name><capability type='system'><hardware><uuid>3f1c2b52-8b2e-4e6a-9a5f-7b0c5d2f9e11</uuid></hardware></capability></device>
  {devices}
</node>
"""
PARENT = """\
<device><name>pci_0000_{bus}_00_0</name><parent>computer</parent><capability type='pci'>
  <domain>0</domain><bus>{bus}</bus><slot>0</slot><function>0</function><product id='0x1111'>p</product><vendor id='0x10de'>v</vendor>
  <capability type='mdev_types'><type id='nvidia-35'><deviceAPI>vfio-pci</deviceAPI><availableInstances>6</availableInstances></type></capability>
</capability></device>
"""
MDEV = """\
<device><name>mdev_{name}_0000_{bus}_00_0</name><parent>pci_0000_{bus}_00_0</parent><capability type='mdev'>
  <type id='nvidia-35'/><uuid>{uuid}</uuid><iommuGroup number='12'/>
</capability></device>
<domain type='test'><name>guest-{bus}</name><uuid>{guest}</uuid><memory>65536</memory><vcpu>1</vcpu><os><type>hvm</type></os>
  <devices><hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{uuid}'/></source></hostdev></devices>
</domain>
"""


def _gpus(folder: Path) -> str:
    """A host with two cards, a mediated device on each, and a guest that has it."""
    devices = ""
    for bus in ("06", "07"):
        uuid = uuid_of(f"mdev-{bus}")
        devices += PARENT.format(bus=bus) + MDEV.format(
            bus=bus, uuid=uuid, name=uuid.replace("-", "_"), guest=guest_uuid(f"guest-{bus}")
        )
    (folder / "node.xml").write_text(NODE.format(devices=devices))
    return f"test://{folder}/node.xml"


def test_vgpus_go_to_the_parents_of_the_devices_that_libvirt_says_the_guests_have_and_back(
    placement: PlacementServer, tmp_path: Path
) -> None:
    guests = {bus: guest_uuid(f"guest-{bus}") for bus in ("06", "07")}
    mdev = MdevPolicy((MdevType("nvidia-35"),))
    with started(_gpus(tmp_path)) as driver:

        def audited(on_root: frozenset[str] = frozenset()) -> None:
            assert (
                AgentUnderTest(
                    placement, tmp_path / "state", driver, policy=Policy(mdev=mdev, on_root=on_root)
                )
                .once()
                .errors
                == ()
            )

        def places() -> dict[str, str]:
            dump = placement.dump()
            held = {bus: dump["consumers"][uuid]["allocations"] for bus, uuid in guests.items()}
            return {
                bus: dump["providers"][provider]["name"]
                for bus, one in held.items()
                for provider, resources in one.items()
                if "VGPU" in resources
            }

        root = node_of(driver)
        audited(frozenset({"VGPU"}))
        for uuid in guests.values():
            placement.other.claim({IDENTITY: {"VGPU": 1, "VCPU": 1}}, uuid)
        audited()
        assert places() == {bus: f"{root}_pci_0000_{bus}_00_0" for bus in guests}
        audited(frozenset({"VGPU"}))
        assert places() == {"06": root, "07": root}
