"""A source that is empty for once loses nothing of others: cells and cards of a recorded host that
vanish and come back, in the real Placement.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.functional.cli.setups import on
from tests.support.http_placement import HttpPlacement
from tests.support.recorded_sysfs import smt_host
from tests.support.system import AgentHere
from tests.support.tracking import uuid_of

CELL, CARD, GPU = "node-a_NUMA8", "node-a_0000:3B:00.0", "node-a_pci_0000_06_00_0"
CUSTOM, ZONE = "CUSTOM_RACK7", uuid_of("zone")


def test_what_others_have_on_cells_and_cards_outlives_a_source_that_is_empty_once(
    tmp_path: Path, http_placement: HttpPlacement
) -> None:
    sysfs = smt_host(tmp_path / "sys")
    sysfs.pci("0000:06:00.0", "10de:1db4", class_code="0x030200", cell=8)
    sysfs.mediated("0000:06:00.0", {"nvidia-35": 4}, {})
    config = {
        **on(http_placement, "host", {"host": {"sysfs_root": sysfs.root}}),
        "compute": {"tree_layout": "nested"},
        "devices": {"enabled_mdev_types": "nvidia-35"},
        "pci": {"device_spec": '{"product_id": "154c"}', "report_in_placement": True},
    }
    agent = AgentHere(tmp_path, config)

    def run() -> list[Mapping[str, Any]]:
        done = agent.run("--once", "--format", "json")
        assert done.code == 0, done
        (node,) = done.json["nodes"]
        assert node["errors"] == []
        return list(node["drift"])

    def providers() -> dict[str, Mapping[str, Any]]:
        return {one["name"]: one for one in http_placement.dump()["providers"].values()}

    def uuids() -> dict[str, str]:
        return {one["name"]: uuid for uuid, one in http_placement.dump()["providers"].items()}

    assert run() == []
    ours = uuids()
    for name in (CELL, CARD, GPU):
        traits = set(providers()[name]["traits"])
        http_placement.other.set_traits(ours[name], traits | {CUSTOM})
        http_placement.other.set_aggregates(ours[name], {ZONE})
    assert run() == []
    before = providers()

    kept = tmp_path / "kept"
    shutil.copytree(sysfs.root, kept, symlinks=True)
    sysfs.cells_online("0,9,250")
    for folder in ("bus/pci/devices", "class/mdev_bus"):
        shutil.rmtree(sysfs.root / folder)
        (sysfs.root / folder).mkdir()
    for _ in range(2):
        drift = run()
        assert {one["provider"] for one in drift} == {ours[name] for name in (CELL, CARD, GPU)}
        for name in (CELL, CARD, GPU):
            assert providers()[name] | {"generation": 0} == {
                **before[name],
                "generation": 0,
                "inventories": {},
                "traits": [CUSTOM],
            }
    assert f"{CUSTOM}, aggregate {ZONE}" in drift[0]["detail"]

    shutil.rmtree(sysfs.root)
    kept.rename(sysfs.root)
    assert run() == []
    assert {name: one | {"generation": 0} for name, one in providers().items()} == {
        name: one | {"generation": 0} for name, one in before.items()
    }

    # Gone for good: the remedy ends it.
    sysfs.cells_online("0,9,250")
    (told,) = run()
    command = told["remedy"].split(": ")[1]
    assert command == f"openstack resource provider delete {ours[CELL]}"
    http_placement.other.delete_provider(ours[CELL])
    assert run() == []
    assert CELL not in providers()
