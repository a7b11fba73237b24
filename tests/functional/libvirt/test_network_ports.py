"""``devname`` means the function whose own port has that interface, whatever the interfaces of
others below the function are called: for the drivers ``libvirt`` and ``host`` alike, over one
recording.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import RecordedSysfs, smt_host
from tests.support.system import AgentHere

PF, VFS = "0000:3b:00.0", ["0000:3b:02.0", "0000:3b:02.1"]
BY_FIRST, BY_SECOND = "0000:5e:00.0", "0000:5f:00.0"


@pytest.fixture
def sysfs(tmp_path: Path) -> RecordedSysfs:
    """A card that switches by itself, with a subfunction, and two cards with two ports on one
    function. The interfaces of others, and those of second ports, come first by name.
    """
    tree = smt_host(tmp_path / "sys")
    folder = f"devices/pci0000:3b/{PF}"
    for name, port in {"aa0": "pf0vf0", "aa1": "pf0vf1", "cx6": "p0", "aa2": "c1pf0sf88"}.items():
        tree.interface(name, folder, phys_port_name=port, phys_switch_id="9803af")
    tree.write(f"{folder}/mlx5_core.sf.2/sfnum", "88")
    tree.interface("aa3", f"{folder}/mlx5_core.sf.2")
    for number, card in enumerate((BY_FIRST, BY_SECOND)):
        two = tree.pci(card, "15b3:1007", cell=8)
        tree.interface(f"ib{number}b", two, dev_port="0")
        tree.interface(f"ib{number}a", two, dev_port="1")
    return tree.for_libvirt()


@pytest.fixture(params=["host", "libvirt"])
def options(request: pytest.FixtureRequest, sysfs: RecordedSysfs) -> Iterator[dict[str, object]]:
    """The options of a driver over the recording."""
    host = {"host": {"sysfs_root": sysfs.root}}
    if request.param == "host":
        yield {"DEFAULT": {"compute_driver": "host"}, **host}
        return
    server = Libvirtd(sysfs.root)
    try:
        server.start()
        yield {
            "DEFAULT": {"compute_driver": "libvirt"},
            "libvirt": {"connection_uri": server.uri, "virt_type": "qemu"},
            **host,
        }
    finally:
        server.remove()


def test_devname_is_that_of_the_functions_own_ports(options, tmp_path):
    specs = [
        *({"devname": other} for other in ("aa0", "aa1", "aa2", "aa3")),
        {"devname": "cx6", "product_id": "154c"},
        {"devname": "cx6"},
        {"devname": "ib0b"},
        {"devname": "ib1a"},
    ]
    agent = AgentHere(tmp_path / "agent", {**options, "pci": {"device_spec": json.dumps(specs)}})
    result = agent.run("pci", "check", "--format", "json")
    assert result.code == 0, result
    (node,) = result.json["nodes"]
    assert node["errors"] == []
    offered = {
        one["address"]: specs[int(one["spec"].partition(".")[2]) - 1]
        for one in node["devices"]
        if one["spec"] is not None
    }
    assert offered == {
        PF: {"devname": "cx6"},
        **{function: {"devname": "cx6", "product_id": "154c"} for function in VFS},
        BY_FIRST: {"devname": "ib0b"},
        BY_SECOND: {"devname": "ib1a"},
    }
    named = {one["address"]: one["netdev"] for one in node["devices"]}
    assert (named[PF], named[BY_FIRST], named[BY_SECOND]) == ("cx6", "ib0b", "ib1b")
