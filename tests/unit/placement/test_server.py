"""What one server offers: asked for once, refused if too old, learned by many nodes together."""

import dataclasses

import pytest

from agent.errors import PlacementTooOld, PlacementUnreachable
from agent.model.mirror import Journal, Ownership
from agent.model.names import ProviderUuid
from agent.model.provider_tree import PresentTree, ProviderTree
from agent.placement.mirror import log_changes, log_losses
from agent.placement.server import Server
from agent.placement.transport import OutageLog
from tests.support import faults
from tests.support.placement import PlacementServer
from tests.unit.placement.conftest import transport_to
from tests.unit.placement.nodes import N0, NAME, ROOT, THEIR_AGGREGATE


class Kept:
    """The part of a store that a server uses, in memory."""

    def __init__(self):
        self.saved = {}

    def capabilities(self, endpoint):
        return self.saved.get(endpoint)

    def save_capabilities(self, capabilities):
        self.saved[capabilities.endpoint] = capabilities


def server_of(placement, kept=None, **options) -> Server:
    return Server(transport_to(placement), "http", kept or Kept(), **options)


@pytest.mark.parametrize(
    ("offered", "good"), [("1.29", False), ("1.9", False), ("1.30", True), ("1.36", True)]
)
def test_a_server_must_offer_1_30(offered, good):
    placement = PlacementServer(max_version=offered)
    kept = Kept()
    server = server_of(placement, kept)
    if good:
        assert server.connect(server.client()).max_version == offered
    else:
        with pytest.raises(
            PlacementTooOld,
            match=rf"needs placement 1\.30, server offers {offered} \({placement.url}\)",
        ):
            server.connect(server.client())
        assert kept.saved == {}
    placement.close()


def test_what_several_nodes_learn_adds_up(placement):
    server = server_of(placement)
    known = server.connect(server.client())
    server.learn(dataclasses.replace(known, traits=frozenset({"CUSTOM_A"}), can_reshape=False))
    merged = server.learn(dataclasses.replace(known, classes=frozenset({"CUSTOM_B"})))
    assert (
        merged
        == server.capabilities
        == dataclasses.replace(
            known,
            traits=frozenset({"CUSTOM_A"}),
            classes=frozenset({"CUSTOM_B"}),
            can_reshape=False,
        )
    )
    server.forget(known)
    assert server.capabilities == known


def test_each_client_has_a_request_id_of_its_own(placement):
    server = server_of(placement)
    one, other = server.client(), server.client()
    assert one.exchange.request_id.startswith("req-")
    assert one.exchange.request_id != other.exchange.request_id


# --- the API as typed calls: what goes into a URL, and what may come back ---


