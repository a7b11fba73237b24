"""The operations that drivers written for nova use."""

import pytest

from agent.model.names import child_uuid
from agent.model.provider_tree import SHARING_TRAIT, ProviderTree, TreeDifference, compare_trees
from tests.unit.model.trees import (
    AGGREGATE,
    FREE_UUID,
    N0,
    N1,
    OTHER_AGGREGATE,
    PF0,
    ROOT,
    STORAGE,
    forest,
    row,
    state,
)

CALLS = {
    "new_child": lambda tree, n: tree.new_child("x", n),
    "remove": lambda tree, n: tree.remove(n),
    "data": lambda tree, n: tree.data(n),
    "provider": lambda tree, n: tree.provider(n),
    "name_of": lambda tree, n: tree.name_of(n),
    "root_of": lambda tree, n: tree.root_of(n),
    "depth": lambda tree, n: tree.depth(n),
    "children": lambda tree, n: tree.children(n),
    "get_provider_uuids": lambda tree, n: tree.get_provider_uuids(n),
    "get_provider_uuids_in_tree": lambda tree, n: tree.get_provider_uuids_in_tree(n),
    "rename": lambda tree, n: tree.rename(n, "x"),
    "reparent": lambda tree, n: tree.reparent(n, ROOT),
    "reparent to": lambda tree, n: tree.reparent(N1, n),
    "set_generation": lambda tree, n: tree.set_generation(n, 1),
    "has_inventory": lambda tree, n: tree.has_inventory(n),
    "has_inventory_changed": lambda tree, n: tree.has_inventory_changed(n, {}),
    "update_inventory": lambda tree, n: tree.update_inventory(n, {}),
    "has_traits": lambda tree, n: tree.has_traits(n, []),
    "have_traits_changed": lambda tree, n: tree.have_traits_changed(n, []),
    "update_traits": lambda tree, n: tree.update_traits(n, []),
    "add_traits": lambda tree, n: tree.add_traits(n, "HW_A"),
    "remove_traits": lambda tree, n: tree.remove_traits(n, "HW_A"),
    "in_aggregates": lambda tree, n: tree.in_aggregates(n, []),
    "have_aggregates_changed": lambda tree, n: tree.have_aggregates_changed(n, []),
    "update_aggregates": lambda tree, n: tree.update_aggregates(n, []),
    "add_aggregates": lambda tree, n: tree.add_aggregates(n, AGGREGATE),
    "remove_aggregates": lambda tree, n: tree.remove_aggregates(n, AGGREGATE),
    "update_resources": lambda tree, n: tree.update_resources(n, {}),
    "subtree": lambda tree, n: tree.subtree(n),
    "scoped": lambda tree, n: tree.scoped(n),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("unknown", ["nobody", FREE_UUID, ""])
def test_an_unknown_provider_is_refused_by_every_method(name, unknown):
    tree = forest()
    before = state(tree)
    with pytest.raises(ValueError, match="no provider"):
        CALLS[name](tree, unknown)
    assert state(tree) == before


# --- looking up -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["N0", N0, N0.upper(), N0.replace("-", "")])
def test_every_lookup_takes_a_name_or_a_uuid_in_any_spelling(key):
    tree = forest()
    assert tree.exists(key)
    assert key in tree
    assert tree.data(key).uuid == N0


def test_enumerations_put_parents_before_their_children_and_children_in_the_order_they_came():
    tree = forest()
    assert tree.get_provider_uuids() == [ROOT, N0, PF0, N1, STORAGE]
    assert tree.get_provider_uuids("N0") == [N0, PF0]
    assert tree.get_provider_uuids_in_tree("PF0") == [ROOT, N0, PF0, N1]
    assert [provider.name for provider in tree.providers()] == [
        "node-a",
        "N0",
        "PF0",
        "N1",
        "storage",
    ]
    assert [root.name for root in tree.roots] == ["node-a", "storage"]
    assert tree.children("node-a") == [N0, N1]
    assert (tree.root_of("PF0"), tree.depth("PF0"), tree.depth(ROOT), tree.name_of(PF0)) == (
        ROOT,
        2,
        0,
        "PF0",
    )


def test_editing_what_was_handed_out_does_not_change_the_tree():
    tree = forest()
    tree.update_resources(ROOT, {"CUSTOM_PMEM": {"ns0"}})
    before = state(tree)
    data = tree.data(ROOT)
    data.inventory["VCPU"]["total"] = 1
    data.inventory["PCPU"] = {}
    data.traits.add("HW_NEW")
    data.aggregates.clear()
    data.resources["CUSTOM_PMEM"].add("ns1")
    data.resources["OTHER"] = set()
    assert state(tree) == before


def test_editing_what_was_handed_in_does_not_change_the_tree():
    tree = forest()
    inventory, traits, aggregates, resources = (
        {"PCPU": {"total": 2}},
        {"HW_A"},
        {OTHER_AGGREGATE},
        {"CUSTOM_PMEM": {"ns0"}},
    )
    tree.update_inventory(N0, inventory)
    tree.update_traits(N0, traits)
    tree.update_aggregates(N0, aggregates)
    tree.update_resources(N0, resources)
    before = state(tree)
    inventory["PCPU"]["total"] = 5
    traits.add("HW_B")
    aggregates.clear()
    resources["CUSTOM_PMEM"].add("ns1")
    assert state(tree) == before


# --- building -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        ("node-a", FREE_UUID),
        ("new", ROOT),
        ("new", ROOT.upper()),
        ("new", N0),
        ("PF0", FREE_UUID),
        (ROOT, FREE_UUID),
    ],
)
def test_names_and_uuids_are_unique_in_the_whole_forest(name, uuid):
    for add in (
        lambda tree: tree.new_root(name, uuid),
        lambda tree: tree.new_child(name, "storage", uuid),
    ):
        tree = forest()
        before = state(tree)
        with pytest.raises(ValueError, match="already in the tree"):
            add(tree)
        assert state(tree) == before


