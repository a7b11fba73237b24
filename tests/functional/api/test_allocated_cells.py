"""The cells that the scheduler allocated from are those that the guest gets: Placement and the
records agree per cell.
"""

import random

import pytest

from agent.model.instance import Flavor
from tests.support import faults
from tests.support.agent import ROOT
from tests.support.cell_site import PAGES_2M, CellSite, cell_site, four_cells, some_guest
from tests.support.tracking import Time, guest, uuid_of
from tests.support.walked_host import WalkedHost

PINNED = Flavor("p", "P", 2, 1024, extra_specs={"hw:cpu_policy": "dedicated"})
TWO_CELLS = Flavor(
    "t", "T", 4, 1024, extra_specs={"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"}
)
HUGE = Flavor("h", "H", 2, 1024, extra_specs={"hw:mem_page_size": "large"})
FLOATING = Flavor("f", "F", 2, 1024)
PLACED = Flavor("s", "S", 2, 1024, extra_specs={"hw:numa_nodes": "1"})


@pytest.fixture(params=["mixed", "strict"])
def cells(request, placement, tmp_path):
    """A node of four cells, with the API of its agent."""
    with cell_site(placement, tmp_path / "state", strict=request.param == "strict") as found:
        yield found


@pytest.fixture
def mixed(placement, tmp_path):
    """The same, where cells count dedicated CPUs and pages."""
    with cell_site(placement, tmp_path / "state", strict=False) as found:
        yield found


@pytest.fixture
def strict(placement, tmp_path):
    """The same, where they count all CPUs and memory."""
    with cell_site(placement, tmp_path / "state", strict=True) as found:
        yield found


def agree(site: CellSite) -> None:
    """Placement and the records say the same of every cell, and the next audit finds
    nothing wrong.
    """
    report = site.pass_()
    assert site.used_on_record() == site.used_in_placement()
    assert [one for one in report.drift if one.kind == "allocation-mismatch"] == []
    shown = {
        one["uuid"]: {
            name: record["used"] for name, record in one["inventories"].items() if record["used"]
        }
        for one in site.api.call("GET", f"/v1/nodes/{ROOT}/tree").json["tree"]
    }
    assert {number: shown[uuid] for number, uuid in site.cells.items()} == site.used_in_placement()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_guest_never_sits_on_another_cell_than_the_scheduler_allocated(
    cells: CellSite, seed: int
) -> None:
    dice, there = random.Random(seed), []
    for number in range(18):
        name = f"g{number}"
        flavor, root, groups = some_guest(dice, strict=cells.strict)
        if offers := cells.offers(root, groups):
            held = dice.choice(offers)
            answer = cells.claim(name, flavor, held)
            named = [one for one in held if one in cells.cells.values()]
            # Placement may give two groups of one cell, which no guest can use.
            if len(named) == sum(map(bool, groups)):
                assert answer.status == 201, (held, groups, answer)
                there.append(name)
            else:
                assert (answer.status, answer.code) == (409, "resources.unavailable"), (
                    held,
                    groups,
                    answer,
                )
                assert "allocated" in answer.json["detail"]
        if number % 3 == 0:
            agree(cells)
        if there and (dice.random() < 0.4 or not offers):
            cells.drop(there.pop(dice.randrange(len(there))))
    agree(cells)
    assert there


def test_a_cell_that_lacks_what_was_allocated_of_it_is_named_with_what_it_lacks(
    mixed: CellSite,
) -> None:
    # The scheduler never heard of this one.
    assert mixed.claim("old", PINNED, None).json["cells"][0]["host_cell"] == 0
    assert mixed.claim("older", PINNED, None).json["cells"][0]["host_cell"] == 1
    mixed.claim("oldest", PINNED, None)
    mixed.claim("first", PINNED, None)
    again = mixed.claim(
        "g1",
        Flavor("q", "Q", 4, 1024, extra_specs=PINNED.extra_specs),
        mixed.on_cells({2: {"PCPU": 4}}, MEMORY_MB=1024),
    )
    assert (again.status, again.code) == (409, "resources.unavailable")
    assert again.json["reasons"] == [
        (
            "NUMA: guest cell 0 fits no host cell (guest cell 0 on cell 2: free dedicated CPUs: 4 "
            "needed, 2 available)"
        )
    ]
    assert (
        mixed.claim("g2", PINNED, mixed.on_cells({2: {"PCPU": 2}}, MEMORY_MB=1024)).json["cells"][
            0
        ]["host_cell"]
        == 2
    )


def test_an_allocation_that_is_not_what_the_guest_takes_of_a_cell_is_refused(
    mixed: CellSite,
) -> None:
    wrong = mixed.claim("g1", PINNED, mixed.on_cells({1: {"PCPU": 3}}, MEMORY_MB=1024))
    assert wrong.json["reasons"] == [
        "NUMA: guest cell 0 fits no host cell (guest cell 0 on cell 1: PCPU: 2 needed, 3 allocated)"
    ]
    one = mixed.claim("g2", TWO_CELLS, mixed.on_cells({3: {"PCPU": 4}}, MEMORY_MB=1024))
    assert "on cell 3: PCPU: 2 needed, 4 allocated" in one.json["reasons"][0]
    many = mixed.claim(
        "g3", PINNED, mixed.on_cells({1: {"PCPU": 2}, 2: {"PCPU": 2}}, MEMORY_MB=1024)
    )
    assert many.json["reasons"] == [
        "NUMA: the scheduler allocated of cells 1 and 2, and the guest has 1 cell"
    ]
    floats = mixed.claim(
        "g4", FLOATING, mixed.on_cells({1: {PAGES_2M: 1024}}, VCPU=2, MEMORY_MB=1024)
    )
    assert floats.json["reasons"] == [
        "NUMA: the scheduler allocated of cell 1, and the guest has no topology"
    ]


