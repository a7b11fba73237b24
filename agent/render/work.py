"""Rendering of an operator's work on Placement: the outcome, the requests that write, the number of
requests, and the progress while the work lasts.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from agent.model.names import printable
from agent.model.report import METHODS, Problem
from agent.placement.connect import Write
from agent.render.json_report import error_rows, request_counts
from agent.render.look import Look, escape_text, look_of, to_string, wrap_line
from agent.render.problem_lines import error_lines
from agent.render.text import count_with_parts

LOG = logging.getLogger(__name__)


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


# The number of nodes from which on progress is shown.
MANY = 5
LOG_STEPS = 10

Finished = Callable[[str], None]


@contextmanager
def node_progress(stream: TextIO) -> Iterator[Callable[[int], Finished]]:
    """Yield a function that takes the number of nodes; it returns a function to call with the name
    of each finished node, from any thread.

    The bar goes to ``stream``, which is stderr, because stdout is for the report. The bar is
    removed when the work is done.
    """
    look = look_of(stream)
    with ExitStack() as stack:

        def begin(total: int) -> Finished:
            if total < MANY:
                return lambda _name: None
            if look.width is None:
                return _log_progress(total)
            console = Console(
                file=stream,
                color_system="standard" if look.colour else None,
                no_color=not look.colour,
                legacy_windows=False,
            )
            columns = (
                TextColumn("auditing"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
            )
            progress = stack.enter_context(Progress(*columns, console=console, transient=True))
            task = progress.add_task("", total=total)
            return lambda name: progress.update(task, advance=1, description=printable(name))

        yield begin


def _log_progress(total: int) -> Finished:
    done = 0

    def finished(name: str) -> None:
        nonlocal done
        done += 1
        if done == total or done * LOG_STEPS // total > (done - 1) * LOG_STEPS // total:
            LOG.info("%d of %d nodes audited, last %s", done, total, printable(name))

    return finished
