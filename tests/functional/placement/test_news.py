"""What the daemon's log says of nodes that cannot be served, how loudly and how often."""

import pytest

from agent.service.log_writer import ProblemLog
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, new_uuid, shaped, total
from tests.support.nova_style_driver import NovaStyleDriver
from tests.support.placement import PlacementServer

HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
C = "c0000000-0000-4000-8000-000000000001"

pytestmark = pytest.mark.usefixtures("short_waits")


class Teller:
    """A daemon's periods and its news, at times that the test says."""

    def __init__(self, agent: AgentUnderTest, log: pytest.LogCaptureFixture) -> None:
        self._agent, self._log, self._news, self._now = (
            agent,
            log,
            ProblemLog(lambda: self._now),
            0.0,
        )

    def period(self, now: float, *, start: bool = False) -> list[tuple[str, str]]:
        """One period, and what it had the log say."""
        self._now = now
        self._log.clear()
        report = self._agent.period(start=start)
        self._news.log_changes(report.errors, report.nodes)
        return [
            (one.levelname, one.getMessage())
            for one in self._log.records
            if one.levelname not in ("DEBUG", "INFO") and one.name.startswith("agent")
        ]


def test_a_name_conflict_is_an_error_once_and_then_each_hour(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    holder = placement.other.create_provider(NAME)
    teller = Teller(host(shaped(HAS)), agent_log)
    ((level, line),) = teller.period(0, start=True)
    assert level == "ERROR"
    assert ROOT in line
    assert holder in line
    assert [teller.period(seconds) for seconds in (60, 1800, 3599)] == [[]] * 3
    assert teller.period(3600) == [("ERROR", line)]
    assert teller.period(3660) == []


def test_a_node_whose_reshape_is_refused_is_critical_with_the_names_of_all_concerned(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(driver=NovaStyleDriver(), roles="admin")
    agent.once()
    placement.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 512}}, C)
    agent.driver.split = True
    teller = Teller(agent, agent_log)
    ((level, line),) = teller.period(0, start=True)
    assert level == "CRITICAL"
    for concerned in (f"provider {NAME} {NAME}_CELL0 {NAME}_CELL1", C, "403", "role service"):
        assert concerned in line
    assert teller.period(60) == []


def test_of_many_concerned_a_few_are_named(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(driver=NovaStyleDriver(vcpus=64), roles="admin")
    agent.once()
    for _ in range(20):
        placement.other.claim({ROOT: {"VCPU": 2}}, new_uuid())
    agent.driver.split = True
    ((level, line),) = Teller(agent, agent_log).period(0, start=True)
    assert level == "CRITICAL"
    assert "and 15 more" in line
    assert len(line) < 600