def test_no_uuid_may_be_the_name_of_another_provider():
    tree = forest()
    tree.new_child(FREE_UUID, ROOT)
    with pytest.raises(ValueError, match="already in the tree"):
        tree.new_child("x", ROOT, FREE_UUID)


def test_a_child_without_a_uuid_gets_one_made_of_the_roots_uuid_and_its_name():
    tree = forest()
    assert tree.new_child("VF", "PF0") == child_uuid(ROOT, "VF")
    assert tree.data("VF").parent_uuid == PF0


def test_a_child_that_somebody_renamed_gets_its_name_and_place_back():
    tree = forest()
    made = tree.new_child("GPU", "N0")
    tree.add_traits(made, "HW_GPU")
    tree.rename(made, "GPU-renamed")
    tree.reparent(made, "N1")
    assert tree.new_child("GPU", "N0") == made
    data = tree.data("GPU")
    assert (data.parent_uuid, data.traits) == (N0, {"HW_GPU"})
    assert not tree.exists("GPU-renamed")


def test_a_renamed_child_that_cannot_have_its_place_back_keeps_its_name_too():
    tree = forest()
    made = tree.new_child("GPU", "N0")
    tree.rename(made, "GPU-renamed")
    below = tree.new_child("below", made)
    before = state(tree)
    with pytest.raises(ValueError, match="cannot become its parent"):
        tree.new_child("GPU", below)
    assert state(tree) == before


def test_a_removed_child_that_comes_again_by_its_name_has_its_old_uuid_in_a_drivers_tree():
    tree = forest().scoped(ROOT)
    tree.remove("N0")
    assert tree.new_child("N0", "node-a") == N0
    assert tree.new_child("PF0", "N0") == PF0
    assert tree.data("PF0").generation is None


@pytest.mark.parametrize("name", ["N1", N1, "storage"])
def test_a_taken_name_is_refused_and_nothing_changes(name):
    tree = forest()
    before = state(tree)
    with pytest.raises(ValueError, match="already in the tree"):
        tree.rename("N0", name)
    assert state(tree) == before
    assert tree.data("N0").uuid == N0


@pytest.mark.parametrize("parent", ["N0", "PF0"])
def test_a_provider_cannot_move_below_itself(parent):
    tree = forest()
    before = state(tree)
    with pytest.raises(ValueError, match="lies below"):
        tree.reparent("N0", parent)
    assert state(tree) == before


# --- populate_from_iterable -----------------------------------------------------------------------


def test_a_replaced_provider_loses_its_contents_and_every_descendant_that_is_not_among_the_rows():
    tree = forest()
    tree.add_traits("N0", "HW_NUMA_ROOT")
    tree.populate_from_iterable([row(N0, "N0", ROOT, 8)])
    assert tree.data("N0").traits == set()
    assert tree.data("N0").generation == 8
    assert not tree.exists("PF0")
    assert tree.data(ROOT).traits == {"COMPUTE_NODE"}
    assert tree.exists("N1")


