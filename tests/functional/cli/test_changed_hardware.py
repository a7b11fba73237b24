"""Hardware that changes under guests on record: CPUs that go offline, pages that are taken away,
cells and devices with other numbers after a reboot. What is told, what is refused, what is
published all the same; and the remedies, carried out.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.api.client import ApiClient, ApiProblem
from tests.functional.cli.setups import (
    configured,
    held,
    host_file,
    pinned,
    ready,
    totals,
    uuids_of,
)
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import Service, until
from tests.support.shell import command_of
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentHere
from tests.support.tracking import F1, FN, guest, uuid_of

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000e038"
NESTED = {
    "cpu_shared_set": "0-1,6-7",
    "cpu_dedicated_set": "2-5,8-11",
    "tree_layout": "nested",
}
HOST: Mapping[str, Any] = {
    "uuid": ROOT,
    "disk_gib": 500,
    "cells": [
        {"id": 0, "cpus": "0-5", "memory_mib": 16384},
        {"id": 1, "cpus": "6-11", "memory_mib": 16384},
    ],
    "guests": [pinned("g0", 0, 2, 3), pinned("g1", 1, 8, 9)],
}
PAGES = [{"size_kib": 2048, "total": 1024}]


@pytest.fixture
def agent(tmp_path: Path) -> AgentHere:
    return AgentHere(tmp_path / "agent")


def drift(agent: AgentHere) -> dict[str, tuple[str, str]]:
    """What a run tells, by kind: text and remedy."""
    (node,) = agent.run("--once", "--reread", "--format", "json").json["nodes"]
    assert node["errors"] == [], node
    return {one["kind"]: (one["detail"], one["remedy"]) for one in node["drift"]}


def recorded(agent: AgentHere, placement: HttpPlacement) -> None:
    """Its guests are on record, and hold what they have."""
    assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
    uuids = uuids_of(placement)
    for name, cell in (("g0", "NUMA0"), ("g1", "NUMA1")):
        placement.other.claim({ROOT: {"MEMORY_MB": 1024}, uuids[cell]: {"PCPU": 2}}, guest(name))
    assert drift(agent) == {}


def claim(name: str, flavor: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": uuid_of(f"claim-{name}"),
        "node": ROOT,
        "instance": instance_body(name),
        "flavor": flavor_body(flavor),
        **more,
    }


def test_a_guest_on_cpus_that_went_offline_is_told_until_they_are_online_again(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    configured(agent, http_placement, HOST, compute=NESTED)
    recorded(agent, http_placement)
    # A start with them says the same, and not that the set is wrong.
    host_file(agent, {**HOST, "cpu": {"online": "0-7,9-11"}})
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    (error,) = node["errors"]
    assert "cpu_dedicated_set: CPUs 8 not online" in error["message"]
    assert error["remedy"].startswith(
        f"bring them online: chcpu --enable 8 (pinned to such: {guest('g1')}); if the host does not"
    )
    host_file(agent, HOST)
    assert drift(agent) == {}
    service, client = Service(agent), ApiClient(agent.socket)
    with service.running():
        until(lambda: ready(client), lambda: service)
        host_file(agent, {**HOST, "cpu": {"online": "0-7,9-11"}})
        client.audit_report(client.request_audit(()), wait=60.0)
        (found,) = client.node(ROOT)["drift"]
        assert (found["kind"], found["detail"], found["consumer"], found["remedy"]) == (
            "guest-conflict",
            f"guest g1 ({guest('g1')}) is pinned to CPUs 8, which are offline",
            guest("g1"),
            "bring them online: chcpu --enable 8; or move the guest away: openstack server migrate "
            + guest("g1"),
        )
        host_file(agent, HOST)
        client.audit_report(client.request_audit(()), wait=60.0)
        assert client.node(ROOT)["drift"] == []


def test_a_guest_on_a_pool_that_shrank_below_what_it_has_is_told_until_the_pool_has_the_pages(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    def host(total: int) -> dict[str, Any]:
        guests = [dict(one) for one in HOST["guests"]]
        guests[1]["cells"] = [{**guests[1]["cells"][0], "page_size_kib": 2048}]
        cells = [dict(one) for one in HOST["cells"]]
        cells[1]["pages"] = [{"size_kib": 2048, "total": total}]
        return {**HOST, "cells": cells, "guests": guests}

    configured(agent, http_placement, host(1024), compute=NESTED)
    recorded(agent, http_placement)
    host_file(agent, host(500))
    detail, remedy = drift(agent)["overcommitted"]
    assert detail == (
        "node node-a, cell 1: 512 pages of 2048 KiB are promised, of 500: "
        f"guest g1 ({guest('g1')}) 512"
    )
    pages = re.search(r"echo (\d+) > /sys/devices/system/node/node1/hugepages/", remedy)
    assert pages is not None
    host_file(agent, host(int(pages[1])))
    assert drift(agent) == {}


# --- cells with other numbers ---------------------------------------------------------------------

RENUMBERED: Mapping[str, Any] = {
    **HOST,
    "cells": [
        {"id": 0, "cpus": "0-5", "memory_mib": 16384},
        {"id": 4, "cpus": "6-11", "memory_mib": 16384},
    ],
}


def test_cells_that_a_setting_of_the_firmware_numbers_otherwise(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    configured(agent, http_placement, HOST, compute=NESTED)
    recorded(agent, http_placement)
    # The hypervisor has not started the second guest anew.
    host_file(agent, {**RENUMBERED, "guests": HOST["guests"][:1]})
    service, client = Service(agent), ApiClient(agent.socket)
    with service.running():
        until(lambda: ready(client), lambda: service)
        told = {one["kind"]: one for one in client.node(ROOT)["drift"]}
        assert told["guest-conflict"]["detail"] == (
            f"the hardware changed under instance {guest('g1')}: CPUs 8-9 of cell 1 are on "
            "cell 4; the host has no cell 1"
        )
        assert "agent guests import" in told["guest-conflict"]["remedy"]
        # The cell that is gone is not offered any more, and the new one is.
        assert totals(http_placement, "PCPU") == {"NUMA0": 4, "NUMA1": 4, "NUMA4": 4}
        assert totals(http_placement, "PCPU", "reserved") == {"NUMA0": 0, "NUMA1": 4, "NUMA4": 0}
        with pytest.raises(ApiProblem, match="cells that the host has otherwise now"):
            client.create_claim(claim("n1", FN))
        client.create_claim(claim("n2", F1))
        # Its definition on the hypervisor names the present cell.
        host_file(agent, {**RENUMBERED, "guests": [HOST["guests"][0], pinned("g1", 4, 8, 9)]})
        (node,) = agent.run("guests", "import", "--format", "json").json["nodes"]
        assert {one["uuid"]: one["outcome"] for one in node["guests"]} == {
            guest("g0"): "known",
            guest("g1"): "imported",
        }
        client.audit_report(client.request_audit(()), wait=60.0)
        assert held(http_placement, "g1") == {"": {"MEMORY_MB": 1024}, "NUMA4": {"PCPU": 2}}
        client.audit_report(client.request_audit(()), wait=60.0)
        assert "NUMA1" not in uuids_of(http_placement)
        kinds = {one["kind"] for one in client.node(ROOT)["drift"]}
        assert not kinds & {"guest-conflict", "held-device"}
        client.create_claim(claim("n1", FN))
        assert service.stop()[0] == 0


# --- devices at other addresses -------------------------------------------------------------------

GPU_SPEC = {
    "device_spec": '{"vendor_id": "10de", "product_id": "1db4"}',
    "alias": '{"name": "gpu", "vendor_id": "10de", "product_id": "1db4"}',
    "report_in_placement": True,
}


def gpus(*addresses: str) -> list[dict[str, Any]]:
    return [
        {"address": address, "vendor_id": "10de", "product_id": "1db4", "numa_node": 0}
        for address in addresses
    ]


def with_gpu(*addresses: str) -> dict[str, Any]:
    devices = {"devices": [*addresses]} if addresses else {}
    return {"uuid": guest("g2"), "name": "g2", "memory_mib": 512, "vcpus": 1, **devices}


@pytest.mark.parametrize("shown", [(), ("0000:3c:00.0",)], ids=["without it", "with it"])
def test_pci_buses_that_a_new_card_numbers_otherwise(
    shown: tuple[str, ...], agent: AgentHere, http_placement: HttpPlacement
) -> None:
    before, now = "0000:3b:00.0", "0000:3c:00.0"
    host = {key: value for key, value in HOST.items() if key != "guests"}
    old = {**host, "pci": gpus(before, "0000:86:00.0"), "guests": [with_gpu(before)]}
    if not shown:
        old["pci"] = gpus(before)
    configured(agent, http_placement, old, compute=NESTED, pci=GPU_SPEC)
    assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
    card = {one: uuid for one, uuid in uuids_of(http_placement).items() if "3B" in one}
    http_placement.other.claim(
        {
            ROOT: {"VCPU": 1, "MEMORY_MB": 512},
            **{uuid: {"CUSTOM_PCI_10DE_1DB4": 1} for uuid in card.values()},
        },
        guest("g2"),
    )
    new = {
        **old,
        "pci": [{**one, "address": one["address"].replace("3b", "3c")} for one in old["pci"]],
    }
    host_file(agent, {**new, "guests": [with_gpu(*shown)]})
    service, client = Service(agent), ApiClient(agent.socket)
    with service.running():
        until(lambda: ready(client), lambda: service)
        told = {one["kind"]: one for one in client.node(ROOT)["drift"]}
        assert told["guest-conflict"]["detail"] == (
            f"the hardware changed under guest g2 ({guest('g2')}): device 0000:3b:00.0 may be at "
            "0000:3c:00.0 now"
        )
        names = totals(http_placement, "CUSTOM_PCI_10DE_1DB4")
        assert names.pop("0000:3B:00.0") == 1, "what its guest has, and no more"
        assert set(names) == {one["address"].upper() for one in new["pci"]}
        wanted = {**flavor_body(F1), "extra_specs": {"pci_passthrough:alias": "gpu:1"}}
        if len(new["pci"]) > 1:
            client.create_claim({**claim("n1", F1), "flavor": wanted})
        with pytest.raises(ApiProblem, match=f"device {now} may be {before} of a guest"):
            client.create_claim({**claim("n2", F1), "flavor": wanted})
        client.create_claim(claim("n3", F1))
        host_file(agent, {**new, "guests": [with_gpu(now)]})
        (node,) = agent.run("guests", "import", "--format", "json").json["nodes"]
        assert {one["uuid"]: one["outcome"] for one in node["guests"]} == {guest("g2"): "imported"}
        client.audit_report(client.request_audit(()), wait=60.0)
        assert "guest-conflict" not in {one["kind"] for one in client.node(ROOT)["drift"]}
        (mine,) = [one for one in client.claims() if one["instance"] == guest("g2")]
        assert [one["address"] for one in mine["devices"]] == [now]
        assert "0000:3C:00.0" in held(http_placement, "g2")
        assert service.stop()[0] == 0


def test_a_new_card_that_has_the_address_of_one_in_use_is_not_taken_for_it(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    before, now = "0000:3b:00.0", "0000:3c:00.0"
    host = {**HOST, "pci": gpus(before), "guests": [with_gpu(before)]}
    offered = {"device_spec": '{"vendor_id": "10de"}', "report_in_placement": True}
    configured(agent, http_placement, host, compute=NESTED, pci=offered)
    assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
    card = uuids_of(http_placement)["0000:3B:00.0"]
    http_placement.other.claim(
        {ROOT: {"VCPU": 1, "MEMORY_MB": 512}, card: {"CUSTOM_PCI_10DE_1DB4": 1}}, guest("g2")
    )
    another = {**gpus(before)[0], "product_id": "20b0"}
    changed = {**host, "pci": [another, *gpus(now)]}
    host_file(agent, {**changed, "guests": [with_gpu()]})
    told = drift(agent)
    assert "device 0000:3b:00.0 may be at 0000:3c:00.0 now" in told["guest-conflict"][0]
    assert totals(http_placement, "CUSTOM_PCI_10DE_1DB4") == {"0000:3B:00.0": 1, "0000:3C:00.0": 1}
    assert totals(http_placement, "CUSTOM_PCI_10DE_20B0") == {}
    host_file(agent, {**changed, "guests": [with_gpu(now)]})
    assert agent.run("guests", "import").code == 0
    assert "1 of CUSTOM_PCI_10DE_1DB4 are allocated" in drift(agent)["held-device"][0]
    # What it holds of the former address would be lowered once two passes, half a minute apart,
    # agree; here its owner does so.
    mine = uuids_of(http_placement)["0000:3C:00.0"]
    assert "0000:3C:00.0" in held(http_placement, "g2")
    http_placement.other.claim(
        {ROOT: {"VCPU": 1, "MEMORY_MB": 512}, mine: {"CUSTOM_PCI_10DE_1DB4": 1}}, guest("g2")
    )
    drift(agent)
    assert drift(agent) == {}
    assert totals(http_placement, "CUSTOM_PCI_10DE_20B0") == {"0000:3B:00.0": 1}
    assert totals(http_placement, "CUSTOM_PCI_10DE_1DB4") == {"0000:3C:00.0": 1}


@pytest.mark.parametrize("spare", [False, True], ids=["the only card", "one of two"])
def test_a_card_that_was_pulled_is_given_back_and_its_guest_keeps_the_rest(
    agent: AgentHere, http_placement: HttpPlacement, spare: bool
) -> None:
    gone, other = "0000:3b:00.0", "0000:d8:00.0"
    cards = [gone, *([other] if spare else [])]
    host = {**HOST, "pci": gpus(*cards), "guests": [with_gpu(gone)]}
    configured(agent, http_placement, host, compute=NESTED, pci=GPU_SPEC)
    assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
    card, rest = uuids_of(http_placement)["0000:3B:00.0"], {"VCPU": 1, "MEMORY_MB": 512}
    http_placement.other.claim({ROOT: rest, card: {"CUSTOM_PCI_10DE_1DB4": 1}}, guest("g2"))
    assert drift(agent) == {}
    # Another device was there all the time, so that the one that is gone did not move to it.
    left = gpus(other) if spare else [{**gpus(other)[0], "product_id": "20b0"}]
    host_file(agent, {**host, "pci": left, "guests": [with_gpu()]})
    for _ in range(2):
        told = drift(agent)
        assert [*told] == ["held-device"]
        assert f"device {gone} is not offered any more, but guest g2" in told["held-device"][0]
    command = command_of(told["held-device"][1], "agent ")
    assert command == "agent guests import"
    assert agent.run(*command.split()[1:]).code == 0
    told = drift(agent)
    assert [*told] == ["held-device"]
    (command,) = re.findall(
        r"if they go on without it: agent (allocation remove \S+ \S+ \S+);", told["held-device"][1]
    )
    assert agent.run(*command.split()).code == 0
    drift(agent)
    assert drift(agent) == {}
    assert held(http_placement, "g2") == {"": rest}
    assert "0000:3B:00.0" not in uuids_of(http_placement)


@pytest.mark.parametrize("network", [False, True], ids=["not reported", "of a network"])
def test_a_device_that_was_pulled_is_told_where_no_provider_counts_it(
    agent: AgentHere, http_placement: HttpPlacement, network: bool
) -> None:
    gone, kind = "0000:3b:00.0", '"vendor_id": "10de", "product_id": "1db4"'
    spec = {"device_spec": f"{{{kind}}}"}
    if network:
        spec = {
            "device_spec": f'{{{kind}, "physical_network": "one"}}',
            "report_in_placement": True,
        }
    host = {**HOST, "pci": gpus(gone, "0000:d8:00.0"), "guests": [with_gpu(gone)]}
    configured(agent, http_placement, host, compute=NESTED, pci=spec)
    assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
    http_placement.other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 512}}, guest("g2"))
    host_file(agent, {**host, "pci": gpus("0000:d8:00.0"), "guests": [with_gpu()]})
    told = drift(agent)
    assert [*told] == ["held-device"]
    assert f"device {gone} is gone, but guest g2 ({guest('g2')}) has it" in (told["held-device"][0])
    command = command_of(told["held-device"][1], "agent ")
    assert command == "agent guests import"
    assert agent.run(*command.split()[1:]).code == 0
    assert drift(agent) == {}
