"""The plan: what is sent, in which order, and why."""

import dataclasses

import pytest

from agent.model.finding import Drift
from agent.model.inventory import Allocation
from agent.model.mirror import Journal, Ownership, ServerCapabilities
from agent.model.operation import (
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTrait,
    Operation,
    ProviderRef,
    RenameProvider,
    ReparentProvider,
    Reshape,
    SetAggregates,
    SetInventory,
    SetTraits,
)
from agent.model.provider_tree import ProviderTree
from agent.placement.merge import Target
from agent.placement.plan import depends, make_plan, names_needed
from agent.placement.reshaping import AllocationMove
from tests.unit.placement.nodes import (
    BW,
    KNOWLEDGE,
    N0,
    NAME,
    OTHER_UUID,
    OURS_AGGREGATE,
    ROOT,
    total,
    tree_in_placement,
    view,
)

CONSUMER = "c0000000-0000-4000-8000-000000000001"
KNOWN = dataclasses.replace(
    KNOWLEDGE, classes=frozenset({"CUSTOM_A", "CUSTOM_LICENSE"}), traits=frozenset({"CUSTOM_RACK7"})
)


def target_of(tree: ProviderTree, *, adopted: bool = True, invalid: tuple[str, ...] = ()) -> Target:
    return Target(
        tree.freeze(),
        Journal({one.uuid: Ownership() for one in tree.providers()}, adopted),
        (),
        invalid,
    )


def planned(
    edit, capabilities: ServerCapabilities = KNOWN, move: AllocationMove | None = None, **target
):
    tree = tree_in_placement().subtree(ROOT)
    edit(tree)
    return make_plan(view(), target_of(tree, **target), capabilities, ROOT, move)


def kinds(plan):
    return [(type(one), one.provider.name if one.provider else one.name) for one in plan.operations]


def test_nothing_to_do():
    plan = planned(lambda tree: None)
    assert (plan.operations, plan.drift) == ((), ())


def test_a_new_node_providers_first_then_names_then_contents_from_the_bottom_up():
    tree = tree_in_placement().subtree(ROOT)
    plan = make_plan(view(ProviderTree()), target_of(tree), KNOWLEDGE, ROOT)
    assert kinds(plan) == [
        (CreateProvider, NAME),
        (CreateProvider, "N0"),
        (CreateProvider, "BW"),
        (EnsureResourceClass, "CUSTOM_A"),
        (EnsureResourceClass, "CUSTOM_LICENSE"),
        (EnsureTrait, "CUSTOM_PHYSNET_A"),
        (EnsureTrait, "CUSTOM_RACK7"),
        (SetInventory, "BW"),
        (SetTraits, "BW"),
        (SetInventory, "N0"),
        (SetTraits, "N0"),
        (SetInventory, NAME),
        (SetAggregates, NAME),
        (SetTraits, NAME),
    ]
    creations = [one for one in plan.operations if isinstance(one, CreateProvider)]
    assert [one.parent for one in creations] == [None, ROOT, N0]
    assert [one.provider.uuid for one in creations] == [ROOT, N0, BW]
    assert {one.reason for one in creations} == {"the node has it, Placement does not"}


def test_deletes_come_from_the_bottom_up_and_before_contents():
    def edit(tree):
        tree.remove(N0)
        tree.add_traits(ROOT, "HW_NEW")

    plan = planned(edit)
    assert kinds(plan) == [(DeleteProvider, "BW"), (DeleteProvider, "N0"), (SetTraits, NAME)]
    assert plan.operations[1].inventory == {"VGPU": total(2)}


def test_inventories_come_before_aggregates_and_these_before_traits():
    def edit(tree):
        tree.add_traits(N0, "HW_NEW")
        tree.add_aggregates(N0, OURS_AGGREGATE)
        tree.update_inventory(N0, {"VGPU": total(3)})

    plan = planned(edit)
    assert kinds(plan) == [(SetInventory, "N0"), (SetAggregates, "N0"), (SetTraits, "N0")]
    _, aggregates, traits = plan.operations
    assert (aggregates.old, aggregates.new) == (frozenset(), {OURS_AGGREGATE})
    assert aggregates.reason == "other aggregates than in Placement"
    assert (traits.old, traits.new) == ({"HW_NUMA_ROOT"}, {"HW_NUMA_ROOT", "HW_NEW"})
    assert traits.reason == "missing in Placement"


