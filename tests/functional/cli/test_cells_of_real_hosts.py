"""Hosts whose NUMA nodes are no plain cells: nodes that share CPUs, nodes without CPUs, nodes
without memory. The agent's command over what each driver reads.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.api.client import ApiClient, ApiProblem
from tests.functional.cli.setups import (
    configured,
    held,
    host_file,
    on,
    pinned,
    ready,
    totals,
    tree,
    uuids_of,
)
from tests.support.http_placement import HttpPlacement
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import RecordedSysfs
from tests.support.recordings import RECORDINGS, of_each, sysfs_root
from tests.support.service_manager import Service, until
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentHere
from tests.support.tracking import FN4, guest, uuid_of

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000e037"
TWELVE = range(12)
EMULATED: Mapping[str, Any] = {
    "uuid": ROOT,
    "disk_gib": 500,
    "cells": [{"id": number, "cpus": "0-11", "memory_mib": 16384} for number in range(2)],
    "pci": [{"address": "0000:3b:00.0", "vendor_id": "10de", "product_id": "1db4", "numa_node": 1}],
}
APART: Mapping[str, Any] = {
    **EMULATED,
    "cells": [
        {"id": 0, "cpus": "0-5", "memory_mib": 16384},
        {"id": 1, "cpus": "6-11", "memory_mib": 16384},
    ],
}
SETS = {"cpu_shared_set": "0-1,6-7", "cpu_dedicated_set": "2-5,8-11"}
GPU = {"device_spec": '{"vendor_id": "10de"}', "report_in_placement": True}
LAYOUTS: Mapping[str, Mapping[str, str]] = {
    "flat": {"tree_layout": "flat"},
    "nested": {"tree_layout": "nested"},
    "strict": {"tree_layout": "nested", "numa_mode": "strict"},
}
WARNING = (
    "NUMA nodes 0, 1 share CPUs 0-11, as emulated nodes do (numa=fake): all of the host is counted "
    "as cell 0, so that each CPU counts once"
)


def emulated_nodes(root: Path) -> RecordedSysfs:
    """What the kernel shows with ``numa=fake=2``."""
    tree = RecordedSysfs(root)
    for cpu in TWELVE:
        tree.cpu(cpu)
    tree.cpus_online("0-11")
    for number in range(2):
        tree.cell(number, TWELVE, 16777216, (10, 10))
        tree.pages(number, {2048: (512, 512)})
    tree.cells_online("0-1")
    tree.pci("0000:3b:00.0", "10de:1db4", class_code="0x030200", cell=1)
    return tree


@contextmanager
def recorded(
    driver: str, folder: Path, placement: HttpPlacement, root: Path, **groups: Mapping[str, Any]
) -> Iterator[AgentHere]:
    """The agent with the driver ``host`` or ``libvirt`` over a recording of /sys."""
    server = Libvirtd(root) if driver == "libvirt" else None
    try:
        more: dict[str, Any] = {"host": {"sysfs_root": root}, "DEFAULT": {"instances_path": "/"}}
        if server is not None:
            server.start()
            more["libvirt"] = {"connection_uri": server.uri, "virt_type": "qemu"}
        yield AgentHere(folder / "agent", on(placement, driver, more, groups))
    finally:
        if server is not None:
            server.remove()


def parent_of(placement: HttpPlacement, provider: str) -> str:
    """The provider above this one."""
    found = tree(placement)
    names = {
        uuid: one["name"].removeprefix("node-a").removeprefix("_")
        for uuid, one in placement.dump()["providers"].items()
    }
    return names[found[provider]["parent"]]


# --- nodes that share CPUs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "layout"), [*(("fake.file", layout) for layout in LAYOUTS), ("host", "strict")]
)
def test_where_numa_nodes_share_cpus_each_cpu_counts_once(
    driver: str, layout: str, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    options = {"compute": {**SETS, **LAYOUTS[layout]}, "pci": GPU}
    if driver == "host":
        with recorded(
            driver, tmp_path, http_placement, emulated_nodes(tmp_path / "sys").root, **options
        ) as agent:
            warned, result = agent.run("config", "check"), agent.run("--once")
    else:
        agent = AgentHere(tmp_path / "agent")
        configured(agent, http_placement, EMULATED, **options)
        warned, result = agent.run("config", "check"), agent.run("--once")
    assert (warned.code, result.code, warned.stdout.count(WARNING)) == (0, 0, 1), result
    cell = "" if layout == "flat" else "NUMA0"
    assert totals(http_placement, "PCPU") == {cell: 8}
    assert totals(http_placement, "VCPU") == {"NUMA0" if layout == "strict" else "": 4}
    assert sum(totals(http_placement, "MEMORY_MB").values()) == 32768
    assert parent_of(http_placement, "0000:3B:00.0") == cell


@pytest.mark.long
@pytest.mark.xdist_group("libvirt")
@pytest.mark.parametrize("layout", ["flat", "strict"])
def test_so_it_does_by_a_real_libvirtd(
    layout: str, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    root = emulated_nodes(tmp_path / "sys").for_libvirt().root
    compute = {**SETS, **LAYOUTS[layout], "memory_page_classes": True}
    with recorded("libvirt", tmp_path, http_placement, root, compute=compute) as agent:
        warned, result = agent.run("config", "check"), agent.run("--once")
    assert (warned.code, result.code, warned.stdout.count(WARNING)) == (0, 0, 1), result
    cell = "" if layout == "flat" else "NUMA0"
    assert totals(http_placement, "PCPU") == {cell: 8}
    assert totals(http_placement, "VCPU") == {"NUMA0" if layout == "strict" else "": 4}
    assert totals(http_placement, "CUSTOM_MEMORY_PAGE_2048") == {cell: 2048}


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_where_numa_nodes_share_cpus_no_cpu_is_given_twice(
    layout: str, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent")
    configured(agent, http_placement, EMULATED, compute={**SETS, **LAYOUTS[layout]})
    service, client = Service(agent), ApiClient(agent.socket)
    with service.running():
        until(lambda: ready(client), lambda: service)
        pins = [
            {*cell["pins"].values()}
            for name in ("n1", "n2")
            for cell in client.create_claim(claim(name))["cells"]
        ]
        assert set().union(*pins) == {2, 3, 4, 5, 8, 9, 10, 11}
        with pytest.raises(ApiProblem, match="resources unavailable"):
            client.create_claim(claim("n3"))
        assert service.stop()[0] == 0
    assert service.log.count(WARNING) == 1


def claim(name: str) -> dict[str, Any]:
    return {
        "id": uuid_of(f"claim-{name}"),
        "node": ROOT,
        "instance": instance_body(name),
        "flavor": flavor_body(FN4),
    }


@pytest.mark.parametrize("strict", [False, True], ids=["nested", "strict"])
def test_a_tree_with_cells_that_share_cpus_is_reshaped_to_one_cell_and_records_follow(
    strict: bool, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent")
    compute = {**SETS, **LAYOUTS["strict" if strict else "nested"]}
    guests = [pinned("g0", 0, 2, 3), pinned("g1", 1, 8, 9)]
    configured(agent, http_placement, {**APART, "guests": guests}, compute=compute, pci=GPU)
    assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
    uuids = uuids_of(http_placement)
    for name, cell in (("g0", "NUMA0"), ("g1", "NUMA1")):
        memory = {uuids[cell if strict else ""]: {"MEMORY_MB": 1024}}
        cpus = {uuids[cell]: {"PCPU": 2, **({"MEMORY_MB": 1024} if strict else {})}}
        http_placement.other.claim({**memory, **cpus}, guest(name))
    assert agent.run("--once").code == 0
    # From now on the kernel shows the same CPUs on both nodes; the hypervisor names either.
    configured(agent, http_placement, {**EMULATED, "guests": guests}, compute=compute, pci=GPU)
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    assert (node["state"], node["errors"], node["drift"]) == ("changed", [], [])
    assert totals(http_placement, "PCPU") == {"NUMA0": 8}
    assert parent_of(http_placement, "0000:3B:00.0") == "NUMA0"
    here = {"NUMA0": {"PCPU": 2, "MEMORY_MB": 1024}}
    assert held(http_placement, "g1") == (
        here if strict else {"": {"MEMORY_MB": 1024}, "NUMA0": {"PCPU": 2}}
    )
    shown = agent.run("claims", "--format", "json").json["claims"]
    assert {
        (cell["host_cell"], *cell["pins"].values()) for one in shown for cell in one["cells"]
    } == {
        (0, 2, 3),
        (0, 8, 9),
    }
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    assert (node["state"], node["drift"]) == ("in-sync", [])


def test_a_held_device_is_recorded_on_the_cell_that_its_guest_is_recorded_on(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent")
    compute = {**SETS, **LAYOUTS["nested"]}
    guests = [{**pinned("g1", 1, 8, 9), "devices": ["0000:3b:00.0"]}]
    configured(agent, http_placement, {**APART, "guests": guests}, compute=compute, pci=GPU)
    assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
    service, client = Service(agent), ApiClient(agent.socket)

    def places() -> tuple[list[int], list[int]]:
        client.audit_report(client.request_audit(()), wait=60.0)
        return (
            [cell["host_cell"] for one in client.claims() for cell in one["cells"]],
            [device["numa_node"] for device in client.devices()],
        )

    with service.running():
        until(lambda: ready(client), lambda: service)
        assert places() == ([1], [1])
        host_file(agent, {**EMULATED, "guests": guests})
        assert places() == ([0], [0])


def test_what_one_cell_has_no_room_for_is_held_and_told(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent")
    wide = {**APART, "cells": [dict(cell) for cell in APART["cells"]]}
    wide["cells"][1]["cpus"] = "6-23"
    compute = {**SETS, "cpu_dedicated_set": "2-5,8-23", **LAYOUTS["nested"]}
    configured(agent, http_placement, wide, compute=compute)
    assert agent.run("--once").code == 0
    uuids = uuids_of(http_placement)
    http_placement.other.claim({uuids["NUMA0"]: {"PCPU": 4}}, guest("g0"))
    http_placement.other.claim({uuids["NUMA1"]: {"PCPU": 6}}, guest("g1"))
    configured(agent, http_placement, EMULATED, compute={**SETS, **LAYOUTS["nested"]})
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    assert totals(http_placement, "PCPU") == {"NUMA0": 8, "NUMA1": 16}
    assert totals(http_placement, "PCPU", "reserved") == {"NUMA0": 0, "NUMA1": 16}
    assert (
        "held-device",
        f"node-a_NUMA1: PCPU is gone from the node but 6 of it are allocated to {guest('g1')}",
    ) in {(one["kind"], one["detail"]) for one in node["drift"]}


# --- nodes without CPUs, and without memory -------------------------------------------------------

GRACE: Mapping[str, Any] = {
    "uuid": ROOT,
    "disk_gib": 500,
    "cells": [
        {"id": 0, "cpus": "0-11", "memory_mib": 16384},
        *({"id": number, "cpus": "", "memory_mib": 49152} for number in range(1, 9)),
    ],
}
"""Eight cells are the memory of GPUs."""


@pytest.mark.parametrize("mib", [512, 16384, 16385])
def test_the_hosts_reserve_is_where_its_processes_run_as_long_as_there_is_room(
    mib: int, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent")
    configured(
        agent,
        http_placement,
        GRACE,
        compute={**SETS, **LAYOUTS["strict"]},
        DEFAULT={"reserved_host_memory_mb": mib},
    )
    assert agent.run("--once").code == 0
    reserved = totals(http_placement, "MEMORY_MB", "reserved")
    assert (len(reserved), sum(reserved.values())) == (9, mib)
    assert reserved["NUMA0"] == min(mib, 16384)


WITHOUT_CPUS = {
    "nvidiagpunumanodes": {f"NUMA{number}" for number in range(250, 256)},
    "64intel64-fakeKNL-SNC4-hybrid": {f"NUMA{number}" for number in range(4, 8)},
}
"""Recordings of real machines, and their cells that are the memory of GPUs or on the package."""


@pytest.mark.parametrize("recording", of_each(name for name in RECORDINGS if name in WITHOUT_CPUS))
def test_so_it_is_on_recorded_hosts(
    recording: str, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    root = sysfs_root(recording, tmp_path)
    with recorded("host", tmp_path, http_placement, root, compute=LAYOUTS["strict"]) as agent:
        agent.run("--once")
    reserved = totals(http_placement, "MEMORY_MB", "reserved")
    assert {name for name, mib in reserved.items() if not mib} == WITHOUT_CPUS[recording]
    assert sum(reserved.values()) == 512


THREADRIPPER: Mapping[str, Any] = {
    "uuid": ROOT,
    "disk_gib": 500,
    "cells": [
        {"id": number, "cpus": f"{4 * number}-{4 * number + 3}", "memory_mib": mib}
        for number, mib in enumerate((16384, 0, 16384, 0))
    ],
}
"""Like a 2990WX: two of four dies have no memory."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dedicated_cpus_of_a_cell_without_memory_are_not_offered(
    layout: str, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent")
    sets = {"cpu_shared_set": "0,4,8,12", "cpu_dedicated_set": "1-3,5-7,9-11,13-15"}
    configured(agent, http_placement, THREADRIPPER, compute={**sets, **LAYOUTS[layout]})
    assert agent.run("--once").code == 0
    assert totals(http_placement, "PCPU") == (
        {"": 6} if layout == "flat" else {"NUMA0": 3, "NUMA2": 3}
    )
    assert totals(http_placement, "VCPU") == (
        {"NUMA0": 1, "NUMA2": 1} if layout == "strict" else {"": 4}
    )


def test_that_they_are_not_is_said_once_in_the_log_and_once_by_explain(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent")
    sets = {"cpu_shared_set": "0,4,8,12", "cpu_dedicated_set": "1-3,5-7,9-11,13-15"}
    configured(agent, http_placement, THREADRIPPER, compute={**sets, **LAYOUTS["nested"]})
    service, client = Service(agent), ApiClient(agent.socket)
    with service.running():
        until(lambda: ready(client), lambda: service)
        client.audit_report(client.request_audit(()), wait=60.0)
        flavor = ["--vcpus", "4", "--ram", "1024", "--extra-spec", "hw:cpu_policy=dedicated"]
        explained = agent.run("explain", *flavor).stdout
        assert service.stop()[0] == 0
    assert (
        service.log.count(
            "CPUs 5-7,13-15 of cpu_dedicated_set are not offered: no guest can be pinned to them, "
            "because cells 1 and 3 have no memory"
        )
        == 1
    )
    assert explained.count("without memory, not offered") == 1, explained
    assert re.findall(r"^ +(\d) +([-\d]+) +0 ", explained, re.MULTILINE) == [
        ("1", "5-7"),
        ("3", "13-15"),
    ], explained
