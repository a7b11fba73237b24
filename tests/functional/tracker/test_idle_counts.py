"""A count that would come to the same result as the one before is not made, and whatever would
change its result is noticed all the same.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from agent.errors import StoreError
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Migration, RecordChanges
from agent.model.provider_tree import ProviderTree
from agent.store.tables import CLAIM
from agent.tracker.errors import NodeHeldElsewhere
from tests.support.tracking import F1, Host, World, guest, uuid_of


class CountedRecords:
    """Records, with the number of transactions that were begun."""

    def __init__(self, records: Any) -> None:
        self._records = records
        self.transactions = 0

    def transaction(self, nodes: Collection[ProviderUuid]) -> AbstractContextManager[Any]:
        self.transactions += 1
        return self._records.transaction(nodes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)


@pytest.fixture
def counted(world: World) -> Host:
    """A host that has been audited twice with a running guest, and whose records count."""
    host = world.plain("HA")
    host.records = CountedRecords(host.records)
    host.restart()
    host.audit(start=True)
    host.claim("guest", F1)
    host.update("guest", vm_state="active")
    world.time.pass_by(1)
    host.audit()
    host.audit()
    host.records.transactions = 0
    return host


def test_without_a_change_no_transaction_is_begun_and_the_usage_is_the_same(counted, world):
    world.time.pass_by(60)
    before = counted.audit()

    assert counted.audit().usage == before.usage
    assert before.usage.vcpus_used == 2
    assert counted.records.transactions == 0


def test_a_change_by_this_process_is_counted(counted):
    counted.claim("another", F1)

    assert counted.audit().usage.vcpus_used == 3
    assert counted.records.transactions > 1


def test_what_this_process_changed_is_counted_without_reading_all_claims(counted, world):
    counted.claim("another", F1)
    statements: list[str] = []
    event.listen(
        world.store._engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, *_: statements.append(statement),
    )

    assert counted.audit().usage.vcpus_used == 3
    assert statements
    assert not [one for one in statements if f"FROM {CLAIM.name}" in one]


def test_a_claim_whose_guest_has_not_come_is_counted_again_when_its_build_is_overdue(world):
    host = world.plain("HA", lease_seconds=1e6)
    host.audit(domains=())
    host.records = CountedRecords(host.records)
    host.restart()
    host.audit(start=True)
    host.claim("guest", F1)
    world.time.pass_by(1)
    host.audit()
    host.records.transactions = 0

    world.time.pass_by(host.rules.stranded_after - 2)
    assert host.audit().drift == ()
    assert host.records.transactions == 0

    world.time.pass_by(1)
    assert [drift.kind for drift in host.audit().drift] == ["stranded-claim"]


def test_a_change_by_another_process_is_counted(counted, world):
    other = Host("HA", world.records, world.time, counted.facts)
    other.audit()
    other.claim("another", F1)

    assert counted.audit().usage.vcpus_used == 3


def test_a_migration_that_another_host_begins_is_counted(counted, world):
    move = Migration(
        uuid=ConsumerUuid(uuid_of("move")),
        type="migration",
        status="accepted",
        instance=guest("guest"),
        source_compute="HA",
        source_node=counted.node,
        dest_compute="HB",
    )
    with world.records.transaction([]) as transaction:
        transaction.write(RecordChanges(migrations=(move,)))

    assert move.uuid in counted.audit().state.migrations
    assert counted.records.transactions == 1


def test_a_dry_run_reads_the_records_itself(counted, world):
    counted.usage_step.read_versions([counted.node])
    other = Host("HA", world.records, world.time, counted.facts)
    other.audit()
    other.claim("another", F1)

    shown = counted.usage_step.audit(
        counted.node, counted.facts, ProviderTree(), start=False, dry_run=True
    )

    assert shown.usage.vcpus_used == 3


def test_after_an_audit_that_failed_the_records_are_read(counted, monkeypatch):
    def fail(*_args: Any) -> Any:
        raise StoreError("the store cannot be read", "mend the disk")

    with monkeypatch.context() as broken:
        broken.setattr(counted.records._records, "reading", fail)
        broken.setattr(counted.records._records, "transaction", fail)
        with pytest.raises(StoreError):
            counted.audit(memory_mib=4096)
    counted.records.transactions = 0

    counted.audit(memory_mib=65536)

    assert counted.records.transactions == 1


def test_other_facts_are_counted(counted):
    node = counted.audit(memory_mib=4096)

    assert node.state.node.memory_mb == 4096


def test_the_lease_is_renewed_when_a_third_of_it_has_passed(counted, world):
    world.time.pass_by(counted.lease_seconds / 3 - 2)
    counted.audit()
    assert counted.records.transactions == 0

    world.time.pass_by(3)
    counted.audit()

    assert counted.records.transactions == 1


def test_after_a_long_stop_the_host_that_took_the_node_is_noticed(counted, world):
    world.time.pass_by(counted.lease_seconds + 1)
    taker = Host("HB", world.records, world.time, replace(counted.facts, name="HB"))
    taker.node = counted.node
    taker.audit()

    with pytest.raises(NodeHeldElsewhere):
        counted.audit()


def test_a_clock_that_is_set_back_ends_the_idleness(counted, world):
    world.time.pass_by(-3600)

    assert counted.audit().usage.vcpus_used == 2
    assert counted.records.transactions == 1


def test_a_node_that_stopped_offering_itself_is_counted_again(counted):
    counted.usage_step.stop_claims(counted.node)

    assert counted.audit().state.host.available
    assert counted.records.transactions == 1