def test_traits_that_come_and_go_are_told_apart():
    def edit(tree):
        tree.update_traits(N0, ["HW_NEW"])

    (traits,) = planned(edit).operations
    assert traits.reason == "missing in Placement; no longer true of the node"
    (traits,) = planned(lambda tree: tree.update_traits(N0, [])).operations
    assert traits.reason == "no longer true of the node"


def test_renames_come_before_creations_and_moves_after_them():
    def edit(tree):
        tree.rename(N0, "cell")
        tree.new_child("N1", ROOT, OTHER_UUID)
        tree.reparent(BW, OTHER_UUID)

    plan = planned(edit)
    assert kinds(plan) == [
        (RenameProvider, "cell"),
        (CreateProvider, "N1"),
        (ReparentProvider, "BW"),
    ]
    rename, _, move = plan.operations
    assert (rename.old_name, rename.before, rename.after) == ("N0", "N0", "cell")
    assert (move.old_parent, move.parent) == (N0, OTHER_UUID)
    assert (rename.reason, move.reason) == (
        "renamed from outside",
        "it belongs under another provider of the node now",
    )


def test_a_provider_that_takes_the_place_of_its_parent_moves_first():
    def turn_over(tree):
        tree.reparent(BW, ROOT)
        tree.reparent(N0, BW)

    assert [one.provider.name for one in planned(turn_over).operations] == ["BW", "N0"]


# --- names ----------------------------------------------------------------------------------------


def test_only_custom_names_that_are_new_and_not_confirmed_are_ensured():
    def edit(tree):
        tree.update_inventory(
            N0, {"VGPU": total(2), "CUSTOM_A": total(1), "CUSTOM_B": total(1), "PCPU": total(1)}
        )
        tree.update_inventory(ROOT, {**tree.data(ROOT).inventory, "CUSTOM_LICENSE": total(4)})
        tree.add_traits(ROOT, "CUSTOM_NEW", "HW_NEW")

    unaware = dataclasses.replace(KNOWN, classes=frozenset({"CUSTOM_A"}), traits=frozenset())
    assert kinds(planned(edit, unaware))[:3] == [
        (EnsureResourceClass, "CUSTOM_B"),
        (EnsureTrait, "CUSTOM_NEW"),
        (SetInventory, "N0"),
    ]


# --- reasons --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inventory", "reason"),
    [
        ({"VGPU": total(3)}, "other amounts of VGPU"),
        ({}, "the node no longer has VGPU"),
        (
            {"VGPU": total(2), "PCPU": total(1), "CUSTOM_A": total(1)},
            "the node now has CUSTOM_A, PCPU",
        ),
        ({"PCPU": total(1)}, "the node now has PCPU; the node no longer has VGPU"),
    ],
)
def test_an_inventory_says_what_differs(inventory, reason):
    (operation,) = (
        one
        for one in planned(lambda tree: tree.update_inventory(N0, inventory)).operations
        if isinstance(one, SetInventory)
    )
    assert (operation.old, operation.new, operation.reason) == (
        {"VGPU": total(2)},
        inventory,
        reason,
    )


def test_a_first_inventory_says_so():
    def edit(tree):
        tree.new_child("N1", ROOT)
        tree.update_inventory("N1", {"PCPU": total(1)})

    assert planned(edit).operations[-1].reason == "Placement has none yet"


# --- reshapes -------------------------------------------------------------------------------------

BEFORE = {CONSUMER: Allocation(CONSUMER, {ROOT: {"VCPU": 2}}, "project", "user", 1)}
AFTER = {CONSUMER: dataclasses.replace(BEFORE[CONSUMER], resources={OTHER_UUID: {"VCPU": 2}})}


