"""The page of nodes for a browser, from the local API."""

import queue
import re
import threading
from collections import Counter

import pytest

from tests.support.html_page import HtmlPage
from tests.support.system import AgentHere
from tests.unit.render.reports import node, report

HERE = "/v1/report"


def page(api, target=HERE):
    answer = api.call("GET", target)
    assert answer.status == 200, answer
    found = HtmlPage(answer.body.decode())
    assert found.faults() == []
    return answer, found


def uuids(api):
    return [one["uuid"] for one in api.call("GET", "/v1/nodes").json["nodes"]]


def test_the_page_of_a_node_shows_its_tree_and_lets_nothing_be_loaded(api):
    (uuid,) = uuids(api)
    for target in (HERE, f"/v1/nodes/{uuid}/report"):
        answer, found = page(api, target)
        assert "node-1_NUMA0" in found.texts
        assert "as the daemon has it" in found.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert (
            answer.headers["content-security-policy"] == f"{found.policy}; frame-ancestors 'none'"
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_nodes_are_chosen_by_names_patterns_and_uuids(api):
    others = [
        node(name=f"other-{number}", uuid=f"00000000-0000-4000-8000-00000000000{number}")
        for number in range(3)
    ]
    api.service.take_report(report(nodes=tuple(others)), whole=False)
    try:
        _, found = page(api, f"{HERE}?node=other-0&node={others[2].uuid}")
        assert {"other-0", "other-2"} <= set(found.texts)
        assert "other-1" not in found.texts
        _, found = page(api, f"{HERE}?node=other-*")
        assert {"other-0", "other-1", "other-2"} <= set(found.texts)
    finally:
        api.service.take_report(report(), whole=True)


def asked(api):
    """How many requests the API has answered, by their paths."""
    found = re.findall(
        r'^compute_node_agent_api_request_seconds_count\{.*path="([^"]+)".*\} (\d+)',
        api.api.metrics.text().decode(),
        re.MULTILINE,
    )
    counts = Counter()
    for path, count in found:
        counts[path] += int(count)
    return counts


@pytest.mark.parametrize("chosen", [(), ("--node", "blade-1*")])
def test_the_command_asks_for_the_page_and_not_for_each_node(api, tmp_path, chosen):
    blades = [
        node(name=f"blade-{number}", uuid=f"00000000-0000-4000-8000-{number:012}")
        for number in range(40)
    ]
    api.service.take_report(report(nodes=tuple(blades)), whole=True)
    agent = AgentHere(tmp_path)
    agent.configure(
        {
            "DEFAULT": {"compute_driver": "fake", "host": "node-a", "state_path": tmp_path},
            "api": {"socket": api.path},
        }
    )
    before = asked(api)
    done = agent.run("report", *chosen, "nodes.html")
    assert asked(api) - before == {"/v1/nodes": 1, "/v1/report": 1}
    count = 11 if chosen else 40
    assert done.stdout == f"nodes.html shows {count} nodes as the daemon has it\n"
    found = HtmlPage((tmp_path / "nodes.html").read_text(encoding="utf-8"))
    assert found.faults() == []
    assert "blade-19" in found.texts
    assert ("blade-20" in found.texts) is not bool(chosen)


def test_a_node_that_is_not_there_is_unknown(api):
    for target in (f"{HERE}?node=nowhere", "/v1/nodes/00000000-0000-4000-8000-0000000000ff/report"):
        answer = api.call("GET", target)
        assert (answer.status, answer.code) == (404, "node.unknown")


@pytest.mark.parametrize("query", ["node=", "node=a&other=b", "&".join(["node=a"] * 101)])
def test_a_query_that_is_not_described_is_refused(api, query):
    assert api.call("GET", f"{HERE}?{query}").code == "request.invalid"


def test_pages_under_way_delay_neither_health_nor_other_answers(api, monkeypatch):
    entered, leave = threading.Semaphore(0), threading.Event()
    make = api.service.report_page

    def wait(wanted):
        entered.release()
        assert leave.wait(60)
        return make(wanted)

    monkeypatch.setattr(api.service, "report_page", wait)
    answers: queue.Queue = queue.Queue()
    asking = [threading.Thread(target=lambda: answers.put(api.call("GET", HERE))) for _ in range(3)]
    try:
        for thread in asking:
            thread.start()
        assert entered.acquire(timeout=60)
        # One is being made, one waits for its turn.
        refused = answers.get(timeout=60)
        assert (refused.status, refused.code) == (503, "agent.busy")
        assert refused.headers["retry-after"] == "1"
        assert api.call("GET", "/healthz").status == 200
        assert len(uuids(api)) == 1
        assert not entered.acquire(timeout=0)
    finally:
        leave.set()
    assert [answers.get(timeout=60).status for _ in range(2)] == [200, 200]
