"""Claims of guests with cells: resource tracking 8.2."""

import logging
from dataclasses import replace

import pytest

from agent.model.facts import Topology
from agent.model.instance import Flavor, GuestCell, PlacedCell
from agent.model.node_records import Claim, RecordChanges
from agent.numa.host import HostCell
from agent.tracker.errors import WrongTopology
from tests.support.tracking import (
    F1,
    FI,
    FN,
    FN4,
    Host,
    World,
    instance,
    numa_cells,
    refused,
    uuid_of,
)


def cell(host: Host, number: int) -> HostCell:
    """A cell of the host with what is used of it."""
    return next(cell for cell in host.tracker.view(host.node).cells if cell.id == number)


def used(host: Host, number: int) -> tuple[int, int, list[int]]:
    """Of a cell: MiB, shared CPUs, and the CPUs pinned to."""
    one = cell(host, number)
    return one.memory_used_mib, one.shared_used, sorted(one.pinned)


def pinned_to(host: Host, name: str, *cpus: int) -> RecordChanges:
    """The records of a guest that runs on these CPUs of cell 0, as somebody wrote them."""
    owned = instance(name, FN, host=host.name, node=host.node, vm_state="active", created_at=1.0)
    guest_cell = GuestCell(frozenset(), frozenset(range(len(cpus))), 1024)
    placed = PlacedCell(guest_cell, 0, None, dict(enumerate(cpus)))
    claim = Claim(
        id=uuid_of(f"claim-{name}"),
        purpose="instance",
        instance=owned.uuid,
        node=host.node,
        state="consumed",
        amounts=replace(FN, memory_mb=1024, vcpus=len(cpus)).amounts(volume_backed=True),
        cells=(placed,),
        created_at=1.0,
    )
    return RecordChanges(instances=(owned,), claims=(claim,))


def write(host: Host, changes: RecordChanges) -> None:
    """Write records behind the tracker's back."""
    with host.records.transaction([host.node]) as transaction:
        transaction.write(changes)


def test_a_guest_goes_to_the_cell_that_has_enough_cpus(hn: Host) -> None:
    hn.claim("n1", FN)
    hn.claim("n2", FN4)
    assert used(hn, 0) == (4096, 0, [4, 5])
    assert used(hn, 1) == (8192, 0, [12, 13, 14, 15])
    assert hn.usage == "12800/6/20480"


def test_a_topology_that_fits_no_cell_is_refused_with_a_reason_for_each(
    world: World, hn: Host
) -> None:
    hn.claim("n1", FN)
    hn.claim("n2", FN4)
    with refused(world, "resources.unavailable") as caught:
        hn.claim("n3", FN4)
    (reason,) = caught.value.data["reasons"]
    assert reason.startswith("NUMA: guest cell 0 fits no host cell")
    assert "guest cell 0 on cell 0: free dedicated CPUs: 4 needed, 2 available" in reason
    assert "guest cell 0 on cell 1: " in reason
    assert (used(hn, 0), used(hn, 1)) == ((4096, 0, [4, 5]), (8192, 0, [12, 13, 14, 15]))
    assert hn.usage == "12800/6/20480"
    assert hn.instance("n3") is None


def test_an_abort_sets_cpus_and_memory_free(hn: Host) -> None:
    hn.claim("n1", FN)
    hn.claim("n2", FN4)
    hn.abort("n2")
    assert used(hn, 1) == (0, 0, [])
    assert hn.usage == "4608/2/10240"
    hn.claim("n3", FN4)
    assert used(hn, 1) == (8192, 0, [12, 13, 14, 15])


def test_isolation_is_refused_where_cores_have_two_threads(world: World, hn: Host) -> None:
    with refused(world, "resources.unavailable") as caught:
        hn.claim("n1", FI)
    assert "cores without SMT for thread policy isolate: 1 needed, 0 available" in str(caught.value)
    assert hn.usage == "512/0/0"


def test_isolation_pins_a_core_of_its_own_where_threads_are_not_shared(world: World) -> None:
    hn = world.numa(topology=numa_cells(siblings=()))
    for number in range(8):
        hn.claim(f"n{number}", FI)
    assert used(hn, 0) == (4 * 2048, 0, [4, 5, 6, 7])
    assert used(hn, 1) == (4 * 2048, 0, [12, 13, 14, 15])
    with refused(world, "resources.unavailable"):
        hn.claim("n8", FI)


