"""An ironic that does not answer, or not all of the time: nothing is concluded from what was not
said.
"""

import threading
import time
from collections.abc import Iterator

import pytest

from agent.errors import ConfigError, NotReady
from tests.functional.ironic.conftest import Metal
from tests.functional.ironic.ironic import PASSWORD, Ironic
from tests.functional.ironic.metal import MetalAgent, audited
from tests.support import faults
from tests.support.keystone import AGENT, Keystone
from tests.support.placement import PlacementServer
from tests.support.proxy import FaultProxy

pytestmark = pytest.mark.long

LIST = r"^/v1/nodes\?"
ONE = r"^/v1/nodes/"


@pytest.fixture
def behind(metal: Metal, ironic: Ironic, between: FaultProxy) -> MetalAgent:
    """An agent that reaches ``ironic`` through the proxy."""
    return metal(ironic.credentials(between.url))


def pages(proxy: FaultProxy) -> int:
    return len([one for one in proxy.requests if one.path == "/v1/nodes"])


@pytest.mark.parametrize(
    "fault",
    [faults.html(503), faults.half_answer(), faults.reset(), faults.answer(500), faults.html(200)],
    ids=["503", "half", "reset", "500", "a page instead"],
)
def test_an_error_in_page_3_of_5_is_no_list_and_changes_nothing(
    behind: MetalAgent,
    ironic: Ironic,
    between: FaultProxy,
    placement: PlacementServer,
    fault: faults.Action,
) -> None:
    nodes = [
        ironic.create(uuid=f"{number}0000000-0000-4000-8000-000000000000") for number in range(9)
    ]
    assert set(behind.nodes()) == set(nodes)
    before = placement.dump()
    for node in nodes:
        ironic.set_traits(node, "CUSTOM_NEW")
    between.clear()
    rule = between.faults.add(fault, path=f"marker={nodes[3]}", times=None)
    report = behind.run()
    assert rule.hits == 3
    # Three times from the start, three pages each.
    assert pages(between) == 9
    (error,) = report.errors
    assert (error.code, report.nodes) == (NotReady.code, ())
    assert placement.dump() == before
    # What was known stays known, so that nobody is told of a node that is gone.
    assert set(behind.driver.nodes()) == set(nodes)
    between.faults.clear()
    assert audited(behind.run()) == set(nodes)
    assert all("CUSTOM_NEW" in one["traits"] for one in placement.dump()["providers"].values())


def test_an_error_that_passes_is_not_even_told(
    behind: MetalAgent, ironic: Ironic, between: FaultProxy
) -> None:
    nodes = {ironic.create() for _ in range(3)}
    behind.start()
    rule = between.faults.add(faults.html(503), path=LIST, times=2)
    assert set(behind.nodes()) == nodes
    assert rule.hits == 2


def test_nobody_is_deleted_because_ironic_does_not_say(
    behind: MetalAgent, ironic: Ironic, between: FaultProxy, placement: PlacementServer
) -> None:
    gone, stays = ironic.available(), ironic.available()
    behind.nodes()
    ironic.delete(gone)
    # A proxy's own 404 is not ironic's.
    for fault in (faults.cut(), faults.html(503), faults.html(404), faults.answer(404)):
        between.faults.add(fault, path=ONE, times=None)
        report = behind.run()
        assert [one.code for one in report.errors] == [NotReady.code]
        assert {one.uuid: one.state for one in report.nodes} == {stays: "in-sync"}
        assert set(placement.dump()["providers"]) == {gone, stays}
        between.faults.clear()
    behind.nodes()
    assert set(placement.dump()["providers"]) == {stays}


def test_an_ironic_that_is_down_at_the_start_is_asked_as_often_as_the_options_say(
    metal: Metal, ironic: Ironic, between: FaultProxy
) -> None:
    agent = metal(
        ironic.credentials(between.url), scope={"api_max_retries": 3, "api_retry_interval": 0}
    )
    node = ironic.available()
    with between.down(), pytest.raises(NotReady, match="no connection"):
        agent.start()
    rule = between.faults.add(faults.html(503), path="^/v1$", times=3)
    assert set(agent.nodes()) == {node}
    assert rule.hits == 3


def test_waiting_for_an_ironic_that_is_down_ends_when_the_driver_is_stopped(
    metal: Metal, ironic: Ironic, between: FaultProxy
) -> None:
    agent = metal(
        ironic.credentials(between.url), scope={"api_max_retries": 60, "api_retry_interval": 60}
    )
    with between.down():
        threading.Timer(0.5, agent.driver.stop).start()
        begun = time.monotonic()
        with pytest.raises(NotReady):
            agent.start()
    assert time.monotonic() - begun < 30


