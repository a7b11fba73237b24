"""Threads and processes at the same records: one is first, nobody waits for ever, and nothing is
lost.
"""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from agent.errors import RecordConflict, StoreError
from agent.model.names import ProviderUuid
from agent.model.node_records import RecordChanges
from agent.store.records import Records
from agent.store.store import Store
from tests.support.broken_store import counted
from tests.support.store_place import Place
from tests.unit.store.record_samples import claim, grown, instance, node, write


def test_who_works_on_a_node_is_alone_with_it(records: Records) -> None:
    here = node()
    write(records, RecordChanges(nodes=(here,)))
    inside, most = 0, 0

    def work(_: int) -> None:
        nonlocal inside, most
        with records.transaction([here.uuid]) as transaction:
            inside += 1
            most = max(most, inside)
            loaded = transaction.load(here.uuid)
            assert loaded is not None
            guest = instance()
            transaction.write(
                RecordChanges(
                    instances=(guest,),
                    claims=(claim(guest, loaded.node, created_at=float(len(loaded.claims))),),
                )
            )
            inside -= 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(40)))
    with records.reading() as reading:
        loaded = reading.load(here.uuid)
    assert loaded is not None
    assert most == 1
    assert [one.created_at for one in loaded.claims] == [float(n) for n in range(40)]


def test_two_that_want_the_same_nodes_in_another_order_both_get_them(records: Records) -> None:
    here, there = sorted([node("n1"), node("n2")], key=lambda one: one.uuid)
    write(records, RecordChanges(nodes=(here, there)))

    def work(turn: int) -> None:
        nodes = [here.uuid, there.uuid] if turn % 2 else [there.uuid, here.uuid]
        with records.transaction(nodes) as transaction:
            found = [transaction.node(uuid) for uuid in nodes]
            transaction.write(
                RecordChanges(
                    nodes=tuple(
                        replace(one, failed_builds=one.failed_builds + 1)
                        for one in found
                        if one is not None
                    )
                )
            )

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(30)))
    with records.reading() as reading:
        assert [record.failed_builds for record in reading.nodes().records] == [30, 30]


def test_a_reading_shows_one_moment_whatever_is_written_meanwhile(records: Records) -> None:
    here, guest = node(), instance()
    write(records, RecordChanges(nodes=(here,), instances=(guest,)))
    with records.reading() as reading:
        assert reading.node_versions([here.uuid]) == {here.uuid: 1}
        with ThreadPoolExecutor(1) as other:
            other.submit(write, records, RecordChanges(claims=(claim(guest, here),))).result()
        assert reading.node_versions([here.uuid]) == {here.uuid: 1}
        assert reading.claims_of(guest.uuid) == ()
    with records.reading() as reading:
        assert len(reading.claims_of(guest.uuid)) == 1


def test_on_a_server_nobody_waits_for_who_works_on_another_node(postgresql_place: Place) -> None:
    here, there = node("n1"), node("n2")
    with postgresql_place.open() as store:
        records = Records(store)
        write(records, RecordChanges(nodes=(here, there)))
        with records.transaction([here.uuid]), ThreadPoolExecutor(1) as other:
            other.submit(write, records, RecordChanges(nodes=(grown(there),))).result(60)


def test_on_a_server_a_deadlock_is_a_conflict(postgresql_place: Place) -> None:
    guests = instance(), instance()
    met = threading.Barrier(2)

    def cross(records: Records, first: int) -> str:
        try:
            with records.transaction([]) as transaction:
                transaction.write(RecordChanges(instances=(grown(guests[first]),)))
                met.wait(60)
                transaction.write(RecordChanges(instances=(grown(guests[1 - first]),)))
        except RecordConflict as conflict:
            return conflict.message
        return "written"

    with (
        postgresql_place.open() as store,
        postgresql_place.open() as other,
        ThreadPoolExecutor(2) as threads,
    ):
        write(Records(store), RecordChanges(instances=guests))
        said = sorted(threads.map(cross, (Records(store), Records(other)), (0, 1)))
    assert said[1] == "written"
    assert "deadlock detected" in said[0]


def test_on_a_server_who_waits_too_long_for_a_node_is_told(
    postgresql_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.store.engines.BUSY_SECONDS", 1)
    here = node()
    with postgresql_place.open() as store, postgresql_place.open() as other:
        write(Records(store), RecordChanges(nodes=(here,)))
        with Records(store).transaction([here.uuid]):
            begun = time.monotonic()
            with (
                pytest.raises(StoreError, match="lock timeout") as refused,
                Records(other).transaction([here.uuid]),
            ):
                pytest.fail("it got in")
            assert 0.9 < time.monotonic() - begun < 60
            assert "another agent has the same records locked" in refused.value.remedy
        write(Records(other), RecordChanges(nodes=(grown(here),)))


def test_on_a_server_the_rows_of_an_agent_that_was_killed_are_free_at_once(
    postgresql_place: Place,
) -> None:
    program = """
import sys
from pathlib import Path
from agent.store.records import Records
from agent.store.store import open_store
with open_store(Path(sys.argv[1]), sys.argv[2]) as store, Records(store).transaction([sys.argv[3]]):
    print("locked", flush=True)
    sys.stdin.readline()
"""
    here = node()
    with postgresql_place.open() as store:
        write(Records(store), RecordChanges(nodes=(here,)))
        command = [
            sys.executable,
            "-c",
            program,
            str(postgresql_place.folder),
            postgresql_place.url or "",
            here.uuid,
        ]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            holder.kill()
        write(Records(store), RecordChanges(nodes=(grown(here),)))


def test_a_claim_costs_a_row_each_of_instance_claim_and_node_however_many_there_are(
    store: Store,
) -> None:
    records, here = Records(store), node()
    write(records, RecordChanges(nodes=(here,)))

    def claim_one(_: int) -> list[str]:
        guest = instance(host="h1", node=here.uuid)
        wanted = claim(guest, here)
        with counted() as sent, records.transaction([here.uuid]) as transaction:
            assert transaction.node_versions([here.uuid])
            assert transaction.claim(wanted.id) is None
            assert transaction.instance(guest.uuid) is None
            assert transaction.claims_of(guest.uuid) == ()
            transaction.write(RecordChanges(instances=(guest,), claims=(wanted,)))
        return sent

    four_reads_and_three_rows = ["SELECT"] * 4 + ["INSERT", "UPDATE", "INSERT"]
    for sent in map(claim_one, range(20)):
        assert [
            statement.split()[0] for statement in sent if statement != "COMMIT"
        ] == four_reads_and_three_rows


def test_a_node_with_a_thousand_guests_is_loaded_with_as_many_statements_as_one_with_one(
    store: Store,
) -> None:
    records, crowded, quiet = Records(store), node("n1"), node("n2")
    guests = [instance(host="h1", node=crowded.uuid) for _ in range(1000)]
    alone = instance(host="h1", node=quiet.uuid)
    claims = *(claim(guest, crowded) for guest in guests), claim(alone, quiet)
    write(records, RecordChanges(nodes=(crowded, quiet), instances=(*guests, alone), claims=claims))

    def load(uuid: ProviderUuid, expected: int) -> int:
        with counted() as sent, records.reading() as reading:
            loaded = reading.load(uuid)
        assert loaded is not None
        assert len(loaded.instances) == len(loaded.claims) == expected
        return len(sent)

    assert load(crowded.uuid, 1000) == load(quiet.uuid, 1)
