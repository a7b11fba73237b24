"""The mirror in the store."""

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import RecordConflict, StoreError
from agent.model.mirror import Configured, Journal, Ownership, PlacementView
from agent.model.node_records import RecordChanges
from agent.model.provider_tree import ProviderTree
from agent.store.records import Records
from agent.store.store import Store, open_store
from tests.support.store_place import Place
from tests.unit.store.record_samples import grown, node, write
from tests.unit.store.trees import (
    ENDPOINT,
    ROOT,
    contents,
    node_view,
    provider,
    tree_of,
    uuid_of,
    view_of,
)


def test_a_view_comes_back_as_it_was_after_a_restart(place: Place) -> None:
    view = replace(
        node_view(), sharing_read_at=1.5, sharing_aggregates=frozenset({uuid_of("shared")})
    )
    with place.open() as store:
        store.save_view(ENDPOINT, ROOT, None, view)
    with place.open() as store:
        loaded = store.view(ENDPOINT, ROOT)
    assert contents(loaded) == contents(view)
    assert loaded is not None
    with pytest.raises(ValueError, match="frozen"):
        loaded.tree.new_root("another", uuid_of("another"))


def test_awkward_contents_come_back_as_they_were(store: Store) -> None:
    name = "näme with\n'quotes' & # 中文 \x00" + "x" * 200
    one = replace(
        provider("root", None),
        name=name,
        generation=None,
        inventory={"CUSTOM_A": {"total": 2147483647, "allocation_ratio": 0.1}},
    )
    view = PlacementView(tree_of(one, provider("no generation")), {})
    store.save_view(ENDPOINT, ROOT, None, view)
    assert contents(store.view(ENDPOINT, ROOT)) == contents(view)


def test_local_resources_are_not_kept(store: Store) -> None:
    tree = tree_of(replace(provider("root", None), resources={"CUSTOM_PMEM": {"a", "b"}}))
    store.save_view(ENDPOINT, ROOT, None, PlacementView(tree))
    loaded = store.view(ENDPOINT, ROOT)
    assert loaded is not None
    assert loaded.tree.provider(ROOT).resources == {}


def test_an_equal_view_is_not_written(place: Place, store: Store) -> None:
    store.save_view(ENDPOINT, ROOT, None, node_view())
    with place.write_locked():
        store.save_view(ENDPOINT, ROOT, node_view(), node_view())


def test_a_change_of_the_sharing_question_alone_is_kept(store: Store) -> None:
    old = node_view()
    new = replace(old, sharing_read_at=3.25, sharing_aggregates=frozenset({uuid_of("a")}))
    store.save_view(ENDPOINT, ROOT, None, old)
    store.save_view(ENDPOINT, ROOT, old, new)
    assert contents(store.view(ENDPOINT, ROOT)) == contents(new)


def test_an_old_view_that_is_not_what_is_there_does_no_harm(store: Store) -> None:
    store.save_view(ENDPOINT, ROOT, None, node_view(cells=9))
    store.save_view(ENDPOINT, ROOT, node_view(cells=4), node_view(cells=5, generation=7))
    assert contents(store.view(ENDPOINT, ROOT)) == contents(node_view(cells=5, generation=7))


@pytest.mark.parametrize(
    "damage",
    [
        'replace(contents, \'"name":"cell 2"\', \'"name":"cell 1"\')',
        "replace(contents, '\"inventory\":{', '\"inventory\":[')",
        "replace(contents, '\"aggregates\":[', '\"aggregates\":[1,')",
        "'{'",
    ],
    ids=["no tree", "another type", "another item", "no document"],
)
def test_text_of_another_form_is_reported_as_damage(
    place: Place, store: Store, damage: str
) -> None:
    store.save_view(ENDPOINT, ROOT, None, node_view())
    place.execute(f"UPDATE mirror SET contents = {damage}")
    with pytest.raises(StoreError, match=r"the store .* is damaged.*db set-aside"):
        store.view(ENDPOINT, ROOT)


def _edited(tree: ProviderTree, chance: random.Random) -> ProviderTree:
    """The tree after one edit of any kind that leaves the node's root."""
    work = tree.copy()
    below = [uuid for uuid in work.get_provider_uuids() if uuid != ROOT]
    kind = chance.choice(
        ["add", "remove", "move", "content", "rename", "share"] if below else ["add", "share"]
    )
    parents = work.get_provider_uuids(ROOT)
    name = f"p{chance.randrange(10**9)}"
    if kind == "add":
        work.new_child(name, chance.choice(parents), uuid_of(name), 0)
    elif kind == "share":
        work.new_root(name, uuid_of(name), 0)
    elif kind == "remove":
        work.remove(chance.choice(below))
    elif kind == "content":
        work.update_inventory(
            chance.choice(below), {"VCPU": {"total": chance.randrange(9) + 1}}, chance.randrange(99)
        )
    elif kind == "rename":
        work.rename(chance.choice(below), name)
    else:
        moved = chance.choice(below)
        work.reparent(
            moved,
            chance.choice([uuid for uuid in parents if uuid not in work.get_provider_uuids(moved)]),
        )
    return work.freeze()


