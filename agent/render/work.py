"""Rendering of an operator's work on Placement: the outcome, the requests that write, and the
number of requests.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from agent.model.names import printable
from agent.model.report import METHODS, Problem
from agent.render.look import Look, escape_text, to_string, wrap_line
from agent.render.problem_lines import error_lines
from agent.render.text import count_with_parts


@dataclass(frozen=True, slots=True)
class Write:
    """One request other than a GET."""

    method: str
    path: str
    version: str | None
    body: Any
    status: int | None
    """The status of the answer, ``None`` if the request was not sent."""


def write_rows(writes: Sequence[Write]) -> list[dict[str, Any]]:
    """Return the requests that write, for tools."""
    return [
        {
            "method": write.method,
            "path": write.path,
            "version": write.version,
            "body": write.body,
            "status": write.status,
        }
        for write in writes
    ]


def render_work(
    lines: Sequence[str],
    writes: Sequence[Write],
    problems: Sequence[Problem],
    counts: Mapping[str, int],
    look: Look,
    *,
    dry_run: bool,
) -> str:
    """Return the text: the outcome, the requests that write, what failed, and the number of
    requests.
    """
    methods = Counter({method: counts.get(method, 0) for method in METHODS})
    end = ", dry run: nothing was written" if dry_run else ""
    sections = [
        [line for text in lines for line in wrap_line(escape_text(text), look)],
        [line for write in writes for line in _write(write, look)],
        error_lines(problems, look),
        [Text(count_with_parts("request", +methods) + end, "bold")],
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