def move_vcpu(tree):
    tree.update_inventory(
        ROOT, {name: record for name, record in tree.data(ROOT).inventory.items() if name != "VCPU"}
    )
    tree.new_child("N1", ROOT, OTHER_UUID)
    tree.update_inventory("N1", {"VCPU": total(8), "CUSTOM_B": total(1)})
    tree.add_traits("N1", "HW_NEW")


def gone(tree):
    tree.remove(N0)
    move_vcpu(tree)


def test_a_reshape_comes_after_creations_and_names_and_before_deletes_and_carries_all_inventories():
    plan = planned(gone, move=AllocationMove(BEFORE, AFTER))
    assert [type(one) for one in plan.operations] == [
        CreateProvider,
        EnsureResourceClass,
        Reshape,
        DeleteProvider,
        DeleteProvider,
        SetTraits,
    ]
    reshape = plan.operations[2]
    assert set(reshape.inventories) == {ROOT, OTHER_UUID, N0, BW}
    assert reshape.allocations == AFTER


def test_a_reshape_that_moves_no_allocation_writes_the_inventories():
    plan = planned(move_vcpu, move=AllocationMove({}, {}))
    assert [type(one) for one in plan.operations] == [
        CreateProvider,
        EnsureResourceClass,
        Reshape,
        SetTraits,
    ]


# --- what cannot be sent when something failed ----------------------------------------------------


def ref(uuid: str) -> ProviderRef:
    return ProviderRef(uuid, uuid)


def creation(uuid: str, parent: str | None = ROOT) -> CreateProvider:
    return CreateProvider(provider=ref(uuid), parent=parent, reason="")


def move(uuid: str, parent: str | None = ROOT) -> ReparentProvider:
    return ReparentProvider(provider=ref(uuid), old_parent=None, parent=parent, reason="")


def rename(uuid: str) -> RenameProvider:
    return RenameProvider(provider=ref(uuid), old_name="before", reason="")


def contents(uuid: str, *names: str) -> list[SetInventory | SetTraits | SetAggregates]:
    """The writes of a provider's inventory, traits and aggregates."""
    return [
        SetInventory(provider=ref(uuid), old={}, new={name: total(1) for name in names}, reason=""),
        SetTraits(provider=ref(uuid), old=frozenset(), new=frozenset(names), reason=""),
        SetAggregates(provider=ref(uuid), old=frozenset(), new=frozenset(names), reason=""),
    ]


def deletion(uuid: str) -> DeleteProvider:
    return DeleteProvider(provider=ref(uuid), inventory={}, reason="")


def reshape(*emptied: str, to: str = ROOT, names: tuple[str, ...] = ()) -> Reshape:
    """A reshape with the inventories of ``emptied``, that moves an allocation to ``to``."""
    inventories = {uuid: {name: total(1) for name in names} for uuid in emptied}
    return Reshape(
        old_inventories={uuid: {} for uuid in emptied},
        inventories=inventories,
        old_allocations={},
        allocations={CONSUMER: Allocation(CONSUMER, {to: {"VCPU": 1}}, "p", "u", 1)},
        reason="",
    )


CLASS = EnsureResourceClass(name="CUSTOM_A", reason="")
TRAIT = EnsureTrait(name="CUSTOM_A", reason="")
INVENTORY, TRAITS, AGGREGATES = contents(BW, "CUSTOM_A", "CUSTOM_B")


