"""Records of what ended long ago, and what still refers to them."""

from dataclasses import replace

from agent.model.changes import Changes
from agent.store.records import Records
from tests.unit.store.record_samples import claim, instance, migration, node, write

NOW = 1_000_000.0


def test_what_ended_long_ago_goes_and_what_is_open_or_recent_stays(records: Records) -> None:
    here, guest = node(), instance(deleted=True, updated_at=1.0)
    move = migration(guest, status="confirmed", updated_at=1.0)
    over = claim(guest, here, state="released", updated_at=1.0, migration=None, origin=move.uuid)
    write(records, Changes(nodes=(here,), instances=(guest,), migrations=(move,), claims=(over,)))
    assert records.remove_ended(1.0) == 0
    assert records.remove_ended(NOW) == 3
    with records.reading() as reading:
        assert (reading.claim(over.id), reading.migration(move.uuid), reading.instance(guest.uuid)) == (None, None, None)


def test_the_origin_of_an_open_claim_stays(records: Records) -> None:
    here, guest = node(), instance(updated_at=1.0)
    move = migration(guest, status="confirmed", updated_at=1.0)
    held = claim(guest, here, state="consumed", updated_at=1.0, migration=None, origin=move.uuid)
    write(records, Changes(nodes=(here,), instances=(guest,), migrations=(move,), claims=(held,)))
    assert records.remove_ended(NOW) == 0
    with records.reading() as reading:
        assert reading.migration(move.uuid) == replace(move, version=1)
