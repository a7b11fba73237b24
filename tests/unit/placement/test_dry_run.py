"""Recording of writes: for display, and in a dry run instead of sending them."""

import pytest

from agent.cli.placement_work import RecordingExchange, Write
from agent.errors import PlacementUnreachable
from agent.placement.client import PlacementClient
from tests.support import faults
from tests.unit.placement.nodes import NAME, ROOT, THEIR_AGGREGATE

REQUEST = "req-00000000-0000-4000-8000-000000000001"
CONSUMER = "c0000000-0000-4000-8000-000000000001"
BODY = {"allocations": {}, "project_id": "p", "user_id": "u", "consumer_generation": 1}


@pytest.fixture
def dry_run(transport):
    return RecordingExchange(transport, REQUEST, dry_run=True)


def test_a_dry_run_reads_and_sends_nothing_that_writes(dry_run, placement):
    placement.other.create_provider(NAME, ROOT)
    placement.clear()
    before, client = placement.dump(), PlacementClient(dry_run)
    generation, present = client.aggregates(ROOT)
    assert client.set_aggregates(ROOT, generation, [THEIR_AGGREGATE]) == (
        generation,
        {THEIR_AGGREGATE},
    )
    client.set_allocation(CONSUMER, BODY)
    client.set_allocations({CONSUMER: BODY})
    assert client.delete_allocation(CONSUMER)
    client.delete_provider(ROOT)
    assert [one.method for one in placement.requests] == ["GET"]
    assert placement.dump() == before
    assert present == set()
    assert [(one.method, one.path, one.version, one.status) for one in dry_run.writes] == [
        ("PUT", f"/resource_providers/{ROOT}/aggregates", "1.23", None),
        ("PUT", f"/allocations/{CONSUMER}", "1.28", None),
        ("POST", "/allocations", "1.28", None),
        ("DELETE", f"/allocations/{CONSUMER}", "1.23", None),
        ("DELETE", f"/resource_providers/{ROOT}", "1.23", None),
    ]
    assert dry_run.counts == {"GET": 1}


def test_what_is_sent_is_kept_with_what_became_of_it(transport, placement):
    exchange = RecordingExchange(transport, REQUEST, dry_run=False)
    client = PlacementClient(exchange)
    client.create_provider(ROOT, NAME, None)
    client.delete_provider(ROOT)
    client.delete_provider(ROOT)
    assert exchange.writes == [
        Write("POST", "/resource_providers", "1.23", {"uuid": ROOT, "name": NAME}, 200),
        *(
            Write("DELETE", f"/resource_providers/{ROOT}", "1.23", None, status)
            for status in (204, 404)
        ),
    ]


def test_what_was_not_answered_is_not_kept(transport, placement):
    exchange = RecordingExchange(transport, REQUEST, dry_run=False)
    placement.faults.add(faults.refused())
    with pytest.raises(PlacementUnreachable):
        PlacementClient(exchange).create_provider(ROOT, NAME, None)
    assert exchange.writes == []
