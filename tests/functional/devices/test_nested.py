"""Cards below the NUMA cell that they are in, and what a scheduler gets to see of
them.
"""

from dataclasses import replace
from typing import Any

import pytest

from agent.model.operation import Reshape
from tests.functional.devices.conftest import Made
from tests.support.agent import operations
from tests.support.device_host import DEDICATED, NODE, DeviceHost, errors
from tests.support.placement import PlacementServer
from tests.support.tracking import guest
from tests.unit.pci import scene

P0, F2, F3, PX = "0000:81:00.0", "0000:81:02.0", "0000:82:03.0", "0000:83:00.0"
PF, VF = "CUSTOM_PCI_8086_1572", "CUSTOM_PCI_8086_154C"
CELLS = {"NUMA0": NODE, "NUMA1": NODE}
SPECS: tuple[Any, ...] = ({"address": P0}, {"product_id": "1572", "address": F3}, {"address": PX})


def with_px(host: DeviceHost) -> DeviceHost:
    host.devices["PX"] = scene.plain(PX, numa_node=None)
    return host


@pytest.fixture
def nested(made: Made) -> DeviceHost:
    return with_px(made(layout="nested", policy=DEDICATED))


def candidates(host: DeviceHost, query: str) -> list[dict[str, dict[str, int]]]:
    """The allocations offered for a query, by provider name."""
    names = {
        uuid: one["name"].removeprefix(f"{NODE}_")
        for uuid, one in host.placement.dump()["providers"].items()
    }
    found = host.placement.other.call("GET", f"/allocation_candidates?{query}").json()[
        "allocation_requests"
    ]
    return [
        {names[uuid]: held["resources"] for uuid, held in one["allocations"].items()}
        for one in found
    ]


def test_cards_are_below_their_cells_and_those_of_no_cell_below_the_root(
    nested: DeviceHost,
) -> None:
    nested.start(*SPECS)
    assert nested.parents == {**CELLS, P0: "NUMA0", F3: "NUMA1", PX: NODE}
    assert nested.tree == [
        f"{P0}: CUSTOM_PCI_8086_1533=1",
        f"{F3}: {PF}=1",
        f"{PX}: CUSTOM_PCI_8086_1533=1",
    ]
    nested.placement.clear()
    assert nested.start().state == "in-sync"
    assert nested.placement.writes() == []


VFS = {"product_id": "154c"}
OF_CELL_0, OF_CELL_1 = {"NUMA0": {"PCPU": 4}, F2: {VF: 1}}, {"NUMA1": {"PCPU": 4}, F3: {VF: 1}}


def test_a_function_and_pinned_cpus_come_from_one_cell_and_never_from_two(
    nested: DeviceHost,
) -> None:
    nested.start(VFS)
    query = f"resources_C=PCPU:4&resources_D={VF}:1&same_subtree=_C,_D&group_policy=none"
    assert candidates(nested, query) in ([OF_CELL_0, OF_CELL_1], [OF_CELL_1, OF_CELL_0])
    other = nested.placement.other
    other.claim({child(nested, "NUMA0"): {"PCPU": 1}})
    assert candidates(nested, query) == [OF_CELL_1]
    # Now one cell has the CPUs and the other one the functions.
    other.claim({nested.provider("F3"): {VF: 4}})
    assert candidates(nested, query) == []
    assert len(candidates(nested, query.replace("&same_subtree=_C,_D", ""))) == 1


@pytest.fixture
def strict(made: Made) -> DeviceHost:
    host = made(layout="nested", policy=DEDICATED, strict=True)
    host.start(VFS)
    return host


