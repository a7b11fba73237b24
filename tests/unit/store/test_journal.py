"""The ownership journal, and what is known of servers, in the store."""

from dataclasses import replace

import pytest

from agent.errors import RecordConflict
from agent.model.mirror import Configured, Journal, Ownership
from agent.model.node_records import RecordChanges
from agent.store.records import Records
from agent.store.store import Store
from tests.support.store_place import Place
from tests.unit.store.record_samples import grown, node, write
from tests.unit.store.trees import ROOT, uuid_of

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


def test_an_equal_journal_is_not_written(place: Place) -> None:
    with place.open() as store:
        store.save_journal(ROOT, JOURNAL)
    with place.open() as store, place.write_locked():
        store.save_journal(ROOT, JOURNAL)


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
