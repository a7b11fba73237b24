"""A host that got another name: its provider and their children are renamed in place, and nothing is
offered twice, however the rename is interrupted.
"""

import json
import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import pytest

from agent.api.client import ApiProblem
from agent.model.names import ProviderUuid
from tests.functional.test_daemon_claims import Host
from tests.support import faults
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.placement import Placement
from tests.support.provider_files import ProviderFiles, by_name, default
from tests.support.proxy import FaultProxy
from tests.support.store_place import Place
from tests.support.system import AgentHere
from tests.support.tracking import F1, guest

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000d001"
OLD, NEW = "compute1", "compute1.example.com"
GPU, MDEVS, CLASS = "0000:3B:00.0", "0000:5e:00.0", "CUSTOM_PCI_10DE_1DB6"
ROLES = ("_NUMA0", "_NUMA1", f"_{GPU}", "_pci_0000_5e_00_0", "_amd_sev", "_mine")
HOST = {
    "uuid": ROOT,
    "cells": [
        {"id": cell, "cpus": f"{4 * cell}-{4 * cell + 3}", "memory_mib": 32768} for cell in (0, 1)
    ],
    "disk_gib": 500,
    "pci": [{"address": GPU.lower(), "vendor_id": "10de", "product_id": "1db6", "numa_node": 0}],
    "mdev": [{"parent": MDEVS, "types": {"nvidia-35": 4}}],
    "encryption": {"sev": 3},
    "providers": [{"name": "$NODE_mine", "inventories": {"CUSTOM_MINE": {"total": 2}}}],
}
PINNED = {"hw:cpu_policy": "dedicated", "pci_passthrough:alias": "gpu:1"}