def test_one_of_two_guests_on_one_cpu_is_set_aside_and_the_others_count(
    world: World, hn: Host, caplog: pytest.LogCaptureFixture
) -> None:
    for name, cpus in {"one": (4,), "two": (4,), "three": (5,), "four": (6,), "five": (7,)}.items():
        write(hn, pinned_to(hn, name, *cpus))
    with caplog.at_level(logging.ERROR):
        view = hn.audit()
    state = hn.tracker.view(hn.node)
    assert used(hn, 0) == (4 * 1024, 0, [4, 5, 6, 7])
    assert len(state.uncounted) == 1
    assert next(iter(state.uncounted)) in {uuid_of("claim-one"), uuid_of("claim-two")}
    assert len(view.state.problems) == 1
    assert "CPUs [4] are pinned already" in view.state.problems[0]
    assert view.state.problems[0] in caplog.text
    # Its amounts count nevertheless, because the guest is there.
    assert hn.usage == f"{512 + 5 * 1024}/5/0"
    assert view.usage.instances == 5
    with refused(world, "node.degraded"):
        hn.claim("n1", F1)
    hn.audit(domains=())
    with refused(world, "node.degraded"):
        hn.tracker.import_guests(hn.node)


@pytest.mark.parametrize("section", ["cpu", "numa"])
def test_no_record_is_to_blame_while_the_driver_could_not_tell_of_the_cells_since_the_start(
    section: str, world: World, hn: Host, caplog: pytest.LogCaptureFixture
) -> None:
    hn.claim("n1", FN)
    whole = hn.facts
    hn.restart()
    half = {"numa": Topology(whole.numa.cells[1:])} if whole.numa else {}
    with caplog.at_level(logging.ERROR):
        view = hn.audit(start=True, incomplete={section: "no answer"}, **half)
    assert (view.state.problems, caplog.text) == ((), "")
    assert hn.usage == "4608/2/10240"
    with refused(world, "node.not-ready"):
        hn.claim("n2", FN)
    hn.abort("n1")
    hn.audit(incomplete={}, numa=whole.numa)
    hn.claim("n3", FN)
    # What was told once stays known.
    assert hn.audit(incomplete={section: "no answer"}, **half).state.problems == ()
    hn.claim("n4", FN)
    assert len(hn.pinned(0) | hn.pinned(1)) == 4


def test_the_node_is_well_again_once_one_of_the_two_is_gone(hn: Host) -> None:
    for name in ("one", "two"):
        write(hn, pinned_to(hn, name, 4))
    assert hn.audit().state.problems != ()
    hn.update("one", vm_state="deleted", deleted=True)
    assert hn.audit().state.problems == ()
    assert hn.pinned(0) == {4}
    hn.claim("n1", FN4)


def test_a_guest_without_cells_changes_no_cell(hn: Host) -> None:
    before = hn.tracker.view(hn.node).cells
    hn.claim("i1", F1)
    assert hn.usage == "2560/1/20480"
    assert hn.tracker.view(hn.node).cells == before


def test_what_is_counted_of_cells_is_the_same_after_a_restart(hn: Host) -> None:
    hn.claim("n1", FN)
    hn.claim("n2", FN4)
    hn.abort("n1")
    before = hn.tracker.view(hn.node)
    hn.restart()
    hn.audit(start=True)
    after = hn.tracker.view(hn.node)
    assert (after.cells, after.used) == (before.cells, before.used)


def test_a_rebuild_in_place_has_to_ask_for_the_same_cells(hn: Host) -> None:
    hn.claim("n1", FN)
    before, pins = hn.usage, hn.pinned(0)
    hn.update("n1", image_properties={"hw_cpu_policy": "dedicated"})
    for other in (
        {"hw_numa_nodes": "2"},
        {"hw_pci_numa_affinity_policy": "required", "hw_numa_nodes": "2"},
    ):
        with pytest.raises(WrongTopology):
            hn.update("n1", image_properties=other)
    found = hn.instance("n1")
    assert found is not None
    assert (found.image_properties, hn.usage, hn.pinned(0)) == (
        {"hw_cpu_policy": "dedicated"},
        before,
        pins,
    )


def test_a_rebuild_that_asks_for_the_same_cells_stays_on_a_host_that_is_full(
    hn: Host,
) -> None:
    for number in range(4):
        hn.claim(f"n{number}", FN)
    pins = hn.pinned(0), hn.pinned(1)
    assert pins == ({4, 5, 6, 7}, {12, 13, 14, 15})
    for image in (
        {"hw_cpu_policy": "dedicated"},
        {"hw_disk_bus": "virtio"},
        {"hw_numa_nodes": "1", "hw_cpu_policy": "dedicated"},
    ):
        for number in range(4):
            hn.update(f"n{number}", image_properties=image)
    assert (hn.pinned(0), hn.pinned(1)) == pins
    with pytest.raises(WrongTopology):
        hn.update("n0", image_properties={"hw_numa_nodes": "2"})


