"""Statements that bypass SQLAlchemy on SQLite have the results that they have through it."""

import pytest

from agent.errors import StoreError
from agent.model.node_records import RecordChanges
from agent.store import record_queries as queries
from agent.store.prepared import PreparedStatement
from agent.store.records import Records
from agent.store.store import Store
from tests.support.statements import counted
from tests.unit.store.record_samples import claim, instance, node, write


def test_rows_are_equal_to_those_of_sqlalchemy(store: Store, records: Records) -> None:
    here = node()
    guest = instance(host="a\0\\b", node=here.uuid, volume_backed=True, created_at=1.5)
    held = claim(guest, here, flavor_id="f\0")
    write(records, RecordChanges(nodes=(here,), instances=(guest,), claims=(held,)))
    for statement, key in (
        (queries.INSTANCE_BY_UUID, guest.uuid),
        (queries.CLAIM_BY_ID, held.id),
        (queries.CLAIMS_OF_INSTANCE, guest.uuid),
        (queries.NODE_LOCKED, here.uuid),
    ):
        with store.writing() as connection:
            direct = list(statement.rows(connection, {"key": key}))
            through = connection.execute(statement.statement, {"key": key}).all()
        assert [tuple(row) for row in direct] == [tuple(row) for row in through]
        assert [[type(value) for value in row] for row in direct] == [
            [type(value) for value in row] for row in through
        ]
        assert direct[0].version == 1


def test_a_read_sees_the_database_at_the_moment_of_its_first_statement(
    store: Store, records: Records
) -> None:
    here = node()
    write(records, RecordChanges(nodes=(here,)))
    guest = instance(host="h1", node=here.uuid)
    with records.reading() as reading:
        assert reading.instance(guest.uuid) is None
        write(records, RecordChanges(instances=(guest,)))
        assert reading.instance(guest.uuid) is None
    with records.reading() as reading:
        assert reading.instance(guest.uuid) is not None


def test_a_value_that_is_not_given_is_an_error_and_not_null(store: Store) -> None:
    with pytest.raises((KeyError, StoreError)), store.writing() as connection:
        list(queries.INSTANCE_BY_UUID.rows(connection, {}))


def test_they_are_counted_like_all_statements(store: Store) -> None:
    with counted() as sent, store.reading() as connection:
        assert isinstance(queries.CLAIM_BY_ID, PreparedStatement)
        list(queries.CLAIM_BY_ID.rows(connection, {"key": "none"}))
    assert sum("FROM claim" in text for text in sent) == 1
