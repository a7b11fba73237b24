"""The API as typed calls: what goes into a URL, and what may come back."""

import pytest

from agent.errors import PlacementRefused, PlacementUnreachable
from agent.model.inventory import Allocation
from agent.placement.client import LONGEST_QUERY
from tests.support import faults
from tests.support.placement import PROJECT, USER
from tests.unit.placement.nodes import N0, NAME, OTHER_UUID, ROOT, THEIR_AGGREGATE, total

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
WRITES = {
    "create_provider",
    "update_provider",
    "set_inventories",
    "set_traits",
    "set_aggregates",
    "set_allocation",
    "set_allocations",
    "delete_allocation",
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


@pytest.mark.parametrize("name", ["rack 7/a&b#c+d", "cn&uuid=" + ROOT, "größe 100%", "a" * 200])
def test_a_name_means_itself_in_a_query(name, placement, client):
    placement.other.create_provider(name, OTHER_UUID)
    placement.other.create_provider("a b", ROOT)
    assert client.provider_named(name).uuid == OTHER_UUID
    assert client.provider_named(name + "x"[:1]) is None


def test_what_placement_does_not_know_is_nothing(placement, client):
    assert client.tree(ROOT) == []
    assert client.provider(ROOT) is None
    assert client.providers_with_trait("CUSTOM_NOBODY") == []
    assert client.usages(ROOT) == {}
    assert client.consumers(ROOT) == {}
    assert client.holdings(ROOT) is None
    assert not client.delete_allocation(CONSUMER)
    assert client.allocation(CONSUMER) is None
    client.delete_provider(ROOT)


@pytest.mark.parametrize("name", ["HW_CPU_X86_AVX", "CUSTOM_a", "CUSTOM_A/../x", ""])
def test_only_custom_names_are_created(name, placement, client):
    for call in (client.ensure_trait, client.ensure_resource_class):
        with pytest.raises(ValueError, match="is no custom name"):
            call(name)
    assert placement.count() == 0


def test_long_lists_are_split_and_each_result_comes_once(placement, client):
    aggregates = [f"7c5d1a10-6f4d-4a0e-8c63-{number:012d}" for number in range(450)]
    storage = placement.other.create_provider("storage")
    placement.other.set_traits(storage, ["MISC_SHARES_VIA_AGGREGATE"])
    placement.other.set_aggregates(storage, [aggregates[0], aggregates[-1]])
    placement.clear()
    assert [row.uuid for row in client.sharing(aggregates)] == [storage]
    assert placement.count() >= 5
    assert max(len(one.target) for one in placement.requests) < LONGEST_QUERY + 200
    placement.clear()
    assert client.sharing([]) == []
    assert placement.count() == 0


def test_a_refusal_carries_status_and_code(placement, client):
    placement.other.create_provider(NAME, ROOT)
    with pytest.raises(PlacementRefused) as refused:
        client.create_provider(N0, NAME, None)
    assert (refused.value.status, refused.value.placement_code) == (409, "placement.duplicate_name")


def test_contents_written_come_back_with_the_new_generation(placement, client):
    row = client.create_provider(ROOT, NAME, None)
    assert (row.generation, row.parent_uuid) == (0, None)
    generation, inventories = client.set_inventories(ROOT, 0, {"VCPU": {"total": 4}})
    assert (generation, inventories["VCPU"]["max_unit"]) == (1, 2147483647)
    assert client.set_aggregates(ROOT, 1, [THEIR_AGGREGATE]) == (2, {THEIR_AGGREGATE})
    assert client.set_traits(ROOT, 2, ["HW_CPU_X86_AVX"]) == (3, {"HW_CPU_X86_AVX"})
    assert client.inventories(ROOT)[0] == client.aggregates(ROOT)[0] == client.traits(ROOT)[0] == 3


def test_a_reshape_moves_inventory_and_allocations(placement, client):
    client.create_provider(ROOT, NAME, None)
    client.create_provider(N0, "N0", ROOT)
    client.set_inventories(ROOT, 0, {"VCPU": total(4)})
    placement.other.claim({ROOT: {"VCPU": 2}}, CONSUMER)
    held = client.allocation(CONSUMER)
    assert held == Allocation(CONSUMER, {ROOT: {"VCPU": 2}}, PROJECT, USER, 1, {ROOT: 2})
    assert client.consumers(ROOT) == {CONSUMER: {"VCPU": 2}}
    moved = held.edited({"allocations": {N0: {"resources": {"VCPU": 2}}}})
    client.reshape({ROOT: (2, {}), N0: (0, {"VCPU": total(4)})}, [moved])
    assert client.usages(N0) == {"VCPU": 2}
    assert client.inventories(ROOT)[1] == {}
