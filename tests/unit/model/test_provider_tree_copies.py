"""Copies of a tree share what did not change and never what does; a frozen or shared provider
refuses every edit.
"""

import pytest

from agent.model.provider import SHARING_TRAIT
from agent.model.provider_tree import ProviderTree
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