@pytest.mark.parametrize(
    ("operation", "failed", "expected"),
    [
        # A provider needs its ancestors: BW is below N0, and N0 below the root.
        (creation(BW, N0), creation(N0), True),
        (creation(BW, N0), creation(ROOT, None), True),
        (creation(ROOT, None), creation(N0), False),
        (creation(N0), creation(BW, N0), False),
        (creation(N0), move(ROOT), False),
        (move(BW, N0), creation(N0), True),
        (move(BW, N0), move(N0), False),
        (move(BW, None), creation(ROOT, None), False),
        (rename(BW), creation(N0), False),
        (INVENTORY, creation(BW, N0), True),
        (INVENTORY, creation(ROOT, None), True),
        (TRAITS, creation(N0), True),
        (AGGREGATES, creation(BW, N0), True),
        (AGGREGATES, creation(N0), True),
        (AGGREGATES, creation(OTHER_UUID), False),
        (INVENTORY, creation(OTHER_UUID), False),
        (INVENTORY, rename(BW), False),
        (INVENTORY, move(BW), False),
        (deletion(BW), creation(N0), False),
        # A name has to exist before it is set; aggregates have no names.
        (INVENTORY, CLASS, True),
        (TRAITS, TRAIT, True),
        (contents(BW, "CUSTOM_B")[0], CLASS, False),
        (contents(BW, "CUSTOM_B")[1], TRAIT, False),
        (AGGREGATES, CLASS, False),
        (TRAIT, CLASS, False),
        # A reshape needs all its providers in their place, and its classes.
        (reshape(N0), creation(N0), True),
        (reshape(BW), creation(N0), True),
        (reshape(N0, to=BW), creation(BW, N0), True),
        (reshape(N0, to=N0), creation(BW, N0), False),
        (reshape(BW), rename(N0), True),
        (reshape(BW), move(N0), True),
        (reshape(N0), move(BW), False),
        (reshape(ROOT, N0, names=("CUSTOM_A",)), CLASS, True),
        (reshape(N0, names=("CUSTOM_B",)), CLASS, False),
        # A provider that a reshape was to empty is deleted only after it.
        (deletion(N0), reshape(N0), True),
        (deletion(N0), reshape(BW, to=N0), False),
        (deletion(N0), deletion(N0), False),
        (INVENTORY, reshape(BW), False),
    ],
)
def test_an_operation_waits_for_what_it_needs_and_for_nothing_else(
    operation: Operation, failed: Operation, *, expected: bool
) -> None:
    tree = tree_in_placement().subtree(ROOT)
    assert depends(operation, [failed], tree) == expected
    assert depends(operation, [deletion(OTHER_UUID), failed], tree) == expected
    assert not depends(operation, [], tree)


def test_a_provider_that_the_target_lacks_has_no_ancestors_there() -> None:
    tree = tree_in_placement().subtree(ROOT)
    assert not depends(contents(OTHER_UUID)[0], [creation(ROOT, None)], tree)
    assert depends(contents(OTHER_UUID)[0], [creation(OTHER_UUID)], tree)


def test_the_names_that_an_operation_needs_are_those_that_its_provider_lacks() -> None:
    old, new = {"CUSTOM_A": total(1)}, {"CUSTOM_A": total(2), "CUSTOM_B": total(1)}
    inventory = SetInventory(provider=ref(N0), old=old, new=new, reason="")
    traits = SetTraits(provider=ref(N0), old=frozenset(old), new=frozenset(new), reason="")
    assert names_needed(inventory) == names_needed(traits) == {"CUSTOM_B"}
    assert names_needed(reshape(N0, BW, names=("CUSTOM_A", "VCPU"))) == {"CUSTOM_A", "VCPU"}
    assert names_needed(AGGREGATES) == names_needed(creation(N0)) == frozenset()


# --- what is only reported ------------------------------------------------------------------------


def test_the_drift_of_the_target_comes_first() -> None:
    target = target_of(tree_in_placement().subtree(ROOT))
    before = Drift("identity", "info", "", "")
    found = dataclasses.replace(view(), above=OTHER_UUID)
    plan = make_plan(found, dataclasses.replace(target, drift=(before,)), KNOWN, ROOT)
    assert [drift.severity for drift in plan.drift] == ["info", "warning"]
    assert (plan.target.drift, plan.withheld) == ((before,), False)


def test_sharing_providers_belong_to_the_plan_if_the_target_has_them() -> None:
    tree = tree_in_placement()
    tree.add_traits("storage", "CUSTOM_A")
    plan = make_plan(view(), target_of(tree), KNOWN, ROOT, with_sharing=True)
    assert kinds(plan) == [(EnsureTrait, "CUSTOM_A"), (SetTraits, "storage")]
