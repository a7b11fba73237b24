"""Ours and theirs."""

import dataclasses

import pytest

from agent.errors import InvalidTree
from agent.model.mirror import Configured, Journal, Ownership
from agent.model.names import child_uuid
from agent.model.provider_tree import compare_trees
from agent.placement.merge import held_record
from agent.placement.ownership import foreign_share
from tests.unit.placement.nodes import (
    BW,
    EMPTY,
    JOURNAL,
    N0,
    NAME,
    OTHER_UUID,
    OURS_AGGREGATE,
    ROOT,
    STORAGE,
    THEIR_AGGREGATE,
    merged,
    same,
    total,
    tree_in_placement,
    view,
)


def nothing(tree):
    """The wish of a driver whose node has nothing."""


def also(edit):
    def both(tree):
        same(tree)
        edit(tree)

    return both


def present():
    return tree_in_placement().subtree(ROOT)


def kinds(target):
    return [(one.kind, one.severity, one.provider) for one in target.drift]


FOREIGN = ("foreign-provider", "info", BW)


# --- what a driver starts from --------------------------------------------------------------------


def test_a_driver_starts_from_what_is_not_ours():
    base = foreign_share(view(), JOURNAL, ROOT, NAME)
    assert base.get_provider_uuids() == [ROOT, N0, BW, STORAGE]
    root = base.data(ROOT)
    assert set(root.inventory) == {"CUSTOM_LICENSE"}
    assert root.traits == {"CUSTOM_RACK7", "HW_THEIRS", "COMPUTE_STATUS_DISABLED"}
    assert root.aggregates == {THEIR_AGGREGATE}
    assert (base.data(N0).inventory, base.data(N0).traits) == ({}, set())
    assert base.provider(BW) is tree_in_placement_provider(base)
    assert base.read_only == {STORAGE}


def tree_in_placement_provider(base):
    """The foreign child as it is in Placement: equal, and not to be touched."""
    assert base.data(BW) == present().data(BW)
    return base.provider(BW)


def test_our_children_without_foreign_ones_are_taken_out_and_keep_their_uuid():
    tree = tree_in_placement()
    tree.remove(BW)
    base = foreign_share(view(tree), JOURNAL, ROOT, NAME)
    assert not base.exists("N0")
    assert base.new_child("N0", ROOT) == N0


# --- ours and theirs on one provider --------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
def test_a_wish_that_placement_fulfils_changes_nothing(whole):
    target = merged(same, whole=whole)
    assert not compare_trees(present(), target.tree)
    assert target.journal == JOURNAL
    assert (target.invalid, kinds(target)) == ((), [FOREIGN])


def test_a_driver_that_replaces_everything_keeps_their_custom_traits_and_aggregates():
    def replace(tree):
        same(tree)
        tree.update_traits(ROOT, ["COMPUTE_NODE"])
        tree.update_aggregates(ROOT, [])
        tree.update_inventory(ROOT, {"VCPU": total(8, allocation_ratio=4.0)})

    root = merged(replace, whole=True).tree.data(ROOT)
    assert root.aggregates == {THEIR_AGGREGATE}
    assert set(root.inventory) == {"VCPU", "CUSTOM_LICENSE"}
    assert root.traits == {"COMPUTE_NODE", "CUSTOM_RACK7", "COMPUTE_STATUS_DISABLED"}


def test_what_is_new_becomes_ours_and_what_was_there_stays_whose_it_was():
    def more(tree):
        tree.update_inventory(
            ROOT, {**tree.data(ROOT).inventory, "CUSTOM_B": total(1), "CUSTOM_LICENSE": total(3)}
        )
        tree.add_traits(ROOT, "HW_NEW", "CUSTOM_RACK7")
        tree.add_aggregates(ROOT, OTHER_UUID, THEIR_AGGREGATE)

    own = merged(also(more)).journal.of(ROOT)
    assert own == Ownership(
        frozenset({"VCPU", "CUSTOM_A", "CUSTOM_B"}),
        frozenset({"COMPUTE_NODE", "HW_NEW"}),
        frozenset({OURS_AGGREGATE, OTHER_UUID}),
    )


