"""The daemon's nodes as text: each in full where they are few, a line each where they are many."""

from agent.render.look import Look
from agent.render.status import render_drift, status_lines, watch_lines

NOW = 1000.0
DAEMON = {"ready": True, "status": "ready: all is well", "reasons": []}
NODE = {
    "name": "a",
    "uuid": "u",
    "driver": "fake",
    "state": "in-sync",
    "audited_at": 940.0,
    "last_good_audit_at": 940.0,
    "providers": 3,
    "drift": 0,
    "drift_kinds": {},
    "usage": {
        "vcpus_used": 1,
        "memory_mb_used": 2,
        "disk_mb_used": 3,
        "instances": 4,
        "claims": 5,
        "migrations": 1,
    },
    "errors": [],
}
ILL = {
    **NODE,
    "name": "b\x1b",
    "state": "failed",
    "last_good_audit_at": None,
    "drift": 2,
    "drift_kinds": {"overcommitted": 2},
    "errors": [{"code": "driver.failed", "message": "no answer", "remedy": "start it"}],
}
LOST = {
    "kind": "overcommitted",
    "severity": "warning",
    "detail": "too much",
    "remedy": "move one",
    "provider": "p",
    "provider_name": "a card",
}


def lines(nodes, daemon=DAEMON):
    return [line.plain for line in status_lines(daemon, nodes, NOW, Look())]


def test_many_nodes_are_a_line_each_and_the_errors_of_those_that_have_some():
    count = 20
    found = lines([NODE] * count + [ILL])
    assert found[2].split() == [
        "node",
        "state",
        "driver",
        "audited",
        "last",
        "well",
        "providers",
        "instances",
        "drift",
        "errors",
    ]
    assert [line.split() for line in found[3 : 3 + count]] == [
        ["a", "in-sync", "fake", "60", "s", "ago", "60", "s", "ago", "3", "4", "0", "0"]
    ] * count
    assert found[3 + count].split() == [
        "b\\x1b",
        "failed",
        "fake",
        "60",
        "s",
        "ago",
        "-",
        "3",
        "4",
        "2",
        "1",
    ]
    assert found[4 + count :] == [
        "",
        "b\\x1b  failed",
        "✗ no answer [driver.failed]",
        "  → start it",
    ]


def test_of_many_nodes_with_errors_the_first_are_told_and_the_others_counted():
    found = lines([ILL] * 25)
    assert sum("no answer" in line for line in found) == 20
    assert found[-1] == "and 5 nodes more with errors: see all with --format json"


def test_a_store_of_which_little_is_known_is_a_table_too():
    unknown = dict.fromkeys(
        ("driver", "state", "audited_at", "last_good_audit_at", "usage", "drift")
    )
    found = lines([{**NODE, **unknown}] * 21, None)
    assert found[-1].split() == ["a", "-", "-", "-", "-", "3", "-", "0", "0"]


def test_of_many_nodes_only_those_that_drift_are_shown():
    nodes = [{**NODE, "drift": []}] * 30 + [{**NODE, "name": "b", "drift": [LOST]}]
    shown = render_drift(nodes, NOW, Look()).splitlines()
    assert shown == [
        "b  in-sync",
        "! overcommitted a card: too much",
        "  → move one",
        "",
        "30 nodes without drift",
    ]
    few = render_drift(nodes[-2:], NOW, Look()).splitlines()
    assert few[:3] == ["a  in-sync", "  no drift", ""]


def test_what_is_watched_shows_nodes_that_are_not_well_first_and_why_the_last_look_failed():
    nodes = [{**NODE, "drift_warnings": 0}, {**ILL, "drift_warnings": 2}]
    shown = [
        line.plain
        for line in watch_lines({"daemon": DAEMON, "nodes": nodes}, "it is gone", NOW, Look())
    ]
    assert shown[:3] == [
        "1970-01-01 00:16:40 UTC; ^C ends",
        "no answer: it is gone",
        "ready: all is well",
    ]
    assert [line for line in shown if line.endswith(("in-sync", "failed"))] == [
        "b\\x1b  failed",
        "a  in-sync",
    ]
