"""Claims, moves and what nodes have, as text that fits its stream."""

from dataclasses import replace

from agent.model.finding import Drift
from agent.model.report import NodeReport
from agent.render.look import Look, table_lines, to_string
from agent.render.monitoring import DETAILS_AT_MOST, render_plugin, render_textfile
from agent.render.records import claim_lines, resource_lines
from agent.render.status import render_drift, status_lines, watch_lines
from tests.unit.render.reports import ROOT, report

PLAIN, NARROW = Look(), Look(width=40)
CLAIM = {
    "id": "c1",
    "purpose": "move",
    "instance": "i1",
    "node": "n1",
    "half": "new",
    "state": "held",
    "amounts": {"memory_mb": 2048, "vcpus": 2, "disk_mb": 0},
    "cells": [
        {"host_cell": 1, "pins": {"0": 5, "1": 4}, "emulator": [7]},
        {"host_cell": 0, "pins": {}, "emulator": []},
    ],
    "devices": [{"address": "0000:80:00.0"}, {"address": "0000:81:00.0"}],
    "units": [{"identifier": "ns\x1b0"}],
    "mdevs": [{"count": 2, "type": "t-1", "resource_class": "VGPU", "parent": "mtty"}],
}
RECORDS = {
    "usage": {
        "vcpus_used": 3,
        "memory_mb_used": 70000,
        "disk_mb_used": 0,
        "instances": 1,
        "claims": 2,
        "migrations": 0,
    },
    "total": {"vcpus": 8, "memory_mb": 65536, "disk_mb": None},
    "reserved": {"vcpus": 0, "memory_mb": 512, "disk_mb": 0},
    "ratios": {"vcpus": 4.0, "memory_mb": 1.5, "disk_mb": 1.0},
    "available": False,
    "dirty": False,
    "failed_builds": 1,
    "units": [],
    "cells": [
        {
            "id": 0,
            "memory_mb": 100,
            "memory_mb_used": 10,
            "shared": [],
            "shared_used": 0,
            "dedicated": [4, 5],
            "pinned": [4, 6],
            "degraded": [6],
            "pages": [
                {"size_kib": 4, "total": 9, "used": 1, "reserved": 0},
                {"size_kib": 2048, "total": 9, "used": 1, "reserved": 2},
            ],
        }
    ],
    "devices": {"available": 0, "claimed": 0, "allocated": 0},
    "problems": ["claim c1: CPUs are pinned\x1b already"],
}


OFFERED = [
    {
        "provider": {"uuid": "u", "name": "a"},
        "resource_class": "VCPU",
        "used": 3,
        "in_placement": 2,
        "total": 8,
        "reserved": 0,
        "allocation_ratio": 4.0,
        "free": 29,
        "free_in_placement": 30,
    },
    {
        "provider": {"uuid": "c", "name": "a_NUMA0"},
        "resource_class": "VGPU",
        "used": None,
        "in_placement": None,
        "total": 16,
        "reserved": 0,
        "allocation_ratio": 1.0,
        "free": None,
        "free_in_placement": None,
    },
]


def text(lines, look=PLAIN):
    return to_string(lines, look).splitlines()


def test_a_claim_tells_all_that_it_holds():
    assert text(claim_lines([CLAIM], PLAIN)) == [
        "c1  held  move, the new half",
        "  instance i1 · node n1",
        (
            "  2048 MiB memory · 2 CPUs · 0 MiB disk · cell 1 pinned to 4-5,7 · cell 0 · devices "
            "0000:80:00.0, 0000:81:00.0 · units ns\\x1b0 · 2 t-1 of mtty"
        ),
    ]


def test_a_claim_fits_a_narrow_terminal():
    assert max(len(line) for line in text(claim_lines([CLAIM], NARROW), NARROW)) <= 40


def test_a_claim_of_devices_tells_no_amounts():
    nothing = {"memory_mb": 0, "vcpus": 0, "disk_mb": 0}
    lines = text(
        claim_lines(
            [{**CLAIM, "half": "only", "amounts": nothing, "cells": [], "units": [], "mdevs": []}],
            PLAIN,
        )
    )
    assert lines == [
        "c1  held  move",
        "  instance i1 · node n1",
        "  devices 0000:80:00.0, 0000:81:00.0",
    ]


def test_a_node_tells_what_is_used_and_what_is_wrong():
    lines = text(
        resource_lines(
            [
                {
                    "name": "a",
                    "uuid": "u",
                    "state": "degraded",
                    "placement": OFFERED,
                    "records": RECORDS,
                }
            ],
            PLAIN,
        )
    )
    assert lines == [
        "a  degraded  u",
        "  provider tree  on record  free  in Placement  free  total  reserved  ratio",
        "  VCPU                   3    29             2    30      8         0    4.0",
        "  a_NUMA0 VGPU           -     -     not asked           16         0    1.0",
        (
            "  -: the records do not say how much of it is used; Placement was not asked "
            "everywhere what is used: agent --once --dry-run --with-usages"
        ),
        "  on record    used  total  reserved   free",
        "  CPUs            3      8         0      5",
        "  memory MiB  69488  65536       512  -4464",
        "  disk MiB        0      -         0      -",
        "  -: the driver does not say how much the host has",
        (
            "  cell 0: 10 of 100 MiB, pinned 4,6 of 4-5, 1 of 7 pages of 2048 KiB, offline under a "
            "guest: 6"
        ),
        "  1 instance, 2 claims, 0 migrations",
        "  1 failed build in a row",
        "  the driver does not offer the node now",
        "  ! claim c1: CPUs are pinned\\x1b already",
    ]


def test_many_nodes_are_a_line_each():
    node = {"name": "a", "uuid": "u", "state": "in-sync", "placement": OFFERED, "records": RECORDS}
    lines = text(
        resource_lines([node] * 20 + [{**node, "name": "b", "state": None, "records": None}], PLAIN)
    )
    assert lines[0] == "node  state    CPUs  of  memory MiB     of  disk MiB  of  instances"
    assert lines[1:] == [
        "a     in-sync     3   8       69488  65536         0   -          1"
    ] * 20 + ["b     -           -   -           -      -         -   -          -", "-: not known"]


def test_columns_line_up_whatever_is_in_them():
    rows = [("名", "1"), ("\x1b", "1000")]
    assert text(table_lines(("name", "n"), rows, 1)) == ["name     n", "名       1", "\\x1b  1000"]


# --- what monitoring gets of names that no file format expects ---


NAME = 'a"b\\c\n# TYPE x gauge | \ud800\x1b[1m'


def hostile(count: int) -> NodeReport:
    drift = Drift("orphaned-allocation", "warning", f"{NAME} | x=1", f"{NAME} | y=2")
    return NodeReport(NAME, ROOT, "fake.file", "in-sync", drift=(drift,) * count)


def test_a_textfile_has_a_line_for_each_metric_whatever_the_name() -> None:
    text = render_textfile(replace(report(), nodes=(hostile(2),), errors=()), 1.0)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(line.startswith("compute_node_agent_once_") for line in lines)
    (drift,) = (line for line in lines if "_node_drift{" in line)
    assert drift.endswith(" 2.0")
    assert text.encode()


def test_the_output_of_a_plugin_has_one_part_with_figures_and_few_lines() -> None:
    text = render_plugin(replace(report(), nodes=(hostile(1000),), errors=()))
    first, *lines = text.splitlines()
    assert first.count("|") == 1
    assert not any("|" in line for line in lines)
    assert len(lines) == DETAILS_AT_MOST + 1


# --- the daemon's nodes as text ---


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
