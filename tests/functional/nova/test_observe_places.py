"""Guests whose allocation is on another provider of the node than the hypervisor shows them on, and
cells whose pages guests overdraw: told with the command that mends it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.functional.nova.watched_host import GPU, HELD, ROOT, Watched, a_guest, host
from tests.support.http_placement import HttpPlacement
from tests.support.placement import PROJECT, USER
from tests.support.tracking import guest

OTHER_GPU = "0000:5e:00.0"
GPU_CLASS = "CUSTOM_PCI_10DE_1DB4"
REPORTED = {
    "pci": {
        "device_spec": '{"product_id": "1db4", "vendor_id": "10de"}',
        "report_in_placement": True,
    }
}
NESTED = {"compute": {"tree_layout": "nested", "cpu_dedicated_set": "4-7,12-15"}}
MDEVS = {"devices": {"enabled_mdev_types": "nvidia-35"}}
FIRST, SECOND = guest("first"), guest("second")


@pytest.fixture
def watched(tmp_path: Path, http_placement: HttpPlacement) -> Watched:
    return Watched(tmp_path, http_placement)


def replacement(consumer: str, held: Mapping[str, Mapping[str, int]]) -> str:
    """The command that replaces an allocation."""
    options = "".join(
        f" --allocation rp={uuid},"
        + ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))
        for uuid, amounts in sorted(held.items())
    )
    return (
        f"openstack --os-placement-api-version 1.28 resource provider allocation set --project-id {PROJECT} --user-id {USER}"
        f"{options} {consumer}"
    )


def two_cards(*guests: Any) -> dict[str, Any]:
    found = host(*guests)
    (card,) = found["pci"]
    return {**found, "pci": [card, {**card, "address": OTHER_GPU, "numa_node": 1}]}


def pinned(cell: int, first: int) -> dict[str, Any]:
    pins = {"0": first, "1": first + 1}
    cells = [{"host_cell": cell, "memory_mib": 2048, "dedicated": "0-1", "pins": pins}]
    return {"vcpus": 2, "cells": cells, "origin": None}


def paged(uuid: str, name: str, cell: int, mib: int, **more: Any) -> dict[str, Any]:
    cells = [{"host_cell": cell, "memory_mib": mib, "shared": "0", "page_size_kib": 2048}]
    return {"uuid": uuid, "name": name, "memory_mib": mib, "vcpus": 1, "cells": cells, **more}


def with_pages(total: int, *guests: Any) -> dict[str, Any]:
    found = host(*guests)
    for cell in found["cells"]:
        cell["pages"] = [{"size_kib": 2048, "total": total}]
    return found


def test_a_device_without_an_allocation_is_told(watched: Watched) -> None:
    watched.as_nova_has_it(two_cards(), **REPORTED)
    card = watched.provider(GPU.upper())
    watched.is_host(two_cards(a_guest(FIRST, "first", devices=[GPU])), **REPORTED)
    watched.other.claim({ROOT: HELD}, FIRST)
    (drift,) = watched.observe()["drift"]
    assert f"0 {GPU_CLASS} of node-a_{GPU.upper()} instead of 1" in drift["detail"]
    assert drift["remedy"].endswith(replacement(FIRST, {ROOT: HELD, card: {GPU_CLASS: 1}}))


def test_other_amounts_beside_a_device_are_mended_without_losing_it(watched: Watched) -> None:
    watched.as_nova_has_it(two_cards(), **REPORTED)
    card = watched.provider(GPU.upper())
    watched.is_host(two_cards(a_guest(FIRST, "first", devices=[GPU])), **REPORTED)
    watched.other.claim({ROOT: {**HELD, "MEMORY_MB": 4096}, card: {GPU_CLASS: 1}}, FIRST)
    (drift,) = watched.observe()["drift"]
    assert "MEMORY_MB 4096 instead of 2048" in drift["detail"]
    assert drift["remedy"].endswith(replacement(FIRST, {ROOT: HELD, card: {GPU_CLASS: 1}}))


def test_amounts_of_a_flavor_whose_extra_specs_are_unknown_are_not_judged(
    watched: Watched,
) -> None:
    watched.as_nova_has_it(two_cards(), **REPORTED)
    card = watched.provider(GPU.upper())
    guest = a_guest(FIRST, "first", devices=[GPU])
    # As an older nova wrote it; the flavor has resources:MEMORY_MB=0.
    unknown = {**guest, "origin": {**guest["origin"], "specs_known": False}}
    watched.is_host(two_cards(unknown), **REPORTED)
    without_memory = {name: amount for name, amount in HELD.items() if name != "MEMORY_MB"}
    watched.other.claim({ROOT: without_memory, card: {GPU_CLASS: 1}}, FIRST)
    assert watched.observe()["drift"] == []


def test_cpus_that_are_allocated_of_another_cell_are_told(watched: Watched) -> None:
    watched.as_nova_has_it(**NESTED)
    cells = [watched.provider(f"NUMA{cell}") for cell in range(2)]
    right, wrong = (
        a_guest(FIRST, "first", **pinned(0, 4)),
        a_guest(SECOND, "second", **pinned(1, 12)),
    )
    for one in (right, wrong):
        del one["origin"]
    watched.has(right, wrong, **NESTED)
    for uuid in (FIRST, SECOND):
        watched.other.claim({ROOT: {"MEMORY_MB": 2048}, cells[0]: {"PCPU": 2}}, uuid)
    (drift,) = watched.observe()["drift"]
    assert drift["consumer"] == SECOND
    assert "2 PCPU of node-a_NUMA0 instead of 0" in drift["detail"]
    assert "0 PCPU of node-a_NUMA1 instead of 2" in drift["detail"]
    held = {ROOT: {"MEMORY_MB": 2048}, cells[1]: {"PCPU": 2}}
    assert drift["remedy"].endswith(replacement(SECOND, held))


def test_a_mediated_device_that_is_allocated_of_another_parent_is_told(watched: Watched) -> None:
    def parents(owner: str | None) -> dict[str, Any]:
        found = two_cards(*([a_guest(FIRST, "first")] if owner else []))
        mdev = {"uuid": guest("mdev"), "type": "nvidia-35", **({"owner": owner} if owner else {})}
        found["mdev"] = [
            {"parent": GPU, "types": {"nvidia-35": 4}},
            {"parent": OTHER_GPU, "types": {"nvidia-35": 3}, "mdevs": [mdev]},
        ]
        return found

    watched.as_nova_has_it(parents(None), **MDEVS)
    uuids = [
        watched.provider(f"pci_{name.replace(':', '_').replace('.', '_')}")
        for name in (GPU, OTHER_GPU)
    ]
    watched.is_host(parents(FIRST), **MDEVS)
    watched.other.claim({ROOT: HELD, uuids[0]: {"VGPU": 1}}, FIRST)
    (drift,) = watched.observe()["drift"]
    assert (drift["kind"], drift["consumer"]) == ("allocation-mismatch", FIRST)
    assert drift["remedy"].endswith(replacement(FIRST, {ROOT: HELD, uuids[1]: {"VGPU": 1}}))


def test_a_leftover_on_several_providers_is_taken_from_all_of_them(watched: Watched) -> None:
    watched.as_nova_has_it(two_cards(), **REPORTED)
    watched.is_host(two_cards(), **REPORTED)
    card = watched.provider(GPU.upper())
    elsewhere = watched.other.create_provider("node-b")
    watched.other.set_inventory(elsewhere, {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100})
    here = {ROOT: HELD, card: {GPU_CLASS: 1}}
    watched.other.claim({**here, elsewhere: HELD}, FIRST)
    watched.other.claim({ROOT: HELD}, SECOND)
    found = {drift["consumer"]: drift["remedy"] for drift in watched.observe()["drift"]}
    unset = "openstack --os-placement-api-version 1.28 resource provider allocation unset"
    providers = " ".join(f"--provider {uuid}" for uuid in sorted(here))
    assert found[FIRST].endswith(f"{unset} {providers} {FIRST}")
    assert found[SECOND].endswith(
        f"openstack --os-placement-api-version 1.28 resource provider allocation delete {SECOND}"
    )


def test_pages_that_are_reserved_for_the_host_are_not_for_guests(watched: Watched) -> None:
    options = {"DEFAULT": {"reserved_huge_pages": "node:0,size:2048,count:64"}}
    watched.as_nova_has_it(with_pages(1024), **options)
    watched.is_host(with_pages(1024, paged(FIRST, "first", 0, 2048)), **options)
    watched.other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 2048}}, FIRST)
    (drift,) = watched.observe()["drift"]
    assert "of 1024, of which 64 are reserved" in drift["detail"]
    assert "echo 1088 >" in drift["remedy"]


def test_a_guest_with_a_device_and_no_allocation_gets_both_at_once(watched: Watched) -> None:
    """nova's own command refuses a guest with a vGPU, and gives no other device."""
    options = {
        **REPORTED,
        "compute": {"cpu_shared_set": "0-3,8-11", "cpu_dedicated_set": "4-7,12-15"},
    }
    watched.as_nova_has_it(two_cards(), **options)
    cells = [{"host_cell": 0, "memory_mib": 2048, "dedicated": "0", "pins": {"0": 4}}]
    without_metadata = a_guest(SECOND, "second", cells=cells, devices=[OTHER_GPU])
    del without_metadata["origin"]
    watched.is_host(
        two_cards(
            a_guest(FIRST, "first", devices=[GPU]),
            without_metadata,
        ),
        **options,
    )
    found = {drift["consumer"]: drift for drift in watched.observe()["drift"]}
    assert {one["kind"] for one in found.values()} == {"missing-allocation"}
    for uuid, cpus, address in ((FIRST, "VCPU", GPU), (SECOND, "PCPU", OTHER_GPU)):
        held = {ROOT: {cpus: 1, "MEMORY_MB": 2048, "DISK_GB": 20}}
        held[watched.provider(address.upper())] = {GPU_CLASS: 1}
        project, user = "project", "user"
        if uuid == SECOND:
            # Without metadata its disk is not known, and nova is asked whose it is.
            del held[ROOT]["DISK_GB"]
            project, user = (
                f"$(openstack server show -f value -c {column} {uuid})"
                for column in ("project_id", "user_id")
            )
        command = replacement(uuid, held).replace(PROJECT, project).replace(USER, user)
        assert found[uuid]["remedy"].endswith(command)
