"""Hardware that changes under a guest of a real libvirtd: a CPU that goes offline, pages that are
taken away, a cell with another number after a reboot; and the remedies, carried out.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.setups import on
from tests.support.http_placement import HttpPlacement
from tests.support.libvirt_host import KNOWN_MEMORY, Operator, guest_uuid
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import RecordedSysfs
from tests.support.system import AgentHere

PINNED = """\
<memoryBacking><hugepages><page size='2' unit='MiB' nodeset='0'/></hugepages></memoryBacking>
<cputune><vcpupin vcpu='0' cpuset='3'/></cputune>
<numatune><memory mode='strict' nodeset='{cell}'/><memnode cellid='0' mode='strict' nodeset='{cell}'/></numatune>
<cpu><numa><cell id='0' cpus='0' memory='16' unit='MiB'/></numa></cpu>
"""


def host(root: Path, second: int) -> RecordedSysfs:
    """Two cells of two CPUs, the second one with this number and pages of 2 MiB."""
    tree = RecordedSysfs(root)
    for cpu in range(4):
        tree.cpu(cpu)
    tree.cpus_online("0-3")
    tree.cell(0, (0, 1), 4194304, (10, 20))
    tree.cell(second, (2, 3), 4194304, (20, 10))
    tree.pages(second, {2048: (8, 8)})
    tree.cells_online(f"0,{second}")
    tree.pci("0000:00:1f.0", "8086:a1c1", class_code="0x060100")
    return tree.for_libvirt()


@pytest.mark.long
def test_a_guest_of_libvirt_on_hardware_that_changed_is_told_and_the_remedies_end_it(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    tree = host(tmp_path / "before", 1)
    server = Libvirtd(tree.root)
    server.start()
    try:
        agent = configured(tmp_path, http_placement, server, tree)
        operator = Operator(server.uri)
        operator.define("pinned", nova=True, more=PINNED.format(cell=1))
        operator.close()
        assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
        assert "guest-conflict" not in drift(agent)

        tree.pages(1, {2048: (4, 4)})
        pages = re.search(r"echo (\d+) > /sys/(\S+)", drift(agent)["overcommitted"][1])
        assert pages is not None
        tree.write(pages[2], pages[1])
        assert "overcommitted" not in drift(agent)
    finally:
        server.remove()
    # The firmware numbers the second cell otherwise; libvirtd is started with the host.
    tree = host(tmp_path / "after", 4)
    server = Libvirtd(tree.root)
    server.start()
    try:
        agent = configured(tmp_path, http_placement, server, tree)
        operator = Operator(server.uri)
        operator.define("pinned", nova=True, more=PINNED.format(cell=1))
        detail, _ = drift(agent)["guest-conflict"]
        assert detail == (
            f"the hardware changed under guest pinned ({guest_uuid('pinned')}): CPUs 3 of cell 1 "
            "are on cell 4; the host has no cell 1"
        )
        refused = agent.run("guests", "import")
        assert (refused.code, "on a cell that the host does not have" in refused.stdout) == (
            1,
            True,
        )
        operator.define("pinned", nova=True, more=PINNED.format(cell=4))
        operator.close()
        assert agent.run("guests", "import").code == 0
        assert "guest-conflict" not in drift(agent)
    finally:
        server.remove()


def configured(
    folder: Path, placement: HttpPlacement, server: Libvirtd, tree: RecordedSysfs
) -> AgentHere:
    options: dict[str, Any] = {
        "DEFAULT": {"instances_path": "/"},
        "host": {"sysfs_root": tree.root},
        "libvirt": {"connection_uri": server.uri, "virt_type": "qemu", **KNOWN_MEMORY},
        "compute": {
            "cpu_shared_set": "0,2",
            "cpu_dedicated_set": "1,3",
            "tree_layout": "nested",
        },
    }
    return AgentHere(folder / "agent", on(placement, "libvirt", options))


def drift(agent: AgentHere) -> dict[str, tuple[str, str]]:
    """What a run tells, by kind: text and remedy."""
    (node,) = agent.run("--once", "--reread", "--format", "json").json["nodes"]
    assert node["errors"] == [], node
    return {one["kind"]: (one["detail"], one["remedy"]) for one in node["drift"]}
