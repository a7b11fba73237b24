"""Properties of any tree: copies are independent, rows come in any order, a difference is empty
only between equals.
"""

import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.inventory import completed
from agent.model.provider_tree import ProviderTree, compare_trees
from tests.unit.model.trees import state

TRAITS = ["HW_A", "HW_B", "CUSTOM_C"]
AGGREGATES = [str(uuid.UUID(int=number)) for number in (1, 2)]
CONTENTS = st.fixed_dictionaries(
    {
        "inventory": st.dictionaries(
            st.sampled_from(["VCPU", "CUSTOM_A"]),
            st.builds(lambda total: completed({"total": total}), st.integers(1, 3)),
            max_size=2,
        ),
        "traits": st.sets(st.sampled_from(TRAITS)),
        "aggregates": st.sets(st.sampled_from(AGGREGATES)),
    }
)
# One number a provider: 0 makes it a root, any other says how far back its parent came.
SHAPES = st.lists(st.tuples(st.integers(0, 4), CONTENTS), max_size=8)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "rename", "reparent", "contents"]),
        st.integers(0, 9),
        st.integers(0, 9),
        CONTENTS,
    ),
    max_size=6,
)


def identifier(number: int) -> str:
    return str(uuid.UUID(int=1000 + number))


def grown(shape) -> ProviderTree:
    tree = ProviderTree()
    for number, (back, contents) in enumerate(shape):
        if back == 0 or number == 0:
            tree.new_root(f"p{number}", identifier(number), number)
        else:
            tree.new_child(
                f"p{number}", identifier(max(0, number - back)), identifier(number), number
            )
        fill(tree, identifier(number), contents)
    return tree


def fill(tree: ProviderTree, one: str, contents) -> None:
    tree.update_inventory(one, contents["inventory"])
    tree.update_traits(one, contents["traits"])
    tree.update_aggregates(one, contents["aggregates"])


def edited(tree: ProviderTree, edits) -> None:
    """Edit ``tree``; an edit that makes no sense there is refused and leaves it as it was."""
    for number, (kind, first, second, contents) in enumerate(edits):
        before = state(tree)
        try:
            if kind == "add":
                tree.new_child(f"new{number}", identifier(first))
            elif kind == "remove":
                tree.remove(identifier(first))
            elif kind == "rename":
                tree.rename(identifier(first), f"p{second}")
            elif kind == "reparent":
                tree.reparent(identifier(first), identifier(second))
            else:
                fill(tree, identifier(first), contents)
        except ValueError:
            assert state(tree) == before


def sound(tree: ProviderTree) -> None:
    """The invariants of placement.md 2.1."""
    seen: set[str] = set()
    for uuid_ in tree.get_provider_uuids():
        one = tree.provider(uuid_)
        assert one.parent_uuid is None or one.parent_uuid in seen
        assert tree.provider(one.name) is one
        seen.add(uuid_)
    names = [provider.name for provider in tree.providers()]
    assert len(seen) == len(set(names)) == len(tree)
    assert not seen & set(names)
    assert [root.uuid for root in tree.roots] == [
        provider.uuid for provider in tree.providers() if provider.parent_uuid is None
    ]


@given(SHAPES, EDITS)
@settings(max_examples=60)
def test_edits_keep_a_tree_sound_and_do_not_reach_its_copies(shape, edits):
    tree = grown(shape)
    before, copy = state(tree), tree.copy()
    edited(copy, edits)
    sound(copy)
    assert state(tree) == before
    after = state(copy)
    edited(tree, list(reversed(edits)))
    sound(tree)
    assert state(copy) == after


@given(SHAPES, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_rows_make_the_same_tree_in_any_order(shape, random):
    tree = grown(shape)
    rows = [
        {
            "uuid": provider.uuid,
            "name": provider.name,
            "generation": provider.generation,
            "parent_provider_uuid": provider.parent_uuid,
        }
        for provider in tree.providers()
    ]
    random.shuffle(rows)
    built = ProviderTree()
    built.populate_from_iterable(rows)
    sound(built)
    structure = {
        (provider.uuid, provider.name, provider.generation, provider.parent_uuid)
        for provider in tree.providers()
    }
    assert {
        (provider.uuid, provider.name, provider.generation, provider.parent_uuid)
        for provider in built.providers()
    } == structure


@given(SHAPES, SHAPES, EDITS)
@settings(max_examples=100)
def test_a_difference_is_empty_only_between_equals(shape, other_shape, edits):
    tree = grown(shape)
    near, far = tree.copy(), grown(other_shape)
    edited(near, edits)

    def contents(one: ProviderTree):
        return {
            (
                p.uuid,
                p.name,
                p.parent_uuid,
                str(sorted(p.inventory.items())),
                p.traits,
                p.aggregates,
            )
            for p in one.providers()
        }

    for other in (near, far):
        assert (
            bool(compare_trees(tree, other))
            is bool(compare_trees(other, tree))
            is (contents(tree) != contents(other))
        )


@given(SHAPES, EDITS)
@settings(max_examples=100)
def test_a_difference_applied_in_its_order_gives_the_other_tree(shape, edits):
    current, desired = grown(shape), grown(shape)
    edited(desired, edits)
    changes = compare_trees(current, desired)
    for one in changes.added:
        new = desired.provider(one)
        current.new_child(f"{one} for now", new.parent_uuid, one)
    for one in changes.reparented:
        current.reparent(one, desired.provider(one).parent_uuid)
    for one in changes.removed:
        assert not current.children(one)
        current.remove(one)
    for one in (*changes.renamed, *changes.added):
        current.rename(one, f"{one} for now")
    for one in (*changes.renamed, *changes.added):
        current.rename(one, desired.provider(one).name)
    for one in {*changes.inventory, *changes.traits, *changes.aggregates}:
        current.replace(desired.provider(one))
    assert not compare_trees(current, desired)
