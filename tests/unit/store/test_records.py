"""Records in and out of the store."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from agent.model.names import ConsumerUuid
from agent.model.node_records import RecordChanges
from agent.store.reading import RecordReader
from agent.store.records import Records
from tests.unit.store import record_samples as samples
from tests.unit.store.record_samples import (
    claim,
    device,
    grown,
    instance,
    migration,
    new_uuid,
    node,
    unit,
    write,
)


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
