"""Which devices a guest gets, of those that the scheduler took and near its cells, with
the whole agent.
"""

from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

import pytest

from agent.api.client import ApiProblem
from agent.model.devices import DeviceRequest
from agent.model.facts import Cell, Topology
from agent.model.instance import Flavor, PciPolicy
from agent.model.names import ProviderUuid
from agent.numa.host_policy import HostPolicy
from agent.tracker.errors import ResourcesUnavailable
from tests.functional.devices.conftest import Made
from tests.support.compute_host import GPU
from tests.support.device_host import CELLS, DEDICATED, ROOT, DeviceHost
from tests.support.orchestrator import WITH_GPU
from tests.support.tracking import Time, guest, uuid_of
from tests.support.walked_host import WalkedHost
from tests.unit.pci import scene

VF = "CUSTOM_PCI_8086_154C"
PINNED = Flavor("p", "P", 2, 1024, extra_specs={"hw:cpu_policy": "dedicated"})
ALL_PINNED = Flavor("q", "Q", 4, 1024, extra_specs={"hw:cpu_policy": "dedicated"})


def functions(count: int) -> DeviceRequest:
    return DeviceRequest(
        "vf", count, {"vendor_id": "8086", "product_id": "154c"}, resource_class=VF
    )


def take(host: DeviceHost, name: str, first: int, second: int) -> set[str]:
    """A guest that the scheduler gave functions of F2 and of F3, and has them; which they are."""
    amounts = {"F2": first, "F3": second}
    held = {
        ProviderUuid(ROOT): {"VCPU": 1, "MEMORY_MB": 1024},
        **{ProviderUuid(host.provider(card)): {VF: n} for card, n in amounts.items() if n},
    }
    host.ask(name, functions(first + second), allocations=held)
    host.placement.other.claim(held, guest(name))
    return {device for device, owner in host.holders.items() if owner == guest(name)}


def test_a_guest_gets_as_many_functions_of_each_card_as_the_scheduler_took(
    host: DeviceHost,
) -> None:
    host.start({"product_id": "154c"})
    found = take(host, "S1", 2, 1)
    assert {"V20", "V21"} < found
    assert len(found) == 3
    assert len(take(host, "S2", 0, 2)) == 2
    host.delete("S1")
    host.cycle()
    assert take(host, "S3", 1, 0) <= {"V20", "V21"}
    # One of the two is left there, however many the other card has.
    with pytest.raises(ResourcesUnavailable):
        take(host, "S4", 2, 0)
    report = host.cycle()
    assert [one for one in report.drift if one.kind in ("allocation-mismatch", "held-device")] == []


def test_a_device_that_is_gone_since_it_was_allocated_is_not_replaced_by_one_that_another_guest_may_have_been_allocated(
    placement, tmp_path
) -> None:
    walked = WalkedHost("a", placement, tmp_path / "a", None, Time())
    walked.start()
    names = {one["name"]: uuid for uuid, one in placement.dump()["providers"].items()}
    cards = [names[f"node-a_{scene.NAMES[one].upper()}"] for one in ("P0", "P1")]
    held = {
        guest(f"g{number}"): {
            walked.identity: {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 10},
            card: {GPU: 1},
        }
        for number, card in enumerate(cards)
    }
    for consumer, resources in held.items():
        placement.other.claim(resources, consumer)
    walked.lost.add("P0")
    walked.time.pass_by(3600)
    walked.audit()

    def claim(consumer: str) -> dict[str, Any]:
        allocations = {uuid: {"resources": one} for uuid, one in held[consumer].items()}
        body = {
            "instance": {"uuid": consumer, "project_id": "project", "user_id": "user"},
            "flavor": asdict(WITH_GPU.small),
            "allocations": allocations,
        }
        return walked.client.create_claim(
            {"id": uuid_of(consumer), "node": walked.identity, **body}
        )

    first, second = held
    with pytest.raises(ApiProblem, match="0 free") as refused:
        claim(first)
    assert refused.value.code == "resources.unavailable"
    assert [one["address"] for one in claim(second)["devices"]] == [scene.NAMES["P1"]]
    walked.kill()