def test_an_ironic_that_hangs_is_given_up_after_the_timeout(metal: Metal, ironic: Ironic) -> None:
    ironic.available()
    agent = metal(scope={"timeout": 1})
    agent.nodes()
    ironic.suspend()
    begun = time.monotonic()
    (error,) = agent.run().errors
    assert "no answer in time" in error.message
    assert "[ironic] timeout" in error.remedy
    assert time.monotonic() - begun < 45
    ironic.resume()
    assert not agent.run().errors


def test_what_ironic_itself_says_is_told_and_nothing_of_a_proxys_page(
    behind: MetalAgent, between: FaultProxy
) -> None:
    behind.start()
    between.faults.add(faults.html(502), path=LIST, times=3)
    (error,) = behind.run().errors
    assert error.message == "ironic GET /v1/nodes -> 502"


@pytest.fixture
def tokens(keystone: Keystone) -> Iterator[Keystone]:
    yield keystone
    if not keystone.running:
        keystone.start()


def token(agent: MetalAgent) -> str:
    assert agent.driver._api is not None
    return str(agent.driver._api._adapter.get_token())


def test_a_token_that_has_expired_is_replaced_once_and_nobody_notices(
    metal: Metal, ironic: Ironic, between: FaultProxy, tokens: Keystone
) -> None:
    """The ironic asks for no token, so that the proxy refuses it in its place."""
    agent = metal({**tokens.credentials(AGENT), "endpoint_override": between.url})
    nodes = {ironic.available() for _ in range(3)}
    agent.nodes()
    old = token(agent)
    rule = between.faults.add(faults.answer(401), path=LIST)
    assert set(agent.nodes()) == nodes
    assert rule.hits == 1
    assert token(agent) != old


def test_credentials_that_are_refused_end_a_start_and_are_told_in_a_run(
    metal: Metal, ironic: Ironic, between: FaultProxy, tokens: Keystone
) -> None:
    wrong = {**tokens.credentials(AGENT), "password": "wrong", "endpoint_override": between.url}
    with pytest.raises(ConfigError, match="identity refuses the credentials") as refused:
        metal(wrong).start()
    assert "[ironic]" in refused.value.remedy
    agent = metal({**tokens.credentials(AGENT), "endpoint_override": between.url}, host="metal-2")
    agent.nodes()
    between.faults.add(faults.answer(401), path=LIST, times=None)
    (error,) = agent.run().errors
    assert (error.code, error.remedy) == (
        NotReady.code,
        "check the credentials in section [ironic]",
    )


def test_an_ironic_that_asks_for_a_user_and_a_password(
    metal: Metal, guarded: Ironic, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node = guarded.available()
    agent = metal(guarded.credentials())
    assert set(agent.nodes()) == {node}
    with pytest.raises(ConfigError, match="401"):
        metal({**guarded.credentials(), "password": "wrong"}, host="metal-2").start()
    assert PASSWORD not in agent_log.text


def test_what_is_deployed_and_what_is_being_deployed_is_reserved(
    metal: Metal, guarded: Ironic, placement: PlacementServer
) -> None:
    agent, node = metal(guarded.credentials()), guarded.available()
    agent.nodes()
    guarded.set(node, instance_uuid="9d8f7e6c-5b4a-4392-8170-6f5e4d3c2b1a")
    guarded.provision(node, "active")
    seen = set()
    end = time.monotonic() + 15
    while guarded.node(node)["provision_state"] != "active" and time.monotonic() < end:
        seen.add(guarded.node(node)["provision_state"])
        agent.nodes()
        assert placement.other.inventory(node)["CUSTOM_BAREMETAL_GOLD"]["reserved"] == 1
    assert seen & {"deploying", "wait call-back"}
    guarded.provision(node, "deleted", "available")
    agent.nodes()
    assert placement.other.inventory(node)["CUSTOM_BAREMETAL_GOLD"]["reserved"] == 0


@pytest.mark.parametrize("group", ["racka", "RackA"])
def test_a_conductor_group_is_meant_in_upper_and_lower_case(
    metal: Metal, guarded: Ironic, group: str
) -> None:
    node = guarded.create(conductor_group="racka")
    assert set(metal(guarded.credentials(), scope={"conductor_group": group}).nodes()) == {node}
    assert (
        metal(guarded.credentials(), scope={"conductor_group": "rackb"}, host="metal-2").nodes()
        == {}
    )
    # Empty is the default group, which none of these is in.
    assert metal(guarded.credentials(), scope={"conductor_group": ""}, host="metal-3").nodes() == {}