@pytest.mark.parametrize("cpus", [{"PCPU": 4}, {"VCPU": 2}], ids=lambda one: min(one))
def test_strict_a_function_comes_with_cpus_and_memory_of_its_cell(
    cpus: dict[str, int], strict: DeviceHost
) -> None:
    wanted = {**cpus, "MEMORY_MB": 4096}
    text = ",".join(f"{name}:{amount}" for name, amount in wanted.items())
    query = f"resources_C={text}&resources_D={VF}:1&same_subtree=_C,_D&group_policy=none"
    of_cell_0, of_cell_1 = {"NUMA0": wanted, F2: {VF: 1}}, {"NUMA1": wanted, F3: {VF: 1}}
    assert candidates(strict, query) in ([of_cell_0, of_cell_1], [of_cell_1, of_cell_0])
    # The memory of a cell is as scarce as its CPUs: the other one's does not help.
    strict.placement.other.claim({child(strict, "NUMA1"): {"MEMORY_MB": 4096}})
    assert candidates(strict, query) == [of_cell_0]
    strict.placement.other.claim({strict.provider("F2"): {VF: 2}})
    assert candidates(strict, query) == []
    assert candidates(strict, query.replace("&same_subtree=_C,_D", "")) == [
        {"NUMA0": wanted, F3: {VF: 1}}
    ]


@pytest.mark.parametrize(
    ("one", "other", "parent"), [("flat", "nested", "NUMA1"), ("nested", "flat", NODE)]
)
def test_another_layout_moves_a_card_in_use_without_a_reshape(
    one: Any, other: Any, parent: str, made: Made
) -> None:
    host = with_px(made(layout=one))
    host.start(*SPECS)
    host.claim("S1", "F3")
    host.allocate("S1", F3=1)
    uuid, allocated = host.provider("F3"), host.placement.dump()["consumers"]
    host.layout = other
    host.placement.clear()
    report = host.start()
    assert (host.parents[F3], host.provider("F3"), host.placement.dump()["consumers"]) == (
        parent,
        uuid,
        allocated,
    )
    assert not any(isinstance(done, Reshape) for done in operations(report))
    moved = [
        write
        for write in host.placement.writes()
        if write.method == "PUT" and write.path == f"/resource_providers/{uuid}"
    ]
    assert len(moved) == 1
    assert ("NUMA0" in host.parents) == (other == "nested")
    assert host.cycle().state == "in-sync"


def test_a_free_card_follows_its_cell_and_one_in_use_does_so_when_it_is_free(
    nested: DeviceHost,
) -> None:
    nested.start(*SPECS)
    uuid = nested.provider("PX")
    nested.devices["PX"] = replace(nested.devices["PX"], numa_node=1)
    nested.cycle()
    assert (nested.parents[PX], nested.provider("PX")) == ("NUMA1", uuid)
    nested.claim("S1", "PX")
    nested.allocate("S1", PX=1)
    nested.devices["PX"] = replace(nested.devices["PX"], numa_node=0)
    nested.cycle()
    assert nested.parents[PX] == "NUMA1"
    nested.delete("S1")
    nested.release("S1")
    nested.cycle()
    assert nested.parents[PX] == "NUMA0"


@pytest.fixture
def older() -> Any:
    server = PlacementServer(max_version="1.36")
    yield server
    server.close()


def test_an_older_placement_has_an_unused_card_made_anew(
    made: Made, older: PlacementServer
) -> None:
    host = with_px(made(placement=older))
    host.start(*SPECS)
    host.layout = "nested"
    report = host.start()
    assert (host.parents, errors(report)) == ({**CELLS, P0: "NUMA0", F3: "NUMA1", PX: NODE}, "")
    assert host.cycle().state == "in-sync"


def test_an_older_placement_leaves_a_card_in_use_where_it_is(
    made: Made, older: PlacementServer
) -> None:
    host = with_px(made(placement=older))
    host.start(*SPECS)
    host.claim("S1", "F3")
    host.allocate("S1", F3=1)
    host.layout = "nested"
    report = host.start()
    assert host.parents == {**CELLS, P0: "NUMA0", F3: NODE, PX: NODE}
    assert [one.detail for one in report.drift] == [
        f"c1_{F3} is used by {guest('S1')} below c1 and belongs below c1_NUMA1; this Placement cannot move it"
    ]
    assert host.allocated("S1") == {F3: {PF: 1}}
    assert host.cycle().state == "in-sync"
    host.delete("S1")
    host.cycle()
    host.cycle()
    assert host.parents[F3] == "NUMA1"


def child(host: DeviceHost, name: str) -> str:
    return next(
        uuid
        for uuid, one in host.placement.dump()["providers"].items()
        if one["name"] == f"{NODE}_{name}"
    )
