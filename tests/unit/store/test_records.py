"""Records in and out of the store."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from agent.errors import RecordConflict, StoreError
from agent.model.mirror import Journal, Ownership
from agent.model.names import ConsumerUuid
from agent.model.node_records import DamagedRecord, Lease, RecordChanges
from agent.store.reading import RecordReader
from agent.store.record_table import METADATA
from agent.store.records import Records
from agent.store.store import open_read_only, open_store
from agent.store.tables import CLAIM, INSTANCE, MIGRATION
from tests.support.store_place import Place
from tests.unit.store import record_samples as samples
from tests.unit.store.record_samples import (
    claim,
    device,
    grown,
    instance,
    migration,
    new_uuid,
    node,
    one_of_each,
    unit,
    write,
)
from tests.unit.store.trees import ENDPOINT, node_view


def _everything(changes: RecordChanges) -> Sequence[Any]:
    return [record for field in fields(changes) for record in getattr(changes, field.name)]


def _read_back(reading: RecordReader, changes: RecordChanges) -> Sequence[Any]:
    """The records with the same keys as these, by whatever way leads to each."""
    held = changes.claims[0].id
    devices, units = reading.held_by([held])
    free = reading.devices([changes.nodes[0].uuid]).records
    loaded = reading.load(changes.nodes[0].uuid)
    assert loaded is not None
    assert reading.node_named(loaded.node.host, loaded.node.name) == loaded.node
    assert loaded.devices == free
    assert devices == tuple(one for one in free if one.holder is not None)
    assert units == tuple(one for one in loaded.units if one.holder is not None)
    return [
        reading.node(changes.nodes[0].uuid),
        reading.instance(changes.instances[0].uuid),
        reading.migration(changes.migrations[0].uuid),
        reading.claim(held),
        *free,
        *loaded.units,
        reading.lease(changes.leases[0].node),
    ]


@pytest.mark.long
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pair=samples.two_of_each())
def test_any_records_come_back_as_they_were_written_and_then_as_they_were_changed(
    records: Records, pair: tuple[RecordChanges, RecordChanges]
) -> None:
    first, second = pair
    write(records, first)
    with records.reading() as reading:
        assert _read_back(reading, first) == [grown(one) for one in _everything(first)]
    changed = RecordChanges(
        *(
            tuple(replace(one, version=1) for one in getattr(second, part.name))
            for part in fields(second)
        )
    )
    write(records, changed)
    with records.reading() as reading:
        assert _read_back(reading, changed) == [grown(one) for one in _everything(changed)]


# --- what belongs to a node -----------------------------------------------------------------------


def test_a_node_has_its_open_claims_its_guests_and_those_who_have_something_here_and_the_moves_that_go_on(
    records: Records,
) -> None:
    here, there = node(), node("n2")
    mine, left, gone, deleted, foreign, off = (
        instance(host="h1", node=one)
        for one in (here.uuid, there.uuid, here.uuid, here.uuid, there.uuid, None)
    )
    deleted, gone, off = (
        replace(deleted, deleted=True),
        replace(gone, deleted=True),
        replace(off, host=None),
    )
    coming = migration(left, source_node=here.uuid, dest_node=there.uuid, status="error")
    over = migration(mine, source_node=here.uuid, status="confirmed")
    elsewhere = migration(foreign, source_node=there.uuid)
    arriving = migration(foreign, source_node=there.uuid, dest_node=here.uuid, status="queued")
    stuck = migration(left, source_node=there.uuid, status="completed")
    held = [
        claim(mine, here, created_at=1.0),
        claim(left, here, half="old", migration=stuck.uuid, created_at=2.0),
        claim(deleted, here, created_at=3.0),
    ]
    write(
        records,
        RecordChanges(
            nodes=(here, there),
            instances=(mine, left, gone, deleted, foreign, off),
            migrations=(coming, over, elsewhere, arriving, stuck),
            claims=(*held, claim(gone, here, state="released"), claim(foreign, there)),
            devices=(device(here), device(there, "0000:00:02.0")),
            units=(unit(here), unit(there, "ns2")),
        ),
    )
    with records.reading() as reading:
        loaded = reading.load(here.uuid)
    assert loaded is not None
    assert loaded.node == grown(here)
    assert list(loaded.claims) == [grown(one) for one in held]
    assert {one.uuid for one in loaded.instances} == {mine.uuid, left.uuid, deleted.uuid}
    assert {one.uuid for one in loaded.migrations} == {coming.uuid, arriving.uuid, stuck.uuid}
    assert (loaded.devices, loaded.units, loaded.damaged) == (
        (grown(device(here)),),
        (grown(unit(here)),),
        (),
    )


def test_consumers_are_told_instances_from_migrations_however_many_they_are(
    records: Records,
) -> None:
    guests = [instance() for _ in range(1100)]
    moves = [migration(guest) for guest in guests[:3]] + [migration(guests[0], status="done")]
    write(records, RecordChanges(instances=tuple(guests), migrations=tuple(moves)))
    unknown = [ConsumerUuid(samples.new_uuid()) for _ in range(1000)]
    with records.reading() as reading:
        found = reading.consumers(
            [*(guest.uuid for guest in guests[1:1051]), *unknown, moves[0].uuid]
        )
    assert found.instances.keys() == {guest.uuid for guest in guests[1:1051]}
    assert found.migrations == {move.uuid: grown(move) for move in moves[:3]}
    assert found.unreadable == frozenset()


# --- lists ----------------------------------------------------------------------------------------


def test_a_node_that_gets_its_uuid_back_has_the_records_of_both(records: Records) -> None:
    """Of a device of both, the one that a claim holds stays; one that either used once is used."""
    mine, other = node("n1"), node("n2")
    guest = instance(node=other.uuid)
    held = claim(guest, other)
    write(
        records,
        RecordChanges(
            nodes=(mine, other),
            instances=(guest,),
            claims=(held,),
            devices=(
                device(mine, "0000:00:01.0"),
                device(other, "0000:00:01.0", state="claimed", holder=held.id, request=new_uuid()),
                device(mine, "0000:00:02.0"),
                device(other, "0000:00:02.0", used=True),
                device(mine, "0000:00:03.0"),
                device(other, "0000:00:04.0"),
            ),
        ),
    )
    with records.transaction([mine.uuid, other.uuid]) as transaction:
        transaction.change_uuid(other.uuid, mine.uuid)
    with records.reading() as reading:
        assert reading.node(other.uuid) is None
        found = reading.load(mine.uuid)
        assert found is not None
        assert found.node.name == "n2"
        assert [one.id for one in found.claims] == [held.id]
        assert {
            one.address: (one.holder, one.used, one.reservation_due) for one in found.devices
        } == {
            "0000:00:01.0": (held.id, False, False),
            "0000:00:02.0": (None, True, True),
            "0000:00:03.0": (None, False, False),
            "0000:00:04.0": (None, False, False),
        }


@pytest.mark.parametrize("runs", [False, True])
def test_of_claims_under_either_uuid_of_a_node_that_exclude_each_other_one_stays(
    records: Records, *, runs: bool
) -> None:
    mine, other = node("n1"), node("n2")
    guests = [instance(node=one.uuid) for one in (mine, other, mine)]
    older = claim(guests[0], mine, updated_at=1.0)
    later = claim(guests[1], other, updated_at=2.0)
    doubled = [claim(guests[2], one, updated_at=at) for one, at in ((mine, 3.0), (other, 4.0))]
    taken = {"state": "claimed", "request": new_uuid()}
    write(
        records,
        RecordChanges(
            nodes=(mine, other),
            instances=tuple(guests),
            claims=(older, later, *doubled),
            devices=(
                device(mine, "0000:00:01.0", holder=older.id, **taken),
                device(other, "0000:00:01.0", holder=later.id, **taken),
            ),
        ),
    )
    running = [guests[0].uuid, guests[2].uuid] if runs else []
    stays = {(older if runs else later).id, doubled[1].id}
    with records.transaction([mine.uuid, other.uuid]) as transaction:
        lost = transaction.change_uuid(other.uuid, mine.uuid, running)
    assert set(lost) == {guests[1 if runs else 0].uuid, guests[2].uuid}
    with records.reading() as reading:
        found = reading.load(mine.uuid)
        assert found is not None
        assert {one.id for one in found.claims if one.open} == stays
        assert [one.holder for one in found.devices] == [(older if runs else later).id]


# --- records that make no sense: set aside one by one, so that the others count ---


DAMAGES = [
    ("instance", "UPDATE instance SET flavor = '{'", "uuid", ""),
    (
        "instance",
        'UPDATE instance SET flavor = \'{"id": "f", "name": "f", "vcpus": "many"}\'',
        "uuid",
        "$.vcpus",
    ),
    ("instance", "UPDATE instance SET image_properties = '[1]'", "uuid", "object"),
    ("claim", 'UPDATE claim SET cells = \'[{"host_cell": "x"}]\'', "id", "$[0].host_cell"),
    (
        "claim",
        'UPDATE claim SET mdevs = \'[{"provider": 1, "resource_class": "VGPU", "count": 1}]\'',
        "id",
        "$[0].provider",
    ),
    ("device", "UPDATE device SET tags = '{\"a\": 1}'", "node", "str"),
    ("unit", "UPDATE unit SET metadata = 'x'", "node", ""),
]


@pytest.mark.parametrize(("table", "damage", "key", "place_told"), DAMAGES)
def test_a_damaged_record_is_set_aside_and_the_others_count(
    records: Records, place: Place, table: str, damage: str, key: str, place_told: str
) -> None:
    before = one_of_each()
    guest = instance(node=before.nodes[0].uuid)
    write(records, before)
    place.execute(damage)
    write(
        records,
        RecordChanges(
            instances=(guest,),
            claims=(claim(guest, before.nodes[0]),),
            devices=(device(before.nodes[0], "0000:00:09.0"),),
        ),
    )
    with records.reading() as reading:
        loaded = reading.load(before.nodes[0].uuid)
        consumers = reading.consumers([before.instances[0].uuid, guest.uuid])
    assert loaded is not None
    assert [one.table for one in loaded.damaged] == [table]
    assert loaded.damaged[0].key.startswith(getattr(_first(before, table), key))
    assert loaded.damaged[0].why
    assert place_told in loaded.damaged[0].why
    assert guest.uuid in {one.uuid for one in loaded.instances}
    assert guest.uuid in {one.instance for one in loaded.claims}
    assert "0000:00:09.0" in {one.address for one in loaded.devices}
    assert consumers.unreadable == ({before.instances[0].uuid} if table == "instance" else set())


def _first(changes: RecordChanges, table: str) -> Any:
    return {
        "instance": changes.instances,
        "claim": changes.claims,
        "device": changes.devices,
        "unit": changes.units,
    }[table][0]


def test_a_damaged_record_that_is_asked_for_is_an_error_that_names_it(
    records: Records, place: Place
) -> None:
    before = one_of_each()
    write(records, before)
    place.execute("UPDATE instance SET flavor = 'x'")
    place.execute("UPDATE claim SET cells = 'x'")
    with records.reading() as reading:
        for ask in (
            lambda: reading.instance(before.instances[0].uuid),
            lambda: reading.claims_of(before.instances[0].uuid),
        ):
            with pytest.raises(
                StoreError, match=r"the (instance|claim) [0-9a-f-]{36} is damaged"
            ) as refused:
                ask()
            assert refused.value.data["key"] in (before.instances[0].uuid, before.claims[0].id)


def test_a_state_that_only_a_newer_agent_knows_is_damage(folder: Path) -> None:
    before = one_of_each()
    with open_store(folder) as store:
        write(Records(store), before)
    with Place(folder, None).outside() as connection:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        connection.exec_driver_sql("UPDATE claim SET state = 'lent'")
        connection.exec_driver_sql("UPDATE migration SET status = 'flying', source_node = 'x'")
        connection.exec_driver_sql("UPDATE device SET type = 'type-CXL'")
        connection.exec_driver_sql("UPDATE instance SET vm_state = 'asleep', node = 'x'")
    with open_read_only(folder) as store, Records(store).reading() as reading:
        loaded = reading.load(before.nodes[0].uuid)
        assert loaded is not None
        assert {one.table for one in loaded.damaged} == {"claim", "device", "instance"}
        assert (
            DamagedRecord(
                "claim",
                before.claims[0].id,
                "ValueError: 'lent' is none of consumed, held, released",
            )
            in loaded.damaged
        )
        assert len(reading.migrations().damaged) == 1
        assert reading.consumers([before.instances[0].uuid]).unreadable == {
            before.instances[0].uuid,
            before.migrations[0].uuid,
        }


# --- records of what ended long ago, and what still refers to them ---


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


# --- what the store refuses to write ---


def test_each_node_of_which_something_changes_gets_the_next_version_once(records: Records) -> None:
    here, there, other, guest = node(), node("n2"), node("n3"), instance()
    write(records, RecordChanges(nodes=(here, there, other)))
    write(
        records,
        RecordChanges(
            nodes=(grown(here),),
            instances=(guest,),
            claims=(claim(guest, here), claim(guest, there)),
            devices=(device(here),),
        ),
    )
    with records.reading() as reading:
        assert reading.node_versions([here.uuid, there.uuid, other.uuid]) == {
            here.uuid: 2,
            there.uuid: 2,
            other.uuid: 1,
        }
    write(records, RecordChanges(dropped_devices=(grown(device(here)),)))
    write(records, RecordChanges(instances=(replace(grown(guest), node=there.uuid),)))
    write(records, RecordChanges(units=(unit(there),)))
    write(records, RecordChanges(dropped_units=(grown(unit(there)),)))
    with records.reading() as reading:
        assert reading.node_versions([here.uuid, there.uuid]) == {here.uuid: 3, there.uuid: 5}
        loaded = reading.load(there.uuid)
        assert loaded is not None
        assert (loaded.units, loaded.node.version) == ((), 5)


KINDS = ["nodes", "instances", "migrations", "claims", "devices", "units", "leases"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expected", [0, 2], ids=["taken for new", "changed meanwhile"])
def test_a_record_of_another_version_is_a_conflict_and_nothing_is_written(
    records: Records, kind: str, expected: int
) -> None:
    before = one_of_each()
    write(records, before)
    another = instance()
    stale = replace(getattr(before, kind)[0], version=expected)
    with pytest.raises(RecordConflict) as refused:
        write(records, RecordChanges(instances=(another,)) + RecordChanges(**{kind: (stale,)}))
    assert refused.value.code == "store.conflict"
    if expected:
        assert refused.value.data["table"] in refused.value.message
    with records.reading() as reading:
        assert reading.instance(another.uuid) is None
        assert reading.node_versions([before.nodes[0].uuid]) == {before.nodes[0].uuid: 1}


@pytest.mark.parametrize("kind", ["devices", "units"])
def test_dropping_what_has_changed_is_a_conflict(records: Records, kind: str) -> None:
    before = one_of_each()
    write(records, before)
    row = getattr(before, kind)[0]
    for stale in (
        replace(row, version=2),
        replace(row, **{"address" if kind == "devices" else "identifier": "another"}, version=1),
    ):
        with pytest.raises(RecordConflict):
            write(records, RecordChanges(**{f"dropped_{kind}": (stale,)}))
    write(records, RecordChanges(**{f"dropped_{kind}": (grown(row),)}))


def test_a_second_holder_is_a_conflict(records: Records) -> None:
    here, guests = node(), [instance(), instance()]
    claims = [claim(guest, here) for guest in guests]
    free, space = device(here), unit(here)
    write(
        records,
        RecordChanges(
            nodes=(here,),
            instances=tuple(guests),
            claims=tuple(claims),
            devices=(free,),
            units=(space,),
        ),
    )
    first, second = (replace(grown(free), holder=one.id, state="claimed") for one in claims)
    write(
        records,
        RecordChanges(devices=(first,), units=(replace(grown(space), holder=claims[0].id),)),
    )
    for taken in (
        RecordChanges(devices=(second,)),
        RecordChanges(devices=(replace(second, version=0),)),
        RecordChanges(units=(replace(grown(space), holder=claims[1].id),)),
    ):
        with pytest.raises(RecordConflict):
            write(records, taken)
    with records.reading() as reading:
        devices, units = reading.held_by([claims[0].id])
        assert (len(devices), len(units), reading.held_by([claims[1].id])) == (1, 1, ((), ()))


def test_a_second_node_of_the_same_name_on_a_host_is_a_conflict(records: Records) -> None:
    write(records, RecordChanges(nodes=(node(),)))
    with pytest.raises(RecordConflict):
        write(records, RecordChanges(nodes=(node(),)))
    write(records, RecordChanges(nodes=(replace(node(), deleted=True), node(host="h2"))))


# --- what no record may be ------------------------------------------------------------------------


def test_what_refers_to_nothing_is_refused(records: Records) -> None:
    here, guest = node(), instance()
    write(records, RecordChanges(nodes=(here,), instances=(guest,)))
    for dangling in (
        RecordChanges(claims=(claim(guest, node()),)),
        RecordChanges(claims=(claim(instance(), here),)),
        RecordChanges(claims=(claim(guest, here, migration=samples.new_uuid()),)),
        RecordChanges(migrations=(migration(instance()),)),
        RecordChanges(devices=(device(node()),)),
        RecordChanges(devices=(device(here, holder=samples.new_uuid(), state="claimed"),)),
        RecordChanges(units=(unit(here, holder=samples.new_uuid()),)),
    ):
        with pytest.raises(RecordConflict):
            write(records, dangling)


@pytest.mark.parametrize(
    "change",
    [
        lambda before: RecordChanges(instances=(instance(vm_state="vanished"),)),
        lambda before: RecordChanges(instances=(instance(task_state="thinking"),)),
        lambda before: RecordChanges(migrations=(migration(before.instances[0], status="lost"),)),
        lambda before: RecordChanges(migrations=(migration(before.instances[0], type="walk"),)),
        lambda before: RecordChanges(
            claims=(claim(before.instances[0], before.nodes[0], half="third"),)
        ),
        lambda before: RecordChanges(
            claims=(claim(before.instances[0], before.nodes[0], state="maybe"),)
        ),
        lambda before: RecordChanges(
            claims=(claim(before.instances[0], before.nodes[0], purpose="fun"),)
        ),
        lambda before: RecordChanges(
            claims=(claim(before.instances[0], before.nodes[0], amounts=samples.Amounts(-1, 0, 0)),)
        ),
        lambda before: RecordChanges(
            claims=(
                claim(before.instances[0], before.nodes[0], amounts=samples.Amounts(0, 2**63, 0)),
            )
        ),
        lambda before: RecordChanges(
            devices=(
                device(before.nodes[0], "0000:00:07.0", state="broken", holder=before.claims[0].id),
            )
        ),
        lambda before: RecordChanges(
            devices=(device(before.nodes[0], "0000:00:07.0", type="type-ISA"),)
        ),
        lambda before: RecordChanges(
            devices=(device(before.nodes[0], "0000:00:07.0", state="claimed"),)
        ),
        lambda before: RecordChanges(
            devices=(device(before.nodes[0], "0000:00:07.0", holder=before.claims[0].id),)
        ),
        lambda before: RecordChanges(nodes=(replace(node("n9"), failed_builds=-1),)),
        lambda before: RecordChanges(instances=(instance(project_id=None),)),
        lambda before: RecordChanges(instances=(instance(project_id="half a \ud800 surrogate"),)),
    ],
)
def test_a_record_that_makes_no_sense_is_refused_and_nothing_is_written(
    records: Records, change: Any
) -> None:
    before = one_of_each()
    write(records, before)
    with pytest.raises(StoreError) as refused:
        write(records, change(before))
    assert not isinstance(refused.value, RecordConflict)
    assert "report it" in refused.value.remedy
    with records.reading() as reading:
        assert reading.node_versions([before.nodes[0].uuid]) == {before.nodes[0].uuid: 1}
        assert len(reading.instances().records) == 1
