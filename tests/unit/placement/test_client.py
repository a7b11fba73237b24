"""The API as typed calls: what goes into a URL, and what may come back."""

import pytest

from agent.errors import PlacementUnreachable
from tests.support import faults
from tests.unit.placement.nodes import N0, NAME, ROOT, THEIR_AGGREGATE

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
