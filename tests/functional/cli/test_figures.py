"""What is used of a host: each figure is called what it is, on record or in Placement."""

import re
from pathlib import Path

import pytest

from tests.functional.cli.setups import from_file, numa_host, uuids_of
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000e0f1"
GUEST = "5f9c2a34-7d1e-4a8b-9c46-00000000e0f2"
HOST = {
    "uuid": ROOT,
    "cpu": {"online": "0-7"},
    "memory_mib": 16384,
    "guests": [{"uuid": GUEST, "name": "one", "vcpus": 2, "memory_mib": 2048}],
}
NOT_JUDGED = "allocations were not judged, because driver fake.numa cannot list guests"


@pytest.fixture
def imported(http_placement: HttpPlacement, tmp_path: Path) -> AgentHere:
    """A host with a guest on record that has no allocation in Placement."""
    agent = from_file(http_placement, tmp_path / "imported", HOST)
    for command in (("--once",), ("guests", "import"), ("--once",)):
        assert agent.run(*command).code == 0
    return agent


def rows(text: str, *names: str) -> list[list[str]]:
    """Return the cells of the lines about these classes."""
    found = (re.split(r"\s{2,}", line.strip(" │")) for line in text.splitlines())
    return [cells for cells in found if cells[0] in names]


def test_what_is_only_on_record_is_not_said_to_be_in_placement(imported: AgentHere) -> None:
    text = imported.run("resources").stdout
    assert rows(text, "provider tree") == [
        ["provider tree", "on record", "free", "in Placement", "free", "total", "reserved", "ratio"]
    ]
    assert [cells[3:5] for cells in rows(text, "MEMORY_MB", "VCPU")] == [
        ["0", "15872"],
        ["0", "32"],
    ]
    (memory,) = (cells for cells in rows(text, "memory MiB"))
    assert memory == ["memory MiB", "2560", "16384", "512", "13824"]
    tree = imported.run("tree").stdout
    assert "as last seen at http://" in tree
    assert [cells[1] for cells in rows(tree, "MEMORY_MB", "VCPU")] == ["0", "0"]
    assert "in Placement" in tree and "on record  " not in tree


def test_an_audit_has_both_figures_beside_each_other(imported: AgentHere) -> None:
    text = imported.run("--once").stdout
    assert [cells[1:3] for cells in rows(text, "MEMORY_MB", "VCPU")] == [["2048", "0"], ["2", "0"]]
    records = {
        name: (record["used"], record["in_placement"])
        for name, record in imported.run("--once", "--format", "json")
        .json["nodes"][0]["tree"][0]["inventories"]
        .items()
    }
    assert records == {"MEMORY_MB": (2048, 0), "VCPU": (2, 0)}


def test_the_mediated_devices_of_guests_are_on_record(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = numa_host(http_placement, tmp_path / "numa")
    with agent.config_file.open("a") as config:
        config.write("[devices]\nenabled_mdev_types = nvidia-35\n")
    for command in (("--once",), ("guests", "import")):
        assert agent.run(*command).code == 0
    assert rows(agent.run("--once").stdout, "VGPU")[0][1:4] == ["1", "0", "16"]


def test_a_placement_that_was_not_asked_is_told_and_the_command_asks_it(agent: AgentHere) -> None:
    legend = (
        "the records do not say what is used here; Placement was not asked what is used: "
        f"agent --config-file {agent.config_file} --once --dry-run --with-usages"
    )
    assert legend in agent.run("--once", "--dry-run").stdout
    assert agent.run("--once").code == 0
    asked = agent.run("--once", "--with-usages").stdout
    assert "not asked" not in asked
    assert {cells[1] for cells in rows(asked, "MEMORY_MB", "VCPU", "DISK_GB")} == {"0"}


def test_where_no_guest_is_known_allocations_are_said_not_to_be_judged(
    agent: AgentHere,
) -> None:
    # What is new in Placement has no allocations.
    assert NOT_JUDGED not in agent.run("--once").stdout
    assert NOT_JUDGED in agent.run("--once").stdout
    assert NOT_JUDGED in agent.run("--once", "--observe").stdout


def test_guests_that_a_driver_lists_are_judged(imported: AgentHere) -> None:
    for command in (("--once",), ("--once", "--observe")):
        assert "not judged" not in imported.run(*command).stdout


def test_an_observer_shows_the_traits_that_placement_has(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert agent.run("--once").code == 0
    root = uuids_of(http_placement)[""]
    there = http_placement.other.traits(root)
    http_placement.other.set_traits(root, sorted(there)[1:])
    document = agent.run("--once", "--observe", "--format", "json").json["nodes"][0]
    assert document["operations"]
    assert len(document["tree"][0]["traits"]) == len(there) - 1