def test_a_foreign_class_that_the_driver_gives_other_amounts_becomes_ours():
    def change(tree):
        tree.update_inventory(ROOT, {**tree.data(ROOT).inventory, "CUSTOM_LICENSE": total(5)})

    target = merged(also(change))
    assert target.tree.data(ROOT).inventory["CUSTOM_LICENSE"] == total(5)
    assert "CUSTOM_LICENSE" in target.journal.of(ROOT).classes


def test_generations_are_those_of_placement():
    def create(tree):
        tree.set_generation(ROOT, 99)
        tree.new_child("new", ROOT, generation=5)

    tree = merged(also(create)).tree
    assert [tree.data(one).generation for one in (ROOT, N0, BW, "new")] == [7, 3, 2, None]


def test_the_roots_that_share_are_no_part_of_the_target():
    assert not merged(same).tree.exists(STORAGE)


# --- whole providers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whole", "edit"),
    [
        (False, nothing),
        (True, lambda tree: tree.remove(N0)),
        (True, lambda tree: (tree.reparent(BW, ROOT), tree.remove(N0))),
    ],
)
def test_our_provider_stays_empty_for_what_hangs_from_it(whole, edit):
    target = merged(edit, whole=whole)
    assert target.tree.get_provider_uuids() == [ROOT, N0, BW]
    assert (target.tree.data(N0).inventory, target.tree.data(N0).traits) == ({}, set())
    assert target.tree.data(BW) == present().data(BW)
    assert target.journal.owns(N0)


