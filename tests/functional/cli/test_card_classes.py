"""A card that device_spec gives another class while somebody has it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.api.client import ApiClient
from tests.functional.cli.setups import host_file, on
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import Service, until
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentHere
from tests.support.tracking import F1, guest, uuid_of

GPU, CARD = "0000:06:00.0", "node-a_0000:06:00.0"
ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000e001"
OLD, NEW = "CUSTOM_SMALL", "CUSTOM_LARGE"
HOST: dict[str, Any] = {
    "uuid": ROOT,
    "cpu": {"online": "0-7"},
    "memory_mib": 8192,
    "disk_gib": 100,
    "pci": [{"address": GPU, "vendor_id": "10de", "product_id": "1eb8"}],
}


def offering(agent: AgentHere, placement: HttpPlacement, name: str, memory: int) -> AgentHere:
    """The agent on a host with that much memory, whose card has the class ``name``."""
    sections = {
        "DEFAULT": {"update_resources_interval": 1, "log_file": agent.folder / "agent.log"},
        "pci": {
            "device_spec": json.dumps({"address": GPU, "resource_class": name}),
            "alias": json.dumps({"name": "gpu", "resource_class": name}),
            "report_in_placement": True,
        },
    }
    path = host_file(agent, {**HOST, "memory_mib": memory})
    agent.configure(on(placement, "fake.file", {"fake": {"host_file": path}}, sections))
    return agent


def has(placement: HttpPlacement) -> tuple[dict[str, int], int]:
    """What Placement has of the card, and the memory of the node."""
    (card,) = (one for one in placement.dump()["providers"].values() if one["name"] == CARD)
    counted = {name: record["total"] for name, record in card["inventories"].items()}
    return counted, placement.other.inventory(ROOT)["MEMORY_MB"]["total"]


def update(client: ApiClient, changes: dict[str, Any]) -> None:
    """What nova tells of the guest."""
    client.update_instance(guest("g1"), client.instance(guest("g1"))["version"], changes)


@pytest.mark.parametrize(
    "on_record",
    [
        pytest.param(True, id="a guest", marks=pytest.mark.long),
        pytest.param(False, id="nobody known"),
    ],
)
def test_a_card_keeps_its_class_while_it_is_used_and_the_rest_of_the_node_goes_on(
    http_placement: HttpPlacement, tmp_path: Path, on_record: bool
) -> None:
    agent = offering(AgentHere(tmp_path), http_placement, OLD, 8192)
    assert agent.run("--once").code == 0
    (card,) = (
        uuid for uuid, one in http_placement.dump()["providers"].items() if one["name"] == CARD
    )
    held = {ROOT: {"VCPU": 1, "MEMORY_MB": 512}, card: {OLD: 1}}
    http_placement.other.claim(held, guest("g1"))
    client = ApiClient(agent.socket)
    if on_record:
        with Service(agent).running() as service:
            service.wait_for("READY", "1")
            wanted = {**flavor_body(F1), "extra_specs": {"pci_passthrough:alias": "gpu:1"}}
            client.create_claim(
                {
                    "id": uuid_of("claim-g1"),
                    "node": ROOT,
                    "instance": instance_body("g1"),
                    "flavor": wanted,
                    "allocations": {uuid: {"resources": some} for uuid, some in held.items()},
                }
            )
            update(client, {"vm_state": "active"})
    offering(agent, http_placement, NEW, 9216)

    def told(*flags: str) -> list[Any]:
        (node,) = agent.run("--once", *flags, "--format", "json").json["nodes"]
        assert (node["errors"], node["state"] in ("changed", "in-sync")) == ([], True), node
        return [one for one in node["drift"] if one["kind"] == "held-device"]

    for _ in range(2):
        (drift,) = told()
        assert has(http_placement) == ({OLD: 1}, 9216)
        assert drift["consumer"] == guest("g1")
        assert f"stays {OLD}: 1 of it are allocated to {guest('g1')}" in drift["detail"]
    # The first remedy: as before.
    offering(agent, http_placement, OLD, 9216)
    assert told() == []
    offering(agent, http_placement, NEW, 9216)
    (drift,) = told()
    if on_record:
        # It has the card by its record. What follows is told when it left, too.
        assert drift["remedy"].endswith(
            f"again; or move its guests away: openstack server migrate {guest('g1')}"
        )
        with Service(agent).running() as service:
            service.wait_for("READY", "1")
            update(client, {"deleted": True})
            until(lambda: has(http_placement)[0] == {NEW: 1}, lambda: service)
    else:
        (command,) = re.findall(r"agent (allocation remove \S+ \S+ \S+)$", drift["remedy"])
        assert agent.run(*command.split()).code == 0
    assert told() == []
    assert has(http_placement) == ({NEW: 1}, 9216)
    if not on_record:
        left = http_placement.other.allocations(guest("g1"))["allocations"]
        assert {uuid: one["resources"] for uuid, one in left.items()} == {ROOT: held[ROOT]}
