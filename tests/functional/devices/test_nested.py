"""Cards below the NUMA cell that they are in, and what a scheduler gets to see of
them.
"""

from dataclasses import replace
from typing import Any

import pytest

from agent.model.devices import DeviceRequest
from agent.model.instance import Flavor
from agent.model.operation import Reshape
from tests.functional.devices.conftest import Made
from tests.support.agent import operations
from tests.support.device_host import DEDICATED, NODE, ROOT, DeviceHost, errors
from tests.support.placement import PlacementServer
from tests.support.tracking import guest, uuid_of
from tests.unit.pci import scene

P0, F2, F3, PX = "0000:81:00.0", "0000:81:02.0", "0000:82:03.0", "0000:83:00.0"
PF, VF = "CUSTOM_PCI_8086_1572", "CUSTOM_PCI_8086_154C"
CELLS = {"NUMA0": NODE, "NUMA1": NODE}
SPECS: tuple[Any, ...] = ({"address": P0}, {"product_id": "1572", "address": F3}, {"address": PX})
SAME = "&resources_D=CUSTOM_PCI_8086_1572:{}&same_subtree=_C,_D&group_policy=none"


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


def test_pinned_cpus_and_a_device_of_one_cell(nested: DeviceHost) -> None:
    nested.start(*SPECS)
    assert candidates(nested, "resources_C=PCPU:4" + SAME.format(1)) == [
        {"NUMA1": {"PCPU": 4}, F3: {PF: 1}}
    ]
    assert candidates(nested, "resources_C=PCPU:4" + SAME.format(2)) == []
    # In the other cell there are CPUs, but not the device.
    nested.placement.other.claim({child(nested, "NUMA1"): {"PCPU": 4}})
    assert candidates(nested, "resources_C=PCPU:4" + SAME.format(1)) == []


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


def test_strict_a_guest_of_two_cells_has_its_function_near_to_the_one_that_wants_it(
    strict: DeviceHost,
) -> None:
    cell = "PCPU:2,MEMORY_MB:1024"
    query = f"resources_C0={cell}&resources_C1={cell}&resources_D={VF}:1&same_subtree=_C0,_D&group_policy=isolate"
    found = candidates(strict, query)
    assert {tuple(sorted(one)) for one in found} == {(F2, "NUMA0", "NUMA1"), (F3, "NUMA0", "NUMA1")}
    assert all(one[name] == {"PCPU": 2, "MEMORY_MB": 1024} for one in found for name in CELLS)


@pytest.mark.parametrize("cell", sorted(CELLS))
def test_strict_a_guest_gets_what_is_offered_for_it_and_the_usage_told_is_what_is_allocated(
    cell: str, strict: DeviceHost
) -> None:
    offers = candidates(
        strict,
        f"resources_C=PCPU:4,MEMORY_MB:1024&resources_D={VF}:1&same_subtree=_C,_D&group_policy=none",
    )
    (offer,) = (one for one in offers if cell in one)
    flavor = Flavor(
        "p",
        "P",
        4,
        1024,
        extra_specs={"hw:cpu_policy": "dedicated", "hw:pci_numa_affinity_policy": "required"},
    )
    names = {
        one["name"].removeprefix(f"{NODE}_"): one["uuid"]
        for one in strict.placement.other.tree(ROOT)
    }
    allocations = {names[name]: held for name, held in offer.items()}
    strict.placement.other.claim(allocations, guest("S1"))
    strict.ask(
        "S1",
        DeviceRequest(uuid_of("function"), 1, {"product_id": "154c"}, resource_class=VF),
        flavor=flavor,
        allocations=allocations,
    )
    report = strict.cycle()
    used = {
        name: {kind: amount for kind, amount in report.used.get(uuid, {}).items() if amount}
        for name, uuid in names.items()
    }
    assert (report.state, report.drift, {name: one for name, one in used.items() if one}) == (
        "in-sync",
        (),
        offer,
    )


