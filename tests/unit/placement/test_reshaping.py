"""One atomic move of inventories and allocations: what is in it, and every local check."""

import dataclasses

import pytest

from agent.errors import DRIVER_FAULT, ReshapeFailed
from agent.model.inventory import Allocation
from agent.model.provider_tree import ProviderTree
from agent.placement.reshaping import (
    AllocationMove,
    allocation_move,
    build_reshape,
    find_stranded,
)
from tests.unit.placement.nodes import BW, N0, NAME, ROOT, STORAGE, total

N1 = "5f9c2a34-7d1e-4a8b-9c46-000000000011"
FAR = "5f9c2a34-7d1e-4a8b-9c46-0000000000fa"
C, D = "c0000000-0000-4000-8000-000000000001", "c0000000-0000-4000-8000-000000000002"


def tree(**inventories) -> ProviderTree:
    """``node-a`` with the children of ``inventories``."""
    made = ProviderTree()
    made.new_root(NAME, ROOT, 7)
    for name, uuid in (("N0", N0), ("N1", N1), ("BW", BW)):
        if name in inventories:
            made.new_child(name, ROOT, uuid, 1)
            made.update_inventory(name, inventories[name])
    made.update_inventory(ROOT, inventories.get("root"))
    return made


PRESENT = tree(
    root={"VCPU": total(8), "MEMORY_MB": total(1024)},
    BW={"NET_BW_EGR_KILOBIT_PER_SEC": total(1000)},
)
TARGET = tree(
    root={"MEMORY_MB": total(1024)},
    N0={"VCPU": total(4)},
    N1={"VCPU": total(4)},
    BW={"NET_BW_EGR_KILOBIT_PER_SEC": total(1000)},
)
OURS = frozenset({ROOT, N0, N1})


def held(consumer=C, **changes):
    resources = changes.pop("resources", {ROOT: {"VCPU": 2, "MEMORY_MB": 512}})
    return Allocation(consumer, resources, "project", "user", 4, **changes)


def move(before, after) -> AllocationMove:
    return AllocationMove(
        {one.consumer: one for one in before}, {one.consumer: one for one in after}
    )


def to_n0(one: Allocation, cell=N0) -> Allocation:
    left = {name: amount for name, amount in one.resources[ROOT].items() if name != "VCPU"}
    elsewhere = {uuid: records for uuid, records in one.resources.items() if uuid != ROOT}
    return dataclasses.replace(
        one,
        resources=elsewhere
        | ({ROOT: left} if left else {})
        | {cell: {"VCPU": one.resources[ROOT]["VCPU"]}},
    )


def test_inventories_that_differ_and_consumers_that_moved():
    before = held()
    result = build_reshape(PRESENT, TARGET, OURS, move([before], [to_n0(before)]))
    assert result.inventories == {
        ROOT: {"MEMORY_MB": total(1024)},
        N0: {"VCPU": total(4)},
        N1: {"VCPU": total(4)},
    }
    assert result.old_inventories == {ROOT: PRESENT.data(ROOT).inventory, N0: {}, N1: {}}
    assert result.old_allocations == {C: before}
    assert result.allocations == {C: held(resources={ROOT: {"MEMORY_MB": 512}, N0: {"VCPU": 2}})}


def test_a_provider_that_only_a_moved_consumer_uses_is_in_it_with_its_own_inventory():
    target = tree(
        root={"VCPU": total(8), "MEMORY_MB": total(1024)},
        N0={"VCPU": total(4)},
        BW={"NET_BW_EGR_KILOBIT_PER_SEC": total(1000)},
    )
    result = build_reshape(PRESENT, target, OURS, move([held()], [to_n0(held())]))
    assert result.inventories == {ROOT: target.data(ROOT).inventory, N0: {"VCPU": total(4)}}


def test_providers_of_others_and_roots_that_share_are_not_in_it():
    before = held(
        resources={
            ROOT: {"VCPU": 2},
            BW: {"NET_BW_EGR_KILOBIT_PER_SEC": 10},
            STORAGE: {"DISK_GB": 10},
            FAR: {"VCPU": 9},
        }
    )
    result = build_reshape(PRESENT, TARGET, OURS, move([before], [to_n0(before)]))
    assert not {BW, STORAGE, FAR} & set(result.inventories)
    after = result.allocations[C].resources
    assert (after[BW], after[STORAGE], after[FAR]) == (
        {"NET_BW_EGR_KILOBIT_PER_SEC": 10},
        {"DISK_GB": 10},
        {"VCPU": 9},
    )


