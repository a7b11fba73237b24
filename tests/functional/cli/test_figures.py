"""What is used of a host: each figure is called what it is, on record or in Placement."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.functional.cli.setups import from_file, numa_host, uuids_of
from tests.support.child import CHECKOUT
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
    assert [cells[1:5] for cells in rows(text, "MEMORY_MB", "VCPU")] == [
        ["2048", "13824", "0", "15872"],
        ["2", "30", "0", "32"],
    ]
    (memory,) = (cells for cells in rows(text, "memory MiB"))
    assert memory == ["memory MiB", "2048", "16384", "512", "13824"]
    tree = imported.run("tree").stdout
    assert "as last seen at http://" in tree
    assert [cells[1:3] for cells in rows(tree, "MEMORY_MB", "VCPU")] == [["2048", "0"], ["2", "0"]]
    page = imported.config_file.with_name("page.html")
    assert imported.run("report", str(page)).code == 0
    assert '<rect class="used"' in page.read_text()


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
    assert on_record(agent) == audited(agent)


def on_record(agent: AgentHere) -> dict[tuple[str, str], int | None]:
    """What ``resources`` says is used on record: provider and class to amount."""
    (node,) = agent.run("resources", "--format", "json").json["resources"]
    return {
        (row["provider"]["name"], row["resource_class"]): row["used"] for row in node["placement"]
    }


def audited(agent: AgentHere) -> dict[tuple[str, str], int | None]:
    """The same as the tree of an audit says it."""
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    return {
        (row["name"], name): record["used"]
        for row in node["tree"]
        for name, record in row["inventories"].items()
    }


def test_resources_have_on_record_what_an_audit_has(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = numa_host(http_placement, tmp_path / "numa")
    assert agent.run("--once").code == 0
    assert on_record(agent) == audited(agent)
    assert set(on_record(agent).values()) == {None}
    before = agent.run("resources").stdout
    assert "-: the records do not say what is used here" in before
    assert rows(before, "memory MiB") == [["memory MiB", "0", "65536", "512", "65024"]]
    (way,) = re.findall(r"guests that run already get a record by: agent (.*)", before)
    assert agent.run(*shlex.split(way)[2:]).code == 0
    found = audited(agent)
    assert on_record(agent) == found
    expected = {
        ("node-a", "MEMORY_MB"): 8192,
        ("node-a", "VCPU"): 4,
        ("node-a", "DISK_GB"): 21,
        ("node-a_NUMA0", "PCPU"): 3,
        ("node-a_NUMA1", "PCPU"): 0,
    }
    assert expected.items() <= found.items()
    text = agent.run("resources").stdout
    assert rows(text, "MEMORY_MB")[0][:3] == ["MEMORY_MB", "8192", "56832"]
    assert rows(text, "memory MiB") == [["memory MiB", "8192", "65536", "512", "56832"]]


@pytest.mark.parametrize(
    ("policy", "amounts"),
    [
        ("tree_layout = flat", {("node-a", "PCPU"): 3}),
        (
            "tree_layout = nested\nnuma_mode = strict\nmemory_page_classes = true",
            {("node-a_NUMA0", "CUSTOM_MEMORY_PAGE_2048"): 2048, ("node-a_NUMA1", "VCPU"): 2},
        ),
    ],
    ids=["flat", "strict"],
)
def test_resources_have_what_an_audit_has_in_every_layout(
    http_placement: HttpPlacement,
    tmp_path: Path,
    policy: str,
    amounts: dict[tuple[str, str], int],
) -> None:
    agent = numa_host(http_placement, tmp_path / "numa")
    text = agent.config_file.read_text()
    assert "tree_layout = nested" in text
    agent.config_file.write_text(text.replace("tree_layout = nested", policy))
    assert agent.run("--once").code == 0
    # A guest without cells is no guest of a strict node.
    assert agent.run("guests", "import").code == (3 if "strict" in policy else 0)
    found = audited(agent)
    assert amounts.items() <= found.items()
    assert on_record(agent) == found


def test_a_host_without_guests_has_no_figures_on_record(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = from_file(http_placement, tmp_path / "empty", {**HOST, "guests": []})
    assert agent.run("--once").code == 0
    assert set(on_record(agent).values()) == set(audited(agent).values()) == {None}
    text = agent.run("resources").stdout
    assert rows(text, "memory MiB") == [["memory MiB", "0", "16384", "512", "15872"]]
    assert "-: the driver" not in text


def test_an_amount_that_the_driver_does_not_say_is_a_dash_that_is_explained(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = from_file(
        http_placement,
        tmp_path / "nested",
        yaml.safe_load((CHECKOUT / "etc" / "hosts" / "nested-cells.yaml").read_text()),
    )
    assert agent.run("--once").code == 0
    text = agent.run("resources").stdout
    assert rows(text, "memory MiB") == [["memory MiB", "0", "-", "0", "-"]]
    assert text.count("-: the driver does not say how much the host has") == 1


def test_a_node_that_is_not_in_placement_is_told_and_once_it_is_there_it_has_figures(
    agent: AgentHere,
) -> None:
    ask = ("--once", "--dry-run", "--with-usages")
    for words in (ask[:2], ask):
        text = agent.run(*words).stdout
        assert "--with-usages" not in text
        (command,) = re.findall(r"the node is not in Placement yet, which agent (.*) writes", text)
        assert shlex.split(command) == ["--config-file", str(agent.config_file), "--once"]
    # Who only observes is not asked to write.
    observed = agent.run("--once", "--observe").stdout
    assert ("is not in Placement yet\n" in observed, "--once writes" in observed) == (True, False)
    assert observed.endswith("observed: nothing was written\n")
    assert agent.run("--once").code == 0
    asked = agent.run(*ask).stdout
    assert "not asked" not in asked
    assert "not there" not in asked
    assert {cells[1] for cells in rows(asked, "MEMORY_MB", "VCPU", "DISK_GB")} == {"0"}


def test_commands_are_printed_as_the_shell_finds_the_agent(agent: AgentHere) -> None:
    program = Path(sys.executable).with_name("agent")
    for path, named in (("/usr/bin:/bin", str(program)), (f"{program.parent}:/bin", "agent")):
        done = subprocess.run(
            [program, "--config-file", agent.config_file, "--once", "--dry-run"],
            env={"PATH": path, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"which {named} --config-file" in " ".join(done.stdout.split()), done


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
