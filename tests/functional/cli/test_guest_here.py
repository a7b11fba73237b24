"""Guests whose host is no longer what their flavor asked for: ``agent explain --guest``, the drift
``misplaced-guest``, its figures and its mark on the page.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.setups import configured
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere, Result

ROOT = "0d4f1d6a-5e0d-4a5e-9c4e-6f9b3a0f7f1c"
GUEST = "33333333-3333-4333-8333-333333333333"
OTHER = "22222222-2222-4222-8222-222222222222"
COMPUTE = {"cpu_dedicated_set": "2-7,10-15", "cpu_shared_set": "0-1,8-9"}
GPU = '{"vendor_id": "10de", "product_id": "1db4"}'
Host = dict[str, Any]


def origin(**specs: str) -> dict[str, Any]:
    flavor = {"id": "f1", "name": "m1.pinned", "vcpus": 4, "memory_mb": 4096}
    return {
        "flavor": {**flavor, "extra_specs": {key.replace("__", ":"): specs[key] for key in specs}},
        "project_id": "p",
        "user_id": "u",
    }


def pinned(first: int, cell: int = 0, **cells: Any) -> Host:
    cpus = {guest: first + guest for guest in range(4)}
    placed = {"host_cell": cell, "memory_mib": 4096, "dedicated": "0-3", "pins": cpus, **cells}
    return {"cells": [placed]}


def host(*guests: Host, **more: Any) -> Host:
    return {
        "name": "node-a",
        "uuid": ROOT,
        "cpu": {"online": "0-15"},
        "traits": ["HW_CPU_X86_AVX512F"],
        "memory_mib": 32768,
        "disk_gib": 100,
        "cells": [
            {
                "id": cell,
                "cpus": f"{8 * cell}-{8 * cell + 7}",
                "memory_mib": 16384,
                "pages": [{"size_kib": 4, "total": 2097152}, {"size_kib": 1048576, "total": 8}],
            }
            for cell in (0, 1)
        ],
        "pci": [
            {
                "address": "0000:81:00.0",
                "vendor_id": "10de",
                "product_id": "1db4",
                "class_code": "0x030200",
                "numa_node": 1,
            }
        ],
        "guests": list(guests),
        **more,
    }


DEDICATED = {"hw__cpu_policy": "dedicated"}


def guest(specs: dict[str, str], **more: Any) -> Host:
    return {"uuid": GUEST, "name": "one", **pinned(2), "origin": origin(**specs), **more}


@dataclass(frozen=True)
class Here:
    """A host of the fake driver that can change."""

    agent: AgentHere
    placement: HttpPlacement

    def becomes(self, host: Host, near: str = "preferred", **compute: str) -> None:
        """``near``: how near to its cells a guest needs the GPU."""
        alias = {"name": "gpu", "vendor_id": "10de", "product_id": "1db4", "numa_policy": near}
        pci = {"device_spec": GPU, "alias": json.dumps(alias)}
        configured(self.agent, self.placement, host, compute={**COMPUTE, **compute}, pci=pci)

    def run(self, *command: str) -> Result:
        return self.agent.run(*command)

    def misplaced(self, *command: str) -> list[dict[str, Any]]:
        found = self.run(*command, "--format", "json").json
        drift = [one for node in found["nodes"] for one in node["drift"]]
        return [one for one in drift if one["kind"] == "misplaced-guest"]


def lose_trait(here: Here, there: Host) -> None:
    here.becomes({**there, "traits": []})


def lose_cpus(here: Here, there: Host) -> None:
    here.becomes(there, cpu_dedicated_set="2-4,10-12")


def lose_pages(here: Here, there: Host) -> None:
    cells = [{**cell, "pages": [{"size_kib": 4, "total": 4194304}]} for cell in there["cells"]]
    here.becomes({**there, "cells": cells})


def need_near_device(here: Here, there: Host) -> None:
    here.becomes(there, near="required")


def fewer_shared(here: Here, there: Host) -> None:
    here.becomes(there, cpu_shared_set="0-1")


CASES: dict[str, tuple[Host, Callable[[Here, Host], None], str]] = {
    "a trait that went": (
        guest({**DEDICATED, "trait__HW_CPU_X86_AVX512F": "required"}),
        lose_trait,
        "trait missing: no provider of the node has HW_CPU_X86_AVX512F",
    ),
    "CPUs that left the set": (
        guest(DEDICATED),
        lose_cpus,
        "CPUs",
    ),
    "pages": (
        guest({**DEDICATED, "hw__mem_page_size": "1GB"}, **pinned(2, page_size_kib=1048576)),
        lose_pages,
        "1048576",
    ),
    "a device's policy": (
        guest({**DEDICATED, "pci_passthrough__alias": "gpu:1"}, devices=["0000:81:00.0"]),
        need_near_device,
        "device",
    ),
    "CPUs that it shares": (
        {"uuid": GUEST, "name": "one", "memory_mib": 4096, "vcpus": 4, "origin": origin()},
        fewer_shared,
        "VCPU: 4 wanted, node-a has 8 free of 8, max_unit 2",
    ),
}


@pytest.fixture
def here(http_placement: HttpPlacement, tmp_path: Path) -> Here:
    return Here(AgentHere(tmp_path), http_placement)


@pytest.mark.parametrize("title", CASES)
def test_a_guest_that_its_host_would_not_grant_any_more_is_told(here: Here, title: str) -> None:
    one, change, reason = CASES[title]
    there = host(one, {"uuid": OTHER, "name": "two", **pinned(10, 1)})
    here.becomes(there)
    assert here.run("--once").code == 0
    assert here.run("guests", "import").code == 0
    assert here.misplaced("--once") == []
    well = here.run("explain", "--guest", GUEST)
    assert (well.code, "its host would grant it again" in well.stdout) == (0, True), well

    change(here, there)
    (drift,) = here.misplaced("--once")
    assert (drift["severity"], drift["consumer"]) == ("info", GUEST)
    assert reason in drift["detail"]
    assert f"openstack server migrate {GUEST}" in drift["remedy"]

    told = here.run("explain", "--guest", GUEST)
    assert told.code == 2, told
    assert f"openstack server migrate {GUEST}" in told.stdout
    (node,) = here.run("explain", "--guest", GUEST, "--format", "json").json["nodes"]
    lacking = (text for found in node["placement"]["lacking"] for text in found["numbers"])
    assert any(reason in text for text in (*node["host"]["reasons"], *lacking)), drift


def test_a_flavor_that_contradicts_itself_is_told_of_its_guest(
    here: Here,
) -> None:
    here.becomes(host(guest({"hw__cpu_policy": "mixed"})))
    assert here.run("--once").code == 0
    assert here.run("guests", "import").code == 0
    assert here.misplaced("--once") == []
    drift = {
        one["kind"]: one for one in here.run("--once", "--format", "json").json["nodes"][0]["drift"]
    }
    told = drift["contradictory-flavor"]
    assert (told["severity"], told["consumer"]) == ("info", GUEST)
    message = told["detail"].partition(": ")[2]
    assert "the policy mixed needs a mask" in message
    assert told["remedy"].endswith(f": agent explain --guest {GUEST}")
    explained = here.run("explain", "--guest", GUEST)
    assert (explained.code, message in explained.stderr) == (1, True), explained


def test_a_pinned_guest_that_holds_no_cpus_lacks_dedicated_ones(here: Here) -> None:
    here.becomes(host(guest(DEDICATED)))
    assert here.run("--once").code == 0
    assert here.run("guests", "import").code == 0
    here.placement.other.claim({ROOT: {"MEMORY_MB": 4096}}, GUEST)
    told = here.run("--once", "--reread").stdout
    assert "PCPU 0 instead of 4" in " ".join(told.split()), told


def test_the_figures_and_the_page_have_it_too(here: Here) -> None:
    one, change, _ = CASES["a trait that went"]
    here.becomes(host(one))
    assert here.run("--once").code == 0
    assert here.run("guests", "import").code == 0
    change(here, host(one))
    page = here.agent.folder / "page.html"
    figures = here.run("--once", "--format", "prometheus", "--report", str(page)).stdout
    assert (
        'compute_node_agent_once_node_drift{kind="misplaced-guest",node="node-a",severity="info"} 1'
    ) in figures
    assert '<a class="severity info" href="#node-0-drift">misplaced</a>' in page.read_text()


def test_a_guest_without_a_record_is_explained_by_what_nova_wrote_beside_it(here: Here) -> None:
    one, change, reason = CASES["a trait that went"]
    here.becomes(host(one))
    assert here.run("explain", "--guest", GUEST).code == 0
    change(here, host(one))
    told = here.run("explain", "--guest", GUEST)
    assert (told.code, reason in told.stdout) == (2, True), told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--guest", OTHER), "its flavor is not known"),
        (("--guest", ROOT), "no node of this agent has guest"),
        (("--guest", "one"), "no uuid"),
        (("--guest", GUEST, "--vcpus", "1", "--ram", "1"), "more than one request"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    here: Here, words: tuple[str, ...], message: str
) -> None:
    here.becomes(host({"uuid": OTHER, "name": "two", **pinned(10, 1)}))
    result = here.run("explain", *words)
    assert (result.code, result.stdout, message in result.stderr) == (1, "", True), result


def test_neighbours_that_are_too_many_make_no_guest_misplaced(here: Here) -> None:
    floating = {"memory_mib": 16000, "vcpus": 4, "origin": origin()}
    flavor = {**floating["origin"]["flavor"], "memory_mb": 16000}
    floating["origin"] = {**floating["origin"], "flavor": flavor}
    one, two = ({"uuid": uuid, "name": uuid[:4], **floating} for uuid in (GUEST, OTHER))
    here.becomes(host(one, two))
    assert here.run("--once").code == 0
    assert here.run("guests", "import").code == 0
    here.becomes({**host(one, two), "memory_mib": 20000})
    assert here.misplaced("--once") == []
    told = here.run("explain", "--guest", GUEST)
    assert (told.code, "MEMORY_MB: 16000 wanted" in told.stdout) == (2, True), told
