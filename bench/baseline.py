"""The committed baseline: what the agent may need for each case, and what of a run needs more."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.matrix import Row

FILE = Path(__file__).with_name("baseline.json")
CPU_FACTOR, LINES_FACTOR = 2.0, 1.05
"""How much more is noise."""
CPU_GRAIN = 0.03
"""Seconds of the processor within which no two passes can be told apart on a busy machine."""
UNSTEADY = ("outage",)
"""Cases whose cost is the number of attempts that fall into a span of time."""


def interpreter() -> str:
    """Return what the number of lines depends on."""
    return f"{platform.python_implementation()} {_minor()} {platform.machine()}"


def _minor() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def make_baseline(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the baseline that a run is."""
    return {"interpreter": interpreter(), "cases": dict(_cases(rows))}


def _cases(rows: Sequence[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
    nova = {row.key: row.figures for row in rows if row.peer == "nova"}
    for row in rows:
        if row.peer == "agent" and row.case not in UNSTEADY:
            beside = nova.get(row.key)
            ratio = row.figures.cpu / beside.cpu if beside is not None and beside.cpu > 0 else None
            yield (
                row.key,
                {
                    "requests": row.figures.requests,
                    "cpu_ratio": ratio,
                    "lines": row.figures.lines,
                },
            )


def read_baseline(file: Path = FILE) -> Mapping[str, Any]:
    """Return the committed baseline; one without cases if there is none."""
    if not file.exists():
        return {"interpreter": interpreter(), "cases": {}}
    found: Mapping[str, Any] = json.loads(file.read_text())
    return found


def growths(rows: Sequence[Row], baseline: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each case that needs more than the baseline: more requests, more lines of
    Python, or a larger share of nova's time of the processor.
    """
    nova = {row.key: row.figures.cpu for row in rows if row.peer == "nova"}
    same = baseline["interpreter"] == interpreter()
    for row in rows:
        known = baseline["cases"].get(row.key)
        if row.peer == "agent" and known is not None:
            yield from _growth_of(row, known, nova.get(row.key), same_interpreter=same)


def _growth_of(
    row: Row, known: Mapping[str, Any], nova: float | None, *, same_interpreter: bool
) -> Iterator[str]:
    found = row.figures
    if found.requests > known["requests"]:
        yield f"{row.key}: {found.requests} requests, the baseline has {known['requests']}"
    if same_interpreter and None not in (known.get("lines"), found.lines):
        limit = LINES_FACTOR * known["lines"]
        if (found.lines or 0) > limit:
            yield f"{row.key}: {found.lines} lines of Python, at most {limit:.0f} are expected"
    if known["cpu_ratio"] is not None and nova is not None:
        seconds = CPU_FACTOR * known["cpu_ratio"] * nova + CPU_GRAIN
        if found.cpu > seconds:
            yield (
                f"{row.key}: {1000 * found.cpu:.0f} ms of the processor, at most "
                f"{1000 * seconds:.0f} ms are expected beside nova's {1000 * nova:.0f} ms"
            )
