"""``agent takeover undo``: a host of nova-compute that the agent took over and laid out anew is
given back as it was.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.setups import host_file, merged, on, towards
from tests.support import faults
from tests.support.http_placement import HttpPlacement
from tests.support.proxy import FaultProxy
from tests.support.service_manager import Service
from tests.support.shell import Shell
from tests.support.system import AgentCommand, AgentHere, Result
from tests.support.tracking import guest

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000c002"
MARK = "CUSTOM_COMPUTE_NODE_AGENT_NODE_A"
GPUS = ("0000:3b:00.0", "0000:af:00.0")
GPU = "CUSTOM_PCI_10DE_1DB4"
FLOATS, PINNED, WITH_GPU, MOVING = (guest(name) for name in ("floats", "pinned", "gpu", "moving"))
ORIGIN = {
    "flavor": {"id": "7", "name": "m1.small", "vcpus": 2, "memory_mb": 1024, "root_gb": 20},
    "project_id": "project",
    "user_id": "user",
}
PIN = {
    "id": "8",
    "name": "pinned",
    "vcpus": 2,
    "memory_mb": 1024,
    "root_gb": 20,
    "extra_specs": {"hw:cpu_policy": "dedicated"},
}
SHARED = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 20}
DEDICATED = {"PCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 20}


def cell(host_cell: int, **more: Any) -> dict[str, Any]:
    return {"host_cell": host_cell, "memory_mib": 1024, **more}


HOST: Mapping[str, Any] = {
    "disk_gib": 500,
    "traits": ["HW_CPU_X86_AVX2", "HW_CPU_X86_SSE3"],
    "cells": [
        {
            "id": one,
            "cpus": f"{8 * one}-{8 * one + 7}",
            "memory_mib": 16384,
            "pages": [{"size_kib": 2048, "total": 512}],
        }
        for one in range(2)
    ],
    "pci": [
        {"address": address, "vendor_id": "10de", "product_id": "1db4", "numa_node": one}
        for one, address in enumerate(GPUS)
    ],
    "guests": [
        {
            "uuid": FLOATS,
            "name": "floats",
            "memory_mib": 1024,
            "vcpus": 2,
            "origin": ORIGIN,
            "cells": [cell(0, shared="0-1")],
        },
        {
            "uuid": PINNED,
            "name": "pinned",
            "memory_mib": 1024,
            "cells": [cell(1, dedicated="0-1", pins={"0": 12, "1": 13})],
            "origin": {**ORIGIN, "flavor": PIN},
        },
        {
            "uuid": WITH_GPU,
            "name": "gpu",
            "memory_mib": 1024,
            "vcpus": 2,
            "devices": [GPUS[1]],
            "cells": [cell(1, shared="0-1")],
            "origin": ORIGIN,
        },
    ],
}
BASE: Mapping[str, Mapping[str, Any]] = {
    "compute": {"cpu_shared_set": "0-3,8-11", "cpu_dedicated_set": "4-7,12-15"},
    "pci": {"device_spec": '{"vendor_id": "10de", "product_id": "1db4"}'},
}
REPORTED: Mapping[str, Mapping[str, Any]] = {"pci": {"report_in_placement": "true"}}
NESTED = {"compute": {"tree_layout": "nested"}}
STRICT = {"compute": {"tree_layout": "nested", "numa_mode": "strict", "memory_page_classes": True}}


class Site:
    """A host that nova-compute has in Placement, and an agent."""

    def __init__(self, folder: Path, placement: HttpPlacement) -> None:
        self.folder, self.placement, self.other = folder, placement, placement.other
        self.agent = AgentHere(folder / "agent")
        (folder / "nova").mkdir()
        (folder / "nova" / "compute_id").write_text(ROOT)

    def configure(
        self, *options: Mapping[str, Mapping[str, Any]], agent: AgentCommand | None = None
    ) -> None:
        agent = agent or self.agent
        own = {
            "DEFAULT": {"state_path": self.folder / "nova"},
            "fake": {"host_file": host_file(agent, HOST)},
        }
        agent.configure(merged(on(self.placement, "fake.file"), own, BASE, *options))

    def as_nova_has_it(self, *options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Bring host and guests into Placement flat and without the marks of an agent. Return the
        content of Placement.
        """
        manager = AgentHere(self.folder / "manager")
        described = {**HOST, "guests": [], "traits": ["HW_CPU_X86_AVX2"]}
        self.configure({"compute": {"tree_layout": "flat"}}, *options, agent=manager)
        host_file(manager, described)
        assert manager.run("--once").code == 0
        self.other.set_traits(ROOT, self.other.traits(ROOT) - {MARK, "OWNER_NOVA"})
        self.other.call("DELETE", f"/traits/{MARK}")
        aggregate = "a99e0000-0000-4000-8000-0000000000a9"
        self.other.set_aggregates(ROOT, {aggregate})
        self.other.claim({ROOT: SHARED}, FLOATS)
        self.other.claim({ROOT: DEDICATED}, PINNED)
        card = f"node-a_{GPUS[1].upper()}"
        cards = {row["name"]: row["uuid"] for row in self.other.tree(ROOT)}
        shares = {ROOT: SHARED}
        if card in cards:
            shares[cards[card]] = {GPU: 1}
        self.other.claim(shares, WITH_GPU)
        self.placement.clear()
        return self.content()

    def take_over(self, *options: Mapping[str, Mapping[str, Any]]) -> None:
        self.configure(*options)
        assert self.agent.run("guests", "import").code == 0
        result = self.agent.run("--once", "--adopt", "--format", "json")
        (node,) = result.json["nodes"]
        assert (node["state"], node["errors"]) == ("changed", []), result
        # What guests have of devices is written by a pass without a reshape.
        assert self.agent.run("--once").code == 0
        self.placement.clear()

    def undo(self, *arguments: str) -> Result:
        return self.agent.run("takeover", "undo", "--format", "json", *arguments)

    def content(self) -> dict[str, Any]:
        """All of Placement but generations, which only grow."""
        found = json.loads(json.dumps(self.placement.dump()))
        for one in (*found["providers"].values(), *found["consumers"].values()):
            one.pop("generation")
        by_name = {one["name"]: {**one, "uuid": uuid} for uuid, one in found["providers"].items()}
        return {**found, "providers": by_name}


