"""A card that is offered whole and as mediated devices: it is told, and no guest gets what another
has.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.api.client import ApiClient, ApiProblem
from tests.functional.cli.setups import host_file, on
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import Service
from tests.support.shell import command_of
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentHere
from tests.support.tracking import F1, uuid_of

GPU, PF, VF = "0000:06:00.0", "0000:07:00.0", "0000:07:00.1"
ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000e001"
MDEV = "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01"
HOST: dict[str, Any] = {
    "uuid": ROOT,
    "cpu": {"online": "0-7"},
    "memory_mib": 31913,
    "disk_gib": 439,
    "pci": [
        {"address": GPU, "vendor_id": "10de", "product_id": "1eb8"},
        {
            "address": PF,
            "vendor_id": "10de",
            "product_id": "20b0",
            "virtual_functions": {"count": 2, "product_id": "20ff"},
        },
    ],
    "mdev": [
        {"parent": GPU, "types": {"nvidia-35": 15}},
        {"parent": VF, "types": {"nvidia-35": 1}},
    ],
}


def agent_of(
    placement: HttpPlacement,
    folder: Path,
    spec: dict[str, str],
    host: dict[str, Any] = HOST,
    *,
    parents: str = "",
    report: bool = True,
) -> AgentHere:
    agent = AgentHere(folder)
    sections: dict[str, dict[str, Any]] = {
        "DEFAULT": {"update_resources_interval": -1, "log_file": folder / "agent.log"},
        "pci": {
            "device_spec": json.dumps(spec),
            "alias": json.dumps({"name": "gpu", "vendor_id": "10de", "product_id": "1eb8"}),
            "report_in_placement": report,
        },
        "devices": {"enabled_mdev_types": "nvidia-35"},
    }
    if parents:
        sections["mdev_nvidia-35"] = {"device_addresses": parents}
    agent.configure(
        on(placement, "fake.file", {"fake": {"host_file": host_file(agent, host)}}, sections)
    )
    return agent


@pytest.mark.parametrize(
    ("spec", "whole", "part"),
    [
        ({"address": GPU}, GPU, GPU),
        ({"address": PF, "product_id": "20b0"}, PF, VF),
        ({"address": VF}, VF, VF),
    ],
)
def test_a_card_that_is_offered_both_ways_is_an_error_until_one_of_them_goes(
    http_placement: HttpPlacement, tmp_path: Path, spec: dict[str, str], whole: str, part: str
) -> None:
    agent = agent_of(http_placement, tmp_path, spec)
    for command in (("pci", "check"), ("--once",)):
        result = agent.run(*command)
        assert result.code == 1
        text = " ".join((result.stdout + result.stderr).split())
        assert f"{whole} is offered whole, and {part} as mediated devices of nvidia-35" in text
    # The remedy that is named.
    rest = VF if part == GPU else GPU
    agent = agent_of(http_placement, tmp_path, spec, parents=rest)
    assert agent.run("--once").code == 0
    providers = http_placement.dump()["providers"].values()
    counted = {one["name"].partition("_")[2]: set(one["inventories"]) for one in providers}
    parent = f"pci_{rest.replace(':', '_').replace('.', '_')}"
    assert counted[parent] == {"VGPU"}


def test_a_card_that_the_options_name_both_ways_is_an_error_of_the_configuration(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = agent_of(http_placement, tmp_path, {"address": GPU}, parents=f"{VF}, {GPU}")
    result = agent.run("config", "check")
    assert result.code == 1
    text = f"{GPU} is offered whole, and by [mdev_nvidia-35] device_addresses"
    assert text in " ".join((result.stdout + result.stderr).split())
    # The remedy that is named.
    agent = agent_of(http_placement, tmp_path, {"address": GPU}, parents=VF)
    assert agent.run("config", "check").code == 0


def claim(client: ApiClient, name: str, *, whole: bool) -> dict[str, Any]:
    """Claim the card for a guest, or a mediated device of it."""
    flavor = {**flavor_body(F1), "extra_specs": {"pci_passthrough:alias": "gpu:1"} if whole else {}}
    (provider,) = (
        source["provider"]
        for source in client.node(ROOT)["records"]["mdevs"]
        if source["parent"] == GPU
    )
    held = {ROOT: {"resources": {"VCPU": 1}}}
    return dict(
        client.create_claim(
            {
                "id": uuid_of(f"claim-{name}"),
                "node": ROOT,
                "instance": instance_body(name),
                "flavor": flavor,
                "allocations": held if whole else {**held, provider: {"resources": {"VGPU": 1}}},
            }
        )
    )


def test_a_guest_does_not_get_a_card_that_another_has_in_part_nor_a_part_of_one_that_another_has(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = agent_of(http_placement, tmp_path, {"address": GPU}, report=False)
    client, service = ApiClient(agent.socket), Service(agent)
    with service.running():
        service.wait_for("READY", "1")
        claim(client, "part", whole=False)
        with pytest.raises(ApiProblem, match=f"mediated devices of {GPU}"):
            claim(client, "whole", whole=True)
        told = agent.run("explain", "--vcpus", "1", "--ram", "512", "--alias", "gpu").stdout
        taken = f"device {GPU}: mediated devices of {GPU} exist or are promised"
        assert taken in " ".join(told.split())
        client.abort_claim(uuid_of("claim-part"))
        claim(client, "whole", whole=True)
        with pytest.raises(ApiProblem, match=f"a guest has {GPU} whole"):
            claim(client, "part again", whole=False)
        assert service.stop()[0] == 0


def test_a_card_that_guests_have_both_ways_is_drift(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    owner, whole = uuid_of("owner"), uuid_of("whole")
    small = {"memory_mib": 512, "vcpus": 1}
    host = {
        **HOST,
        "mdev": [
            {
                "parent": GPU,
                "types": {"nvidia-35": 14},
                "mdevs": [{"uuid": MDEV, "type": "nvidia-35"}],
            }
        ],
        "guests": [
            {"uuid": owner, "name": "part", **small, "mdevs": [MDEV]},
            {"uuid": whole, "name": "whole", **small, "devices": [GPU]},
        ],
    }
    agent = agent_of(http_placement, tmp_path, {"address": GPU}, host, report=False)
    assert agent.run("guests", "import").code == 0
    found = agent.run("--once", "--format", "json").json["nodes"][0]["drift"]
    (both,) = [one for one in found if one["kind"] == "held-device"]
    assert f"guest whole ({whole}) has device {GPU} whole" in both["detail"]
    assert command_of(both["remedy"], "openstack ") == f"openstack server migrate {whole}"
    # The remedy that is named.
    host["guests"].pop()
    host["pci"] = HOST["pci"][1:]
    agent = agent_of(http_placement, tmp_path, {"address": GPU}, host, report=False)
    assert agent.run("guests", "forget", whole).code == 0
    found = agent.run("--once", "--format", "json").json["nodes"][0]["drift"]
    assert [one for one in found if one["kind"] == "held-device"] == []