def test_a_card_that_is_gone_is_known_by_those_who_have_it_though_anothers_child_hangs_from_it(
    placement, tmp_path
) -> None:
    walked = WalkedHost("a", placement, tmp_path / "a", None, Time())
    walked.start()
    card = next(
        uuid
        for uuid, one in placement.dump()["providers"].items()
        if one["name"] == f"node-a_{scene.NAMES['P0'].upper()}"
    )
    placement.other.create_provider("theirs", str(uuid4()), parent=card)
    held = {walked.identity: {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 10}, card: {GPU: 1}}
    consumer = guest("g0")
    placement.other.claim(held, consumer)
    traits = placement.other.traits(card)
    walked.lost.add("P0")
    for _ in range(2):
        walked.time.pass_by(3600)
        walked.audit()
    assert placement.dump()["providers"][card]["inventories"][GPU]["reserved"] == 1
    assert placement.other.traits(card) == traits
    # Nor does it matter who takes the marks off.
    placement.other.set_traits(card, set())
    walked.time.pass_by(3600)
    walked.audit()
    allocations = {uuid: {"resources": one} for uuid, one in held.items()}
    body = {
        "instance": {"uuid": consumer, "project_id": "project", "user_id": "user"},
        "flavor": asdict(WITH_GPU.small),
        "allocations": allocations,
    }
    with pytest.raises(ApiProblem, match="0 free"):
        walked.client.create_claim({"id": uuid_of(consumer), "node": walked.identity, **body})
    walked.kill()


CARD = DeviceRequest("nic", 1, {"vendor_id": "8086", "product_id": "1572", "type": "type-PF"})
PLAIN = DeviceRequest("card", 1, {"vendor_id": "8086", "product_id": "1533"})
TWO_CELLS = replace(ALL_PINNED, extra_specs={**PINNED.extra_specs, "hw:numa_nodes": "2"})


def test_a_guest_without_devices_leaves_the_cell_that_has_free_ones(made: Made) -> None:
    host = made(policy=DEDICATED)
    host.start({"product_id": "1572", "address": "0000:81:02.0"}, report=False)
    # Cell 0 is as good by all else and would come first, and later the better one by CPUs and
    # memory.
    host.ask("S1", flavor=PINNED)
    host.ask("S2", flavor=PINNED)
    assert (host.cells_of("S1"), host.cells_of("S2")) == ([1], [1])
    host.ask("S3", replace(CARD, policy="required"), flavor=PINNED)
    assert host.cells_of("S3") == [0]
    host.delete("S1")
    # Whose devices are taken is as good as any other.
    host.ask("S4", flavor=PINNED)
    host.ask("S5", flavor=PINNED)
    assert {*host.cells_of("S4"), *host.cells_of("S5")} == {0, 1}


def test_a_guest_with_devices_goes_where_most_of_them_are_free(made: Made) -> None:
    host = made(policy=DEDICATED)
    host.start({"product_id": "154c"}, report=False)
    for number in range(3):
        # Cell 1 has four of them and cell 0 two, whatever else is there; and then as many.
        host.ask(
            f"S{number}",
            replace(functions(1), policy="preferred"),
            flavor=PINNED
            if number < 2
            else Flavor("t", "T", 1, 64, extra_specs={"hw:numa_nodes": "1"}),
        )
    assert [host.cells_of(f"S{number}") for number in range(3)] == [[1], [1], [0]]


