"""Outages in the log, waits that a stop ends, and what each kind of failure of the connection is
taken for.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.audit import reading as audit_reads
from agent.errors import PlacementRefused, PlacementUnreachable, StoreError
from agent.placement import exchange
from agent.placement.client import PlacementClient
from agent.placement.transport import OutageLog
from agent.service.log_writer import ProblemLog
from agent.store.records import Records
from tests.functional.placement.conftest import Host, seen
from tests.support import faults
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver, new_uuid, shaped, total
from tests.support.faults import Action
from tests.support.placement import PlacementServer
from tests.support.settled import clean, node, settled

HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
MORE = {**HAS, "VCPU": total(18)}
INVENTORY = "/inventories$"


class Clock:
    """The time, as the test says."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(log: pytest.LogCaptureFixture, least: int = logging.INFO) -> list[tuple[str, str]]:
    """What an operator sees of the agent."""
    return [
        (one.levelname, one.getMessage())
        for one in log.records
        if one.levelno >= least and one.name.startswith("agent.")
    ]


def client_of(agent: AgentUnderTest) -> PlacementClient:
    return agent.fleet.context.server.client()


@pytest.mark.usefixtures("short_waits")
def test_an_outage_of_half_an_hour_is_seven_lines_and_one_at_its_end(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    clock, news, before = Clock(), ProblemLog(), placement.dump()
    node_a.transport.outages = OutageLog(clock)
    placement.faults.add(faults.refused(), times=None)
    agent_log.clear()
    for minute in range(31):
        clock.now = 60.0 * minute
        report = node_a.period()
        news.log_changes(report.errors, report.nodes)
        (one,) = report.nodes
        assert (one.state, [error.code for error in one.errors]) == (
            "failed",
            ["placement.unreachable"],
        )
        assert [provider.generation for provider in one.tree.providers()] == [
            before["providers"][ROOT]["generation"]
        ]
    line = (
        f"placement unreachable: cannot connect to {placement.url}/resource_providers: Connection "
        "refused"
    )
    assert told(agent_log) == [("WARNING", line)] + [("WARNING", f"{line} (suppressed 4)")] * 6
    placement.faults.clear()
    placement.clear()
    agent_log.clear()
    clock.now = 1860.0
    report = node_a.period()
    news.log_changes(report.errors, report.nodes)
    assert told(agent_log) == [("INFO", "placement reachable again after 1860 s")]
    assert seen(placement) == ["GET in_tree=R -> 200"]
    settled(node_a, placement, agent_log, {NAME: node(HAS)})


@pytest.mark.usefixtures("short_waits")
def test_an_outage_of_a_host_with_many_nodes_costs_one_request_and_one_repetition_a_period(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(HAS))
    agent.driver.managed = {new_uuid(): f"node-{number}" for number in range(20)}
    agent.period(start=True)
    placement.faults.add(faults.answer(503), times=None)
    placement.clear()
    agent_log.clear()
    for _ in range(3):
        report = agent.period()
        assert report.nodes == ()
        assert [one.code for one in report.errors] == ["placement.refused"]
    assert [one.partition("?")[0] for one in placement.lines()] == ["GET /resource_providers"] * 6
    assert len(told(agent_log)) == 1
    placement.faults.clear()
    placement.clear()
    assert {one.state for one in agent.period().nodes} == {"in-sync"}
    assert placement.count() == 1
    clean(placement, agent_log)


# --- what each failure is -------------------------------------------------------------------------

LOST = [
    (faults.refused(), "connect", "cannot connect to {url}: Connection refused", False),
    (faults.unresolved(), "connect", "cannot connect to {url}: Name or service not known", False),
    (faults.no_route(), "connect", "cannot connect to {url}: No route to host", False),
    (
        faults.connect_timeout(),
        "timeout",
        "no answer from {url} in time; waited up to 5 s for a connection and 30 s for an answer",
        False,
    ),
    (
        faults.read_timeout(),
        "timeout",
        "no answer from {url} in time; waited up to 5 s for a connection and 30 s for an answer",
        True,
    ),
    (
        faults.cut(),
        "connect",
        "cannot connect to {url}: Remote end closed connection without response",
        True,
    ),
    (faults.reset(), "connect", "cannot connect to {url}: Connection reset by peer", True),
    (
        faults.bad_certificate(),
        "tls",
        "certificate of {url} not accepted: [SSL: CERTIFICATE_VERIFY_FAILED]",
        False,
    ),
]


@pytest.mark.parametrize(
    ("loss", "kind", "message", "outcome_unknown"), LOST, ids=[one[0].name for one in LOST]
)
def test_a_lost_write_says_how_and_whether_it_may_have_been_applied(
    loss: Action,
    kind: str,
    message: str,
    outcome_unknown: bool,
    node_a: AgentUnderTest,
    placement: PlacementServer,
) -> None:
    placement.faults.add(loss, times=None)
    with pytest.raises(PlacementUnreachable) as caught:
        client_of(node_a).set_inventories(ROOT, 2, MORE)
    error = caught.value
    assert (error.kind, error.outcome_unknown, error.fatal) == (
        kind,
        outcome_unknown,
        kind == "tls",
    )
    assert error.message.startswith(
        message.format(url=f"{placement.url}/resource_providers/{ROOT}/inventories")
    )
    assert error.remedy
    # A write is never repeated by itself.
    assert placement.count() == 1


def test_an_answer_that_breaks_off_leaves_the_outcome_open(
    node_a: AgentUnderTest, placement: PlacementServer
) -> None:
    placement.faults.add(faults.half_answer(), method="PUT")
    generation = placement.other.generation(ROOT)
    with pytest.raises(PlacementUnreachable) as caught:
        client_of(node_a).set_inventories(ROOT, generation, MORE)
    assert caught.value.kind == "broken"
    assert caught.value.outcome_unknown
    assert placement.other.generation(ROOT) == generation + 1


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize(
    "loss",
    [loss for loss, kind, *_ in LOST if kind == "connect"],
    ids=[loss.name for loss, kind, *_ in LOST if kind == "connect"],
)
def test_a_lost_read_is_repeated_once(
    loss: Action, node_a: AgentUnderTest, placement: PlacementServer
) -> None:
    placement.faults.add(loss)
    assert [row.name for row in client_of(node_a).tree(ROOT)] == [NAME]
    assert placement.count("GET") == 2


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize(
    "loss",
    [loss for loss, kind, *_ in LOST if kind != "connect"],
    ids=[loss.name for loss, kind, *_ in LOST if kind != "connect"],
)
def test_what_was_waited_for_or_would_fail_again_is_not_tried_again(
    loss: Action, node_a: AgentUnderTest, placement: PlacementServer
) -> None:
    placement.faults.add(loss)
    with pytest.raises(PlacementUnreachable):
        client_of(node_a).tree(ROOT)
    assert placement.count() == 1


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_status_that_says_outage_is_told_with_both_request_ids_and_repeated_for_reads_alone(
    status: int,
    node_a: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    placement.faults.add(faults.answer(status), times=None)
    client = client_of(node_a)
    agent_log.clear()
    with pytest.raises(PlacementRefused) as caught:
        client.tree(ROOT)
    assert caught.value.status == status
    assert placement.count("GET") == 2
    with pytest.raises(PlacementRefused):
        client.set_inventories(ROOT, 2, MORE)
    assert placement.count("PUT") == 1
    trace = f"[global {client.exchange.request_id}, server req-injected]"
    assert told(agent_log, logging.WARNING) == [
        (
            "WARNING",
            (
                f"placement unreachable: placement GET /resource_providers?in_tree={ROOT} -> "
                f"{status}  {trace}"
            ),
        ),
    ]


READ_ANEW = ["GET in_tree=R -> 200", "GET inv R -> 200", "GET ag R -> 200", "GET tr R -> 200"]


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize(
    ("loss", "state", "next_requests"),
    [
        (faults.cut(applied=True), "in-sync", READ_ANEW),
        (faults.read_timeout(applied=True), "in-sync", READ_ANEW),
        (faults.html(502, applied=True), "in-sync", READ_ANEW),
        (faults.refused(), "changed", [READ_ANEW[0], "PUT inv R g2 -> 200"]),
    ],
    ids=lambda one: one.name if isinstance(one, Action) else None,
)
def test_after_a_write_of_unknown_outcome_only_what_moved_is_read(
    loss: Action,
    state: str,
    next_requests: list[str],
    node_a: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    """And after one that surely never left, nothing is."""
    node_a.driver.script = shaped(MORE)
    placement.faults.add(loss, method="PUT", path=INVENTORY)
    assert node_a.cycle().state == "degraded"
    placement.clear()
    assert node_a.cycle().state == state
    assert seen(placement) == next_requests
    settled(node_a, placement, agent_log, {NAME: node(MORE)})


# --- stopping -------------------------------------------------------------------------------------

WAITED_FOR: Sequence[tuple[str, Action, str]] = [
    ("a conflict", faults.answer(409, "placement.concurrent_update"), "PUT"),
    ("a read", faults.refused(), "GET"),
]


@pytest.mark.parametrize(
    ("fault", "method"), [one[1:] for one in WAITED_FOR], ids=[one[0] for one in WAITED_FOR]
)
def test_who_waits_to_try_again_stops_within_a_second_and_sends_nothing_more(
    fault: Action,
    method: str,
    node_a: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for wait in ("LEAST_WAIT", "LONGEST_WAIT", "LEAST_READ_WAIT", "LONGEST_READ_WAIT"):
        monkeypatch.setattr(exchange, wait, 30.0)
    node_a.driver.script = shaped(MORE)
    stopped: list[float] = []

    def stop() -> None:
        stopped.append(time.monotonic())
        node_a.cancelled.set()

    # The shutdown comes a moment after the fault, when the agent waits.
    placement.faults.add(
        replace(fault, before=lambda _: threading.Timer(0.1, stop).start()), method=method
    )
    report = node_a.cycle()
    assert time.monotonic() - stopped[0] < 20
    assert report.state == "failed"
    sent = placement.count()
    time.sleep(0.1)
    assert placement.count() == sent
    assert placement.requests[-1].method == method
    # That it stops is no trouble of Placement's.
    assert told(agent_log, logging.WARNING) == []
    node_a.cancelled.clear()
    node_a.stop()
    placement.clear()
    assert node_a.once().state == "changed"
    assert seen(placement)[-1] == "PUT inv R g2 -> 200"
    settled(node_a, placement, agent_log, {NAME: node(MORE)})


@pytest.mark.parametrize(
    "nonsense", [True, False], ids=["facts that cannot be", "what nobody thought of"]
)
def test_what_fails_for_one_node_does_not_end_an_agent_whose_placement_is_away(
    host: Host,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    nonsense: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While there is no Placement the nodes are only counted: what fails for one of them is logged,
    and the others are counted all the same.
    """
    broken, well = "node-b", "node-c"
    driver = ScriptedDriver(nodes={new_uuid(): broken, new_uuid(): well})
    unreadable: Any = "many"
    facts_of = driver.facts_of
    if nonsense:
        driver.facts_of = lambda name: replace(
            facts_of(name), domains=(unreadable,) if name == broken else ()
        )
    else:
        look = audit_reads.node_facts

        def fail(driver: Any, worker: Any, called: str, node: str, deadline: float) -> Any:
            if node == broken:
                raise ZeroDivisionError("nobody thought of it")
            return look(driver, worker, called, node, deadline)

        monkeypatch.setattr(audit_reads, "node_facts", fail)
    placement.faults.add(faults.refused(), times=None)
    agent = host(driver=driver)
    for _ in range(2):
        report = agent.period(start=True)
        assert [one.code for one in report.errors] == ["placement.unreachable"]
        with agent.records.reading() as reading:
            assert reading.node_named("host-1", well) is not None
    lines = [
        one.getMessage()
        for one in agent_log.records
        if one.name == "agent.audit.node_audit" and one.levelno >= logging.WARNING
    ]
    if nonsense:
        assert len(lines) == 2
        assert all(f"its facts of {broken}: domains[0] = 'many': no Domain" in one for one in lines)
    else:
        assert lines[::2] == [f"node {broken} could not be counted"] * 2
        assert all("ZeroDivisionError: nobody thought of it" in one for one in lines[1::2])


def test_a_store_error_while_tidying_up_does_not_discard_the_reports(
    host: Host,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> int:
        raise StoreError("the store is full", "make room")

    remove_ended = Records.remove_ended
    monkeypatch.setattr(Records, "remove_ended", fail)
    agent = host(shaped({"VCPU": total(16)}))
    report = agent.period(start=True)
    assert (report.errors, [node.state for node in report.nodes]) == ((), ["changed"])
    assert placement.other.inventory(ROOT)["VCPU"]["total"] == 16
    assert "were not removed: the store is full" in agent_log.text
    # The next pass tries again, and then not before the next day.
    removed = []
    monkeypatch.setattr(
        Records, "remove_ended", lambda *given: removed.append(given) or remove_ended(*given)
    )
    for _ in range(3):
        assert agent.cycle().state == "in-sync"
    assert len(removed) == 1
