"""Something in front of Placement that confirms writes, does not pass them on, and answers with what
was there before.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agent.model.report import NodeReport
from agent.placement import clock
from agent.tree.policy import Policy
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, Shape, shaped, total
from tests.support.faults import Reply
from tests.support.http_placement import HttpPlacement
from tests.support.proxy import FaultProxy
from tests.support.settled import Want, node, settled

HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
MORE = {**HAS, "VCPU": total(18)}
CELL, BETTER = {"PCPU": total(8)}, {"PCPU": total(10)}
CELLS = ("N0", "N1", "N2")


class Cache(FaultProxy):
    """Answers a write with what a read of the same place shows."""

    passes_on = True

    def _forward(
        self, method: str, raw_path: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        if self.passes_on or method == "GET":
            return super()._forward(method, raw_path, headers, body)
        if raw_path.endswith("/reshaper"):
            return Reply(204)
        shown = super()._forward("GET", raw_path, headers, b"")
        return Reply(200, shown.body, shown.headers)


@pytest.fixture
def cache(http_placement: HttpPlacement) -> Iterator[Cache]:
    proxy = Cache(http_placement.url)
    proxy.start()
    yield proxy
    proxy.stop()


def cells(inventory: Mapping[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(CELLS, (NAME, inventory))


@pytest.mark.parametrize(
    ("shape", "tree", "what"),
    [
        (shaped(MORE, cells(CELL)), {NAME: node(MORE)}, f"the set-inventory of {NAME}"),
        (
            shaped(HAS, cells(CELL), traits={NAME: ["HW_CPU_X86_AVX"]}),
            {NAME: node(HAS, "HW_CPU_X86_AVX")},
            f"the set-traits of {NAME}",
        ),
        (
            shaped(HAS, cells(BETTER)),
            {NAME: node(HAS), **dict.fromkeys(CELLS, Want(BETTER, NAME))},
            "the reshape of provider ",
        ),
    ],
    ids=["inventory", "traits", "reshape"],
)
def test_a_write_that_is_confirmed_and_not_done_is_told_and_done_once_writes_are_passed_on(
    shape: Shape,
    tree: Mapping[str, Want],
    what: str,
    host: Host,
    cache: Cache,
    http_placement: HttpPlacement,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    agent: AgentUnderTest = host(shaped(HAS, cells(CELL)), placement=http_placement, url=cache.url)
    assert agent.cycle(start=True).state == "changed"
    agent.driver.script, cache.passes_on = shape, False
    for _ in range(3):
        report = agent.cycle()
        (error,) = report.errors
        assert error.code == "placement.not-done"
        assert error.message.startswith(f"{cache.url} confirmed {what}")
        assert "pass writes on" in error.remedy
        assert report.drift == ()
        assert report.state == "degraded"
    cache.passes_on = True
    assert agent.cycle().state == "changed"
    settled(
        agent,
        http_placement,
        agent_log,
        {NAME: node(HAS), **dict.fromkeys(CELLS, Want(CELL, NAME)), **tree},
    )


class Liar(FaultProxy):
    """Answers a write as if it were done, without passing it on: contents with what was sent, and
    a generation that is one higher.
    """

    passes_on = True

    def _forward(
        self, method: str, raw_path: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        if self.passes_on or method == "GET":
            return super()._forward(method, raw_path, headers, body)
        if method == "DELETE" or "/allocations" in raw_path:
            return Reply(204)
        sent = json.loads(body)
        sent["resource_provider_generation"] += 1
        return Reply(200, json.dumps(sent).encode(), {"Content-Type": "application/json"})


@pytest.fixture
def liar(http_placement: HttpPlacement) -> Iterator[Liar]:
    proxy = Liar(http_placement.url)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.mark.parametrize(
    ("shape", "tree", "gone", "what"),
    [
        (shaped(HAS), {NAME: node(HAS)}, {"N0"}, "the deletion of N0"),
        (
            shaped(MORE, {"N0": (NAME, CELL)}),
            {NAME: node(MORE), "N0": Want(CELL, NAME)},
            set(),
            f"the set-inventory of {NAME}",
        ),
        (
            shaped(HAS, {"N0": (NAME, CELL)}, traits={NAME: ["HW_CPU_X86_AVX"]}),
            {NAME: node(HAS, "HW_CPU_X86_AVX"), "N0": Want(CELL, NAME)},
            set(),
            f"the set-traits of {NAME}",
        ),
    ],
    ids=["deletion", "inventory", "traits"],
)
def test_a_write_that_is_answered_as_done_is_told_from_the_second_pass_on(
    shape: Shape,
    tree: Mapping[str, Want],
    gone: set[str],
    what: str,
    host: Host,
    liar: Liar,
    http_placement: HttpPlacement,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    agent: AgentUnderTest = host(
        shaped(HAS, {"N0": (NAME, CELL)}), placement=http_placement, url=liar.url
    )
    assert agent.cycle(start=True).state == "changed"
    before = http_placement.dump()
    agent.driver.script, liar.passes_on = shape, False
    # The answer itself cannot be told from a true one.
    assert agent.cycle().state == "changed"
    for _ in range(3):
        liar.clear()
        report = agent.cycle()
        (error,) = report.errors
        assert (error.code, report.state) == ("placement.not-done", "degraded")
        assert error.message.startswith(f"{liar.url} confirmed {what}")
    # The list, the write, and the question whether it was done.
    assert len(liar.requests) == 3
    liar.passes_on = True
    assert agent.cycle().state == "changed"
    settled(agent, http_placement, agent_log, tree, before=before, gone=gone)


def test_a_removal_of_an_allocation_that_is_answered_as_done_is_told_when_the_holders_are_read_again(
    host: Host,
    liar: Liar,
    http_placement: HttpPlacement,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent: AgentUnderTest = host(
        shaped(HAS), placement=http_placement, url=liar.url, policy=Policy(purge_after=0.0)
    )
    begun, hours = clock.now(), 0
    agent.cycle(start=True)
    unknown = http_placement.other.claim({ROOT: {"VCPU": 1}})

    def later() -> NodeReport:
        nonlocal hours
        hours += 1
        monkeypatch.setattr(clock, "now", lambda: begun + 3600 * hours)
        return agent.cycle()

    assert later().state == "in-sync"
    liar.passes_on = False
    # The answer itself cannot be told from a true one.
    assert later().state == "changed"
    for _ in range(3):
        report = later()
        if report.errors:
            break
    (error,) = report.errors
    assert (error.code, report.state) == ("placement.not-done", "degraded")
    assert error.message.startswith(f"{liar.url} confirmed the allocations of {unknown}")
    liar.passes_on = True
    assert later().state == "changed"
    assert http_placement.other.allocations(unknown)["allocations"] == {}
    assert later().state == "in-sync"