@pytest.fixture
def site(tmp_path: Path, http_placement: HttpPlacement) -> Site:
    return Site(tmp_path, http_placement)


LAYOUTS = {"nested": NESTED, "strict": STRICT, "as it was": {}}


@pytest.mark.parametrize(
    ("layout", "reported"),
    [("nested", {}), ("strict", REPORTED), ("as it was", REPORTED)],
    ids=["nested", "strict, devices reported", "as it was, devices reported"],
)
def test_tree_and_allocations_are_again_as_nova_had_them(
    site: Site, layout: str, reported: Mapping[str, Mapping[str, Any]]
) -> None:
    before = site.as_nova_has_it(reported)
    site.take_over(reported, LAYOUTS[layout])
    taken = site.content()
    assert taken != before
    names = taken["providers"].keys()
    assert ("node-a_NUMA1" in names) == (layout != "as it was")
    result = site.undo("--yes")
    assert result.code == 0, result
    assert site.content() == before
    document = result.json
    assert document["schema"] == "compute-node-agent/takeover-undo/1"
    assert document["given_back"] == [ROOT]
    pages = ["CUSTOM_MEMORY_PAGE_2048"] if layout == "strict" else []
    assert document["deleted"] == {"traits": [MARK], "classes": pages}
    moves = [request for request in site.placement.writes() if request.path == "/reshaper"]
    assert len(moves) == (layout != "as it was")
    # Once more there is nothing to do, and nobody is asked.
    site.placement.clear()
    again = site.undo("--yes")
    assert (again.code, again.json["nodes"], site.placement.requests) == (0, [], [])


def test_a_host_that_was_renamed_meanwhile_is_given_back_under_its_new_name(site: Site) -> None:
    before = json.loads(json.dumps(site.as_nova_has_it(REPORTED)).replace("node-a", "node-b"))
    site.take_over(REPORTED, NESTED)
    site.configure(REPORTED, NESTED, {"DEFAULT": {"host": "node-b"}})
    assert site.agent.run("identity", "rename").code == 0
    result = site.undo("--yes")
    assert result.code == 0, result
    assert site.content() == before


def test_without_yes_the_plan_is_shown_and_nothing_is_written(site: Site) -> None:
    site.as_nova_has_it(REPORTED)
    site.take_over(REPORTED, STRICT)
    taken = site.placement.dump()
    plain, dry = site.undo(), site.undo("--dry-run", "--yes", "--detailed-exitcode")
    assert (plain.code, dry.code) == (0, 2)
    assert site.placement.dump() == taken
    assert {request.method for request in site.placement.requests} == {"GET"}
    (node,) = plain.json["nodes"]
    operations = [one["op"] for one in node["operations"]]
    assert operations.count("reshape") == 1
    assert operations.count("delete-provider") == 2
    assert operations.count("reparent-provider") == 2
    assert plain.json["deleted"]["traits"] == [MARK]
    assert plain.json["given_back"] == []
    text = site.agent.run("takeover", "undo", "--node", "node-a").stdout
    *_, last = text.splitlines()
    assert "--config-file" in last and last.endswith(" takeover undo --yes --node node-a")
    # What is planned is what is done, by the command that it ends with.
    shell = Shell(site.folder / "programs", site.agent)
    (done,) = json.loads(shell.run(f"{last.strip()} --format json"))["nodes"]
    assert [one["op"] for one in done["operations"]] == operations


