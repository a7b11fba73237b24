"""The remedies of a managed node: each is carried out in a shell as it is written, and the trouble is
gone then.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.setups import numa_host, uuids_of
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere

FLOATING = "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11"
MIXED = "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a12"
SIZE = {"MEMORY_MB": 4096, "DISK_GB": 21}


def carry_out(agent: AgentHere, command: str) -> None:
    """Run the command of a remedy in a shell, where ``agent`` is this agent."""
    programs = agent.folder / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / "agent"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m agent --config-file {agent.config_file} "$@"\n'
    )
    program.chmod(0o755)
    environment = {
        "HOME": str(agent.folder),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
        "NO_PROXY": "*",
    }
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env=environment,
        cwd=agent.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran


def told(agent: AgentHere, kind: str) -> dict[str, Any]:
    """The drift of a kind by consumer, as an audit finds it."""
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    return {drift["consumer"]: drift for drift in node["drift"] if drift["kind"] == kind}


def command_of(remedy: str, beginning: str) -> str:
    """The command of the first way of a remedy, which begins like this."""
    return remedy[remedy.index(beginning) :].partition("; or if ")[0]


@pytest.fixture
def host(http_placement: HttpPlacement, tmp_path: Path) -> AgentHere:
    """The host of etc/hosts/numa.yaml: one guest floats, one is pinned by a flavor without mask."""
    agent = numa_host(http_placement, tmp_path / "agent")
    for command in (("--once",), ("guests", "import"), ("--once",)):
        assert agent.run(*command).code == 0
    return agent


def held(placement: HttpPlacement, consumer: str) -> dict[str, dict[str, int]]:
    names = {uuid: name for name, uuid in uuids_of(placement).items()}
    found = placement.other.allocations(consumer)["allocations"]
    return {names[uuid]: one["resources"] for uuid, one in found.items()}


def test_guests_without_allocations_get_those_of_the_remedy(
    host: AgentHere, http_placement: HttpPlacement
) -> None:
    drift = told(host, "missing-allocation")
    assert drift.keys() == {FLOATING, MIXED}
    for found in drift.values():
        carry_out(host, command_of(found["remedy"], "printf"))
    assert held(http_placement, FLOATING) == {"": {"VCPU": 2, "MEMORY_MB": 4096}}
    pinned = held(http_placement, MIXED)
    assert pinned.pop("NUMA0") == {"PCPU": 3}
    assert pinned.pop("") == {"VCPU": 2, **SIZE}
    assert pinned == {}
    assert told(host, "missing-allocation") == told(host, "allocation-mismatch") == {}
    # Tree and remedy are by one rule: what is on record is what Placement counts now.
    (node,) = host.run("--once", "--format", "json").json["nodes"]
    for provider in node["tree"]:
        for name, record in provider["inventories"].items():
            assert record["used"] in (None, record["in_placement"]), (provider["name"], name)


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ({"": {"VCPU": 4, **SIZE}}, "VCPU 4 instead of PCPU 3, VCPU 2"),
        ({"": {"VCPU": 7, "MEMORY_MB": 1024}}, "VCPU 7 instead of PCPU 3, VCPU 2"),
        (
            {"": {"VCPU": 2, **SIZE}, "NUMA1": {"PCPU": 2}},
            "PCPU 2, VCPU 2 instead of PCPU 3, VCPU 2",
        ),
        ({"": {"DISK_GB": 1}}, "VCPU 0 instead of PCPU 3, VCPU 2"),
    ],
)
def test_a_wrong_allocation_is_corrected_by_the_commands_of_the_remedy(
    host: AgentHere, http_placement: HttpPlacement, wrong: dict[str, Any], detail: str
) -> None:
    uuids = uuids_of(http_placement)
    http_placement.other.claim({uuids[name]: some for name, some in wrong.items()}, MIXED)
    drift = told(host, "allocation-mismatch")[MIXED]
    assert detail in drift["detail"]
    carry_out(host, command_of(drift["remedy"], "agent allocation"))
    right = held(http_placement, MIXED)
    assert right["NUMA0"] == {"PCPU": 3}
    assert right[""] == {"VCPU": 2, **SIZE}
    assert told(host, "allocation-mismatch") == {}


def test_a_guest_that_is_gone_for_good_is_forgotten_by_the_command_of_the_remedy(
    host: AgentHere,
) -> None:
    file = host.folder / "host.yaml"
    text = file.read_text()
    begin, end = text.index(f"  - uuid: {FLOATING}"), text.index("  # A guest that does not float")
    file.write_text(text[:begin] + text[end:])
    drift = told(host, "missing-domain")[FLOATING]
    carry_out(host, command_of(drift["remedy"], "agent guests forget"))
    assert FLOATING not in told(host, "missing-domain")
    assert FLOATING not in told(host, "missing-allocation")