def test_a_part_has_only_the_providers_on_which_a_share_changes():
    present = tree(
        root={"MEMORY_MB": total(1024)},
        N0={"VCPU": total(4)},
        N1={"VCPU": total(4)},
        BW={"NET_BW_EGR_KILOBIT_PER_SEC": total(1000)},
    )
    target = tree(root={"MEMORY_MB": total(2048)}, N0={"VCPU": total(6)}, N1={"VCPU": total(8)})
    memory = {ROOT: {"MEMORY_MB": 512}}
    before = held(resources={**memory, N0: {"VCPU": 2}})
    after = held(resources={**memory, N1: {"VCPU": 2}})
    part = dataclasses.replace(move([before], [after]), whole=False)
    result = build_reshape(present, target, OURS, part)
    assert result.inventories == {N0: {"VCPU": total(6)}, N1: {"VCPU": total(8)}}


# --- local checks ---------------------------------------------------------------------------------


def refusal(*consumers, target=TARGET, present=PRESENT) -> ReshapeFailed:
    with pytest.raises(ReshapeFailed) as refused:
        build_reshape(
            present,
            target,
            OURS,
            move([one for one, _ in consumers], [one for _, one in consumers]),
        )
    return refused.value


@pytest.mark.parametrize("also", [True, False])
def test_a_class_must_not_go_while_somebody_uses_it(also):
    """``also``: another consumer has moved."""
    forgotten = held(D, resources={ROOT: {"VCPU": 1}})
    error = refusal(*([(held(), to_n0(held()))] if also else []), (forgotten, forgotten))
    assert error.message == f"VCPU is dropped from provider {ROOT} but used by consumer {D}"
    assert error.remedy == "the driver has to move that allocation too"
    assert error.data == {"consumer": D, "provider": ROOT}


def test_a_class_that_the_new_provider_lacks_cannot_be_given():
    after = held(resources={ROOT: {"MEMORY_MB": 512}, N0: {"VCPU": 2, "PCPU": 1}})
    assert (
        refusal((held(), after)).message
        == f"PCPU is dropped from provider {N0} but used by consumer {C}"
    )


@pytest.mark.parametrize("amount", [0, -1])
def test_an_amount_is_at_least_1(amount):
    after = held(resources={ROOT: {"MEMORY_MB": 512}, N0: {"VCPU": amount}})
    error = refusal((held(), after))
    assert (error.message, error.remedy) == (
        f"consumer {C} would hold {amount} VCPU on {N0}",
        DRIVER_FAULT,
    )
    assert error.data == {"consumer": C}


def test_the_sum_of_all_consumers_fits_the_capacity():
    two = [held(C, resources={ROOT: {"VCPU": 3}}), held(D, resources={ROOT: {"VCPU": 2}})]
    error = refusal(*((one, to_n0(one)) for one in two))
    assert (error.message, error.remedy) == (
        f"provider {N0} would have 5 VCPU allocated of 4",
        "free some of it first",
    )
    assert error.data == {"provider": N0}
    build_reshape(PRESENT, TARGET, OURS, move(two, [to_n0(two[0]), to_n0(two[1], N1)]))


def test_reserved_and_ratio_count_for_the_capacity():
    one = held(resources={ROOT: {"VCPU": 5}})
    generous = tree(N0={"VCPU": total(4, allocation_ratio=2.0, reserved=1)})
    build_reshape(PRESENT, generous, OURS, move([one], [to_n0(one)]))
    tight = tree(N0={"VCPU": total(8, reserved=4)})
    assert (
        refusal((one, to_n0(one)), target=tight).message
        == f"provider {N0} would have 5 VCPU allocated of 4"
    )


def test_what_is_over_committed_already_may_stay_so():
    two = [
        held(C, resources={ROOT: {"VCPU": 1, "MEMORY_MB": 800}}),
        held(D, resources={ROOT: {"VCPU": 1, "MEMORY_MB": 800}}),
    ]
    result = build_reshape(PRESENT, TARGET, OURS, move(two, [to_n0(one) for one in two]))
    assert {one.resources[ROOT]["MEMORY_MB"] for one in result.allocations.values()} == {800}


