"""Each request carries a microversion, one of which Placement understands it and gives its errors
codes, as seen at Placement's side.
"""

from collections.abc import Iterable

import pytest

from agent.model.names import child_uuid
from agent.model.provider_tree import ProviderTree
from agent.placement.allocations.candidates import candidates, parse_query
from agent.placement.allocations.change import (
    Doubling,
    add_resources,
    delete,
    delete_forced,
    remove_resources,
)
from agent.placement.allocations.claim import Owner, claim, move
from agent.placement.allocations.host import add_host, decommission, remove_host
from agent.placement.allocations.records import (
    provider_by,
    read_consumer,
    usages_for_limits,
)
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, new_uuid, shaped, total
from tests.support.consumer_book import Book
from tests.support.exchange import LEAST, Exchange, kind, without_their_version
from tests.support.nova_style_driver import NovaStyleDriver
from tests.support.placement import PROJECT, USER, PlacementServer
from tests.support.settled import OWNER, A, C, D, H, M, R, Scene, request

VCPU, MEMORY = {"VCPU": total(16)}, {"MEMORY_MB": total(16384)}
CLAIM = {"VCPU": 1, "MEMORY_MB": 2048}
CHILD, CARD = f"{NAME}_CELL", f"{NAME}_CARD"
TWO = {R: {"VCPU": 2}}


def check(requests: Iterable[Exchange], *kinds: str) -> None:
    """Each has its version, and there are some of each of these kinds."""
    found = list(requests)
    assert without_their_version(found) == []
    assert set(kinds) <= LEAST.keys()
    assert set(kinds) - {kind(one) for one in found} == set()


def with_card(tree: ProviderTree) -> None:
    """A host in an aggregate, with a cell, and with a card of a class and a trait that Placement does
    not have yet.
    """
    card = (NAME, {"CUSTOM_CARD": total(2)})
    traits = {CHILD: ["HW_NUMA_ROOT"], CARD: ["CUSTOM_FAST"]}
    shaped({**VCPU, **MEMORY}, {CHILD: (NAME, {}), CARD: card}, traits=traits)(tree)
    tree.update_aggregates(NAME, [A])


@pytest.fixture
def agent(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """A host after the first pass of its agent, which wrote one provider after another."""
    agent = host(with_card)
    report = agent.cycle(start=True)
    assert without_their_version(placement.requests) == []
    assert report.state == "changed"
    return agent


@pytest.mark.usefixtures("agent")
def test_every_request_of_a_first_pass_has_its_version(placement: PlacementServer) -> None:
    check(
        placement.requests,
        "GET /resource_providers",
        "GET /traits",
        "PUT /traits/*",
        "PUT /resource_classes/*",
        "POST /resource_providers",
        "PUT /resource_providers/*/inventories",
        "PUT /resource_providers/*/traits",
        "PUT /resource_providers/*/aggregates",
    )


def test_every_request_of_later_passes_has_its_version(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    placement.clear()
    # Others rename and move providers, change what they have, and take something of it.
    placement.other.rename(child_uuid(ROOT, "_CELL"), "another name")
    placement.other.reparent(child_uuid(ROOT, "_CARD"), child_uuid(ROOT, "_CELL"))
    placement.other.set_aggregates(ROOT, [])
    placement.other.claim({ROOT: CLAIM})
    assert agent.cycle().state == "changed"
    # Then all below the root goes.
    agent.driver.script = shaped({**VCPU, **MEMORY})
    assert agent.cycle().state == "changed"
    check(
        placement.requests,
        "GET /resource_providers",
        "GET /resource_providers/*/inventories",
        "GET /resource_providers/*/traits",
        "GET /resource_providers/*/aggregates",
        "PUT /resource_providers/*",
        "DELETE /resource_providers/*",
    )


def test_every_request_about_the_guests_of_a_node_has_its_version(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    book = Book(agent.folder, ROOT)
    gone = placement.other.claim({ROOT: CLAIM})
    book.tracked(placement.other.claim({ROOT: CLAIM}))
    book.instance(lacking := new_uuid())
    book.claim(lacking)
    book.instance(gone, deleted=True)
    placement.clear()
    assert agent.once(reread=True).state == "changed"
    check(
        placement.requests,
        "GET /resource_providers/*/allocations",
        "GET /allocations/*",
        "PUT /allocations/*",
    )


def test_every_request_of_a_reshape_has_its_version(host: Host, placement: PlacementServer) -> None:
    agent = host(driver=NovaStyleDriver())
    agent.once()
    check(placement.requests)
    placement.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 512}})
    placement.clear()
    agent.driver.split = True
    assert agent.once().state == "changed"
    check(
        placement.requests,
        "GET /resource_providers/*/allocations",
        "GET /allocations/*",
        "POST /reshaper",
    )


def test_every_request_of_an_operation_on_allocations_has_its_version(scene: Scene) -> None:
    client = scene.client
    (offer, *_) = candidates(client, parse_query(["resources=VCPU:2,DISK_GB:10"])).requests
    claim(client, C, [offer], OWNER, doubling=Doubling.REFUSE)
    typed = Owner(PROJECT, USER, "INSTANCE")
    claim(client, D, [request(TWO, "1.38")], typed, doubling=Doubling.REFUSE)
    add_resources(client, C, {H: {"MEMORY_MB": 64}})
    remove_resources(client, C, {H: {"MEMORY_MB": 64}})
    move(client, C, M, expected=None)
    assert read_consumer(client, M) is not None
    assert usages_for_limits(client, PROJECT)
    delete(client, M)
    delete_forced(client, D)
    add_host(client, M, host="H")
    remove_host(client, A, provider=R)
    assert provider_by(client, H)
    assert decommission(client, R, known=[]).deleted
    check(
        scene.placement.requests,
        "GET /allocation_candidates",
        "GET /allocations/*",
        "PUT /allocations/*",
        "POST /allocations",
        "DELETE /allocations/*",
        "GET /usages",
        "GET /resource_providers",
        "GET /resource_providers/*",
        "GET /resource_providers/*/aggregates",
        "PUT /resource_providers/*/aggregates",
        "GET /resource_providers/*/allocations",
        "DELETE /resource_providers/*",
    )
