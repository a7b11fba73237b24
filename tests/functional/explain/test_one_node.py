"""One node: shared storage, what is unknown to Placement, the bound of queries, and suggestions that
hold.
"""

import random
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent.audit.explaining import explain_anywhere
from agent.audit.suggesting import MOST_QUERIES
from agent.explain.explanation import ExplainedRequest, NodeExplanation
from agent.explain.scheduler_query import SchedulerQuery
from agent.model.instance import Flavor
from agent.placement.allocations.candidates import parse_query
from tests.support import backends
from tests.support.agent import NAME, ROOT

backends.require("placement.deploy")
from tests.functional.explain.explained_host import ExplainedHost, some_claim  # noqa: E402 - needs Placement

DEDICATED = {"hw:cpu_policy": "dedicated"}


@pytest.fixture
def host(hosts: list[ExplainedHost]) -> Iterator[ExplainedHost]:
    """A host that is as before afterwards."""
    empty = hosts[0].placement.snapshot()
    yield hosts[0]
    hosts[0].placement.restore(empty)


def asked(*words: str) -> ExplainedRequest:
    """A query, and nothing of a guest."""
    return ExplainedRequest(SchedulerQuery(parse_query(words)))


def texts(explained: NodeExplanation) -> set[tuple[str, ...]]:
    """The sets of constraints that exclude the request."""
    assert explained.placement is not None
    return {
        tuple(sorted(reason.constraint.text for reason in some))
        for some in explained.placement.excluded_by.sets
    }


def test_storage_that_is_shared_with_the_tree_counts(host: ExplainedHost) -> None:
    other, aggregate = host.placement.other, str(uuid.uuid4())
    local = other.inventory(ROOT)
    other.set_inventory(ROOT, {name: one for name, one in local.items() if name != "DISK_GB"})
    request = asked("resources=VCPU:1,MEMORY_MB:512,DISK_GB:50")
    assert texts(host.explain(request)) == {("DISK_GB:50",)}
    shared = other.create_provider("shared")
    other.set_inventory(shared, {"DISK_GB": 100})
    other.set_traits(shared, {"MISC_SHARES_VIA_AGGREGATE"})
    for provider in (ROOT, shared):
        other.set_aggregates(provider, {aggregate})
    assert host.explain(request).fits
    larger = host.explain(asked("resources=VCPU:1,MEMORY_MB:512,DISK_GB:500"))
    assert texts(larger) == {("DISK_GB:500",)}
    assert larger.placement is not None
    (reason,) = larger.placement.lacking
    assert reason.numbers == (
        "DISK_GB: 500 wanted, shared has 100 free of 100; 400 fewer would do",
    )


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        (["resources=VCPU:1,DISK_GB:10", "required=CUSTOM_SSD"], True),
        (["resources=VCPU:1,DISK_GB:10", "required=!CUSTOM_SSD"], False),
        (["resources=VCPU:1", "resources1=DISK_GB:10"], True),
        (["resources=VCPU:1", "resources1=DISK_GB:10", "required1=!CUSTOM_SSD"], False),
        (["resources=VCPU:1", "resources1=DISK_GB:10", "required1=CUSTOM_SSD"], True),
    ],
)
def test_traits_of_shared_storage_count_as_placement_counts_them(
    host: ExplainedHost, words: list[str], fits: bool
) -> None:
    other, aggregate = host.placement.other, str(uuid.uuid4())
    local = other.inventory(ROOT)
    other.set_inventory(ROOT, {name: one for name, one in local.items() if name != "DISK_GB"})
    shared = other.create_provider("shared")
    other.set_inventory(shared, {"DISK_GB": 100})
    other.set_traits(shared, {"MISC_SHARES_VIA_AGGREGATE", "CUSTOM_SSD"})
    for provider in (ROOT, shared):
        other.set_aggregates(provider, {aggregate})
    request = asked(*words)
    assert host.explain(request).fits is fits
    # All nodes of this Placement are this one.
    client = host.agent.fleet.context.server.client()
    assert bool(explain_anywhere(client, request.query).nodes) is fits


def test_an_unknown_trait_is_told_and_excludes_the_request(host: ExplainedHost) -> None:
    explained = host.explain(asked("resources=VCPU:1", "required=CUSTOM_UNKNOWN"))
    assert explained.placement is not None
    assert "CUSTOM_UNKNOWN" in explained.placement.refused
    assert texts(explained) == {("trait CUSTOM_UNKNOWN required",)}


def test_at_most_forty_queries_are_sent_and_a_cut_is_told(host: ExplainedHost) -> None:
    # The node is in none of these aggregates, so that all of them would have to be left out.
    aggregates = [f"member_of={uuid.uuid4()}" for _ in range(10)]
    explained = host.explain(asked("resources=VCPU:1", *aggregates))
    assert explained.placement is not None
    assert explained.placement.asked == MOST_QUERIES
    assert not explained.placement.excluded_by.complete


def test_anywhere_names_the_node_and_what_excludes_a_request_from_all(host: ExplainedHost) -> None:
    client = host.agent.fleet.context.server.client()
    found = explain_anywhere(client, asked("resources=VCPU:1", "limit=5").query)
    assert [(offer.name, offer.uuid, offer.candidates) for offer in found.nodes] == [
        (NAME, ROOT, 1)
    ]
    none = explain_anywhere(client, asked("resources=VCPU:1,CUSTOM_NOTHING:1").query)
    assert (none.nodes, none.placement.candidates) == ((), 0)
    (some,) = none.placement.excluded_by.sets
    assert [reason.constraint.name for reason in some] == ["CUSTOM_NOTHING"]


def test_what_is_suggested_as_tested_fits(host: ExplainedHost) -> None:
    claim = some_claim(random.Random(0))
    flavor = Flavor("f", "F", 14, 1024, extra_specs=DEDICATED)
    claim = replace(claim, instance=replace(claim.instance, flavor=flavor))
    request = host.request(claim)
    assert request is not None
    explained = host.explain(request, suggests=True)
    tested = [one.text for one in explained.suggestions if not one.guess]
    assert "ask for 12 vCPUs, 1024 MiB of memory, 0 GiB of disk" in tested
    smaller = replace(claim, instance=replace(claim.instance, flavor=replace(flavor, vcpus=12)))
    fitting = host.request(smaller)
    assert fitting is not None
    assert host.explain(fitting).fits


def test_guests_to_move_away_make_room(host: ExplainedHost) -> None:
    claim = some_claim(random.Random(0))
    flavor = Flavor("f", "F", 10, 1024, extra_specs=DEDICATED)
    claim = replace(claim, instance=replace(claim.instance, flavor=flavor))
    request = host.request(claim)
    assert request is not None
    made = []
    for held in (host.candidates(request.query.query)[0], host.candidates(request.query.query)[-1]):
        made.append(host.claimed(claim, held))
        host.placement.other.claim(held, host.state.claims[made[-1]].instance)
    explained = host.explain(request, suggests=True)
    assert not explained.fits
    moved = [one.text for one in explained.suggestions if one.kind == "guests"]
    assert moved
    there = {str(found.instance): found.id for found in host.state.claims.values()}
    guest, command = moved[0].removeprefix("move away ").split(": ")
    assert command == f"openstack server migrate {guest}"
    host.agent.tracking.tracker.abort(there[guest])
    host.placement.other.release(guest)
    assert host.explain(request).fits
    for claim_id in set(there.values()) - {there[guest]}:
        host.agent.tracking.tracker.abort(claim_id)