def test_a_guest_that_floats_cannot_get_cells_by_a_rebuild(hn: Host) -> None:
    hn.claim("i1", F1)
    with pytest.raises(WrongTopology):
        hn.update("i1", image_properties={"hw_numa_nodes": "1"})


# --- what a flavor says, as the scheduler has read it ---------------------------------------------


def of_four(**specs: str) -> Flavor:
    """A flavor of four CPUs with these extra specs; ``__`` for the colon, ``_`` before a digit at
    the end for the dot.
    """
    return Flavor(
        "four",
        "FOUR",
        4,
        4096,
        root_gb=10,
        extra_specs={name.replace("__", ":"): value for name, value in specs.items()},
    )


@pytest.mark.parametrize(
    "specs", [{"resources1__PCPU": "4"}, {"resources__PCPU": "1", "resources2__PCPU": "3"}]
)
def test_numbered_groups_of_dedicated_cpus_are_pinned(specs: dict[str, str], hn: Host) -> None:
    hn.claim("n1", of_four(**specs))
    assert used(hn, 0) == (4096, 0, [4, 5, 6, 7])


def test_a_numbered_group_that_forbids_hyperthreading_takes_no_cpus_of_a_host_that_has_it(
    world: World, hn: Host
) -> None:
    with refused(world, "resources.unavailable"):
        hn.claim("n1", of_four(resources1__PCPU="4", trait1__HW_CPU_HYPERTHREADING="forbidden"))


def test_a_mask_of_exceptions_leaves_out_only_them(hn: Host) -> None:
    hn.claim("n1", of_four(hw__cpu_policy="mixed", hw__cpu_dedicated_mask="^0,2"))
    assert used(hn, 0) == (4096, 1, [4, 5, 6])


@pytest.mark.parametrize("image", ["isolate", "require"])
def test_a_guest_whose_flavor_prefers_is_placed_whatever_its_image_says(
    image: str, world: World
) -> None:
    # On the first host nobody may isolate, on the other nobody can share a core.
    host = (
        world.numa()
        if image == "isolate"
        else world.numa(topology=numa_cells([[cpu] for cpu in (4, 5, 6, 7, 12, 13, 14, 15)]))
    )
    flavor = of_four(hw__cpu_policy="dedicated", hw__cpu_thread_policy="prefer")
    host.claim("n1", flavor, image_properties={"hw_cpu_thread_policy": image})
    assert used(host, 0) == (4096, 0, [4, 5, 6, 7])


def test_a_mixed_guest_may_have_no_shared_cpu_at_all(hn: Host) -> None:
    hn.claim(
        "n1",
        of_four(
            hw__cpu_policy="mixed", hw__cpu_realtime="yes", hw__emulator_threads_policy="share"
        ),
    )
    assert used(hn, 0) == (4096, 0, [4, 5, 6, 7])


def test_a_guest_cell_of_memory_alone_is_placed(hn: Host) -> None:
    cells = {
        "hw:numa_nodes": "2",
        "hw:numa_cpus.0": "",
        "hw:numa_cpus.1": "0-3",
        "hw:numa_mem.0": "1024",
        "hw:numa_mem.1": "3072",
    }
    for name, policy in (("n1", "dedicated"), ("n2", "shared")):
        hn.claim(
            name,
            Flavor(
                "four", "FOUR", 4, 4096, root_gb=10, extra_specs={**cells, "hw:cpu_policy": policy}
            ),
        )
    assert sorted(used(hn, number)[0] for number in (0, 1)) in ([2048, 6144], [4096, 4096])


def test_values_that_say_nothing_are_no_reason_to_refuse_a_guest(
    hn: Host, caplog: pytest.LogCaptureFixture
) -> None:
    empty = {
        f"hw:{name}": ""
        for name in (
            "cpu_policy",
            "numa_nodes",
            "mem_page_size",
            "cpu_dedicated_mask",
            "emulator_threads_policy",
        )
    }
    specs = {**empty, "resources1:VCPU": "x"}
    hn.claim("n1", Flavor("odd", "ODD", 2, 4096, root_gb=10, extra_specs=specs))
    assert hn.usage == "4608/2/10240"
    assert "resources1:VCPU without effect" in caplog.text
