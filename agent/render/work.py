"""Rendering of an operator's work on Placement: the outcome, the requests that write, and the
number of requests.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.text import Text

from agent.model.names import printable
from agent.model.report import METHODS, Problem
from agent.placement.connect import Write
from agent.render.json_report import error_rows, request_counts
from agent.render.look import Look, escape_text, to_string, wrap_line
from agent.render.problem_lines import error_lines
from agent.render.text import count_with_parts


@dataclass(frozen=True, slots=True)
class WorkReport:
    """The report of a command on Placement."""

    name: str
    mode: Literal["http", "embedded"]
    endpoint: str
    max_version: str
    dry_run: bool
    result: Mapping[str, Any]
    """The outcome for tools."""
    lines: Sequence[str]
    """The outcome for people."""
    writes: Sequence[Write]
    requests: Mapping[str, int]
    problems: Sequence[Problem]
    """What failed beside the outcome."""
    exit_code: int
    notice: str = ""
    """A line to show first."""


def work_document(report: WorkReport) -> dict[str, Any]:
    """Return the document of the command."""
    return {
        "schema": f"compute-node-agent/{report.name}/1",
        "placement": {
            "mode": report.mode,
            "endpoint": report.endpoint,
            "max_version": report.max_version,
        },
        "dry_run": report.dry_run,
        "result": report.result,
        "writes": [
            {
                "method": write.method,
                "path": write.path,
                "version": write.version,
                "body": write.body,
                "status": write.status,
            }
            for write in report.writes
        ],
        "requests": request_counts(report.requests),
        "errors": error_rows(report.problems),
        "exit_code": report.exit_code,
    }


def render_work(report: WorkReport, look: Look) -> str:
    """Return the text of the command."""
    sections = [
        wrap_line(escape_text(report.notice, "italic"), look) if report.notice else [],
        [line for text in report.lines for line in wrap_line(escape_text(text), look)],
        [line for write in report.writes for line in _write(write, look)],
        error_lines(report.problems, look),
        [_closing(report)],
    ]
    first, *others = [section for section in sections if section]
    return to_string([*first, *(line for section in others for line in (Text(), *section))], look)


def _write(write: Write, look: Look) -> list[Text]:
    what = f"{write.method} {printable(write.path)}"
    body = "" if write.body is None else f" {json.dumps(write.body, sort_keys=True)}"
    became = "not sent" if write.status is None else str(write.status)
    return wrap_line(
        Text.assemble((what, "bold"), escape_text(body), f" {look.signs.change} {became}"), look
    )


def _closing(report: WorkReport) -> Text:
    methods = Counter({method: report.requests.get(method, 0) for method in METHODS})
    return Text(
        count_with_parts("request", +methods)
        + (", dry run: nothing was written" if report.dry_run else ""),
        "bold",
    )
