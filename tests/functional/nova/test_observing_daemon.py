"""The daemon on a host that another program manages: it observes, and writes nothing."""

from pathlib import Path
from typing import Any

import pytest

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from tests.functional.test_daemon import Host
from tests.support import hanging_driver
from tests.support.agent import new_uuid
from tests.support.child import CHECKOUT
from tests.support.daemon_host import ROOT
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import until
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentHere
from tests.support.tracking import F1, uuid_of

MARKS = {"OWNER_NOVA", "CUSTOM_COMPUTE_NODE_AGENT_NODE_A"}


def node(client: ApiClient) -> Any:
    try:
        (found,) = client.nodes()
    except (ApiUnreachable, ApiProblem, ValueError):
        return None
    return found


@pytest.fixture
def host(http_placement: HttpPlacement, tmp_path: Path) -> Host:
    found = Host(tmp_path / "agent", http_placement.url)
    assert AgentHere(found.folder, found.config).run("--once").code == 0
    other = http_placement.other
    other.set_traits(ROOT, other.traits(ROOT) - MARKS)
    http_placement.clear()
    found.set("DEFAULT", mode="observe")
    return found


def test_a_pass_is_one_request_and_nothing_is_written(
    host: Host, http_placement: HttpPlacement
) -> None:
    client = ApiClient(host.command.socket)
    with host.service.running() as service:
        until(lambda: (found := node(client)) and found["state"] == "in-sync", lambda: service)
        http_placement.clear()
        until(lambda: len(http_placement.requests) >= 3, lambda: service)
        paths = {request.path.partition("?")[0] for request in http_placement.requests}
        assert paths == {"/resource_providers"}
        before = http_placement.dump()
        inventory = http_placement.other.inventory(ROOT)
        wrong = {**inventory["VCPU"], "total": inventory["VCPU"]["total"] + 1}
        http_placement.other.set_inventory(ROOT, {**inventory, "VCPU": wrong})
        until(lambda: (found := node(client)) and found["state"] == "pending", lambda: service)
        # It is a difference in every pass, because nothing mends it.
        assert until(lambda: node(client))["state"] == "pending"
        # A difference is no fault of the agent.
        until(lambda: client.health() == "ready: 1 pending", lambda: service)
        assert client.readiness()
        http_placement.other.set_inventory(ROOT, inventory)
        until(lambda: (found := node(client)) and found["state"] == "in-sync", lambda: service)
        with pytest.raises(ApiProblem) as refused:
            client.create_claim(
                {
                    "id": uuid_of("c1"),
                    "node": ROOT,
                    "instance": instance_body("i1"),
                    "flavor": flavor_body(F1),
                }
            )
        assert (refused.value.status, refused.value.code) == (409, "agent.observes-only")
        assert "[DEFAULT] mode is observe" in refused.value.message
        assert "[DEFAULT] mode = manage" in refused.value.remedy
        with pytest.raises(ApiProblem) as refused:
            client.forget_guest(uuid_of("i1"))
        assert refused.value.code == "agent.observes-only"
        assert http_placement.dump()["providers"].keys() == before["providers"].keys()
    assert {request.method for request in http_placement.requests} == {"GET"}


def test_from_the_reload_on_nothing_is_written_though_the_first_pass_cannot_begin(
    host: Host, http_placement: HttpPlacement
) -> None:
    host.set("DEFAULT", mode="manage", compute_driver=hanging_driver.NAME)
    site = hanging_driver.install(host.folder)
    instance, client = new_uuid(), ApiClient(host.command.socket)
    with host.service.running(PYTHONPATH=f"{CHECKOUT}:{site}") as service:
        until(lambda: (found := node(client)) and found["state"] == "in-sync", lambda: service)
        http_placement.other.claim({ROOT: {"VCPU": 1}}, instance)
        (host.folder / hanging_driver.ABSENT).touch()
        host.set("DEFAULT", mode="observe")
        client.reload()
        http_placement.clear()
        removal = f"/v1/instances/{instance}/allocation?scope=all"
        for change in (
            lambda: client.request("DELETE", removal),
            lambda: client.forget_guest(uuid_of("i1")),
        ):
            with pytest.raises(ApiProblem) as refused:
                change()
            assert (refused.value.code, refused.value.status) == ("agent.observes-only", 409)
        (host.folder / hanging_driver.ABSENT).unlink()
        until(lambda: (found := node(client)) and found["state"] == "in-sync", lambda: service)
        assert {request.method for request in http_placement.requests} <= {"GET"}
        assert http_placement.other.allocations(instance)["allocations"]
