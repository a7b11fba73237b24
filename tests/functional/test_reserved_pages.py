"""Options that name what the host does not have: where nova goes on, the node goes on, and is told
what is missing.
"""

import json
import subprocess
from pathlib import Path

from tests.functional.cli.setups import on
from tests.support.http_placement import HttpPlacement
from tests.support.recorded_sysfs import RecordedSysfs, smt_host
from tests.support.system import AgentHere

GIBI, NOWHERE = "node:0,size:1GB,count:2", "node:7,size:2048,count:1"
TOLD = "[DEFAULT] reserved_huge_pages = node:"


def mended(sysfs: RecordedSysfs, remedy: str) -> None:
    """Carry out the command of a remedy on the recorded host."""
    _, _, command = remedy.partition(": ")
    assert command.startswith("echo ")
    subprocess.run(["/bin/sh", "-c", command.replace("/sys/", f"{sysfs.root}/")], check=True)


def test_reserved_pages_that_the_host_does_not_have_are_told_and_the_node_goes_on(
    tmp_path: Path, http_placement: HttpPlacement
) -> None:
    sysfs = smt_host(tmp_path / "sys")
    config = {
        **on(http_placement, "host", {"host": {"sysfs_root": sysfs.root}}),
        "compute": {"memory_page_classes": True, "tree_layout": "nested"},
        "devices": {"enabled_mdev_types": "nvidia-35"},
        "pci": {"device_spec": json.dumps({"vendor_id": "ffff"})},
    }
    config["DEFAULT"]["reserved_huge_pages"] = ["node:0,size:2048,count:64", GIBI, NOWHERE]

    def run() -> tuple[list[dict[str, str]], int]:
        done = AgentHere(tmp_path, config).run("--once", "--format", "json")
        assert done.code == 0, done
        (node,) = done.json["nodes"]
        assert node["errors"] == []
        (cell,) = (
            one
            for one in http_placement.dump()["providers"].values()
            if one["name"] == "node-a_NUMA0"
        )
        return node["drift"], cell["inventories"]["CUSTOM_MEMORY_PAGE_1048576"]["reserved"]

    drift, reserved = run()
    assert reserved == 1024
    few, nowhere = drift
    assert {one["kind"] for one in drift} == {"overcommitted"}
    assert few["detail"].startswith(f"{TOLD}0,size:1048576,count:2: node 0 has only 1 page")
    assert nowhere["detail"].startswith(f"{TOLD}7,size:2048,count:1: node 7 is not there")
    assert http_placement.dump()["providers"]

    mended(sysfs, few["remedy"])
    assert nowhere["remedy"].startswith("take the entry out; ")
    config["DEFAULT"]["reserved_huge_pages"].pop()
    assert run() == ([], 2048)
