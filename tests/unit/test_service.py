"""What the daemon's API hears of the daemon."""

import threading
import time

import pytest

from agent.api.problem import Stopping, Unready, Unwell
from agent.errors import ConfigError, DriverTimeout
from agent.model.report import Problem
from agent.service import daemon_service as module
from agent.service.daemon_service import DaemonService
from agent.tracker.errors import UnknownNode
from tests.unit.render.reports import ROOT, node, report

WELL = report(nodes=(node(state="in-sync", errors=()),))
OTHER = "11111111-9b1d-4a9c-8a0e-0d6b6c1f7a11"


@pytest.fixture
def service():
    found = DaemonService(lambda: None)
    yield found
    found.stop()


def reasons(service):
    with pytest.raises(Unready) as found:
        service.check_readiness()
    return found.value.data["reasons"]


def test_it_is_not_ready_before_all_nodes_were_audited(service):
    assert reasons(service) == ["starting: no audit is through yet"]
    service.take_report(WELL, whole=False)
    assert reasons(service) == ["starting: no audit is through yet"], (
        "one of them says nothing of the others"
    )
    service.take_report(WELL, whole=True)
    service.check_readiness()


def test_every_node_that_is_not_well_is_a_reason(service):
    nodes = (
        node(),
        node(name="node-2", uuid=OTHER, state="failed", errors=()),
        node(name="node-3", uuid=OTHER.replace("1", "2"), state="changed", errors=()),
    )
    service.take_report(report(nodes=nodes), whole=True)
    assert reasons(service) == ["node node-1: degraded: somebody else wrote", "node node-2: failed"]
    service.take_report(WELL, whole=False)
    assert reasons(service) == ["node node-2: failed"]


def test_an_audit_that_could_not_begin_leaves_the_nodes_as_they_were_and_is_a_reason(service):
    service.take_report(WELL, whole=True)
    service.take_report(
        report(nodes=(), errors=(Problem("driver.not-ready", "the backend does not answer", ""),)),
        whole=True,
    )
    assert reasons(service) == ["the backend does not answer"]
    assert [one["uuid"] for one in service.nodes()] == [ROOT]


def test_a_node_that_is_gone_is_not_shown_any_more(service):
    service.take_report(report(nodes=(node(), node(uuid=OTHER))), whole=True)
    assert [one["uuid"] for one in service.nodes()] == sorted([OTHER, ROOT])
    service.take_report(WELL, whole=True)
    with pytest.raises(UnknownNode):
        service.tree(OTHER)


def test_work_that_gets_nowhere_is_unwell_and_slow_work_is_not(service, monkeypatch):
    monkeypatch.setattr(module, "STALLED", 0.2)
    service.check_health()
    service.begin_work("an audit")
    for _ in range(4):
        time.sleep(0.1)
        service.note_progress()
        service.check_health()
    time.sleep(0.3)
    with pytest.raises(Unwell, match="an audit makes no progress"):
        service.check_health()
    service.end_work()
    service.check_health()


def test_everybody_who_asks_for_a_reload_hears_how_the_next_one_went(service):
    heard = []

    def ask():
        try:
            service.reload()
            heard.append("done")
        except ConfigError as error:
            heard.append(error.message)

    def all_ask():
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        while not service.reload_requested:
            time.sleep(0.01)
        time.sleep(0.2)
        return threads

    for outcome in (None, ConfigError("it is bad")):
        threads = all_ask()
        assert service.has_requests
        service.begin_reload()
        assert not service.has_requests
        service.end_reload(outcome)
        for thread in threads:
            thread.join(60)
        assert not service.reload_requested
    assert heard == ["done"] * 3 + ["it is bad"] * 3


def test_who_asks_while_the_files_are_being_read_gets_a_reading_of_their_own(service):
    heard = []
    threads = [
        threading.Thread(target=lambda: (service.reload(), heard.append(True))) for _ in range(2)
    ]
    threads[0].start()
    while not service.reload_requested:
        time.sleep(0.01)
    service.begin_reload()
    threads[1].start()
    while not service.reload_requested:
        time.sleep(0.01)
    service.end_reload(None)
    threads[0].join(60)
    assert (heard, service.has_requests) == ([True], True)
    service.begin_reload()
    service.end_reload(None)
    threads[1].join(60)
    assert (heard, service.has_requests) == ([True, True], False)


def test_a_reload_that_takes_too_long_is_told(service, monkeypatch):
    monkeypatch.setattr(module, "RELOAD_DEADLINE", 0.1)
    with pytest.raises(DriverTimeout, match="was not reloaded within"):
        service.reload()


def test_a_reload_under_way_ends_with_the_agent(service):
    threading.Timer(0.2, service.stop).start()
    with pytest.raises(Stopping):
        service.reload()
