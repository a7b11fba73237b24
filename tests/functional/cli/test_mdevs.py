"""Mediated devices and encryption from a host file to Placement, and wrong options told at once."""

from pathlib import Path
from typing import Any

from tests.functional.cli.setups import host_file, on, uuids_of
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere

HOST = {
    "cpu": {"online": "0-7"},
    "memory_mib": 31913,
    "disk_gib": 439,
    "mdev": [
        {
            "parent": "0000:06:00.0",
            "types": {"nvidia-35": 14},
            "mdevs": [
                {"uuid": "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01", "type": "nvidia-35"},
                {"uuid": "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d02", "type": "nvidia-35"},
            ],
        }
    ],
    "encryption": {"sev": 509},
}


def agent_of(
    placement: HttpPlacement,
    folder: Path,
    sections: dict[str, dict[str, str]],
    host: dict[str, Any] = HOST,
) -> AgentHere:
    agent = AgentHere(folder)
    agent.configure(
        on(placement, "fake.file", {"fake": {"host_file": host_file(agent, host)}}, sections)
    )
    return agent


def test_a_host_file_and_novas_options_make_the_children(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    sections = {
        "devices": {"enabled_mdev_types": "nvidia-35"},
        "mdev_nvidia-35": {"mdev_class": "CUSTOM_GPU", "max_per_guest": "1"},
        "libvirt": {"num_memory_encrypted_guests": "15"},
    }
    agent = agent_of(http_placement, tmp_path, sections)
    assert agent.run("--once").code == 0
    found = {one["name"]: one["inventories"] for one in http_placement.dump()["providers"].values()}
    totals = {
        name: {
            resource: (record["total"], record["max_unit"]) for resource, record in records.items()
        }
        for name, records in found.items()
    }
    assert totals["node-a_pci_0000_06_00_0"] == {"CUSTOM_GPU": (16, 1)}
    assert totals["node-a_amd_sev"] == {"MEM_ENCRYPTION_CONTEXT": (15, 1)}


def test_devices_that_exist_count_before_those_that_could_be_created_elsewhere(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    there = [
        {"uuid": f"8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d0{number}", "type": "nvidia-35"}
        for number in (1, 2)
    ]
    parents = [
        {"parent": "0000:06:00.0", "types": {"nvidia-35": 4}},
        {"parent": "0000:07:00.0", "types": {"nvidia-35": 2}, "mdevs": there},
    ]
    sections = {
        "devices": {"enabled_mdev_types": "nvidia-35"},
        "mdev_nvidia-35": {"max_instances": "3"},
    }
    agent = agent_of(http_placement, tmp_path, sections, {**HOST, "mdev": parents})
    assert agent.run("--once").code == 0
    assert offered(http_placement) == {"0000_06_00_0": 1, "0000_07_00_0": 2}


def test_what_a_consumer_that_no_record_knows_has_allocated_is_not_dealt_out_to_another_card(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    sections = {
        "devices": {"enabled_mdev_types": "nvidia-35"},
        "mdev_nvidia-35": {"max_instances": "5"},
    }
    cards = [{"parent": f"0000:0{bus}:00.0", "types": {"nvidia-35": 4}} for bus in (6, 7)]
    agent = agent_of(http_placement, tmp_path, sections, {**HOST, "mdev": cards[1:]})
    assert agent.run("--once").code == 0
    child = uuids_of(http_placement)["pci_0000_07_00_0"]
    http_placement.other.claim({child: {"VGPU": 3}})

    host_file(agent, {**HOST, "mdev": cards})
    for _ in range(2):
        assert agent.run("--once").code == 0
        assert offered(http_placement) == {"0000_06_00_0": 2, "0000_07_00_0": 3}
    assert http_placement.other.inventory(child)["VGPU"]["reserved"] == 0


def offered(placement: HttpPlacement) -> dict[str, int]:
    """How many devices each parent offers, by its name at the end of that of its provider."""
    return {
        one["name"][-12:]: one["inventories"]["VGPU"]["total"]
        for one in placement.dump()["providers"].values()
        if "VGPU" in one["inventories"]
    }


def test_a_type_that_no_card_has_is_told(http_placement: HttpPlacement, tmp_path: Path) -> None:
    sections = {
        "devices": {"enabled_mdev_types": "nvidia-35, nvidia-63"},
        "mdev_nvidia-63": {"device_addresses": "0000:07:00.0"},
    }
    result = agent_of(http_placement, tmp_path, sections).run("--once")
    assert result.code == 0
    assert "no card has nvidia-63 of [devices] enabled_mdev_types" in " ".join(
        result.stdout.split()
    )


def test_wrong_options_are_told_at_once_by_the_check_and_at_the_start(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    sections = {
        "devices": {"enabled_mdev_types": "a, b"},
        "mdev_a": {"device_addresses": "0000:06:00.0, 06:00", "mdev_class": "gpu"},
        "mdev_b": {"device_addresses": "0000:06:00.0"},
        "compute": {"cpu_shared_set": "x"},
    }
    agent = agent_of(http_placement, tmp_path, sections)
    for command in (("config", "check"), ("--once",)):
        result = agent.run(*command, "--format", "json")
        assert result.code == 1
        assert [error["message"].split(":")[0] for error in result.json["errors"]] == [
            "[compute] cpu_shared_set = x",
            "[mdev_a] mdev_class = gpu",
            "[mdev_a] device_addresses",
            "[mdev_a] and [mdev_b] device_addresses",
        ]
    assert http_placement.dump()["providers"] == {}
