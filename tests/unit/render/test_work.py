"""What an operator did to Placement: as text and as a document."""

import dataclasses

from agent.model.report import Problem
from agent.placement.connect import Write
from agent.render.look import Look
from agent.render.work import WorkReport, render_work, work_document

SENT = WorkReport(
    "allocation-delete",
    "http",
    "http://placement",
    "1.39",
    False,
    {"deleted": True},
    ["consumer c was\x1b[31m deleted"],
    [
        Write("PUT", "/allocations/c", "1.28", {"b": 1, "a": None}, 204),
        Write("DELETE", "/resource_providers/r", "1.23", None, 404),
    ],
    {"GET": 2, "PUT": 1, "DELETE": 1},
    [],
    0,
)


def text(**changes):
    return render_work(dataclasses.replace(SENT, **changes), Look()).splitlines()


def test_lines_come_before_writes_before_the_closing_line():
    assert text() == [
        "consumer c was\\x1b[31m deleted",
        "",
        'PUT /allocations/c {"a": null, "b": 1} → 204',
        "DELETE /resource_providers/r → 404",
        "",
        "4 requests (2 GET, 1 PUT, 1 DELETE)",
    ]


def test_a_dry_run_says_that_nothing_was_sent():
    planned = [dataclasses.replace(one, status=None) for one in SENT.writes]
    lines = text(writes=planned, dry_run=True, requests={"GET": 2})
    assert [line.endswith("→ not sent") for line in lines].count(True) == 2
    assert lines[-1] == "2 requests (2 GET), dry run: nothing was written"


def test_the_notice_is_first_and_what_went_wrong_is_last():
    lines = text(
        notice="using it", problems=[Problem("a.code", "it\nfailed", "mend it")], writes=[]
    )
    assert lines[0] == "using it"
    assert lines[-4:] == [
        "✗ it\\nfailed [a.code]",
        "  → mend it",
        "",
        "4 requests (2 GET, 1 PUT, 1 DELETE)",
    ]


def test_the_document_has_all_of_it():
    document = work_document(
        dataclasses.replace(SENT, problems=[Problem("a.code", "failed", "mend it")], exit_code=3)
    )
    assert document == {
        "schema": "compute-node-agent/allocation-delete/1",
        "placement": {"mode": "http", "endpoint": "http://placement", "max_version": "1.39"},
        "dry_run": False,
        "result": {"deleted": True},
        "writes": [
            {
                "method": "PUT",
                "path": "/allocations/c",
                "version": "1.28",
                "body": {"b": 1, "a": None},
                "status": 204,
            },
            {
                "method": "DELETE",
                "path": "/resource_providers/r",
                "version": "1.23",
                "body": None,
                "status": 404,
            },
        ],
        "requests": {"total": 4, "GET": 2, "POST": 0, "PUT": 1, "DELETE": 1},
        "errors": [{"code": "a.code", "message": "failed", "remedy": "mend it"}],
        "exit_code": 3,
    }
