"""``agent explain``: the ten cases of docs/explain.md, each run as it stands there."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.cli.setups import on
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.placement import Placement
from tests.support.shell import Shell
from tests.support.system import AgentHere, Result

PAGE = (CHECKOUT / "docs" / "explain.md").read_text(encoding="utf-8")
CASES = dict(
    re.findall(
        r"^### (.+)\n(?:[^#\n]*\n)*?(?:<!--.*-->\n)?```\n\$ ((?:.+\n)+)```", PAGE, re.MULTILINE
    )
)
FIRST, SECOND = (
    f"{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}" for digit in "12"
)
ROOT = "0d4f1d6a-5e0d-4a5e-9c4e-6f9b3a0f7f1c"
DISABLED = "COMPUTE_STATUS_DISABLED"


def block(language: str) -> str:
    """The page's block in that language."""
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def host(_http_placement: HttpPlacement, tmp_path_factory: pytest.TempPathFactory) -> AgentHere:
    """The page's host with its two guests, in the records and in Placement."""
    if not _http_placement.running:
        _http_placement.start()
    _http_placement.reset()
    agent = AgentHere(tmp_path_factory.mktemp("explain") / "agent")
    agent.folder.mkdir(exist_ok=True)
    file = agent.folder / "host.yaml"
    file.write_text(block("yaml"))
    agent.configure(on(_http_placement, "fake.file", {"fake": {"host_file": file}}))
    agent.config_file.write_text(agent.config_file.read_text() + block("ini"))
    for command in (["--once"], ["guests", "import"]):
        done = agent.run(*command)
        assert done.code == 0, done
    names = providers(_http_placement)
    for guest, cell, cpus in ((FIRST, 0, 4), (SECOND, 1, 5)):
        held = {names[f"node-a_NUMA{cell}"]: {"PCPU": cpus}, ROOT: {"MEMORY_MB": 4096}}
        _http_placement.other.claim(held, guest)
    return agent


def providers(placement: Placement) -> dict[str, str]:
    """Name to uuid."""
    return {row["name"]: row["uuid"] for row in placement.other.tree(ROOT)}


def disable(_host: AgentHere, placement: Placement) -> Callable[[], object]:
    """nova disables the compute service. Returns how it is enabled again."""
    traits = placement.other.traits(ROOT)
    placement.other.set_traits(ROOT, traits | {DISABLED})
    return lambda: placement.other.set_traits(ROOT, traits)


def use_once(host: AgentHere, placement: Placement) -> Callable[[], object]:
    """The page's guest with the disk comes and goes, so that the disk waits to be cleaned. Returns
    how it is cleaned.
    """
    file, (guest,) = host.folder / "host.yaml", re.findall(r"`(- \{uuid: (\S+),.*?\})`", PAGE)
    there, disk = file.read_text(), providers(placement)["node-a_0000:05:00.0"]
    inventory = placement.other.inventory(disk)
    file.write_text(f"{there}  {guest[0]}\n")
    for command in (["guests", "import"], ["--once"], ["guests", "forget", guest[1]], ["--once"]):
        if command[1:2] == ["forget"]:
            file.write_text(there)
        assert host.run(*command).code == 0

    def clean() -> None:
        placement.other.set_inventory(disk, inventory)
        assert host.run("--once").code == 0

    return clean


BEFORE = {"Disabled": disable, "Used once, and reserved": use_once}


def shown(result: Result, lines: list[str]) -> None:
    """All lines are in the output, in this order."""
    at = 0
    for line in lines:
        found = result.stdout.find(line, at)
        assert found >= 0, f"{line!r} is not there\n{result}"
        at = found + len(line)


def test_the_page_has_ten_cases() -> None:
    assert len(CASES) == 10


@pytest.mark.parametrize("title", CASES)
def test_the_answer_is_as_the_page_shows(
    host: AgentHere, _http_placement: HttpPlacement, title: str
) -> None:
    command, *lines = CASES[title].strip().split("\n")
    undo = BEFORE[title](host, _http_placement) if title in BEFORE else lambda: None
    try:
        result = host.run(*shlex.split(command)[1:])
    finally:
        undo()
    assert result.code == (0 if title == "Fits" else 2), result
    shown(result, lines)


PINNED_TWICE = (
    *("explain", "--vcpus", "3", "--ram", "1024"),
    *("--extra-spec", "hw:cpu_policy=dedicated", "--extra-spec", "hw:numa_nodes=2"),
    *("--extra-spec", "hw:numa_cpus.0=0-1", "--extra-spec", "hw:numa_cpus.1=2"),
    *("--extra-spec", "hw:numa_mem.0=512", "--extra-spec", "hw:numa_mem.1=512"),
)