def test_two_rows_may_swap_their_names():
    tree = forest()
    tree.populate_from_iterable([row(N0, "N1", ROOT), row(N1, "N0", ROOT)])
    assert (tree.name_of(N0), tree.name_of(N1)) == ("N1", "N0")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            [row(FREE_UUID, "ok", ROOT), row(PF0, "PF0", "5f9c2a34-7d1e-4a8b-9c46-0000000000ee")],
            "no provider",
        ),
        ([row(N0, "N0", PF0), row(PF0, "PF0", N0)], "form a cycle"),
        ([row(N0, "N0", N0)], "form a cycle"),
        ([row(N0, "N0", PF0)], "no provider"),
        ([row(FREE_UUID, "ok", ROOT), row(PF0, "N1", N0)], "already in the tree"),
        ([row(FREE_UUID, "twin", ROOT), row(PF0, "twin", N0)], "already in the tree"),
    ],
)
def test_of_rows_that_cannot_be_none_is_taken(rows, text):
    tree = forest()
    before = state(tree)
    with pytest.raises(ValueError, match=text):
        tree.populate_from_iterable(rows)
    assert state(tree) == before


# --- contents -------------------------------------------------------------------------------------


def test_an_inventory_is_replaced_only_if_it_changed():
    tree = forest()
    assert tree.has_inventory(ROOT)
    assert not tree.has_inventory("N0")
    assert not tree.has_inventory_changed(ROOT, {"VCPU": {"total": 16}})
    assert not tree.update_inventory(ROOT, {"VCPU": {"total": 16}})
    assert tree.data(ROOT).inventory["VCPU"]["allocation_ratio"] == 4.0
    assert tree.update_inventory(ROOT, {"VCPU": {"total": 17}})
    assert tree.data(ROOT).inventory == {"VCPU": {"total": 17}}
    assert tree.update_inventory(ROOT, None)
    assert not tree.has_inventory(ROOT)
    assert not tree.has_inventory_changed(ROOT, None)


@pytest.mark.parametrize(
    ("update", "same", "other"),
    [
        ("update_inventory", {"VCPU": {"total": 16}}, {}),
        ("update_traits", ["COMPUTE_NODE"], []),
        ("update_aggregates", [AGGREGATE], []),
    ],
)
def test_a_generation_is_stored_even_if_nothing_changed_and_is_never_made_up(update, same, other):
    tree = forest()
    assert not getattr(tree, update)(ROOT, same, 8)
    assert tree.data(ROOT).generation == 8
    assert getattr(tree, update)(ROOT, other)
    assert tree.data(ROOT).generation == 8
    tree.set_generation(ROOT, 11)
    assert tree.data(ROOT).generation == 11


def test_aggregates_are_a_set_in_normal_form():
    tree = forest()
    loud = OTHER_AGGREGATE.upper()
    assert tree.update_aggregates("N0", [loud, OTHER_AGGREGATE])
    assert tree.data("N0").aggregates == {OTHER_AGGREGATE}
    assert not tree.have_aggregates_changed("N0", [loud.replace("-", "")])
    assert tree.have_aggregates_changed("N0", [AGGREGATE])
    assert tree.in_aggregates("N0", [loud])
    assert not tree.in_aggregates("N0", [loud, AGGREGATE])
    assert tree.in_aggregates("N0", [])
    tree.add_aggregates("N0", AGGREGATE.upper())
    tree.remove_aggregates("N0", loud)
    assert tree.data("N0").aggregates == {AGGREGATE}
    assert tree.data("N0").generation == 3


# --- copies of a tree share what did not change and never what does; a frozen or shared provider refuses every edit ---