class RenamedHost(Host):
    """A host with a child of each kind."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        (folder / "host.yaml").write_text(json.dumps(HOST))
        spec = {"vendor_id": "10de", "product_id": "1db6"}
        self.config |= {
            "pci": {
                "device_spec": json.dumps(spec),
                "alias": json.dumps({"name": "gpu", **spec, "device_type": "type-PCI"}),
                "report_in_placement": True,
            },
            "devices": {"enabled_mdev_types": "nvidia-35"},
        }
        self.config["compute"] |= {
            "cpu_shared_set": "0,4",
            "cpu_dedicated_set": "1-3,5-7",
            "tree_layout": "nested",
        }
        self.here = AgentHere(folder)
        self.call(OLD)

    def call(self, name: str) -> None:
        """From now on the host has this name."""
        self.config["DEFAULT"]["host"] = name
        for command in (self.command, self.here):
            command.configure(self.config)

    def once(self, *words: str) -> dict[str, Any]:
        report = self.here.run(*(words or ("--once",)), "--format", "json").json
        assert report["nodes"], report["errors"]
        return dict(report["nodes"][0])


@pytest.fixture
def host(http_placement: HttpPlacement, proxy: FaultProxy, tmp_path: Path) -> RenamedHost:
    return RenamedHost(tmp_path / "agent", proxy.url)


def names(placement: HttpPlacement) -> dict[str, str]:
    return {uuid: one["name"] for uuid, one in placement.dump()["providers"].items()}


def offered(placement: HttpPlacement) -> Counter[str]:
    """What the tree offers in all."""
    return Counter(
        {
            name: sum(
                one["inventories"][name]["total"] - one["inventories"][name]["reserved"]
                for one in placement.dump()["providers"].values()
                if name in one["inventories"]
            )
            for provider in placement.dump()["providers"].values()
            for name in provider["inventories"]
        }
    )


def child(placement: HttpPlacement, role: str) -> str:
    (uuid,) = (uuid for uuid, name in names(placement).items() if name.endswith(role))
    return uuid


def called(name: str) -> set[str]:
    return {name, *(f"{name}{role}" for role in ROLES)}


OFFERED = {
    "VCPU": 2,
    "PCPU": 6,
    "MEMORY_MB": 65536 - 512,
    "DISK_GB": 500,
    CLASS: 1,
    "VGPU": 4,
    "MEM_ENCRYPTION_CONTEXT": 3,
    "CUSTOM_MINE": 2,
}
GUEST = "bbbbbbbb-0000-4000-8000-000000000001"


def as_the_first_release_left(host: RenamedHost, placement: HttpPlacement, name: str) -> None:
    """Its tree, recorded; its store is set aside."""
    data = CHECKOUT / "tests" / "data"
    recorded = json.loads((data / f"placement-0014-{name}.json").read_text())
    other, providers = placement.other, recorded["providers"]
    for uuid, one in sorted(providers.items(), key=lambda item: item[1]["parent"] or ""):
        other.create_provider(one["name"], uuid, one["parent"])
        other.set_inventory(uuid, {name: r["total"] for name, r in one["inventories"].items()})
        other.set_traits(uuid, one["traits"])
    for uuid, consumer in recorded["consumers"].items():
        other.claim(consumer["allocations"], uuid)
    for uuid, one in providers.items():
        other.set_inventory(uuid, one["inventories"])
    with closing(sqlite3.connect(placement._database)) as database, database:
        for uuid, one in providers.items():
            database.execute(
                "UPDATE resource_providers SET generation = ? WHERE uuid = ?",
                (one["generation"], uuid),
            )
    host.here.store.mkdir(exist_ok=True)
    (host.here.store / "compute_id").write_text(f"{ROOT}\n")


def with_its_store(host: RenamedHost) -> None:
    """The store of the first release, recorded."""
    script = (CHECKOUT / "tests" / "data" / "store-0014.sql").read_text()
    with closing(sqlite3.connect(host.here.store / "store.sqlite")) as store:
        store.executescript(script)


def test_the_command_that_the_refusal_names_renames_a_host_with_its_claims_in_place(
    host: RenamedHost, http_placement: HttpPlacement
) -> None:
    flavor = replace(F1, vcpus=2, root_gb=0, extra_specs=PINNED)
    with host.service.running():
        host.answers(host.client.readiness)
        cell, card = child(http_placement, "_NUMA0"), child(http_placement, f"_{GPU}")
        held = {
            ROOT: {"MEMORY_MB": flavor.memory_mb},
            cell: {"PCPU": flavor.vcpus},
            card: {CLASS: 1},
        }
        http_placement.other.claim(held, guest("i1"))
        assert host.claim("i1", flavor)["state"] == "held"
        host.service.stop()
    host.once()
    before, amounts = http_placement.dump(), offered(http_placement)
    assert set(names(http_placement).values()) == called(OLD)
    host.call(NEW)
    refused = host.once()
    assert refused["state"] == "failed"
    (error,) = refused["errors"]
    (command,) = re.findall(r"agent (identity rename)", error["remedy"])
    assert http_placement.dump() == before
    shown = host.once(*command.split(), "--dry-run")
    assert http_placement.dump() == before
    http_placement.clear()
    done = host.once(*command.split())
    assert (done["state"], done["errors"], done["drift"]) == ("changed", [], [])
    assert [one["op"] for one in shown["operations"]] == [one["op"] for one in done["operations"]]
    after, sent = (
        http_placement.dump(),
        [f"{one.method} {one.path}" for one in http_placement.requests],
    )
    last = 3 + len(ROLES)
    assert sent[:3] == ["GET /resource_providers", "GET /traits", f"PUT /resource_providers/{ROOT}"]
    assert sorted(sent[3:last]) == sorted(
        f"PUT /resource_providers/{uuid}" for uuid in after["providers"] if uuid != ROOT
    )
    assert sent[last:] == [
        "PUT /traits/CUSTOM_COMPUTE_NODE_AGENT_COMPUTE1_EXAMPLE_COM",
        f"PUT /resource_providers/{ROOT}/traits",
    ]
    assert offered(http_placement) == amounts
    assert names(http_placement) == {
        uuid: NEW + name.removeprefix(OLD)
        for uuid, name in ((uuid, one["name"]) for uuid, one in before["providers"].items())
    }
    assert after["consumers"] == before["consumers"]
    with host.service.running():
        host.answers(host.client.readiness)
        http_placement.clear()
        host.client.audit_report(host.client.request_audit(), 30)
        assert len(http_placement.requests) == 1
        with pytest.raises(ApiProblem):
            host.claim("i2", flavor)
        assert not http_placement.other.can_claim({card: {CLASS: 1}}, guest("i2"))


@pytest.mark.parametrize("role", ["_NUMA0", f"_{GPU}"])
def test_a_child_does_not_become_the_host(
    host: RenamedHost, http_placement: HttpPlacement, role: str
) -> None:
    described = {key: value for key, value in HOST.items() if key != "uuid"}
    (host.command.folder / "host.yaml").write_text(json.dumps(described))
    root = host.once()["uuid"]
    wrong = child(http_placement, role)
    refused = host.here.run("identity", "set", wrong)
    assert refused.code == 1
    assert f" identity set {root}" in refused.stderr
    assert host.here.run("identity", "show").stdout.startswith(root)
    # A uuid can be set without Placement, too.
    away = ("--placement-endpoint", "http://127.0.0.1:1/")
    done = host.here.run("identity", "set", wrong, *away)
    assert done.code == 0
    assert "Placement was not asked about it: cannot connect to http://127.0.0.1:1" in done.stdout
    host.call(NEW)
    before = http_placement.dump()
    for words in (["identity", "rename", "--dry-run"], ["identity", "rename"]):
        (error,) = host.once(*words)["errors"]
        assert error["code"] == "placement.identity-conflict"
        assert http_placement.dump() == before
    (command,) = re.findall(r"agent (identity set \S+);", error["remedy"])
    done = host.here.run(*command.split())
    assert (
        f"Placement has it as '{OLD}'; if the host was renamed: agent identity rename"
        in done.stdout
    )
    node = host.once("identity", "rename")
    assert (node["uuid"], node["state"], node["errors"]) == (root, "changed", [])
    assert set(names(http_placement).values()) == called(NEW)


@pytest.mark.parametrize("on_server", [False, True], ids=["in a file", "on a server"])
def test_a_renamed_host_that_was_somebody_else_for_a_while_is_itself_again_with_all_its_claims(
    host: RenamedHost, request: pytest.FixtureRequest, *, on_server: bool
) -> None:
    if on_server:
        place: Place = request.getfixturevalue("postgresql_place")
        host.config["store"] = {"connection": place.url}
        host.call(OLD)
    described = {key: value for key, value in HOST.items() if key != "uuid"}
    (host.command.folder / "host.yaml").write_text(json.dumps(described))
    flavor = replace(F1, vcpus=1, root_gb=0, extra_specs=PINNED)
    plain = replace(F1, vcpus=1, root_gb=0)

    def claimed(name: str, flavor: Any) -> None:
        with host.service.running():
            host.answers(host.client.readiness)
            (node,) = host.client.nodes()
            assert host.claim(name, flavor, node=node["uuid"])["state"] == "held"
            host.service.stop()

    claimed("i1", flavor)
    root = host.once()["uuid"]
    other = "11111111-1111-4111-8111-111111111111"
    host.call(NEW)
    host.here.run("identity", "set", other)
    assert host.once()["state"] == "changed"
    claimed("i2", plain)
    # Of two guests that were given one device, the later one has it.
    claimed("i3", flavor)
    assert host.here.run("identity", "set", root).code == 0
    shown = host.once("--once", "--dry-run")
    (error,) = host.once()["errors"]
    assert error["code"] == shown["errors"][0]["code"] == "placement.identity-conflict"
    claims = host.here.run("claims", "--format", "json").json["claims"]
    assert {one["instance"] for one in claims} == {guest("i2"), guest("i3")}
    assert [one["node"] for one in claims] == [root, root]
    assert sum(len(one["devices"]) for one in claims) == 1


def carry_out(remedy: str, host: RenamedHost, placement: Placement) -> None:
    """Do what a remedy names as the way to one tree, command by command."""
    for step in remedy.split(" by: ")[1].partition(";")[0].split(" && "):
        program, *words = step.split()
        if program == "agent":
            assert host.here.run(*words).code == 0, step
        else:
            assert words[:-1] == ["resource", "provider", "delete"]
            placement.delete_provider(words[-1])


def without_store_and_uuid(host: RenamedHost, *guests: str) -> None:
    """The host is installed anew, under another name."""
    shutil.rmtree(host.here.store, ignore_errors=True)
    described = {key: value for key, value in HOST.items() if key != "uuid"}
    shown = [{"uuid": uuid, "name": "g", "vcpus": 1, "memory_mib": 512} for uuid in guests]
    (host.command.folder / "host.yaml").write_text(json.dumps({**described, "guests": shown}))


@pytest.mark.parametrize("shown", ["first", "first, and it moved", "after"])
def test_a_host_that_lost_its_store_and_its_name_is_published_once_by_the_remedies_alone(
    host: RenamedHost, http_placement: HttpPlacement, shown: str
) -> None:
    """``shown``: whether the hypervisor shows its guest before a second tree was written; or it is
    another host, which has the guest of the first one.
    """
    placement, i1, i2 = http_placement.other, guest("i1"), guest("i2")
    without_store_and_uuid(host)
    root = host.once()["uuid"]
    amounts, cell = offered(http_placement), child(http_placement, "_NUMA0")
    held = {root: {"MEMORY_MB": 512}, cell: {"PCPU": 1}}
    placement.claim(held, i1)
    without_store_and_uuid(host, *[i1] * (shown != "after"))
    host.call(NEW)
    if shown != "after":
        before = http_placement.dump()
        for words in (["--once", "--dry-run"], ["--once"], ["--once"]):
            http_placement.clear()
            (error,) = host.once(*words)["errors"]
            assert error["code"] == "placement.identity-conflict"
            assert all(text in error["message"] for text in (i1, root, repr(OLD)))
            paths = [one.path for one in http_placement.requests]
            assert paths.count(f"/allocations/{i1}") == 1
            assert http_placement.dump() == before
        (command,) = re.findall(rf"agent (identity set {root});", error["remedy"])
        if shown != "first":
            (command,) = re.findall(r"agent (identity set \S+)$", error["remedy"])
            assert host.here.run(*command.split()).code == 0
            assert (host.once()["errors"], names(http_placement)[root]) == ([], OLD)
            assert offered(http_placement) == amounts + amounts
            return
    else:
        # Nothing says who it is, so that everything is offered twice.
        assert host.once()["state"] == "changed"
        assert offered(http_placement) == amounts + amounts
        (there,) = (uuid for uuid, name in names(http_placement).items() if name == f"{NEW}_NUMA0")
        placement.claim({there: {"PCPU": 1}}, i2)
        command = f"identity set {root}"
    assert host.here.run(*command.split()).code == 0
    (error,) = host.once()["errors"]
    (command,) = re.findall(r"agent (identity rename)", error["remedy"])
    renamed = host.once(*command.split())
    if shown == "after":
        planned = host.once(*command.split(), "--dry-run")
        (error,) = renamed["errors"]
        assert (error["code"], planned["errors"]) == ("placement.name-conflict", [error])
        assert "consumers with allocations on it or its cells: 1, providers" in error["message"]
        assert f"if this host is {root}, and" in error["remedy"]
        # There is no other remedy beside the operations.
        assert "rename it" not in json.dumps(planned["operations"])
        carry_out(error["remedy"], host, placement)
    else:
        assert renamed["errors"] == []
    assert host.once("--once", "--adopt")["errors"] == []
    assert host.once()["state"] == "in-sync"
    assert set(names(http_placement).values()) == called(NEW)
    assert offered(http_placement) == amounts
    found = {
        consumer: {uuid: one["resources"] for uuid, one in some["allocations"].items()}
        for consumer in (i1, i2)
        for some in [placement.allocations(consumer)]
    }
    mine = {cell: {"PCPU": 1}} if shown == "after" else {}
    assert found == {i1: held, i2: mine}


def test_a_renamed_host_that_was_somebody_else_for_a_while_gets_one_tree_by_the_remedies_alone(
    host: RenamedHost, http_placement: HttpPlacement
) -> None:
    described = {key: value for key, value in HOST.items() if key != "uuid"}
    (host.command.folder / "host.yaml").write_text(json.dumps(described))
    placement = http_placement.other
    root, other = host.once()["uuid"], "11111111-1111-4111-8111-111111111111"
    amounts, cell = offered(http_placement), child(http_placement, "_NUMA0")
    placement.claim({root: {"MEMORY_MB": 512}, cell: {"PCPU": 1}}, guest("i1"))
    placement.claim({cell: {"PCPU": 1}}, guest("i3"))
    host.call(NEW)
    host.here.run("identity", "set", other)
    assert host.once()["state"] == "changed"
    (there,) = (uuid for uuid, name in names(http_placement).items() if name == f"{NEW}_NUMA0")
    placement.claim({other: {"MEMORY_MB": 256}, there: {"PCPU": 1}}, guest("i2"))
    both = {cell: {"PCPU": 1}, there: {"PCPU": 1}}
    placement.claim(both, guest("i3"))
    host.here.run("identity", "set", root)
    (error,) = host.once()["errors"]
    (command,) = re.findall(r"agent (identity rename)", error["remedy"])
    shown, refused = host.once(*command.split(), "--dry-run"), host.once(*command.split())
    error = refused["errors"][0]
    assert (error["code"], shown["errors"][0]) == ("placement.name-conflict", error)
    carry_out(error["remedy"], host, placement)
    assert host.once()["state"] == "in-sync"
    assert set(names(http_placement).values()) == called(NEW)
    assert offered(http_placement) == amounts
    held = {
        name: {uuid: one["resources"] for uuid, one in found["allocations"].items()}
        for name in ("i1", "i2", "i3")
        for found in [placement.allocations(guest(name))]
    }
    assert held == {
        "i1": {root: {"MEMORY_MB": 512}, cell: {"PCPU": 1}},
        "i2": {root: {"MEMORY_MB": 256}, cell: {"PCPU": 1}},
        "i3": {cell: {"PCPU": 1}},
    }


@pytest.mark.parametrize("written", ["now", "now, and the store is lost", "by the first release"])
def test_a_root_that_the_operator_renamed_gets_its_children_along_in_the_next_pass(
    host: RenamedHost, http_placement: HttpPlacement, written: str
) -> None:
    if written != "by the first release":
        assert host.once()["state"] == "changed"
    else:
        as_the_first_release_left(host, http_placement, "nested")
        assert child(http_placement, "_NUMA0") == str(uuid5(UUID(ROOT), f"{OLD}_NUMA0"))
    before, amounts = names(http_placement), offered(http_placement)
    http_placement.other.rename(ROOT, NEW)
    host.call(NEW)
    words = ["--once"]
    if written != "now":
        assert host.here.run("db", "set-aside").code == 0
        words.append("--adopt")
    node = host.once(*words)
    assert (node["state"], node["errors"]) == ("changed", [])
    assert names(http_placement) == {
        uuid: NEW + name.removeprefix(OLD) for uuid, name in before.items()
    }
    assert offered(http_placement) == amounts
    http_placement.clear()
    assert host.once()["state"] == "in-sync"


def test_what_others_write_on_a_child_while_it_is_renamed_is_seen_by_the_next_pass(
    host: RenamedHost, http_placement: HttpPlacement, proxy: FaultProxy
) -> None:
    host.once()
    gpu = child(http_placement, GPU)
    traits = http_placement.dump()["providers"][gpu]["traits"]
    http_placement.other.rename(ROOT, NEW)
    host.call(NEW)
    # A rename is not guarded by a generation.
    taken = proxy.faults.add(
        faults.before(lambda _: http_placement.other.set_traits(gpu, {"CUSTOM_RACK7"})),
        method="PUT",
        path=f"^/resource_providers/{gpu}$",
    )
    host.once()
    assert taken.hits == 1
    host.once()
    assert http_placement.dump()["providers"][gpu]["traits"] == sorted({*traits, "CUSTOM_RACK7"})
    assert host.once()["state"] == "in-sync"


@pytest.mark.long
def test_a_host_gets_another_layout_and_another_name_in_one_pass(
    host: RenamedHost, http_placement: HttpPlacement
) -> None:
    flavor = replace(F1, vcpus=2, root_gb=0, extra_specs=PINNED)
    with host.service.running():
        host.answers(host.client.readiness)
        cell, card = child(http_placement, "_NUMA0"), child(http_placement, f"_{GPU}")
        held = {ROOT: {"MEMORY_MB": flavor.memory_mb}, cell: {"PCPU": 2}, card: {CLASS: 1}}
        http_placement.other.claim(held, guest("i1"))
        assert host.claim("i1", flavor)["state"] == "held"
        host.service.stop()
    amounts = offered(http_placement)
    flat = {ROOT: {"MEMORY_MB": flavor.memory_mb, "PCPU": 2}, card: {CLASS: 1}}
    for layout, name in (("flat", NEW), ("nested", OLD)):
        host.config["compute"]["tree_layout"] = layout
        host.call(name)
        planned = host.once("identity", "rename", "--dry-run")
        done = host.once("identity", "rename")
        assert (done["state"], done["errors"], done["drift"]) == ("changed", [], [])
        assert [one["op"] for one in planned["operations"]] == [
            one["op"] for one in done["operations"]
        ]
        cells = {f"{name}_NUMA0", f"{name}_NUMA1"} if layout == "flat" else set()
        assert set(names(http_placement).values()) == called(name) - cells
        assert offered(http_placement) == amounts
        found = http_placement.other.allocations(guest("i1"))["allocations"]
        found = {uuid: one["resources"] for uuid, one in found.items()}
        assert found == (flat if layout == "flat" else held)
        assert host.once()["state"] == "in-sync"
    # A cell that is back is the same one.
    assert child(http_placement, "_NUMA0") == cell


def test_what_the_operators_files_give_stays_at_a_rename_as_the_files_name_it(
    host: RenamedHost, http_placement: HttpPlacement
) -> None:
    files = ProviderFiles(host.here.folder / "provider_config")
    host.config["compute"]["provider_config_location"] = files.folder

    def by_cell(name: str) -> dict[str, Any]:
        return by_name(f"{name}_NUMA0", CUSTOM_OF_CELL={"total": 3})

    host.call(OLD)
    files.write("root.yaml", default("CUSTOM_T", CUSTOM_OF_ROOT={"total": 5}))
    files.write("cell.yaml", by_cell(OLD))
    host.once()
    cell, amounts = child(http_placement, "_NUMA0"), offered(http_placement)
    assert {"CUSTOM_OF_ROOT", "CUSTOM_OF_CELL"} <= amounts.keys()
    http_placement.other.claim({cell: {"CUSTOM_OF_CELL": 1}}, GUEST)
    host.call(NEW)
    # The file still names a provider that is not there any more: nothing that is used is lost.
    node = host.once("identity", "rename")
    told, unknown = node["drift"]
    assert f"{NEW}_NUMA0: no file gives it CUSTOM_OF_CELL any more" in told["detail"]
    assert (unknown["kind"], unknown["consumer"]) == ("orphaned-allocation", GUEST)
    assert offered(http_placement) == {**amounts, "CUSTOM_OF_CELL": 0}
    files.write("cell.yaml", by_cell(NEW))
    node = host.once()
    assert (node["errors"], offered(http_placement)) == ([], amounts)
    assert [one["consumer"] for one in node["drift"]] == [GUEST]
    # And with the file edited before the rename, in one pass.
    files.write("cell.yaml", by_cell(OLD))
    host.call(OLD)
    node = host.once("identity", "rename")
    assert (node["errors"], offered(http_placement)) == ([], amounts)
    assert [one["consumer"] for one in node["drift"]] == [GUEST]
    assert set(names(http_placement).values()) == called(OLD)


def test_roles_are_kept_in_a_store_on_a_server_too(
    host: RenamedHost, http_placement: HttpPlacement, postgresql_place: Place
) -> None:
    host.config["store"] = {"connection": postgresql_place.url}
    host.call(OLD)
    host.once()
    before, amounts = names(http_placement), offered(http_placement)
    host.call(NEW)
    for _ in range(2):
        assert host.once("identity", "rename")["errors"] == []
        assert offered(http_placement) == amounts
        assert names(http_placement) == {
            uuid: NEW + name.removeprefix(OLD) for uuid, name in before.items()
        }
    with postgresql_place.open_read_only() as store:
        roles = {one.role for one in store.journal(ProviderUuid(ROOT)).providers.values()}
    assert roles - {""} == set(ROLES)


def test_of_two_children_of_one_role_the_one_that_is_used_stays(
    host: RenamedHost, http_placement: HttpPlacement
) -> None:
    """The first release made a child anew when its node was renamed, and held the used one."""
    as_the_first_release_left(host, http_placement, "doubled")
    before = http_placement.dump()
    held = before["consumers"][GUEST]["allocations"].keys()
    host.call(NEW)
    http_placement.clear()
    states = [
        (node["state"], node["errors"]) for node in (host.once("--once", "--adopt"), host.once())
    ]
    # What is not used goes before what is used is offered again; its name is free one pass later.
    wrote = [str(one) for one in http_placement.requests if one.method != "GET"]
    last = {one.split(" -> ")[0]: at for at, one in enumerate(wrote) if one[-3:] < "300"}
    twice = {one["name"]: uuid for uuid, one in before["providers"].items()}
    for used in held - {ROOT}:
        second = twice[before["providers"][used]["name"].replace(OLD, NEW)]
        path = "/resource_providers"
        assert last[f"DELETE {path}/{second}"] < last[f"PUT {path}/{used}/inventories"], wrote
    assert states == [("changed", [])] * 2
    found = names(http_placement)
    assert set(found.values()) == called(NEW)
    assert held <= found.keys()
    assert http_placement.dump()["consumers"] == before["consumers"]
    assert offered(http_placement) == OFFERED
    http_placement.clear()
    node = host.once()
    (told,) = node["drift"]
    assert (told["kind"], told["consumer"]) == ("orphaned-allocation", GUEST)
    assert (node["state"], len(http_placement.requests)) == ("in-sync", 1)


def test_two_children_of_one_role_that_are_both_used_stay_until_one_of_them_is_free(
    host: RenamedHost, http_placement: HttpPlacement
) -> None:
    as_the_first_release_left(host, http_placement, "doubled")
    second = child(http_placement, f"{NEW}_{GPU}")
    later = http_placement.other.claim({second: {CLASS: 1}})
    host.call(NEW)
    # Who holds the root and the cells is asked meanwhile, one a pass.
    for words in (["--once", "--adopt"], *[["--once"]] * 4):
        host.once(*words)
    for _ in range(2):
        http_placement.clear()
        node = host.once()
        assert (node["state"], node["errors"]) == ("in-sync", [])
        told, *unknown = node["drift"]
        assert {one["kind"] for one in unknown} <= {"orphaned-allocation"}
        assert (told["kind"], f"{OLD}_{GPU}: " in told["detail"]) == ("held-device", True)
        assert len(http_placement.requests) <= 3
    assert "move its consumers away" in told["remedy"]
    http_placement.other.release(GUEST)
    for _ in range(2):
        host.once()
    # Without a journal it is not known who gave the other one its class, so that it stays.
    told, *unknown = host.once()["drift"]
    assert {one["kind"] for one in unknown} <= {"orphaned-allocation"}
    assert f"{OLD}_{GPU}: " in told["detail"]
    assert offered(http_placement) == OFFERED
    assert names(http_placement)[second] == f"{NEW}_{GPU}"
    assert set(names(http_placement).values()) == {*called(NEW), f"{OLD}_{GPU}"}
    assert http_placement.dump()["consumers"][later]["allocations"] == {second: {CLASS: 1}}


INTERRUPTED: dict[str, faults.Action] = {
    "not sent": faults.cut(),
    "answer lost": faults.cut(applied=True),
    "conflict": faults.answer(409, "placement.concurrent_update"),
}


@pytest.mark.long
@pytest.mark.parametrize("how", INTERRUPTED)
def test_a_rename_that_is_interrupted_anywhere_offers_nothing_twice_and_is_finished_later(
    host: RenamedHost, http_placement: HttpPlacement, proxy: FaultProxy, how: str
) -> None:
    assert host.once()["state"] == "changed"
    before, amounts = names(http_placement), offered(http_placement)
    for at in range(1 + len(ROLES)):
        name = NEW if at % 2 == 0 else OLD
        host.call(name)
        rule = proxy.faults.add(INTERRUPTED[how], method="PUT", skip=at)
        host.here.run("identity", "rename")
        proxy.faults.clear()
        assert rule.hits == 1
        assert offered(http_placement) == amounts
        host.here.run("identity", "rename")
        assert offered(http_placement) == amounts
        assert names(http_placement) == {
            uuid: name + old.removeprefix(OLD) for uuid, old in before.items()
        }
        assert host.once()["state"] == "in-sync"


@pytest.mark.long
def test_a_rename_that_is_killed_between_two_requests_is_finished_by_the_next_pass(
    host: RenamedHost, http_placement: HttpPlacement, proxy: FaultProxy
) -> None:
    assert host.once()["state"] == "changed"
    before, amounts = names(http_placement), offered(http_placement)
    for at, name in ((1, NEW), (4, OLD)):
        host.call(name)
        with host.command.started("identity", "rename") as process:

            def kill(_exchange: Any, process: Any = process) -> None:
                process.kill()
                process.wait()

            proxy.faults.add(faults.after(kill), method="PUT", skip=at)
            process.communicate(timeout=120)
        proxy.faults.clear()
        assert process.returncode == -9
        assert offered(http_placement) == amounts
        assert host.once()["errors"] == []
        assert names(http_placement) == {
            uuid: name + old.removeprefix(OLD) for uuid, old in before.items()
        }
        assert offered(http_placement) == amounts


def test_a_name_that_another_host_has_is_told_and_nothing_is_sent(
    host: RenamedHost, http_placement: HttpPlacement
) -> None:
    host.once()
    http_placement.other.create_provider(NEW)
    before = http_placement.dump()
    host.call(NEW)
    for words in (["identity", "rename", "--dry-run"], ["identity", "rename"]):
        node = host.once(*words)
        assert "is held by provider" in node["errors"][0]["message"]
        assert http_placement.dump() == before


def test_children_that_nova_made_are_renamed_when_the_tree_is_taken_over(
    host: RenamedHost, http_placement: HttpPlacement
) -> None:
    other = http_placement.other
    other.create_provider(OLD, ROOT)
    other.set_inventory(ROOT, {"DISK_GB": 500})
    made = {
        role: other.create_provider(f"{OLD}{role}", parent=ROOT)
        for role in ("_pci_0000_5e_00_0", f"_{GPU}", "_amd_sev")
    }
    other.set_inventory(made["_pci_0000_5e_00_0"], {"VGPU": 4})
    other.set_inventory(made[f"_{GPU}"], {CLASS: 1})
    other.set_inventory(made["_amd_sev"], {"MEM_ENCRYPTION_CONTEXT": 3})
    theirs = other.create_provider(f"{OLD}_theirs", parent=ROOT)
    other.rename(ROOT, NEW)
    host.call(NEW)
    assert host.once("--once", "--adopt")["errors"] == []
    found = names(http_placement)
    assert {role: found[uuid] for role, uuid in made.items()} == {
        role: f"{NEW}{role}" for role in made
    }
    assert found[theirs] == f"{OLD}_theirs"
    assert set(found.values()) == called(NEW) | {f"{OLD}_theirs"}