@pytest.mark.parametrize("policy", ["required", "preferred"])
def test_a_guest_goes_where_its_device_is_and_elsewhere_only_if_it_may(
    policy: PciPolicy, made: Made
) -> None:
    host = made(policy=DEDICATED)
    host.start({"product_id": "1572", "address": "0000:82:03.0"}, report=False)
    card = replace(CARD, policy=policy)
    host.ask("S1", card, flavor=PINNED)
    assert (host.cells_of("S1"), host.holders) == ([1], {"F3": guest("S1")})
    host.delete("S1")
    # Who wants no device leaves the cells that have some; then the cell of the device is full.
    host.ask("S2", flavor=ALL_PINNED)
    host.ask("S3", flavor=ALL_PINNED)
    assert (host.cells_of("S2"), host.cells_of("S3")) == ([0], [1])
    host.delete("S2")
    if policy == "required":
        with pytest.raises(ResourcesUnavailable):
            host.ask("S4", card, flavor=PINNED)
        assert host.holders == {}
    else:
        host.ask("S4", card, flavor=PINNED)
        assert (host.cells_of("S4"), host.holders) == ([0], {"F3": guest("S4")})


def test_two_devices_of_two_cells_need_two_cells_or_one_socket(made: Made) -> None:
    host = made(policy=DEDICATED)
    host.numa = Topology(tuple(replace(one, sockets=frozenset({0})) for one in CELLS.cells))
    host.start({"product_id": "1572", "address": "*:*:*.0"}, report=False)
    with pytest.raises(ResourcesUnavailable, match="devices"):
        host.ask("S1", replace(CARD, count=2, policy="required"), flavor=PINNED)
    host.ask("S2", replace(CARD, count=2, policy="required"), flavor=TWO_CELLS)
    assert (sorted(host.cells_of("S2")), host.holders) == (
        [0, 1],
        dict.fromkeys(("F2", "F3"), guest("S2")),
    )
    host.delete("S2")
    host.ask("S3", replace(CARD, count=2, policy="socket"), flavor=PINNED)
    assert host.holders == dict.fromkeys(("F2", "F3"), guest("S3"))


@pytest.mark.parametrize("cell", [0, 1])
def test_a_device_of_an_unknown_cell_is_near_to_all(cell: int, made: Made) -> None:
    host = made(policy=DEDICATED)
    host.devices = {"PX": scene.plain("0000:83:00.0", numa_node=None)}
    host.start({"product_id": "1533"}, report=False)
    for name in ("S1", "S2"):
        host.ask(name, flavor=ALL_PINNED)
    host.delete("S1" if host.cells_of("S1") == [cell] else "S2")
    with pytest.raises(ResourcesUnavailable):
        host.ask("S3", replace(PLAIN, policy="required"), flavor=PINNED)
    host.ask("S3", replace(PLAIN, policy="legacy"), flavor=PINNED)
    assert (host.cells_of("S3"), list(host.holders)) == ([cell], ["PX"])


def test_among_the_cells_of_a_socket_the_nearest_is_chosen(made: Made) -> None:
    host = made(policy=HostPolicy(frozenset(), frozenset(range(32))))

    def distances(cell: int) -> dict[int, int]:
        return {
            other: 10 if other == cell else 12 if other // 2 == cell // 2 else 32
            for other in range(4)
        }

    host.numa = Topology(
        tuple(
            Cell(
                one,
                frozenset(range(8 * one, 8 * one + 8)),
                8192,
                sockets=frozenset({one // 2}),
                distances=distances(one),
            )
            for one in range(4)
        )
    )
    host.devices = {"PX": scene.plain("0000:83:00.0", numa_node=3)}
    host.start({"product_id": "1533"}, report=False)
    whole, near = replace(PINNED, vcpus=8), replace(PLAIN, policy="socket")
    host.ask("S1", near, flavor=whole)
    assert host.cells_of("S1") == [3]
    host.delete("S1")
    # Each of them fills a cell, and that of the device comes last.
    for name in ("G1", "G2", "G3", "G4"):
        host.ask(name, flavor=whole)
    filled = {cell: name for name in ("G1", "G2", "G3", "G4") for cell in host.cells_of(name)}
    assert host.cells_of("G4") == [3]
    host.delete(filled[0])
    with pytest.raises(ResourcesUnavailable):
        host.ask("S2", near, flavor=whole)
    host.delete(filled[2])
    host.ask("S2", near, flavor=whole)
    assert host.cells_of("S2") == [2]
