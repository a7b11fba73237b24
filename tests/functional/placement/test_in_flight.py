"""Four requests at once, over HTTP, leave exactly what one at a time leaves."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from agent.model.names import child_uuid
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import NAME, ROOT, AgentUnderTest, Shape, shaped, total
from tests.support.http_placement import HttpPlacement
from tests.support.proxy import FaultProxy
from tests.support.settled import Want, node, settled

Inventories = Mapping[str, Mapping[str, Any]]

CELLS = [f"N{number}" for number in range(8)]
DEVICES = {f"D{number}": CELLS[number % 8] for number in range(64)}
HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
CELL, DEVICE, BETTER = {"PCPU": total(8)}, {"CUSTOM_DEVICE": total(4)}, {"CUSTOM_DEVICE": total(6)}
MARKED = dict.fromkeys(CELLS, ("HW_NUMA_ROOT",)) | dict.fromkeys(
    list(DEVICES)[:20], ("CUSTOM_MARK",)
)


def host_shape(device: Inventories = DEVICE, devices: Collection[str] = tuple(DEVICES)) -> Shape:
    """A root with 8 cells of 8 devices each: 73 providers in all."""
    children = dict.fromkeys(CELLS, (NAME, CELL)) | {
        name: (DEVICES[name], device) for name in devices
    }
    return shaped(
        HAS, children, traits={name: traits for name, traits in MARKED.items() if name in children}
    )


def tree(
    device: Inventories = DEVICE, devices: Collection[str] = tuple(DEVICES)
) -> dict[str, Want]:
    return {
        NAME: node(HAS),
        **{name: Want(CELL, NAME, MARKED[name]) for name in CELLS},
        **{name: Want(device, DEVICES[name], MARKED.get(name, ())) for name in devices},
    }


pytestmark = [pytest.mark.usefixtures("short_waits"), pytest.mark.long]


@pytest.mark.parametrize("roles", ["admin,service", "admin"], ids=["in-one", "one-by-one"])
def test_the_final_state_is_that_of_one_request_at_a_time(
    roles: str, host: Host, http_placement: HttpPlacement, agent_log: pytest.LogCaptureFixture
) -> None:
    """With the role service the inventories go in one reshape, without it they are written in
    waves.
    """
    agents: dict[int, AgentUnderTest] = {}
    left: dict[int, Any] = {}
    sent: dict[int, Any] = {}
    for max_in_flight in (1, 4):
        http_placement.reset()
        agent = host(
            host_shape(),
            placement=http_placement,
            folder=f"state-{max_in_flight}",
            max_in_flight=max_in_flight,
            roles=roles,
        )
        first = agent.cycle(start=True)
        assert (first.state, first.attempts, first.errors) == ("changed", 1, ())
        agent.driver.script = host_shape(BETTER, list(DEVICES)[:32])
        second = agent.cycle()
        assert (second.state, second.attempts, second.errors) == ("changed", 1, ())
        left[max_in_flight], sent[max_in_flight] = (
            http_placement.dump(),
            Counter(map(str, http_placement.requests)),
        )
        agents[max_in_flight] = agent
    assert left[4] == left[1]
    assert sent[4] == sent[1]
    assert len(left[4]["providers"]) == 41
    settled(agents[4], http_placement, agent_log, tree(BETTER, list(DEVICES)[:32]))


def test_a_conflict_in_the_middle_of_a_wave_costs_one_write_more(
    host: Host,
    http_placement: HttpPlacement,
    proxy: FaultProxy,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    # Without the role service, because one reshape would else write all inventories.
    agent = host(
        host_shape(), placement=http_placement, url=proxy.url, max_in_flight=4, roles="admin"
    )
    assert agent.cycle(start=True).state == "changed"
    agent.driver.script = host_shape(BETTER)
    victim, other = child_uuid(ROOT, "D33"), http_placement.other
    placed = faults.before(lambda _: other.set_traits(victim, {"CUSTOM_RACK7"}))
    rule = proxy.faults.add(placed, method="PUT", path=f"{victim}/inventories$")
    http_placement.clear()
    report = agent.cycle()
    assert rule.hits == 1
    assert (report.state, report.attempts, report.errors) == ("changed", 2, ())
    written = Counter(
        (one.path, one.status)
        for one in http_placement.requests
        if one.method == "PUT" and one.path.endswith("/inventories")
    )
    assert {status for _, status in written} == {200, 409}
    assert [path.split("/")[2] for path, status in written if status == 409] == [victim]
    # What was written beside the conflict is not written again.
    assert sum(count for (_, status), count in written.items() if status == 200) == 64
    assert set(written.values()) == {1}
    expected = tree(BETTER)
    expected["D33"] = Want(BETTER, DEVICES["D33"], {"CUSTOM_RACK7"})
    settled(agent, http_placement, agent_log, expected)