def test_a_pinned_guest_of_two_cells_is_told_that_the_scheduler_asks_one(host: AgentHere) -> None:
    result = host.run(*PINNED_TWICE, "--suggest")
    assert result.code == 2
    shown(
        result,
        [
            "nova's scheduler asks for all PCPU of a guest in one group, which one provider has to "
            "give; together they have 3 free",
            "host: grants the guest: cell 0 CPUs 6-7, cell 1 CPUs 15",
            "[compute] tree_layout = flat",
            "ask for at most 2 PCPU, which one cell has",
        ],
    )


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["2", "1024", "--disk", "500"], "2 vCPUs, 1024 MiB of memory, 100 GiB of disk"),
        (["6", "1024", "--disk", "500"], "4 vCPUs, 1024 MiB of memory, 100 GiB of disk"),
        (
            ["2", "14000", "--extra-spec", "hw:mem_page_size=small"],
            "2 vCPUs, 10500 MiB of memory, 0 GiB of disk",
        ),
    ],
)
def test_a_suggestion_lowers_only_what_has_to_go_down(
    host: AgentHere, words: list[str], suggested: str
) -> None:
    vcpus, ram, *more = words
    result = host.run("explain", "--vcpus", vcpus, "--ram", ram, *more, "--suggest")
    assert re.findall("ask for (.*)", result.stdout) == [f"{suggested} (tested)"], result


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--pci-noreport_in_placement", "--pci-device_spec", '{"vendor_id": "10de"}'),
    ],
    ids=["in Placement", "by the host alone"],
)
def test_fewer_devices_are_suggested_and_the_alias_is_left_out_once(
    host: AgentHere, options: tuple[str, ...]
) -> None:
    asked = ("explain", "--vcpus", "1", "--ram", "512", "--alias", "gpu:2", "--suggest")
    result = host.run(*asked, *options)
    assert re.findall("· (ask .*)", result.stdout) == [
        "ask without: alias gpu:2 (tested)",
        "ask for 1 vCPU, 512 MiB of memory, 0 GiB of disk, alias gpu:1 (tested)",
    ], result


def test_a_host_that_grants_the_guest_is_asked_without_a_trait(host: AgentHere) -> None:
    trait = ("--extra-spec", "trait:HW_CPU_X86_AVX512F=required")
    result = host.run("explain", "--vcpus", "1", "--ram", "512", *trait, "--suggest")
    assert "ask without: trait HW_CPU_X86_AVX512F required (tested)" in result.stdout
    many = host.run("explain", "--vcpus", "6", "--ram", "512", *trait, "--suggest")
    assert "HW_CPU_X86_AVX512F required (not tested: only Placement" in many.stdout, many


def test_more_than_is_free_on_record_is_granted_with_the_reason(host: AgentHere) -> None:
    granted = host.run("explain", "--vcpus", "1", "--ram", "60000")
    (memory,) = re.findall(r"memory MiB .* (\d+)\n", host.run("resources").stdout)
    reason = f"memory in MiB: 60000 asked, {memory} free on record (agent resources)"
    assert (reason in granted.stdout) == (int(memory) < 60000)
    much = host.run("explain", "--vcpus", "1", "--ram", str(int(memory) + 1))
    shown(
        much,
        [
            "host: grants the guest",
            f"memory in MiB: {int(memory) + 1} asked, {memory} free on record",
        ],
    )
    assert "on record" not in host.run("explain", "--vcpus", "1", "--ram", memory).stdout


def test_the_query_is_printed_as_a_command_for_the_same_placement(host: AgentHere) -> None:
    printed = host.run("explain", "--vcpus", "1", "--ram", "512").stdout
    (command,) = re.findall(r"^  (.* candidates .*)$", printed, re.M)
    name, option, file, *words = shlex.split(command)
    assert (name, option, file) == ("agent", "--config-file", str(host.config_file))
    found = host.run(*words)
    assert found.code == 0
    assert "node-a" in found.stdout, found


def test_a_flavor_without_a_name_leaves_no_blank(host: AgentHere) -> None:
    bad = ("--extra-spec", "hw:cpu_policy=dedicated", "--extra-spec", "hw:numa_nodes=9")
    result = host.run("explain", "--vcpus", "2", "--ram", "512", *bad)
    assert result.code
    assert "the flavor: " in result.stdout + result.stderr
    assert "flavor :" not in result.stdout + result.stderr


def test_the_document_has_the_same(host: AgentHere) -> None:
    document = host.run("explain", "--vcpus", "6", "--ram", "1024", "--format", "json").json
    (node,) = document["nodes"]
    assert (document["fits"], document["exit_code"], node["fits"]) == (False, 2, False)
    ((reason,),) = node["placement"]["excluded_by"]
    assert (reason["kind"], reason["name"], reason["amount"]) == ("resource", "VCPU", 6)
    assert node["host"]["granted"]
    assert "resources=MEMORY_MB:1024,VCPU:6" in document["query"]["words"]


def test_anywhere_names_the_nodes_of_placement(host: AgentHere) -> None:
    result = host.run("explain", "--anywhere", "resources=VCPU:1", "--format", "json")
    assert result.code == 0
    assert [offer["name"] for offer in result.json["anywhere"]["nodes"]] == ["node-a"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--vcpus", "1"),
        ("--vcpus", "one", "--ram", "1"),
        ("--vcpus", "1", "--ram", "1", "resources=VCPU:1"),
        ("--vcpus", "1", "--ram", "1", "--extra-spec", "hw:cpu_policy"),
        ("--claim", "/nonexistent"),
    ],
)
def test_what_is_no_request_is_refused(
    tmp_path: Path, _http_placement: HttpPlacement, arguments: tuple[str, ...]
) -> None:
    agent = AgentHere(tmp_path / "agent", on(_http_placement))
    result = agent.run("explain", *arguments)
    assert (result.code, result.stdout) == (1, ""), result


def test_a_consumer_that_is_no_guest_is_not_moved_away_but_ended(
    host: AgentHere, _http_placement: HttpPlacement
) -> None:
    leftover = "33333333-3333-4333-8333-333333333333"
    _http_placement.other.claim({ROOT: {"DISK_GB": 80}}, leftover)
    asked = ("explain", "--vcpus", "1", "--ram", "512", "--disk", "50")
    result = host.run(*asked, "--suggest")
    assert (result.code, "move away" in result.stdout) == (2, False), result
    (command,) = [line.strip() for line in result.stdout.splitlines() if "remove-tree" in line]
    Shell(host.folder / "programs", host).run(command)
    assert _http_placement.other.call("GET", f"/allocations/{leftover}").json()["allocations"] == {}
    assert host.run(*asked).code == 0
