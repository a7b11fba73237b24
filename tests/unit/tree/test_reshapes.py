"""What of the allocations moves with a tree; the moves as a whole are in
tests/functional/placement.
"""

from dataclasses import replace

import pytest

from agent.errors import ReshapeFailed, ReshapeNeeded
from agent.model.instance import GuestCell, PlacedCell
from agent.model.provider_tree import ProviderTree
from agent.numa.host_policy import HostPolicy
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import Policy
from agent.tree.reshape.allocation_editor import GuestPlaces, ReshapeContext, Sharing
from agent.tree.reshape.moving import move_allocations
from tests.unit.tree.nodes import FACTS, NAME, ROOT, STORAGE, amount, root_only, with_storage

CELL, OTHER = f"{NAME}_NUMA0", f"{NAME}_NUMA8"
CELLS = {
    CELL: "c3110000-0000-4000-8000-000000000000",
    OTHER: "c3110000-0000-4000-8000-000000000008",
}
A, B, C = (f"c0000000-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))
DEDICATED = Policy(HostPolicy(frozenset({0}), frozenset({1, 2, 4, 5})))


def tree(root=None, **cells):
    """``root`` and the cells with these totals."""
    made = root_only()
    made.update_inventory(ROOT, {name: amount(total) for name, total in (root or {}).items()})
    for name, uuid in CELLS.items():
        made.new_child(name, ROOT, uuid)
        made.update_inventory(
            name, {one: amount(total) for one, total in cells.get(name.rsplit("_")[-1], {}).items()}
        )
    return made


def placed(cell, pins=(), shared=0, memory=1024, reserved=(), page=None):
    """A guest cell that sits on ``cell``, pinned to ``pins``."""
    guest = GuestCell(frozenset(range(100, 100 + shared)), frozenset(range(len(pins))), memory)
    return PlacedCell(guest, cell, page, dict(enumerate(pins)), frozenset(reserved))


def holding(**consumers):
    """Who holds what: consumer to provider to amounts."""
    return {
        globals()[name]: {
            "allocations": {
                CELLS.get(place, place): {"resources": dict(held)} for place, held in one.items()
            }
        }
        for name, one in consumers.items()
    }


def held(allocations):
    """The same, with the providers by their names, without what is empty."""
    names = {uuid: name for name, uuid in CELLS.items()} | {ROOT: NAME, STORAGE: "storage"}
    return {
        consumer: {
            names[uuid]: entry["resources"]
            for uuid, entry in one["allocations"].items()
            if entry["resources"]
        }
        for consumer, one in allocations.items()
    }


def reshape_context(policy=DEDICATED, start=True, sharing=None, facts=FACTS, **cells):
    places = GuestPlaces({globals()[name]: one for name, one in cells.items()})
    return ReshapeContext(facts, policy, places, sharing or Sharing(), start)


def moved(after, before, known, allocations):
    with pytest.raises(ReshapeNeeded):
        move_allocations(NodeTrees(after, before, ROOT), known, None)
    move_allocations(NodeTrees(after, before, ROOT), known, allocations)
    return held(allocations)


@pytest.mark.parametrize(
    ("before", "after"),
    [(tree({"PCPU": 4}), tree(NUMA0={"PCPU": 4})), (tree(NUMA0={"PCPU": 4}), tree({"PCPU": 4}))],
)
def test_a_class_that_goes_between_the_root_and_its_cells_needs_a_reshape(before, after):
    with pytest.raises(
        ReshapeNeeded, match="PCPU moves between the root and its children of node-a"
    ):
        move_allocations(NodeTrees(after, before, ROOT), reshape_context(start=False), None)
    move_allocations(NodeTrees(after, before, ROOT), reshape_context(), {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tree(), tree(NUMA0={"PCPU": 4})),
        (tree({"PCPU": 4}), tree()),
        (tree({"PCPU": 4}), tree({"PCPU": 8})),
        (tree(NUMA0={"PCPU": 4}), tree(NUMA0={"PCPU": 2})),
        (tree(NUMA0={"PCPU": 4}, NUMA8={"PCPU": 4}), tree(NUMA0={"PCPU": 4})),
        (ProviderTree(), tree(NUMA0={"PCPU": 4})),
    ],
)
def test_what_comes_goes_or_grows_in_its_place_does_not_move(before, after):
    move_allocations(NodeTrees(after, before, ROOT), reshape_context(), None)


def test_where_no_set_is_pinned_cpus_are_vcpu_of_the_cells_and_become_pcpu_wherever_the_cells_go():
    known = reshape_context(A=(placed(0, (1, 2)), placed(8, (4,), shared=1)))
    flat, strict = tree({"VCPU": 8}), tree(NUMA0={"VCPU": 4}, NUMA8={"VCPU": 4})
    in_cells = {A: {CELL: {"VCPU": 2}, OTHER: {"VCPU": 2}}}
    assert (
        moved(strict, flat, replace(known, policy=Policy()), holding(A={ROOT: {"VCPU": 4}}))
        == in_cells
    )
    assert moved(
        tree({"VCPU": 1, "PCPU": 4}),
        strict,
        known,
        holding(A={CELL: {"VCPU": 2}, OTHER: {"VCPU": 2}}),
    ) == {A: {NAME: {"PCPU": 3, "VCPU": 1}}}