CONSUMER = "c0000000-0000-4000-8000-000000000001"
CALLS = {
    "max_version": lambda client: client.max_version(),
    "tree": lambda client: client.tree(ROOT),
    "providers_with_trait": lambda client: client.providers_with_trait("CUSTOM_A"),
    "provider": lambda client: client.provider(ROOT),
    "provider_named": lambda client: client.provider_named(NAME),
    "sharing": lambda client: client.sharing([THEIR_AGGREGATE]),
    "create_provider": lambda client: client.create_provider(N0, "N0", None),
    "update_provider": lambda client: client.update_provider(ROOT, "other", None),
    "inventories": lambda client: client.inventories(ROOT),
    "set_inventories": lambda client: client.set_inventories(ROOT, 0, {}),
    "traits": lambda client: client.traits(ROOT),
    "set_traits": lambda client: client.set_traits(ROOT, 0, []),
    "aggregates": lambda client: client.aggregates(ROOT),
    "set_aggregates": lambda client: client.set_aggregates(ROOT, 0, []),
    "usages": lambda client: client.usages(ROOT),
    "known_traits": lambda client: client.known_traits(["CUSTOM_A"]),
    "consumers": lambda client: client.consumers(ROOT),
    "allocation": lambda client: client.allocation(CONSUMER),
    "holdings": lambda client: client.holdings(ROOT),
    "candidates": lambda client: client.candidates("resources=VCPU:1"),
    "owner_usages": lambda client: client.owner_usages("project"),
    "set_allocation": lambda client: client.set_allocation(CONSUMER, {}),
    "set_allocations": lambda client: client.set_allocations({CONSUMER: {}}),
    "delete_allocation": lambda client: client.delete_allocation(CONSUMER),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("html", [True, False])
def test_whatever_answers_200_with_something_else_is_no_placement(call, html, placement, client):
    placement.faults.add(faults.html(200) if html else faults.answer(200), times=None)
    with pytest.raises(
        PlacementUnreachable, match="with something that is not Placement's"
    ) as refused:
        CALLS[call](client)
    assert (refused.value.kind, refused.value.outcome_unknown) == ("not-placement", True)


@pytest.mark.parametrize("name", ["HW_CPU_X86_AVX", "CUSTOM_a", "CUSTOM_A/../x", ""])
def test_only_custom_names_are_created(name, placement, client):
    for call in (client.ensure_trait, client.ensure_resource_class):
        with pytest.raises(ValueError, match="is no custom name"):
            call(name)
    assert placement.count() == 0


# --- an outage is told once a kind, then now and then, and its end once ---


REFUSED = "cannot connect to http://p: Connection refused"


class Clock:
    """The time, as the test says."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def outages(clock):
    return OutageLog(clock)


@pytest.fixture
def told(caplog):
    """What was logged since the last time this was asked."""
    caplog.set_level("DEBUG", "agent.placement.transport")

    def lines():
        said = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return said

    return lines


def test_failures_without_a_cycle_count_one_by_one(outages, told):
    for _ in range(11):
        outages.record_failure("catalog", "no endpoint")
    assert told() == [
        ("WARNING", "placement unreachable: no endpoint"),
        ("WARNING", "placement unreachable: no endpoint (suppressed 9)"),
    ]


def test_all_failures_of_one_cycle_count_once(outages, told):
    for cycle in range(10):
        for _ in range(5):
            outages.record_failure("connect", REFUSED, f"req-{cycle}")
    assert told() == [("WARNING", f"placement unreachable: {REFUSED}")]
    outages.record_failure("connect", REFUSED, "req-10")
    assert told() == [("WARNING", f"placement unreachable: {REFUSED} (suppressed 9)")]


def test_each_kind_is_told_and_counted_by_itself(outages, told):
    for cycle in range(10):
        outages.record_failure("connect", REFUSED, f"req-{cycle}")
        outages.record_failure("timeout", "too late", f"req-{cycle}")
    assert told() == [
        ("WARNING", f"placement unreachable: {REFUSED}"),
        ("WARNING", "placement unreachable: too late"),
    ]


def test_the_end_is_told_once_with_how_long_it_was_since_the_first_of_any_kind(
    outages, clock, told
):
    outages.record_failure("connect", REFUSED, "req-1")
    clock.now += 100
    outages.record_failure("timeout", "too late", "req-2")
    clock.now += 23.4
    told()
    outages.record_answer()
    outages.record_answer()
    assert told() == [("INFO", "placement reachable again after 123 s")]


# --- a message has a few names and a number, however many things others changed ---


MANY = 8000
UUIDS = [ProviderUuid(f"{number:08}") for number in range(MANY)]


def test_few_names_of_many_deleted_providers(caplog):
    names = [f"node_{number:04}" for number in range(MANY)]
    log_changes(names, ())
    log_changes(names[:1], names[1:])
    log_changes(names[:5], ())
    first, back, all_named = (record.getMessage() for record in caplog.records)
    assert "(node_0000, node_0001, node_0002, node_0003, node_0004 and 7995 more)" in first
    assert "node_0004 and 7995 more)" in back
    assert "(node_0000, node_0001, node_0002, node_0003, node_0004);" in all_named


def test_few_of_many_providers_that_lost_traits(caplog):
    traits = frozenset(("CUSTOM_A",))
    lost = log_of_losses(traits, UUIDS[:20], caplog)
    assert lost[0] == "provider p00000001 lost traits that the agent had set: CUSTOM_A"
    assert len(lost) == 6
    assert lost[5] == "14 more providers lost traits that the agent had set"
    assert len(log_of_losses(traits, UUIDS[:6], caplog)) == 5


def log_of_losses(traits, uuids, caplog):
    """The messages when all providers but the root, whose write had an unknown outcome, have lost
    their traits.
    """
    before, after = ProviderTree(), ProviderTree()
    for tree in (before, after):
        tree.populate_from_iterable(
            {
                "uuid": uuid,
                "name": f"p{uuid}",
                "parent_uuid": uuids[0] if uuid != uuids[0] else None,
            }
            for uuid in uuids
        )
    for uuid in uuids:
        before.update_traits(uuid, traits)
    caplog.clear()
    journal = Journal({uuid: Ownership(traits=traits) for uuid in uuids})
    log_losses(PresentTree(before), PresentTree(after), uuids[0], journal, frozenset(uuids[:1]))
    return [record.getMessage() for record in caplog.records]
