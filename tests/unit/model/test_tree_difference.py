from agent.model.provider_tree import ProviderTree, TreeDifference, compare_trees
from tests.unit.model.trees import ROOT, forest

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
