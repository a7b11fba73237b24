"""A host file that loses a NUMA cell while a guest is on it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.model.instance import Flavor
from agent.model.names import ProviderUuid
from agent.model.report import NodeReport
from agent.tracker.errors import ResourcesUnavailable
from agent.tracker.stored_state import InstanceClaim, InstanceUpdate
from agent.tree.policy import Policy
from tests.support.agent import AgentUnderTest
from tests.support.device_host import DEDICATED
from tests.support.placement import PlacementServer
from tests.support.tracking import guest, instance, uuid_of
from tests.unit.drivers.fakes import HOST, IDENTITY, started

CELLS = (
    {"id": 0, "cpus": "0-7", "memory_mib": 8192},
    {"id": 1, "cpus": "8-15", "memory_mib": 8192},
)
NODE, CELL = ProviderUuid(IDENTITY), f"{HOST.name}_NUMA1"
PLAIN = Flavor("f", "F", 1, 512)
PINNED = Flavor("p", "P", 2, 1024, extra_specs={"hw:cpu_policy": "dedicated"})


class FileHost:
    """A node of the driver ``fake.file``, whose cells have providers; four CPUs of each are
    dedicated, four are shared.
    """

    def __init__(self, placement: PlacementServer, folder: Path) -> None:
        self.placement, self._file = placement, folder / "host.yaml"
        self.has(*CELLS)
        driver = started("fake.file", host_file=str(self._file))
        self.agent = AgentUnderTest(
            placement, folder / "state", driver, policy=Policy(DEDICATED, layout="nested")
        )
        assert self.agent.cycle(start=True).state == "changed"

    def has(self, *cells: dict[str, Any]) -> None:
        """Have the file describe these cells."""
        self._file.write_text(json.dumps({"name": HOST.name, "cells": cells}))

    def cycle(self) -> NodeReport:
        return self.agent.cycle()

    def build(self, name: str) -> str:
        """A guest with two CPUs of one cell; the name of that cell's provider."""
        tracker = self.agent.tracking.tracker
        tracker.claim(
            InstanceClaim(id=uuid_of(f"claim-{name}"), node=NODE, instance=instance(name, PINNED))
        )
        tracker.update(guest(name), InstanceUpdate(vm_state="active"))
        (placed,) = tracker.view(NODE).claims[uuid_of(f"claim-{name}")].cells
        cell = f"{HOST.name}_NUMA{placed.host_cell}"
        there = {one["name"]: one["uuid"] for one in self.placement.other.tree(NODE)}
        self.placement.other.claim(
            {NODE: {"MEMORY_MB": 1024}, there[cell]: {"PCPU": 2}}, guest(name)
        )
        return cell

    def cpus(self) -> dict[str, tuple[int, int]]:
        """Of each cell in Placement: all dedicated CPUs, and those that nobody else may have."""
        found = {
            one["name"]: one["inventories"].get("PCPU")
            for one in self.placement.dump()["providers"].values()
        }
        return {
            name: (record["total"], record["reserved"]) for name, record in found.items() if record
        }


@pytest.fixture
def host(placement: PlacementServer, tmp_path: Path) -> Iterator[FileHost]:
    found = FileHost(placement, tmp_path)
    assert [found.build("g1"), found.build("g2")] == [f"{HOST.name}_NUMA0", CELL]
    assert found.cycle().state in ("in-sync", "changed")
    yield found
    found.agent.stop()


def test_a_cell_that_is_gone_under_a_guest_is_kept_and_told_and_the_rest_goes_on(
    host: FileHost,
) -> None:
    host.has(CELLS[0])
    report = host.cycle()
    assert (report.state, report.errors) == ("changed", ())
    assert [(one.kind, one.detail) for one in report.drift] == [
        (
            "guest-conflict",
            f"the hardware changed under instance {guest('g2')}: the host has no cell 1",
        ),
        (
            "held-device",
            f"{CELL}: PCPU is gone from the node but 2 of it are allocated to {guest('g2')}",
        ),
    ]
    # Nothing of it is given out any more; the other cell, and what the whole host has, are told as
    # they are.
    assert host.cpus() == {f"{HOST.name}_NUMA0": (4, 0), CELL: (4, 4)}
    assert host.placement.other.inventory(NODE)["MEMORY_MB"]["total"] == 8192
    assert host.placement.other.allocations(guest("g2"))["allocations"].keys() > {NODE}
    with pytest.raises(ResourcesUnavailable, match="cells that the host has otherwise now"):
        host.build("g3")
    # A guest that needs no cell is built.
    host.agent.tracking.tracker.claim(
        InstanceClaim(id=uuid_of("claim-g4"), node=NODE, instance=instance("g4", PLAIN))
    )


def test_a_cell_that_was_gone_comes_back_with_its_guest(host: FileHost) -> None:
    before = host.cpus()
    host.has(CELLS[0])
    host.cycle()
    host.has(*CELLS)
    host.cycle()
    assert host.cycle().state == "in-sync"
    assert host.cpus() == before
    assert host.build("g3") == f"{HOST.name}_NUMA0"


def test_a_cell_that_is_gone_goes_with_its_guest(host: FileHost) -> None:
    host.has(CELLS[0])
    host.cycle()
    host.agent.tracking.tracker.update(guest("g2"), InstanceUpdate(deleted=True))
    # One pass takes the allocation away, the next the provider.
    host.cycle()
    host.cycle()
    assert host.cycle().state == "in-sync"
    assert host.cpus() == {f"{HOST.name}_NUMA0": (4, 0)}


def test_an_agent_does_not_start_while_a_guest_is_on_a_cell_that_is_gone(host: FileHost) -> None:
    host.has(CELLS[0])
    before = host.placement.dump()
    report = host.agent.once()
    assert report.state == "failed"
    assert [one.message for one in report.errors] == [
        "[compute] cpu_shared_set: CPUs 8-11 not online, online are 0-7",
        "[compute] cpu_dedicated_set: CPUs 12-15 not online, online are 0-7",
    ]
    assert host.placement.dump() == before
