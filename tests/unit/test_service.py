"""What the daemon's API hears of the daemon."""

import threading
import time

import pytest

from agent.api.problem import Unready, Unwell
from agent.errors import ConfigError
from agent.model.finding import Problem
from agent.service import daemon_service as module
from agent.service.daemon_service import DaemonService
from tests.unit.render.reports import ROOT, node, report

WELL = report(nodes=(node(state="in-sync", errors=()),))


@pytest.fixture
def service():
    found = DaemonService(lambda: None)
    yield found
    found.stop()


def reasons(service):
    with pytest.raises(Unready) as found:
        service.check_readiness()
    return found.value.data["reasons"]


def test_an_audit_that_could_not_begin_leaves_the_nodes_as_they_were_and_is_a_reason(service):
    service.take_report(WELL, whole=True)
    service.take_report(
        report(nodes=(), errors=(Problem("driver.not-ready", "the backend does not answer", ""),)),
        whole=True,
    )
    assert reasons(service) == ["the backend does not answer"]
    assert [one["uuid"] for one in service.nodes()] == [ROOT]


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