def test_cpus_of_the_root_are_near_to_everything(made: Made) -> None:
    host = with_px(made(layout="nested"))
    host.start(*SPECS)
    assert candidates(host, "resources_C=VCPU:4" + SAME.format(1)) == [
        {NODE: {"VCPU": 4}, F3: {PF: 1}}
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


def test_a_cell_without_cards_and_cpus_is_there_all_the_same(made: Made) -> None:
    host = made(layout="nested")
    host.start({"product_id": "1572", "address": F3})
    cells = {one["name"]: one for one in host.placement.dump()["providers"].values()}
    assert host.parents == {**CELLS, F3: "NUMA1"}
    assert (cells["c1_NUMA0"]["inventories"], cells["c1_NUMA0"]["traits"]) == ({}, ["HW_NUMA_ROOT"])


def test_a_device_of_no_cell_is_found_without_affinity(nested: DeviceHost) -> None:
    nested.start(*SPECS)
    query = "resources_C=PCPU:4&resources_D=CUSTOM_PCI_8086_1533:1&group_policy=none"
    assert [one for one in candidates(nested, f"{query}&same_subtree=_C,_D") if PX in one] == []
    assert {
        tuple(sorted(one)) for one in candidates(nested, f"{query}&in_tree_D={ROOT}") if PX in one
    } == {(PX, "NUMA0"), (PX, "NUMA1")}
    assert nested.parents[PX] == NODE


def test_two_cards_of_which_one_has_a_trait(made: Made) -> None:
    host = made(layout="nested")
    host.devices["F2"] = scene.physical("F2", "V20", "V21")
    values = {"product_id": "154c", "resource_class": "SRIOV_NET_VF"}
    host.start({**values, "address": "0000:82:03.*", "traits": "HW_NIC_OFFLOAD_GRO"}, values)
    assert host.tree == [f"{F2}: SRIOV_NET_VF=2", f"{F3}: SRIOV_NET_VF=4 {{HW_NIC_OFFLOAD_GRO}}"]
    query = "resources=VCPU:2,SRIOV_NET_VF:1"
    both = [
        {NODE: {"VCPU": 2}, F2: {"SRIOV_NET_VF": 1}},
        {NODE: {"VCPU": 2}, F3: {"SRIOV_NET_VF": 1}},
    ]
    assert sorted(candidates(host, query), key=str) == sorted(both, key=str)
    assert candidates(host, f"{query}&required=HW_NIC_OFFLOAD_GRO") == [both[1]]
    assert candidates(host, f"{query}&required=!HW_NIC_OFFLOAD_GRO") == [both[0]]


def test_two_cards_of_one_cell_wherever_the_cpus_are(nested: DeviceHost) -> None:
    nested.start(
        {"product_id": "1533"},
        {"product_id": "154c", "address": "0000:81:02.*"},
        {"product_id": "1572", "address": F3},
    )
    query = "required_N=HW_NUMA_ROOT&resources_A=CUSTOM_PCI_8086_1533:1&resources_B={}:1&same_subtree=_N,_A,_B&group_policy=none"
    assert {tuple(sorted(one)) for one in candidates(nested, query.format(VF))} == {
        (P0, F2),
        ("0000:81:01.0", F2),
    }
    assert candidates(nested, query.format(PF)) == []


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


def test_a_guest_in_a_cell_gets_what_is_offered_for_it(nested: DeviceHost) -> None:
    nested.start(*SPECS)
    (offer,) = candidates(nested, "resources_C=PCPU:4" + SAME.format(1))
    names = {
        one["name"].removeprefix(f"{NODE}_"): one["uuid"]
        for one in nested.placement.other.tree(ROOT)
    }
    nested.claim("S1", "F3")
    nested.placement.other.claim(
        {
            ROOT: {"MEMORY_MB": 1024, "VCPU": 1},
            **{names[name]: held for name, held in offer.items()},
        },
        guest("S1"),
    )
    assert nested.cycle().state == "in-sync"