def test_pages_are_taken_of_the_cell_and_size_that_were_allocated(mixed: CellSite) -> None:
    held = mixed.on_cells({3: {PAGES_2M: 1024}}, VCPU=2, MEMORY_MB=1024)
    (cell,) = mixed.claim("g1", HUGE, held).json["cells"]
    assert (cell["host_cell"], cell["page_size_kib"]) == (3, 2048)
    agree(mixed)
    small = Flavor("sm", "SM", 2, 1024, extra_specs={"hw:mem_page_size": "small"})
    answer = mixed.claim("g2", small, mixed.on_cells({2: {PAGES_2M: 1024}}, VCPU=2, MEMORY_MB=1024))
    assert (
        "on cell 2: MiB in pages of 4 KiB: 1024 needed, {2048: 1024} allocated"
        in answer.json["reasons"][0]
    )


def test_shared_cpus_and_memory_bind_where_cells_count_them(strict: CellSite) -> None:
    (cell,) = strict.claim(
        "g1", PLACED, strict.on_cells({2: {"VCPU": 2, "MEMORY_MB": 1024}}, DISK_GB=1)
    ).json["cells"]
    assert cell["host_cell"] == 2
    answer = strict.claim(
        "g2", PLACED, strict.on_cells({1: {"VCPU": 2, "MEMORY_MB": 512}}, DISK_GB=1)
    )
    assert "on cell 1: MEMORY_MB: 1024 needed, 512 allocated" in answer.json["reasons"][0]
    agree(strict)


def test_who_is_told_of_no_cell_chooses_one(cells: CellSite) -> None:
    assert cells.claim("g1", PINNED, None).json["cells"][0]["host_cell"] == 0
    other = {uuid_of("elsewhere"): {"PCPU": 2}}
    body = {uuid: {"resources": one} for uuid, one in other.items()}
    assert cells.claim("g2", PINNED, None, allocations=body).json["cells"][0]["host_cell"] == 1


def test_a_resize_and_a_migration_go_to_the_cells_that_were_allocated(mixed: CellSite) -> None:
    mixed.claim("g1", PINNED, mixed.on_cells({0: {"PCPU": 2}}, MEMORY_MB=1024))
    version = mixed.api.call("GET", f"/v1/instances/{guest('g1')}").json["version"]
    mixed.api.call(
        "PATCH", f"/v1/instances/{guest('g1')}", {"vm_state": "active"}, {"If-Match": str(version)}
    )
    mixed.placement.other.move(guest("g1"), uuid_of("migration"))
    held = mixed.on_cells({1: {"PCPU": 2}, 3: {"PCPU": 2}}, MEMORY_MB=1024)
    mixed.placement.other.claim(held, guest("g1"))
    body = {
        "id": uuid_of("move"),
        "type": "resize",
        "node": ROOT,
        "instance": {"uuid": guest("g1"), "project_id": "project", "user_id": "user"},
        "migration": uuid_of("migration"),
        "flavor": {**_flavor(TWO_CELLS)},
        "allocations": {uuid: {"resources": one} for uuid, one in held.items()},
    }
    claims = mixed.api.call("POST", "/v1/moves", body).json["claims"]
    new = next(one for one in claims if one["half"] == "new")
    assert sorted(one["host_cell"] for one in new["cells"]) == [1, 3]
    agree(mixed)


def test_a_guest_is_not_put_on_another_cell_because_the_cells_are_about_to_go(
    placement, tmp_path
) -> None:
    host = WalkedHost("a", placement, tmp_path / "a", None, Time())
    host.layout = "nested"
    host.start()
    host.kill()
    (cell,) = [
        uuid for uuid, one in placement.dump()["providers"].items() if one["name"] == "node-a_NUMA1"
    ]
    held = {cell: {"PCPU": 2}, host.identity: {"MEMORY_MB": 1024}}
    placement.other.claim(held, guest("g1"))
    host.layout = "flat"
    placement.faults.add(faults.answer(503), method="GET", times=None)
    assert host.start().state == "failed"
    body = {
        "id": uuid_of("claim"),
        "node": host.identity,
        "instance": {"uuid": guest("g1"), "project_id": "project", "user_id": "user"},
        "flavor": _flavor(PINNED),
        "allocations": {uuid: {"resources": one} for uuid, one in held.items()},
    }
    assert [one["host_cell"] for one in host.client.create_claim(body)["cells"]] == [1]
    host.kill()


def _flavor(flavor: Flavor) -> dict[str, object]:
    return {
        "id": flavor.id,
        "name": flavor.name,
        "vcpus": flavor.vcpus,
        "memory_mb": flavor.memory_mb,
        "root_gb": 0,
        "ephemeral_gb": 0,
        "swap_mb": 0,
        "extra_specs": dict(flavor.extra_specs),
    }


def test_a_cell_without_memory_for_a_pinned_guest_is_named(placement, tmp_path) -> None:
    with cell_site(placement, tmp_path / "state", strict=False, topology=four_cells(5000)) as site:
        answer = site.claim("g1", PINNED, site.on_cells({1: {"PCPU": 2}}, MEMORY_MB=1024))
    assert (
        "guest cell 0 on cell 1: MiB in pages of 4 KiB: 1024 needed, 904 available"
        in answer.json["reasons"][0]
    )
