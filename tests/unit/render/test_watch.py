import pytest

from agent.render.look import ASCII, Look
from agent.render.watch import Latency, Sight, plain_lines, read_latency, screen_lines
from tests.unit.render.test_status import ILL, NODE

METRICS = """\
# HELP compute_node_agent_placement_request_seconds Duration of requests to Placement
# TYPE compute_node_agent_placement_request_seconds histogram
compute_node_agent_placement_request_seconds_bucket{le="0.1",method="GET"} 3.0
compute_node_agent_placement_request_seconds_count{method="GET"} 3.0
compute_node_agent_placement_request_seconds_sum{method="GET"} 0.3
compute_node_agent_placement_request_seconds_count{method="PUT"} 1.0
compute_node_agent_placement_request_seconds_sum{method="PUT"} 0.5
compute_node_agent_driver_call_seconds_count{call="facts",outcome="done"} 9.0
"""
WELL, BAD = {**NODE, "drift_warnings": 0}, {**ILL, "drift_warnings": 2}


def sight(*nodes, **given):
    return Sight(
        **{
            "at": 1000.0,
            "ready": True,
            "status": "ready: all is well",
            "nodes": nodes,
            "latency": Latency(4, 0.8),
            "recent": Latency(1, 0.05),
            **given,
        }
    )


def shown(look, width=140, height=24, failure="", unicode=True):
    lines = screen_lines(look, Look(140, unicode=unicode), (width, height), failure)
    return [line.plain for line in lines]


def test_latency_is_that_of_all_methods_together():
    assert read_latency(METRICS) == Latency(4, 0.8)
    assert read_latency("") == Latency(0, 0.0)
    assert Latency(0, 0.0).mean is None


def test_recent_requests_are_those_since_the_last_look():
    assert Latency(6, 1.5).since(Latency(4, 0.5)) == Latency(2, 1.0)
    assert Latency(6, 1.5).since(None) == Latency(6, 1.5)
    # Another agent counts anew.
    assert Latency(2, 0.5).since(Latency(4, 0.5)) == Latency(2, 0.5)


def test_the_screen_shows_nodes_that_are_not_well_first():
    lines = shown(sight(WELL, BAD))
    assert lines[0] == "ready: all is well · 1970-01-01 00:16:40 UTC · q quits"
    assert (
        lines[1]
        == "2 nodes: 1 failed, 1 in-sync · 8 instances · 10 claims · 2 migrations · drift 2"
    )
    assert lines[2] == (
        "Placement: 50 ms a request (1 request since the last look); 200 ms a request, 4 since "
        "the start"
    )
    assert lines[6].startswith("b\\x1b  failed")
    assert lines[7].startswith("a      in-sync  60 s ago")
    assert lines[-1] == "drift: 2 overcommitted (agent drift)"


def test_more_nodes_than_lines_are_counted():
    lines = shown(sight(*[{**WELL, "name": f"n{number}"} for number in range(100)]), height=20)
    assert len(lines) <= 20
    assert lines[-1] == "and 87 nodes more: agent status shows all"


def test_long_names_leave_room_for_the_numbers():
    lines = shown(sight({**WELL, "name": "n" * 200}))
    assert lines[6].startswith(f"{'n' * 37}...  in-sync")


def test_a_failure_stays_with_the_last_look():
    lines = shown(sight(WELL), failure="gone; start it", unicode=False)
    assert lines[3] == "the agent does not answer: gone; start it"
    assert ASCII.dot in lines[0]


@pytest.mark.parametrize("latency", [Latency(0, 0.0)])
def test_a_placement_that_was_not_asked_has_no_latency(latency):
    assert shown(sight(latency=latency, recent=latency))[2] == "Placement: not asked yet"


def test_lines_are_one_for_the_daemon_and_one_for_each_node():
    assert list(plain_lines(sight(BAD)))[1:] == [
        "1970-01-01 00:16:40 UTC b\\x1b failed: audited 60 s ago, used 1 CPU, 2 MiB memory, "
        "3 MiB disk, 4 instances, 5 claims, drift 2, errors 1"
    ]


def test_a_small_screen_has_the_daemon_and_the_nodes_with_their_states():
    daemon, _, first, more = shown(sight(WELL, BAD, {**WELL, "name": "n" * 200}), 20, 4)
    assert daemon.startswith("ready: all is well")
    assert first.startswith("b\\x1b  failed")
    assert more == "and 2 nodes more: agent status shows all"
    _, _, *rows = shown(sight(WELL, BAD, {**WELL, "name": "n" * 200}), 20, 5)
    assert [row[:17].rstrip() for row in rows] == [
        "b\\x1b     failed",
        "a         in-sync",
        "nnnnn...  in-sync",
    ]
    failed, *_ = shown(sight(WELL), 20, 5, failure="gone")
    assert failed == "the agent does not answer: gone"