EDITS = {
    "new_child": lambda tree, n: tree.new_child("x", n),
    "remove": lambda tree, n: tree.remove(n),
    "rename": lambda tree, n: tree.rename(n, "x"),
    "reparent": lambda tree, n: tree.reparent(n, "N1"),
    "reparent below": lambda tree, n: tree.reparent("N1", n),
    "populate": lambda tree, n: tree.populate_from_iterable([row(tree.data(n).uuid, "x")]),
    "populate below": lambda tree, n: tree.populate_from_iterable(
        [row(FREE_UUID, "x", tree.data(n).uuid)]
    ),
    "insert": lambda tree, n: tree.insert(
        type(tree.provider(n))(FREE_UUID, "x", None, tree.data(n).uuid)
    ),
    "replace": lambda tree, n: tree.replace(tree.data(n)),
    "set_generation": lambda tree, n: tree.set_generation(n, 1),
    "update_inventory": lambda tree, n: tree.update_inventory(n, {}),
    "update_traits": lambda tree, n: tree.update_traits(n, []),
    "add_traits": lambda tree, n: tree.add_traits(n, "HW_A"),
    "remove_traits": lambda tree, n: tree.remove_traits(n, "HW_A"),
    "update_aggregates": lambda tree, n: tree.update_aggregates(n, []),
    "add_aggregates": lambda tree, n: tree.add_aggregates(n, OTHER_AGGREGATE),
    "remove_aggregates": lambda tree, n: tree.remove_aggregates(n, AGGREGATE),
    "update_resources": lambda tree, n: tree.update_resources(n, {}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_frozen_tree_refuses_every_edit(edit):
    tree = forest()
    assert tree.freeze() is tree
    before = state(tree)
    with pytest.raises(ValueError, match="frozen"):
        EDITS[edit](tree, "N0")
    assert state(tree) == before
    assert tree.data("N0").uuid == N0


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_a_copy_or_of_the_original_is_not_seen_by_the_other(edit):
    tree = forest()
    before, copy = state(tree), tree.copy()
    EDITS[edit](copy, "N0")
    assert state(tree) == before
    edited = state(copy)
    EDITS[edit](tree, "N0")
    tree.remove(ROOT)
    assert state(copy) == edited


def test_a_copy_shares_what_did_not_change():
    tree = forest()
    copy = tree.copy()
    copy.add_traits("N0", "HW_NUMA_ROOT")
    assert [
        uuid for uuid in tree.get_provider_uuids() if copy.provider(uuid) is not tree.provider(uuid)
    ] == [N0]


# --- subtrees -------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [ProviderTree.subtree, ProviderTree.scoped])
def test_only_a_root_has_a_tree_of_its_own(made):
    with pytest.raises(ValueError, match="is not a root"):
        made(forest(), "N0")


def test_a_drivers_tree_shows_the_roots_that_share_with_it():
    tree = forest().scoped("node-a")
    assert tree.get_provider_uuids() == [ROOT, N0, PF0, N1, STORAGE]
    assert tree.has_sharing_provider("DISK_GB")
    assert tree.read_only == {STORAGE}


def test_a_root_shares_only_by_its_trait_and_a_common_aggregate():
    apart = forest()
    apart.update_aggregates(STORAGE, [OTHER_AGGREGATE])
    assert apart.scoped(ROOT).get_provider_uuids() == [ROOT, N0, PF0, N1]
    apart.update_aggregates(PF0, [OTHER_AGGREGATE])
    assert apart.scoped(ROOT).read_only == {STORAGE}
    apart.remove_traits(STORAGE, SHARING_TRAIT)
    assert apart.scoped(ROOT).read_only == frozenset()


@pytest.mark.parametrize("edit", EDITS)
def test_a_root_that_only_shares_refuses_every_edit(edit):
    tree = forest().scoped(ROOT)
    before = state(tree)
    with pytest.raises(ValueError, match="shared from outside"):
        EDITS[edit](tree, "storage")
    assert state(tree) == before


# --- more ---


NOTHING = TreeDifference((), (), (), (), (), (), ())


def changed(edit) -> TreeDifference:
    tree = forest()
    edit(tree)
    return compare_trees(forest(), tree)


def test_a_generation_and_local_resources_are_no_difference():
    def edit(tree):
        tree.set_generation(ROOT, 99)
        tree.update_resources(ROOT, {"CUSTOM_PMEM": {"ns0"}})

    assert changed(edit) == NOTHING


def test_a_sparse_record_that_says_the_same_is_no_difference():
    assert changed(lambda tree: tree.replace(sparse(tree))) == NOTHING


def sparse(tree):
    other = ProviderTree()
    other.new_root("node-a", ROOT)
    other.update_inventory(ROOT, {"VCPU": {"total": 16}})
    other.update_traits(ROOT, tree.provider(ROOT).traits)
    other.update_aggregates(ROOT, tree.provider(ROOT).aggregates)
    return other.provider(ROOT)
