"""What Placement does not offer, or not to this account, is asked again: at a start, and then once
an hour.
"""

import dataclasses

import pytest

from agent.model.names import child_uuid
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, shaped, total
from tests.support.monotonic import Clock
from tests.support.placement import PlacementServer

VCPU = {"VCPU": total(16)}
CHILDREN = {f"N{number}": (NAME, {"VGPU": total(2)}) for number in range(4)}
N0 = child_uuid(ROOT, "N0")

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("agent.placement.server.time", clock)
    return clock


def grown(amount: int) -> dict[str, tuple[str, dict[str, dict[str, int]]]]:
    return {name: (NAME, {"VGPU": total(amount)}) for name in CHILDREN}


def reshapes(placement: PlacementServer) -> int:
    return len([one for one in placement.requests if one.path == "/reshaper"])


def test_a_role_that_was_missing_is_asked_for_again_after_an_hour_and_at_a_start(
    host: Host, placement: PlacementServer, clock: Clock
) -> None:
    agent = host(shaped(VCPU, CHILDREN), roles="admin")
    tried = []
    for minute in sorted({*range(0, 125, 10), 59, 119}):
        clock.now = 60.0 * minute
        agent.driver.script = shaped(VCPU, grown(2 + minute))
        placement.clear()
        assert agent.cycle(start=True).state == "changed"
        tried += [minute] if reshapes(placement) else []
    assert tried == [0, 60, 120]
    agent.stop()
    # Somebody gave the account the role, and the agent was started again.
    agent.roles = "admin,service"
    agent.driver.script = shaped(VCPU, grown(500))
    placement.clear()
    assert agent.cycle(start=True).state == "changed"
    assert (reshapes(placement), placement.count("PUT")) == (1, 0)


def test_a_newer_placement_is_noticed_where_something_waits_for_it(
    host: Host, placement: PlacementServer, clock: Clock
) -> None:
    agent = host(shaped(VCPU, {"N0": (NAME, {}), "N1": ("N0", {"VGPU": total(2)})}))
    agent.once()
    assert agent.cycle(start=True).state == "in-sync"
    server = agent.fleet.context.server
    server.forget(dataclasses.replace(server.capabilities, max_version="1.36"))
    agent.driver.script = shaped(VCPU, {"N0": (NAME, {}), "N1": (NAME, {"VGPU": total(2)})})
    # Not asked yet by this process, because nothing waited for it.
    placement.max_version = "1.36"
    placement.clear()
    report = agent.cycle()
    assert [one.kind for one in report.drift] == ["identity"]
    assert "1.37" in report.drift[0].remedy
    assert [one.path for one in placement.requests if one.path == "/"] == ["/"]
    placement.max_version = None
    for minute in range(1, 60):
        clock.now = 60.0 * minute
        placement.clear()
        assert [one.kind for one in agent.cycle().drift] == ["identity"]
        assert placement.count() == 1
    clock.now = 3600.0
    report = agent.cycle()
    assert (report.state, report.drift) == ("changed", ())
    placement.clear()
    assert agent.cycle().state == "in-sync"
    assert placement.count() == 1
