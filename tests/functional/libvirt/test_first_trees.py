"""What is missing of the facts, and what it must not keep from being told: the agent's command on a
real libvirtd and a real Placement.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_placement import HttpPlacement
from tests.support.libvirt_host import KNOWN_MEMORY, METADATA, LibvirtDaemon, Operator, guest_uuid
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import RecordedSysfs, cpu_list, cpu_map, smt_host
from tests.support.system import AgentHere, Result
from tests.support.tracking import uuid_of

AgentWith = Callable[..., AgentHere]

# What other tools write there is a guest's own text, whatever it looks like.
STRANGE = (
    "<app:note xmlns:app='http://example.org/app'><![CDATA[<!DOCTYPE html><!ENTITY a 'b'>]]> "
    "&lt;!DOCTYPE a></app:note>"
)
DEEP = "<app:a xmlns:app='http://example.org/app'>" + "<app:b>" * 80 + "</app:b>" * 80 + "</app:a>"


class Host:
    """A recording, a libvirtd over it once it is started, and the agent's command there."""

    def __init__(self, folder: Path, placement: HttpPlacement) -> None:
        self.folder, self.placement = folder, placement
        self.tree = smt_host(folder / "sys")
        self.server: Libvirtd | None = None

    def agent(self, **groups: Mapping[str, Any]) -> AgentHere:
        if self.server is None:
            self.server = Libvirtd(self.tree.for_libvirt().root)
            self.server.start()
        base = LibvirtDaemon(self.folder / "agent", self.server, self.placement, -1).config | {
            "host": {"sysfs_root": self.tree.root}
        }
        return AgentHere(
            self.folder / "agent",
            base | {name: {**base.get(name, {}), **given} for name, given in groups.items()},
        )

    def once(self, **groups: Mapping[str, Any]) -> Result:
        return self.agent(**groups).run("--once")

    @property
    def providers(self) -> dict[str, Any]:
        """By name, without that of the root."""
        found = {one["name"]: one for one in self.placement.dump()["providers"].values()}
        (root,) = [name for name, one in found.items() if one["parent"] is None]
        return {name.removeprefix(root).removeprefix("_"): one for name, one in found.items()}

    def total(self, provider: str, resource_class: str) -> int:
        return int(self.providers[provider]["inventories"][resource_class]["total"])


@pytest.fixture
def host(tmp_path: Path, http_placement: HttpPlacement) -> Iterator[Host]:
    one = Host(tmp_path, http_placement)
    yield one
    if one.server is not None:
        one.server.remove()


def nova_guest(operator: Operator, name: str, more: str) -> None:
    """A guest of nova's, with what somebody else has written beside."""
    ids = {one: uuid_of(one) for one in ("flavor", "user", "project", "image")}
    nova = METADATA.format(name=name, memory=16, vcpus=1, **ids)
    operator.define(name, more=nova.replace("</metadata>", f"{more}</metadata>"))