def test_nothing_is_added_to_what_is_over_committed():
    stays = held(D, resources={ROOT: {"MEMORY_MB": 2000}})
    grows = held(resources={ROOT: {"MEMORY_MB": 514}})
    assert (
        refusal((held(), grows), (stays, stays)).message
        == f"provider {ROOT} would have 2514 MEMORY_MB allocated of 1024"
    )


# --- what a driver made of the allocations --------------------------------------------------------

BEFORE = {C: held(), D: held(D)}


def edited(edit) -> dict:
    records = {str(uuid): one.as_driver_dict() for uuid, one in BEFORE.items()}
    edit(records)
    return records


def test_a_driver_moves_allocations_in_place():
    def edit(records):
        records[C]["allocations"][N0] = {
            "resources": {"VCPU": records[C]["allocations"][ROOT]["resources"].pop("VCPU")}
        }

    result = allocation_move(BEFORE, edited(edit))
    assert result == AllocationMove(BEFORE, {C: to_n0(held()), D: held(D)})
    assert result.changed == {C}


def put(amount):
    def edit(records):
        records[C]["allocations"][ROOT]["resources"]["VCPU"] = amount

    return edit


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda records: records.pop(D), f"it dropped consumer {D}"),
        (lambda records: records.update({FAR: records[C]}), f"it invented consumer {FAR}"),
        (
            lambda records: records[C].pop("allocations"),
            f"the allocations of consumer {C} lost their form: KeyError('allocations')",
        ),
        (
            lambda records: records[C]["allocations"].update({N0: {"VCPU": 2}}),
            f"the allocations of consumer {C} lost their form: KeyError('resources')",
        ),
        (
            lambda records: records.update({C: None}),
            f"the allocations of consumer {C} lost their form: TypeError",
        ),
        (
            lambda records: records[C].update(allocations=[]),
            f"the allocations of consumer {C} lost their form: AttributeError",
        ),
        (put("2"), f"the allocations of consumer {C} lost their form: TypeError"),
        (put(1), f"consumer {C} would hold 513 units in all instead of 514"),
        (put(3), f"consumer {C} would hold 515 units in all instead of 514"),
        (
            lambda records: records[C]["allocations"].clear(),
            f"consumer {C} would hold 0 units in all instead of 514",
        ),
    ],
)
def test_a_driver_that_loses_or_makes_something_is_told_so(edit, told):
    with pytest.raises(ReshapeFailed) as refused:
        allocation_move(BEFORE, edited(edit))
    assert refused.value.message.startswith(f"driver error: {told}")
    assert refused.value.remedy == DRIVER_FAULT
    assert refused.value.data["consumer"] in told


# --- what a consumer would lose -------------------------------------------------------------------


def stranded(target, before, after, *, by_driver=False, present=PRESENT):
    return find_stranded(present, target, move([before], [after]), by_driver=by_driver)


def test_all_classes_that_go_are_stranded_also_with_their_provider():
    holds = held(
        resources={
            ROOT: {"VCPU": 1, "MEMORY_MB": 1},
            BW: {"NET_BW_EGR_KILOBIT_PER_SEC": 5},
        }
    )
    assert stranded(tree(root={}), holds, holds) == {
        ROOT: {"VCPU", "MEMORY_MB"},
        BW: {"NET_BW_EGR_KILOBIT_PER_SEC"},
    }


def test_a_class_that_a_driver_adds_elsewhere_is_an_allocation_that_it_forgot():
    assert stranded(TARGET, held(), held(), by_driver=True) == {}
    assert stranded(TARGET, held(), held()) == {ROOT: {"VCPU"}}


def test_a_class_that_another_provider_had_already_is_nothing_that_a_driver_forgot():
    present = tree(root={"VCPU": total(8)}, N0={"VCPU": total(4)})
    target = tree(root={}, N0={"VCPU": total(4)})
    holds = held(resources={ROOT: {"VCPU": 2}})
    assert stranded(target, holds, holds, by_driver=True, present=present) == {ROOT: {"VCPU"}}


def test_what_moves_along_or_never_was_there_is_not_stranded():
    elsewhere = held(resources={FAR: {"VCPU": 1}, ROOT: {"DISK_GB": 1}})
    assert stranded(TARGET, held(), to_n0(held())) == {}
    assert stranded(TARGET, elsewhere, elsewhere) == {}