@pytest.mark.long
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), steps=st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_any_sequence_of_edits_comes_back_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: list[int]
) -> None:
    chance, view = random.Random(seed), view_of(provider("root", None))
    with open_store(tmp_path_factory.mktemp("edits")) as store:
        store.save_view(ENDPOINT, ROOT, None, view)
        for edits in steps:
            tree = view.tree
            for _ in range(edits):
                tree = _edited(tree, chance)
            new = PlacementView(tree, dict.fromkeys(tree.get_provider_uuids(), 1.0))
            store.save_view(ENDPOINT, ROOT, view, new)
            assert contents(store.view(ENDPOINT, ROOT)) == contents(new)
            view = new


# --- the ownership journal, and what is known of servers, in the store ---


OWNED = Ownership(
    frozenset({"VCPU", "MEMORY_MB"}), frozenset({"COMPUTE_NODE"}), frozenset({uuid_of("aggregate")})
)
JOURNAL = Journal(
    providers={ROOT: OWNED, uuid_of("cell"): Ownership()},
    adopted=True,
    held={uuid_of("cell"): frozenset({"VCPU"}), uuid_of("not ours"): frozenset()},
)


def test_every_kind_of_change_to_a_journal_is_kept(place: Place) -> None:
    changes = [
        Journal(),
        JOURNAL,
        replace(JOURNAL, adopted=False),
        replace(JOURNAL, held={}),
        replace(JOURNAL, providers={ROOT: replace(OWNED, traits=frozenset())}),
        replace(
            JOURNAL,
            providers={
                ROOT: replace(
                    OWNED, configured=Configured(frozenset({"CUSTOM_L"}), frozenset({"CUSTOM_A"}))
                )
            },
        ),
        replace(
            JOURNAL,
            providers={ROOT: replace(OWNED, configured=Configured(traits=frozenset({"CUSTOM_A"})))},
        ),
        replace(JOURNAL, providers={uuid_of("new"): OWNED}),
        replace(JOURNAL, providers={uuid_of("new"): replace(OWNED, role="k\0rt\u00e9")}),
        Journal(),
    ]
    with place.open() as store:
        for journal in changes:
            store.save_journal(ROOT, replace(journal, version=store.journal(ROOT).version))
            with place.open() as fresh:
                assert fresh.journal(ROOT) == journal


def test_a_journal_is_never_overwritten_by_one_that_was_made_of_an_older_version(
    place: Place,
) -> None:
    with place.open() as store, place.open() as other:
        first = store.save_journal(ROOT, JOURNAL)
        assert first.version == 1
        newer = other.save_journal(ROOT, replace(other.journal(ROOT), providers={ROOT: OWNED}))
        for older in (
            replace(first, held={}),
            replace(first, version=0, held={}),
            replace(first, version=3, held={}),
        ):
            with pytest.raises(RecordConflict):
                store.save_journal(ROOT, older)
        assert store.journal(ROOT) == newer
        assert store.save_journal(ROOT, replace(store.journal(ROOT), held={})).version == 3


def test_of_two_that_write_the_first_journal_of_a_node_one_is_told(place: Place) -> None:
    with place.open() as store, place.open() as other:
        ours, theirs = store.journal(ROOT), other.journal(ROOT)
        store.save_journal(ROOT, replace(ours, providers={ROOT: OWNED}))
        with pytest.raises(RecordConflict):
            other.save_journal(ROOT, replace(theirs, adopted=True))
        assert other.journal(ROOT) == Journal({ROOT: OWNED})


def test_the_roots_of_a_host_are_those_in_the_journals_but_for_other_hosts_nodes(
    store: Store,
) -> None:
    mine, moved, theirs = node(), node("n2"), node(host="h2")
    nobodys, empty = uuid_of("made before there were records"), uuid_of("empty")
    for root in (mine.uuid, moved.uuid, theirs.uuid, nobodys):
        store.save_journal(root, Journal({root: OWNED}))
    store.save_journal(empty, Journal(adopted=True))
    write(Records(store), RecordChanges(nodes=(mine, moved, theirs)))
    assert store.roots("h1") == {mine.uuid, moved.uuid, nobodys}
    write(Records(store), RecordChanges(nodes=(replace(grown(moved), host="h2"),)))
    assert (store.roots("h1"), store.roots("h2")) == (
        {mine.uuid, nobodys},
        {moved.uuid, theirs.uuid, nobodys},
    )