@pytest.mark.parametrize("vcpus", [4, 3])
def test_the_cpu_of_an_emulator_is_pcpu_where_it_was_counted(vcpus):
    known = reshape_context(A=(placed(0, (1, 2), shared=1, reserved=(5,)),))
    after = moved(
        tree({"VCPU": 1, "PCPU": 4}), tree({"VCPU": 8}), known, holding(A={ROOT: {"VCPU": vcpus}})
    )
    assert after == {A: {NAME: {"VCPU": 1, "PCPU": vcpus - 1}}}


def test_more_pins_than_vcpu_is_an_error():
    with pytest.raises(ReshapeFailed, match=f"{A} is pinned to 3 CPUs but holds only 2 VCPU"):
        move_allocations(
            NodeTrees(tree({"VCPU": 1, "PCPU": 4}), tree({"VCPU": 8}), ROOT),
            reshape_context(A=(placed(0, (1, 2, 3)),)),
            holding(A={ROOT: {"VCPU": 2}}),
        )


def test_dedicated_cpus_that_only_went_offline_do_not_become_shared():
    move_allocations(
        NodeTrees(tree({"VCPU": 8}), tree({"VCPU": 2, "PCPU": 4}), ROOT), reshape_context(), None
    )


def test_pcpu_that_goes_moves_at_a_start_where_a_guest_is_pinned_or_if_somebody_holds_some():
    before, after = tree({"VCPU": 4, "PCPU": 4}), tree({"VCPU": 8})
    for known in (
        reshape_context(Policy(), start=False),
        reshape_context(Policy(), start=False, A=(placed(0, (1,)),)),
    ):
        move_allocations(NodeTrees(after, before, ROOT), known, None)
    for known, only_if_held in (
        (reshape_context(Policy()), True),
        (reshape_context(Policy(), A=(placed(0, (1,)),)), False),
    ):
        with pytest.raises(ReshapeNeeded) as needed:
            move_allocations(NodeTrees(after, before, ROOT), known, None)
        assert needed.value.data["only_if_held"] is only_if_held
    assert moved(after, before, reshape_context(Policy()), holding(A={ROOT: {"PCPU": 1}})) == {
        A: {NAME: {"VCPU": 1}}
    }


def test_more_than_the_storage_has_left_is_an_error_and_a_running_agent_moves_no_disk():
    shared, before = with_storage(), with_storage()
    before.update_inventory(ROOT, {"DISK_GB": amount(100)})
    known = reshape_context(sharing=Sharing(free={STORAGE: 20}))
    with pytest.raises(
        ReshapeFailed, match="would move to storage, but 30 are used and 20 are free there"
    ):
        move_allocations(NodeTrees(shared, before, ROOT), known, holding(A={ROOT: {"DISK_GB": 30}}))
    move_allocations(NodeTrees(shared, before, ROOT), replace(known, optional_moves=False), None)


@pytest.mark.parametrize(
    "bounds",
    [{"max_unit": 20}, {"min_unit": 40}, {"step_size": 20}],
    ids=lambda one: next(iter(one)),
)
def test_what_the_storage_would_not_give_one_consumer_is_an_error_that_names_it(bounds):
    shared, before = with_storage(**bounds), with_storage(**bounds)
    before.update_inventory(ROOT, {"DISK_GB": amount(100)})
    with pytest.raises(
        ReshapeFailed,
        match=f"consumer {A} would have 30 DISK_GB of storage, which gives a consumer",
    ):
        move_allocations(
            NodeTrees(shared, before, ROOT),
            reshape_context(sharing=Sharing(free={STORAGE: 50})),
            holding(A={ROOT: {"DISK_GB": 30}}),
        )


def test_a_running_agent_that_builds_its_tree_anew_does_not_wait_for_a_start_to_have_dedicated_cpus():
    move_allocations(
        NodeTrees(tree({"VCPU": 1, "PCPU": 4}), tree({"VCPU": 1}), ROOT),
        reshape_context(start=False, A=(placed(0, (1, 2)),)),
        None,
    )


def test_guests_of_which_nobody_knows_the_cells_are_all_named():
    each = {"VCPU": 4, "MEMORY_MB": 4096}
    allocations = holding(A={ROOT: {"VCPU": 1}}, B={ROOT: {"VCPU": 2}}, C={ROOT: {"VCPU": 1}})
    with pytest.raises(
        ReshapeFailed, match=rf"it is unknown which cells have what is used by {B}, {C} \("
    ) as refused:
        move_allocations(
            NodeTrees(tree(NUMA0=each, NUMA8=each), tree({"VCPU": 8}), ROOT),
            reshape_context(A=(placed(0, shared=1),), B=()),
            allocations,
        )
    assert refused.value.data["consumers"] == (B, C)