def test_what_others_have_in_the_tree_stays(site: Site) -> None:
    site.as_nova_has_it(REPORTED)
    other = site.other
    port = other.create_provider("node-a:NIC", parent=ROOT)
    other.set_inventory(port, {"NET_BW_EGR_KILOBIT_PER_SEC": 1000})
    other.call("PUT", "/traits/CUSTOM_FAST")
    other.set_traits(ROOT, {*other.traits(ROOT), "CUSTOM_FAST"})
    elsewhere = other.create_provider("node-b")
    other.set_inventory(elsewhere, {"VCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 100})
    other.claim({elsewhere: SHARED, ROOT: SHARED}, MOVING)
    before = site.content()
    site.take_over(REPORTED, NESTED)
    assert site.undo("--yes").code == 0
    assert site.content() == before


def test_devices_that_nova_does_not_report_go_with_their_allocations(site: Site) -> None:
    before = site.as_nova_has_it()
    site.take_over(REPORTED, NESTED)
    cards = [
        uuid
        for uuid, one in site.placement.dump()["providers"].items()
        if GPUS[1].upper() in one["name"]
    ]
    assert {GPU: 1} in [
        site.content()["consumers"][WITH_GPU]["allocations"].get(uuid) for uuid in cards
    ]
    # nova.conf does not report them.
    site.configure(NESTED)
    plan = site.undo().json
    assert plan["released"] == {WITH_GPU: [f"node-a_{GPUS[1].upper()}"]}
    result = site.undo("--yes")
    assert result.code == 0, result
    # nova-compute makes the same class, on another host at any time.
    after = site.content()
    after["custom_resource_classes"].remove(GPU)
    assert after == before
    assert result.json["deleted"] == {"traits": [MARK], "classes": []}
    assert result.json["left"] == {"traits": [], "classes": [GPU]}


STEPS = [
    ("PUT", "/resource_providers/[^/]+$"),
    ("POST", "/reshaper"),
    ("DELETE", "/resource_providers/"),
    ("DELETE", "/traits/"),
]
"""Requests in the order of an undo, which are cut off before Placement has them."""


@pytest.mark.long
def test_a_class_that_an_operator_named_stays_and_is_told(site: Site) -> None:
    site.as_nova_has_it()
    named = {"device_spec": '{"vendor_id": "10de", "resource_class": "CUSTOM_CUT"}'}
    site.take_over(NESTED, {"pci": {**named, "report_in_placement": "true"}})
    site.configure(NESTED, {"pci": named})
    document = site.undo("--yes").json
    assert document["left"] == {"traits": [], "classes": ["CUSTOM_CUT"]}
    assert document["deleted"] == {"traits": [MARK], "classes": []}
    assert "CUSTOM_CUT" in site.content()["custom_resource_classes"]


@pytest.mark.long
def test_an_interrupted_undo_is_taken_up_again(site: Site, proxy: FaultProxy) -> None:
    before = site.as_nova_has_it(REPORTED)
    site.take_over(REPORTED, STRICT)
    site.configure(REPORTED, STRICT, towards(site.placement, proxy.url))
    for method, path in STEPS:
        proxy.faults.clear()
        cut = proxy.faults.add(faults.cut(), method=method, path=path, times=None)
        result = site.undo("--yes")
        assert (cut.hits > 0, result.code in (1, 3)) == (True, True), (path, result)
        assert result.json.get("given_back", []) == []
    proxy.faults.clear()
    assert site.undo("--yes").json["given_back"] == [ROOT]
    assert site.content() == before


def test_a_daemon_of_the_same_store_is_in_its_way(site: Site, tmp_path: Path) -> None:
    site.as_nova_has_it(REPORTED)
    site.take_over(REPORTED, NESTED)
    taken = site.content()
    command = AgentCommand(site.agent.folder)
    site.configure(REPORTED, NESTED, agent=command)
    with Service(command).running() as service:
        service.wait_for("READY")
        refused = site.undo("--yes")
        assert (refused.code, refused.json["errors"][0]["code"]) == (1, "store.locked")
        assert site.content() == taken
    assert site.undo("--yes").code == 0


def test_an_agent_that_observes_gives_nothing_back(site: Site) -> None:
    site.as_nova_has_it()
    site.take_over(NESTED)
    site.configure(NESTED, {"DEFAULT": {"mode": "observe"}})
    refused = site.undo("--yes")
    assert (refused.code, "observe" in refused.json["errors"][0]["message"]) == (1, True)
    assert site.placement.writes() == []


def test_a_host_that_was_never_taken_over_has_nothing_to_undo(site: Site) -> None:
    before = site.as_nova_has_it()
    site.configure()
    text = site.agent.run("takeover", "undo", "--yes")
    assert (text.code, "nothing to undo" in text.stdout) == (0, True)
    assert (site.content(), site.placement.requests) == (before, [])


def test_a_guest_that_came_meanwhile_has_its_allocation_on_the_root_afterwards(
    site: Site,
) -> None:
    site.as_nova_has_it(REPORTED)
    site.take_over(REPORTED, NESTED)
    cells = {row["name"]: row["uuid"] for row in site.other.tree(ROOT)}
    site.other.claim(
        {ROOT: {"MEMORY_MB": 1024, "DISK_GB": 20}, cells["node-a_NUMA0"]: {"PCPU": 2}}, MOVING
    )
    assert site.undo("--yes").code == 0
    assert site.content()["consumers"][MOVING]["allocations"] == {ROOT: DEDICATED}
