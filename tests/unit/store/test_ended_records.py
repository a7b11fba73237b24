"""Records of what ended long ago, and what still refers to them."""

from dataclasses import replace

from agent.model.mirror import Journal, Ownership
from agent.model.node_records import Lease, RecordChanges
from agent.store.record_table import METADATA
from agent.store.records import Records
from agent.store.tables import CLAIM, INSTANCE, MIGRATION
from tests.support.store_place import Place
from tests.unit.store.record_samples import claim, device, instance, migration, node, write
from tests.unit.store.trees import ENDPOINT, node_view

NOW = 1_000_000.0


def test_what_ended_long_ago_goes_and_what_is_open_or_recent_stays(records: Records) -> None:
    here, guest = node(), instance(deleted=True, updated_at=1.0)
    move = migration(guest, status="confirmed", updated_at=1.0)
    over = claim(guest, here, state="released", updated_at=1.0, migration=None, origin=move.uuid)
    write(
        records,
        RecordChanges(nodes=(here,), instances=(guest,), migrations=(move,), claims=(over,)),
    )
    assert records.remove_ended(1.0) == 0
    assert records.remove_ended(NOW) == 3
    with records.reading() as reading:
        assert (
            reading.claim(over.id),
            reading.migration(move.uuid),
            reading.instance(guest.uuid),
        ) == (None, None, None)


def test_no_row_that_goes_has_all_others_looked_through_for_what_refers_to_it() -> None:
    unpartial = {
        index.columns[0]
        for table in METADATA.tables.values()
        for index in table.indexes
        if index.dialect_kwargs.get("sqlite_where") is None
    }
    unindexed = [
        str(key.parent)
        for table in METADATA.tables.values()
        for key in table.foreign_keys
        if key.column.table in (CLAIM, INSTANCE, MIGRATION) and key.parent not in unpartial
    ]
    assert unindexed == []


def test_what_came_to_nothing_long_ago_goes_too(records: Records) -> None:
    here = node()
    guest = instance(node=here.uuid, updated_at=1.0)
    nowhere = {"host": None, "node": None, "updated_at": 1.0}
    failed = [instance(vm_state=state, **nowhere) for state in ("building", "error", "deleted")]
    shelved = instance(vm_state="shelved_offloaded", **nowhere)
    recent = instance(vm_state="error", **{**nowhere, "updated_at": NOW})
    lost = migration(guest, status="error", updated_at=1.0)
    write(
        records,
        RecordChanges(
            nodes=(here,), instances=(guest, *failed, shelved, recent), migrations=(lost,)
        ),
    )
    assert records.remove_ended(NOW) == 4
    with records.reading() as reading:
        assert reading.migration(lost.uuid) is None
        assert all(reading.instance(one.uuid) is None for one in failed)
        assert None not in [reading.instance(one.uuid) for one in (guest, shelved, recent)]


def test_the_origin_of_an_open_claim_stays(records: Records) -> None:
    here, guest = node(), instance(updated_at=1.0)
    move = migration(guest, status="confirmed", updated_at=1.0)
    held = claim(guest, here, state="consumed", updated_at=1.0, migration=None, origin=move.uuid)
    write(
        records,
        RecordChanges(nodes=(here,), instances=(guest,), migrations=(move,), claims=(held,)),
    )
    assert records.remove_ended(NOW) == 0
    with records.reading() as reading:
        assert reading.migration(move.uuid) == replace(move, version=1)


def test_all_that_is_remembered_of_a_node_that_is_no_more_goes_with_it(place: Place) -> None:
    gone, used, stays, free = (
        node(deleted=True, updated_at=1.0),
        node("n2", deleted=True, updated_at=1.0),
        node("n3", updated_at=1.0),
        node("n4"),
    )
    with place.open() as store:
        records = Records(store)
        leases = tuple(
            Lease(node=one.uuid, host="h1", expires_at=1.0) for one in (gone, used, stays)
        )
        write(
            records,
            RecordChanges(
                nodes=(gone, used, stays, free),
                devices=(device(gone), device(stays)),
                leases=leases,
            ),
        )
        for one in (gone, used, stays):
            store.save_view(ENDPOINT, one.uuid, None, node_view())
            store.save_journal(one.uuid, Journal({one.uuid: Ownership()}))
        # Somebody still has what the other one was.
        store.save_journal(gone.uuid, replace(store.journal(gone.uuid), providers={}))
        assert records.remove_ended(1.0) == 0
        assert records.remove_ended(NOW) == 5
        assert {root for _, root in store.views()} == {used.uuid, stays.uuid}
        assert (store.journal(gone.uuid).version, store.journal(used.uuid).owns(used.uuid)) == (
            0,
            True,
        )
        with records.reading() as reading:
            assert [reading.node(one.uuid) is None for one in (gone, used, stays, free)] == [
                True,
                False,
                False,
                False,
            ]
            assert [reading.lease(one.uuid) is None for one in (gone, used, stays)] == [
                True,
                False,
                False,
            ]
        # It may come back.
        write(records, RecordChanges(nodes=(node(),)))
        assert store.save_journal(gone.uuid, Journal({gone.uuid: Ownership()})).version == 1