def test_text_in_a_guests_metadata_that_looks_like_a_document_type_is_no_reason_to_refuse_the_guest(
    libvirtd: Libvirtd, operator: Operator, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    nova_guest(operator, "strange", STRANGE)
    assert "<!DOCTYPE html>" in operator.connection.lookupByName("strange").XMLDesc()
    agent = AgentHere(
        tmp_path / "agent", LibvirtDaemon(tmp_path / "agent", libvirtd, http_placement, -1).config
    )
    assert agent.run("--once").code == 0
    ran = agent.run("guests", "import", "--format", "json")
    assert (ran.code, guest_uuid("strange") in ran.stdout) == (0, True)


def test_a_guest_that_cannot_be_understood_keeps_no_first_tree_from_being_written(
    libvirtd: Libvirtd, operator: Operator, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    nova_guest(operator, "deep", DEEP)
    agent = AgentHere(
        tmp_path / "agent", LibvirtDaemon(tmp_path / "agent", libvirtd, http_placement, -1).config
    )
    ran = agent.run("--once")
    assert (ran.code, "domains is not complete: guest deep" in " ".join(ran.stdout.split())) == (
        3,
        True,
    ), ran
    (root,) = [one for one in http_placement.dump()["providers"].values() if one["parent"] is None]
    assert root["inventories"].keys() >= {"VCPU", "MEMORY_MB", "DISK_GB"}


# --- cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_a_host_of_which_libvirt_lists_no_cell_is_told_as_one(host: Host, layout: str) -> None:
    shutil.rmtree(host.tree.root / "devices/system/node")
    ran = host.once(compute={"tree_layout": layout}, DEFAULT={"reserved_host_memory_mb": 0})
    assert ran.code == 0, ran
    assert host.providers.keys() == {"", "NUMA0"} if layout == "nested" else {""}
    assert host.total("", "VCPU") == 7
    assert "HW_CPU_HYPERTHREADING" in host.providers[""]["traits"], (
        "the kernel tells the threads of each core all the same"
    )
    sets = {"tree_layout": layout, "cpu_shared_set": "0-1", "cpu_dedicated_set": "2-5"}
    assert host.once(compute=sets, DEFAULT={"reserved_host_memory_mb": 0}).code == 0
    assert host.total("NUMA0" if layout == "nested" else "", "PCPU") == 4


# --- CPUs that sleep ------------------------------------------------------------------------------

SLEEPERS = {"tree_layout": "nested", "cpu_shared_set": "0-1", "cpu_dedicated_set": "2-3,5-7"}
MANAGED = {"cpu_power_management": True}


def sleep(tree: RecordedSysfs, cells: Mapping[int, set[int]], *cpus: int) -> None:
    """Take CPUs offline as a kernel does: their topology goes, the cells no longer list them, and
    the links to their cells stay.
    """
    online = {0, 1, 2, 3, 4, 5, 8}
    for cell, members in cells.items():
        for cpu in members:
            tree.link(f"devices/system/cpu/cpu{cpu}/node{cell}", f"../../node/node{cell}")
        awake = members & online - {*cpus}
        tree.write(f"devices/system/node/node{cell}/cpulist", cpu_list(awake))
        tree.write(f"devices/system/node/node{cell}/cpumap", cpu_map(awake))
    for cpu in cpus:
        tree.write(f"devices/system/cpu/cpu{cpu}/online", "0")
        shutil.rmtree(tree.root / f"devices/system/cpu/cpu{cpu}/topology", ignore_errors=True)
    for cpu in online - {*cpus}:
        file = tree.root / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        left = {int(one) for one in file.read_text().split(",")} - {*cpus}
        file.write_text(f"{cpu_list(left)}\n")
    tree.cpus_online(cpu_list(online - {*cpus}))


CELLS = {0: {0, 1, 2, 3}, 8: {4, 5, 6, 7}}


def test_dedicated_cpus_that_sleep_count_on_their_cells_from_the_first_start_on(host: Host) -> None:
    host.agent()
    sleep(host.tree, CELLS, 3)
    refused = host.once(compute=SLEEPERS)
    assert "[compute] cpu_dedicated_set: CPUs 3,6-7 not online" in " ".join(refused.stdout.split())
    ran = host.once(compute=SLEEPERS, libvirt=MANAGED)
    assert ran.code == 0, ran
    assert (host.total("", "VCPU"), host.total("NUMA0", "PCPU"), host.total("NUMA8", "PCPU")) == (
        2,
        2,
        3,
    )
    # Those that run with another governor are online; one that is not is broken.
    governed = host.once(
        compute=SLEEPERS, libvirt={**MANAGED, "cpu_power_management_strategy": "governor"}
    )
    assert governed.code == 1


def test_shared_cpus_never_sleep(host: Host) -> None:
    refused = host.once(
        compute={"cpu_shared_set": "0-1,6", "cpu_dedicated_set": "2-3,7"}, libvirt=MANAGED
    )
    assert "[compute] cpu_shared_set: CPUs 6 not online" in " ".join(refused.stdout.split())


def test_what_was_seen_of_cores_is_remembered_while_their_cpus_sleep_over_restarts_too(
    host: Host,
) -> None:
    assert host.once(compute=SLEEPERS, libvirt=MANAGED | KNOWN_MEMORY).code == 0
    assert "HW_CPU_HYPERTHREADING" in host.providers[""]["traits"]
    before = host.placement.dump()["providers"]
    sleep(host.tree, CELLS, 2, 3, 5)
    host.placement.clear()
    assert host.once(compute=SLEEPERS, libvirt=MANAGED | KNOWN_MEMORY).code == 0
    assert host.placement.dump()["providers"] == before
    assert [str(one) for one in host.placement.requests if one.method != "GET"] == []
    # A memory that is damaged costs what it knew, and no audit.
    (host.folder / "agent" / "store" / "libvirt-cores.json").write_text("[")
    ran = host.once(compute=SLEEPERS, libvirt=MANAGED | KNOWN_MEMORY)
    assert (ran.code, "libvirt-cores.json cannot be used" in ran.stderr) == (0, True)
    assert host.total("NUMA0", "PCPU") == 2


def test_a_dry_run_remembers_nothing(host: Host) -> None:
    assert host.agent(compute=SLEEPERS, libvirt=MANAGED).run("--once", "--dry-run").code == 0
    assert not (host.folder / "agent" / "store" / "libvirt-cores.json").exists()
