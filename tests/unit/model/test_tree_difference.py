from agent.model.names import child_uuid
from agent.model.provider_tree import ProviderTree, TreeDifference, compare_trees
from tests.unit.model.trees import AGGREGATE, N0, N1, PF0, ROOT, STORAGE, forest

NOTHING = TreeDifference((), (), (), (), (), (), ())


def changed(edit) -> TreeDifference:
    tree = forest()
    edit(tree)
    return compare_trees(forest(), tree)


def test_everything_is_new_parents_first_and_contents_children_first():
    changes = compare_trees(ProviderTree(), forest())
    assert changes.added == (ROOT, N0, PF0, N1, STORAGE)
    assert changes.inventory == changes.traits == changes.aggregates == (STORAGE, ROOT)
    assert (changes.removed, changes.renamed, changes.reparented) == ((), (), ())


def test_everything_is_gone_children_first():
    assert compare_trees(forest(), ProviderTree()) == TreeDifference(
        (), (STORAGE, N1, PF0, N0, ROOT), (), (), (), (), ()
    )


def test_each_kind_of_change_shows_in_its_own_field():
    assert changed(lambda tree: tree.rename("N0", "cell")) == TreeDifference(
        (), (), (N0,), (), (), (), ()
    )
    assert changed(lambda tree: tree.reparent("PF0", "N1")) == TreeDifference(
        (), (), (), (PF0,), (), (), ()
    )
    assert changed(
        lambda tree: tree.update_inventory(PF0, {"VGPU": {"total": 1}})
    ) == TreeDifference((), (), (), (), (PF0,), (), ())
    assert changed(lambda tree: tree.add_traits(N0, "HW_A")) == TreeDifference(
        (), (), (), (), (), (N0,), ()
    )
    assert changed(lambda tree: tree.remove_aggregates(ROOT, AGGREGATE)) == TreeDifference(
        (), (), (), (), (), (), (ROOT,)
    )


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


def test_the_children_of_a_removed_provider_go_first():
    assert changed(lambda tree: tree.remove("N0")).removed == (PF0, N0)


def test_a_child_that_becomes_the_parent_of_its_parent_moves_first():
    def turn_over(tree):
        tree.reparent("PF0", "node-a")
        tree.reparent("N0", "PF0")

    assert changed(turn_over).reparented == (PF0, N0)


def test_a_new_child_shows_with_its_contents():
    changes = changed(lambda tree: tree.add_traits(tree.new_child("GPU", "N1"), "HW_GPU"))
    made = child_uuid(ROOT, "GPU")
    assert (changes.added, changes.traits, changes.inventory) == ((made,), (made,), ())