SPOILS = {
    "inventory": lambda tree: tree.update_inventory(BW, {}),
    "traits": lambda tree: tree.update_traits(BW, ["HW_A"]),
    "aggregates": lambda tree: tree.add_aggregates(BW, OTHER_UUID),
    "name": lambda tree: tree.rename(BW, "mine"),
    "parent": lambda tree: tree.reparent(BW, ROOT),
    "parent and its removal": lambda tree: (tree.reparent(BW, ROOT), tree.remove(N0)),
    "name, and made anew": lambda tree: (tree.rename(BW, "theirs"), tree.new_child("BW", ROOT)),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_whatever_a_driver_does_to_somebody_elses_provider_is_undone_and_told(spoil):
    target = merged(also(SPOILS[spoil]))
    assert target.tree.data(BW) == present().data(BW)
    assert not target.journal.owns(BW)
    (drift,) = (one for one in target.drift if one.provider == BW)
    assert (drift.kind, drift.severity) == ("foreign-provider", "warning")
    assert drift.detail == "the driver wanted to change BW, which is somebody else's"


@pytest.mark.parametrize(
    "edit",
    [
        lambda tree: (tree.rename(BW, "theirs"), tree.new_child("BW", ROOT, OTHER_UUID)),
        lambda tree: (tree.remove(BW), tree.new_child("BW", ROOT, OTHER_UUID)),
    ],
)
def test_a_driver_that_takes_somebody_elses_name_is_told_so(edit):
    with pytest.raises(InvalidTree, match=r"driver error: .* BW") as error:
        merged(also(edit))
    assert error.value.remedy == "report this to whoever wrote the driver"


@pytest.mark.parametrize("name", ["A", "Z"])
def test_somebody_elses_provider_is_kept_beside_any_of_ours(name):
    tree = tree_in_placement()
    tree.new_child(name, ROOT, OTHER_UUID)
    journal = dataclasses.replace(
        JOURNAL, providers={**JOURNAL.providers, OTHER_UUID: Ownership(role=name)}
    )

    def edit(desired):
        same(desired)
        desired.new_child(name, ROOT)
        desired.remove(BW)

    target = merged(edit, found=view(tree), journal=journal)
    assert target.tree.data(BW) == present().data(BW)


def test_a_driver_that_has_no_root_keeps_only_what_others_have():
    assert merged(lambda tree: tree.remove(ROOT)).tree.get_provider_uuids() == [ROOT, N0, BW]
    tree = tree_in_placement()
    tree.remove(BW)
    assert len(merged(lambda tree: tree.remove(ROOT), found=view(tree)).tree) == 0


def test_a_provider_that_stays_for_others_loses_what_the_agent_has_on_it():
    tree = tree_in_placement()
    tree.add_aggregates(N0, OURS_AGGREGATE, THEIR_AGGREGATE)
    tree.add_traits(N0, "CUSTOM_THEIRS")
    journal = dataclasses.replace(
        JOURNAL,
        providers={
            **JOURNAL.providers,
            N0: dataclasses.replace(JOURNAL.of(N0), aggregates=frozenset({OURS_AGGREGATE})),
        },
    )
    cell = merged(nothing, found=view(tree), journal=journal).tree.data(N0)
    assert (cell.traits, cell.aggregates) == ({"CUSTOM_THEIRS"}, {THEIR_AGGREGATE})


@pytest.mark.parametrize("chosen", [True, False])
def test_a_name_of_ours_that_somebody_else_has_is_a_conflict_until_it_is_free(chosen):
    """``chosen``: the driver chooses the uuids of its children."""
    tree = tree_in_placement()
    tree.new_child("N1", ROOT, OTHER_UUID)
    missing = STORAGE if chosen else child_uuid(ROOT, "N1")
    mine = Ownership(classes=frozenset({"VGPU"}), role="N1")
    journal = dataclasses.replace(JOURNAL, providers={**JOURNAL.providers, missing: mine})

    def edit(desired):
        same(desired)
        desired.update_inventory("N1", {"VGPU": total(1)})

    target = merged(edit, found=view(tree), journal=journal)
    (conflict,) = target.conflicts
    assert (conflict.data["holder"], conflict.data["uuid"]) == (OTHER_UUID, missing)
    assert conflict.remedy == (
        "delete or rename that provider"
        if chosen
        else "delete or rename it; or, with that provider too, take the tree over: agent --once --adopt"
    )
    assert target.journal.of(missing) == mine
    assert target.tree.data(OTHER_UUID) == tree.data(OTHER_UUID)
    # A provider that the driver leaves alone is in nobody's way, and one that is no name of ours.
    assert merged(same, found=view(tree), journal=journal).conflicts == ()
    assert merged(edit, found=view(tree)).conflicts == ()
    other = dataclasses.replace(
        JOURNAL, providers={**JOURNAL.providers, STORAGE: Ownership(role="N2")}
    )
    assert merged(edit, found=view(tree), journal=other).conflicts == ()


# --- adoption -------------------------------------------------------------------------------------


def test_before_the_adoption_a_standard_class_that_the_node_lacks_stays_and_is_told():
    target = merged(lambda tree: tree.add_traits(ROOT, "HW_NEW"), journal=EMPTY)
    assert target.tree.data(ROOT).inventory == present().data(ROOT).inventory
    assert [(one.kind, one.detail) for one in target.drift if one.provider == ROOT] == [
        ("adoption-needed", f"{NAME}: the node does not have its VCPU, but the tree is not adopted")
    ]


def test_before_the_adoption_no_class_is_counted_twice():
    def move(tree):
        tree.new_child("N1", ROOT)
        tree.update_inventory("N1", {"VCPU": total(8), "PCPU": total(2)})

    target = merged(move, journal=EMPTY)
    assert set(target.tree.data("N1").inventory) == {"PCPU"}
    details = [one.detail for one in target.drift if one.kind == "adoption-needed"]
    assert "N1: VCPU would move here, but the tree is not adopted" in details
    # What the agent itself wrote may move, and what is ours since the adoption.
    written = merged(move, journal=dataclasses.replace(JOURNAL, adopted=False))
    assert set(written.tree.data("N1").inventory) == {"VCPU", "PCPU"}
    adopted = merged(move, journal=Journal({ROOT: Ownership()}, adopted=True))
    assert set(adopted.tree.data("N1").inventory) == {"VCPU", "PCPU"}


def test_before_the_adoption_a_class_that_several_providers_have_may_come_to_another():
    def more(tree):
        tree.new_child("N1", ROOT)
        tree.update_inventory("N1", {"VCPU": total(2)})

    target = merged(more, journal=EMPTY, whole=True)
    assert set(target.tree.data("N1").inventory) == {"VCPU"}


def test_before_the_adoption_no_class_of_several_providers_is_counted_twice():
    def move(tree):
        tree.update_inventory(N0, {})
        tree.new_child("N1", ROOT)
        tree.update_inventory("N1", {"VCPU": total(8), "VGPU": total(2)})

    journal = Journal({ROOT: Ownership(), N0: Ownership()})
    assert merged(move, journal=journal).tree.data("N1").inventory == {}


# --- held -----------------------------------------------------------------------------------------


def held_journal(*classes, provider=N0):
    return dataclasses.replace(JOURNAL, held={provider: frozenset(classes)})


@pytest.mark.parametrize(("amount", "used", "kept"), [(4, 2, 4), (4, 6, 6)])
def test_a_held_record_is_all_reserved_and_never_below_its_use(amount, used, kept):
    assert held_record(total(amount), used) == {**total(amount), "total": kept, "reserved": kept}


def test_why_a_class_stays_is_told():
    configured = dataclasses.replace(
        JOURNAL.of(N0), configured=Configured(frozenset({"VGPU"})), classes=frozenset()
    )
    journal = dataclasses.replace(
        held_journal("VGPU"),
        providers=JOURNAL.providers | {N0: configured},
        held={N0: frozenset({"VGPU"}), ROOT: frozenset({"CUSTOM_A", "CUSTOM_LICENSE"})},
    )
    target = merged(
        lambda tree: tree.update_inventory(ROOT, {}),
        journal=journal,
        usages={N0: {"VGPU": 1}, ROOT: {"CUSTOM_A": 1, "CUSTOM_LICENSE": 2}},
    )
    assert {drift.detail for drift in target.drift if drift.kind == "held-device"} == {
        "N0: no file gives it VGPU any more but 1 of it are allocated",
        "node-a: CUSTOM_A is gone from the node but 1 of it are allocated",
        "node-a: the node does not have it any more, but it stays because CUSTOM_LICENSE is "
        "somebody else's and 2 of it are allocated",
    }
    assert target.tree.data(ROOT).inventory == {
        "CUSTOM_A": total(1, reserved=1),
        "CUSTOM_LICENSE": total(3),
    }


def test_a_held_class_of_a_whole_node_reserves_all_that_the_node_offers():
    def offers(tree):
        tree.update_inventory(ROOT, {"VCPU": total(8), "CUSTOM_B": total(2, reserved=2)})
        tree.new_child("N1", ROOT)
        tree.update_inventory("N1", {"VGPU": total(4)})

    journal = held_journal("CUSTOM_A", provider=ROOT)
    uses = {ROOT: {"CUSTOM_A": 1}}
    target = merged(offers, journal=journal, usages=uses, exclusive=True)
    assert target.tree.data(ROOT).inventory == {
        "VCPU": total(8, reserved=8),
        "CUSTOM_B": total(2, reserved=2),
        "CUSTOM_A": total(1, reserved=1),
        "CUSTOM_LICENSE": total(3),
    }
    assert target.tree.data("N1").inventory == {"VGPU": total(4)}
    # What the node itself has reserved is not the agent's to give back.
    assert target.journal.held == {ROOT: {"VCPU", "CUSTOM_A"}}
    shared = merged(offers, journal=journal, usages=uses)
    assert shared.tree.data(ROOT).inventory["VCPU"] == total(8)
    assert shared.journal.held == {ROOT: {"CUSTOM_A"}}


def all_vcpus_reserved(**record):
    """A view of ``tree_in_placement``, all of whose VCPUs are reserved."""
    tree = tree_in_placement()
    vcpus = total(8, **{"allocation_ratio": 4.0, "reserved": 8, **record})
    tree.update_inventory(ROOT, {**tree.data(ROOT).inventory, "VCPU": vcpus})
    return view(tree)


@pytest.mark.parametrize(
    ("incomplete", "record", "held"),
    [
        (True, {}, {ROOT: {"VCPU"}}),
        (True, {"reserved": 7}, {}),
        (False, {}, {}),
    ],
)
def test_what_the_agent_reserved_stays_so_while_the_node_is_not_known(incomplete, record, held):
    found = all_vcpus_reserved(**record)
    target = merged(
        nothing,
        found=found,
        journal=held_journal("VCPU", "PCPU", provider=ROOT),
        whole=True,
        incomplete=incomplete,
    )
    assert target.tree.data(ROOT) == found.tree.data(ROOT)
    assert target.journal.held == held


def test_a_whole_node_that_is_not_known_keeps_what_the_agent_reserved_before():
    def without(tree):
        inventory = tree.data(ROOT).inventory
        tree.update_inventory(ROOT, {name: inventory[name] for name in ("VCPU", "CUSTOM_LICENSE")})

    target = merged(
        without,
        found=all_vcpus_reserved(),
        journal=held_journal("VCPU", "CUSTOM_A", provider=ROOT),
        usages={ROOT: {"CUSTOM_A": 1}},
        whole=True,
        exclusive=True,
        incomplete=True,
    )
    assert target.tree.data(ROOT).inventory["VCPU"]["reserved"] == 8
    assert {"VCPU", "CUSTOM_A"} <= target.journal.held[ROOT]


def test_a_class_that_is_written_anew_while_the_node_is_not_known_is_not_reserved():
    def sparse(tree):
        tree.update_inventory(ROOT, {"VCPU": {"total": 8, "allocation_ratio": 4.0}})

    target = merged(
        sparse,
        found=all_vcpus_reserved(),
        journal=held_journal("VCPU", provider=ROOT),
        whole=True,
        incomplete=True,
    )
    assert target.tree.data(ROOT).inventory["VCPU"] == total(8, allocation_ratio=4.0)
    assert target.journal.held == {}


@pytest.mark.parametrize("called", [NAME, ROOT])
def test_a_class_that_a_driver_writes_as_it_is_by_the_name_of_the_provider_is_back(called):
    """Who copies Placement's tree writes by uuids."""
    found = all_vcpus_reserved()

    def again(tree):
        tree.update_inventory(called, tree.data(ROOT).inventory)

    target = merged(again, found=found, journal=held_journal("VCPU", provider=ROOT), whole=True)
    reserved = 0 if called == NAME else 8
    assert target.tree.data(ROOT).inventory["VCPU"]["reserved"] == reserved


def test_sparse_records_keep_what_others_reserved():
    found = all_vcpus_reserved()
    target = merged(
        also(lambda tree: tree.update_inventory(ROOT, {"VCPU": {"total": 8}})), found=found
    )
    assert target.tree.data(ROOT).inventory["VCPU"]["reserved"] == 8


def test_a_held_class_that_somebody_deleted_may_come_back():
    target = merged(
        also(lambda tree: tree.update_inventory("N0", {"PCPU": total(4)})),
        journal=held_journal("PCPU"),
    )
    assert target.tree.data(N0).inventory == {"PCPU": total(4)}


def test_nothing_is_held_that_the_flush_did_not_meet():
    target = merged(also(lambda tree: tree.update_inventory("N0", {})), usages={N0: {"VGPU": 2}})
    assert target.tree.data(N0).inventory == {}


# --- invalid --------------------------------------------------------------------------------------


def test_an_inventory_with_a_wrong_record_stays_as_it_is_and_the_rest_goes_on():
    def wrong(tree):
        tree.update_inventory(
            ROOT, {"VCPU": total(9, reserved=20), "MEMORY_MB": total(1, min_unit=3)}
        )
        tree.add_traits(ROOT, "HW_NEW")
        tree.update_inventory("N0", {"VGPU": total(5)})

    target = merged(also(wrong))
    assert tuple(one.message for one in target.invalid) == (
        "provider 'node-a': VCPU: reserved 20 is above total 9",
        "provider 'node-a': MEMORY_MB: min_unit 3 is above max_unit 1",
    )
    assert target.tree.data(ROOT).inventory == present().data(ROOT).inventory
    assert target.tree.has_traits(ROOT, ["HW_NEW"])
    assert target.tree.data(N0).inventory == {"VGPU": total(5)}
    assert target.journal.of(ROOT).classes == JOURNAL.of(ROOT).classes


def test_a_new_provider_with_a_wrong_record_comes_without_inventory():
    def wrong(tree):
        tree.new_child("GPU", ROOT)
        tree.update_inventory("GPU", {"VGPU": {"totl": 1}, "vgpu": total(1)})

    target = merged(also(wrong))
    assert target.tree.data("GPU").inventory == {}
    assert [one.message.partition(": ")[2] for one in target.invalid] == [
        "VGPU: unknown field totl",
        "VGPU: total is None, not a whole number from 1 to 2147483647",
        "resource class 'vgpu' is not made of A-Z, 0-9 and _",
    ]


@pytest.mark.parametrize(
    ("name", "uuid", "text"),
    [
        (
            "n" * 201,
            None,
            f"provider '{'n' * 60}'...: its name has 201 characters, Placement takes 1 to 200",
        ),
        ("", None, "provider ''...: its name has 0 characters, Placement takes 1 to 200"),
        ("GPU", "gpu-0", "provider 'GPU': 'gpu-0' is no uuid"),
    ],
)
def test_a_provider_that_placement_could_not_take_is_left_out_with_all_below_it(name, uuid, text):
    def add(tree):
        made = tree.new_child(name, ROOT, uuid)
        tree.insert(
            dataclasses.replace(
                tree.provider(made), uuid=OTHER_UUID, name="below", parent_uuid=made
            )
        )

    target = merged(also(add))
    assert tuple(one.message for one in target.invalid) == (text,)
    assert target.tree.get_provider_uuids() == [ROOT, N0, BW]


def test_a_provider_of_ours_stays_as_it_is_when_its_new_name_cannot_be():
    tree = tree_in_placement()
    tree.remove(BW)
    target = merged(also(lambda tree: tree.rename(N0, "n" * 201)), found=view(tree), whole=True)
    assert target.tree.data(N0) == tree.data(N0)
    assert len(target.invalid) == 1
    assert target.journal.of(N0) == JOURNAL.of(N0)


def test_an_aggregate_that_is_no_uuid_is_left_out():
    target = merged(also(lambda tree: tree.add_aggregates(ROOT, "rack-7", OTHER_UUID.upper())))
    assert tuple(one.message for one in target.invalid) == (
        "provider 'node-a': aggregate 'rack-7' is no uuid",
    )
    assert target.tree.data(ROOT).aggregates == {OURS_AGGREGATE, THEIR_AGGREGATE, OTHER_UUID}


def test_names_in_messages_are_printable():
    tree = tree_in_placement()
    tree.rename(BW, "B\nW")
    details = [one.detail for one in merged(same, found=view(tree)).drift]
    assert details == ["B\\nW was put there by somebody else"]
