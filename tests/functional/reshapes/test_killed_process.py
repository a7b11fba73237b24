"""A real process that is really killed while it moves a hundred consumers between the root and the
cells, and the one that comes after it.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import faults
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config
from tests.support.placement import PROJECT, USER
from tests.support.proxy import FaultProxy
from tests.support.system import AgentCommand
from tests.support.tracking import guest

pytestmark = pytest.mark.long

NODE, CPUS, SHARED = "node-a", 64, 4
GUESTS = {guest(f"g{number}"): number % 2 for number in range(100)}
"""The cell of each."""


def host_file() -> str:
    """Two cells, and a hundred guests with a CPU of their own; JSON is YAML."""
    cells = [
        {"id": cell, "cpus": f"{cell * CPUS}-{cell * CPUS + CPUS - 1}", "memory_mib": 65536}
        for cell in (0, 1)
    ]
    guests = [
        {
            "uuid": uuid,
            "cells": [
                {
                    "host_cell": cell,
                    "dedicated": "0",
                    "pins": {"0": cell * CPUS + SHARED + number // 2},
                    "memory_mib": 512,
                }
            ],
        }
        for number, (uuid, cell) in enumerate(GUESTS.items())
    ]
    return json.dumps({"name": NODE, "cells": cells, "disk_gib": 1000, "guests": guests})


class Command:
    """The agent of the host of that file, by way of ``proxy``."""

    def __init__(self, placement: HttpPlacement, proxy: FaultProxy, folder: Path) -> None:
        self.placement, self.proxy = placement, proxy
        self.command = AgentCommand(folder)
        (folder / "host.yaml").write_text(host_file())

    def configure(self, layout: str) -> None:
        shared = [f"{cell * CPUS}-{cell * CPUS + SHARED - 1}" for cell in (0, 1)]
        dedicated = [f"{cell * CPUS + SHARED}-{cell * CPUS + CPUS - 1}" for cell in (0, 1)]
        config: Config = {
            "DEFAULT": {"compute_driver": "fake.file", "host": NODE},
            "fake": {"host_file": self.command.folder / "host.yaml"},
            "compute": {
                "tree_layout": layout,
                "cpu_shared_set": ",".join(shared),
                "cpu_dedicated_set": ",".join(dedicated),
            },
            "placement": {**self.placement.credentials(self.proxy.url), "max_in_flight": "1"},
        }
        self.command.configure(config)

    def once(self) -> str:
        """To the end; how the node stands."""
        (node,) = self.command.run("--once", "--format", "json").json["nodes"]
        assert node["errors"] == []
        return str(node["state"])

    def killed_at_the_reshape(self, action: faults.Action) -> None:
        """Kill it before it has the answer. ``action``: whether Placement has seen the request."""
        with self.command.started("--once") as process:

            def kill(_exchange: Any) -> None:
                process.kill()
                process.wait()

            rule = self.proxy.faults.add(
                replace(action, after=kill), method="POST", path="/reshaper"
            )
            process.communicate(timeout=120)
        assert (rule.hits, process.returncode) == (1, -9)

    def allocate(self) -> None:
        """A CPU and memory of the root for each."""
        root = next(
            uuid for uuid, one in self.placement.dump()["providers"].items() if one["name"] == NODE
        )
        body = {
            "allocations": {root: {"resources": {"PCPU": 1, "MEMORY_MB": 512}}},
            "project_id": PROJECT,
            "user_id": USER,
            "consumer_generation": None,
        }
        self.placement.other.call("POST", "/allocations", dict.fromkeys(GUESTS, body))

    def held(self) -> dict[str, dict[str, dict[str, int]]]:
        dump = self.placement.dump()
        return {
            consumer: {
                dump["providers"][uuid]["name"]: amounts
                for uuid, amounts in one["allocations"].items()
            }
            for consumer, one in dump["consumers"].items()
        }


@pytest.fixture
def agent(http_placement: HttpPlacement, proxy: FaultProxy, tmp_path: Path) -> Command:
    """Flat, with all its guests."""
    made = Command(http_placement, proxy, tmp_path / "agent")
    made.configure("flat")
    made.once()
    made.allocate()
    return made


FLAT = {uuid: {NODE: {"PCPU": 1, "MEMORY_MB": 512}} for uuid in GUESTS}
NESTED = {
    uuid: {NODE: {"MEMORY_MB": 512}, f"{NODE}_NUMA{cell}": {"PCPU": 1}}
    for uuid, cell in GUESTS.items()
}


def test_a_killed_process_leaves_all_or_nothing_and_the_next_one_goes_on(agent: Command) -> None:
    agent.configure("nested")
    agent.killed_at_the_reshape(faults.cut())
    assert agent.held() == FLAT
    agent.killed_at_the_reshape(faults.cut(applied=True))
    assert agent.held() == NESTED
    assert (agent.once(), agent.once(), agent.held()) == ("changed", "in-sync", NESTED)
