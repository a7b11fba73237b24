"""Rendering of ``agent explain``: the query, what Placement and the host say of each node, and what
would make the request fit.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent.explain.explanation import (
    AnywhereAnswer,
    CandidateAnswer,
    CellUse,
    NodeExplanation,
    RequestedDevice,
)
from agent.explain.host_answer import HostAnswer
from agent.explain.reasons import Reason, Suggestion
from agent.model.finding import Problem
from agent.model.instance import Instance
from agent.model.names import format_cpu_list, number_of
from agent.placement.allocations.candidates import CandidateQuery
from agent.render.document import command_line, error_lines, error_rows, remedy_ways
from agent.render.look import Look, Text, escape_text, table_lines, to_string, wrap_line

SCHEMA = "compute-node-agent/explain/1"
CELLS = (
    "cell",
    "CPUs free",
    "of",
    "without memory, not offered",
    "shared guest CPUs",
    "on",
    "MiB free",
    "pages free",
    "guests on CPUs",
)
CUT = "the search was cut: no more questions are asked of one node"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of the command."""

    query: CandidateQuery
    nodes: Sequence[NodeExplanation]
    anywhere: AnywhereAnswer | None = None
    """None unless it was asked for."""
    problems: Sequence[Problem] = ()
    notice: str = ""
    """A line to show first."""
    exit_code: int = 0
    guest: Instance | None = None
    """The guest that was asked about; None for a request."""

    @property
    def fits(self) -> bool:
        """Whether the request fits a node of this agent, or by Placement any node if that was
        asked for.
        """
        return any(node.fits for node in self.nodes) or (
            self.anywhere is not None and self.anywhere.placement.candidates > 0
        )


# --- the document ---------------------------------------------------------------------------------


def explain_document(found: Explanation) -> dict[str, Any]:
    """Return the document of the command."""
    anywhere = found.anywhere
    return {
        "schema": SCHEMA,
        "fits": found.fits,
        "guest": None
        if found.guest is None
        else {"uuid": found.guest.uuid, "flavor": found.guest.flavor.name},
        "query": {
            "text": f"/allocation_candidates?{found.query.encoded()}",
            "words": _words(found.query),
        },
        "nodes": [_node_row(node) for node in found.nodes],
        "anywhere": None
        if anywhere is None
        else {
            **_placement_row(anywhere.placement),
            "limited": anywhere.limited,
            "nodes": [asdict(offer) for offer in anywhere.nodes],
        },
        "errors": error_rows(found.problems),
        "exit_code": found.exit_code,
    }


def _node_row(node: NodeExplanation) -> dict[str, Any]:
    return {
        "name": node.name,
        "uuid": node.uuid or None,
        "fits": node.fits,
        "pending": node.pending,
        "placement": None if node.placement is None else _placement_row(node.placement),
        "host": None if node.host is None else _host_row(node.host),
        "cells": [
            {
                **asdict(cell),
                "free_pages": [{"size_kib": size, "free": free} for size, free in cell.free_pages],
                "guests": [{"instance": guest, "cpus": cpus} for guest, cpus in cell.guests],
            }
            for cell in node.cells
        ],
        "devices": [asdict(device) for device in node.devices],
        "suggestions": [asdict(suggestion) for suggestion in node.suggestions],
        "errors": error_rows(node.problems),
    }


def _placement_row(answer: CandidateAnswer) -> dict[str, Any]:
    return {
        "candidates": answer.candidates,
        "in_placement": answer.in_placement,
        "refused": answer.refused,
        "excluded_by": [
            sorted(map(_reason_row, some), key=lambda row: str(row["text"]))
            for some in answer.excluded_by.sets
        ],
        "lacking": [_reason_row(reason) for reason in answer.lacking],
        "cut": not answer.excluded_by.complete,
        "queries": answer.asked,
    }


def _reason_row(reason: Reason) -> dict[str, Any]:
    constraint = reason.constraint
    return {
        "kind": constraint.kind,
        "name": constraint.name,
        "amount": constraint.amount or None,
        "groups": list(constraint.suffixes),
        "text": constraint.text,
        "numbers": list(reason.numbers),
    }


def _host_row(host: HostAnswer) -> dict[str, Any]:
    granted = host.granted
    return {
        "granted": granted is not None,
        "candidate": host.candidate,
        "without_allocations": host.alone,
        "cells": []
        if granted is None
        else [
            {"cell": cell.host_cell, "cpus": format_cpu_list(cell.pinned_cpus)}
            for cell in granted.claim.cells
        ],
        "devices": []
        if granted is None
        else [device.address for device in granted.changes.devices],
        "reasons": list(host.reasons),
        "beyond_records": list(host.beyond_records),
        "remedy": host.remedy,
        "excluded_by": [
            sorted(condition.text for condition in some) for some in host.excluded_by.sets
        ],
        "cut": not host.excluded_by.complete,
    }


# --- the text -------------------------------------------------------------------------------------


def render_explanation(found: Explanation, look: Look) -> str:
    """Return the text of the command."""
    lines = wrap_line(escape_text(found.notice, "italic"), look) if found.notice else []
    if (guest := found.guest) is not None:
        lines += [escape_text(f"guest {guest.uuid}, flavor {guest.flavor.name}", "bold"), Text()]
    lines += [Text("the query of nova's scheduler", "bold")]
    command = command_line(shlex.join(["agent", "candidates", *_words(found.query)]))
    # Never wrapped, because it is meant to be copied.
    lines += [escape_text(f"  {command}"), Text()]
    if found.anywhere is not None:
        lines += [*_anywhere_lines(found.anywhere, look), Text()]
    for node in found.nodes:
        lines += [*_node_lines(node, look, here=found.guest is not None), Text()]
    lines += error_lines(found.problems, look)
    fitting = sum(node.fits for node in found.nodes)
    closing = f"fits {fitting} of {number_of(len(found.nodes), 'node')}"
    if found.guest is not None:
        closing = "its host would grant it again" if found.fits else "its host would not grant it"
    return to_string([*lines, Text(closing, "bold green" if found.fits else "bold red")], look)


def _words(query: CandidateQuery) -> list[str]:
    return [f"{key}={value}" for key, value in query.pairs()]


def _anywhere_lines(answer: AnywhereAnswer, look: Look) -> Iterator[Text]:
    yield Text("all nodes of Placement", "bold")
    yield from _placement_lines(answer.placement, look)
    for offer in answer.nodes:
        yield from _item(
            f"{offer.name or offer.uuid}: {number_of(offer.candidates, 'candidate')}", look
        )
    if answer.limited:
        yield from _item("the limit of the query is reached; there may be more nodes", look)


def _node_lines(node: NodeExplanation, look: Look, *, here: bool) -> Iterator[Text]:
    """Yield the lines of a node. ``here``: a guest is explained that the node has."""
    style, word = ("green", "fits") if node.fits else ("red", "does not fit")
    if node.placement is None:
        style, word = "yellow", "not known"
    yield Text.assemble(
        escape_text(node.name, "bold"), "  ", (word, f"bold {style}"), escape_text(f"  {node.uuid}")
    )
    if node.placement is not None:
        shown = _tree_lines if here else _placement_lines
        yield from shown(node.placement, look)
    if node.host is not None:
        yield from _host_lines(node, node.host, look)
    if node.suggestions:
        yield Text("  what would make it fit", "bold")
        for suggestion in node.suggestions:
            yield from _suggestion_lines(suggestion, look)
    if node.pending:
        what = f"{number_of(node.pending, 'change')} of the tree not in Placement yet"
        yield from wrap_line(
            Text(f"  {what}, see {command_line('agent --once --dry-run')}", "yellow"), look
        )
    yield from error_lines(node.problems, look)


def _suggestion_lines(suggestion: Suggestion, look: Look) -> Iterator[Text]:
    tested = f" (not tested: {suggestion.guess})" if suggestion.guess else " (tested)"
    for words, command in remedy_ways(suggestion.text):
        yield from _item(words.removesuffix(":") + tested + ":" * bool(command), look)
        if command:
            yield escape_text(f"        {command}")


def _placement_lines(answer: CandidateAnswer, look: Look) -> Iterator[Text]:
    queries = "1 query" if answer.asked == 1 else f"{answer.asked} queries"
    word = number_of(answer.candidates, "candidate") if answer.candidates else "no candidates"
    yield Text.assemble(("  Placement: ", "bold"), word, (f", {queries}", "dim"))
    if answer.refused:
        yield from _item(answer.refused, look)
    if not answer.in_placement:
        yield from _item("Placement does not have the node's tree: agent --once writes it", look)
    shown = set()
    for some in answer.excluded_by.sets:
        ordered = sorted(some, key=lambda reason: reason.constraint.text)
        texts = " and ".join(reason.constraint.text for reason in ordered)
        yield from _item(f"there would be candidates without: {texts}", look, look.signs.bad)
        for reason in ordered:
            shown.add(reason.constraint)
            yield from _numbers(reason, look)
    for reason in answer.lacking:
        if reason.constraint not in shown:
            yield from _item(f"not met: {reason.constraint.text}", look, look.signs.bad)
            yield from _numbers(reason, look)
    if not answer.excluded_by.complete:
        yield from _item(CUT, look)


def _tree_lines(answer: CandidateAnswer, look: Look) -> Iterator[Text]:
    """Yield what the tree lacks of the flavor of a guest that is there."""
    word = "lacks what the flavor asks for" if answer.lacking else "has what the flavor asks for"
    yield Text.assemble(("  tree: ", "bold"), word, (", without the guest itself", "dim"))
    for reason in answer.lacking:
        yield from _item(f"not met: {reason.constraint.text}", look, look.signs.bad)
        yield from _numbers(reason, look)


def _numbers(reason: Reason, look: Look) -> Iterator[Text]:
    for text in reason.numbers:
        yield from wrap_line(escape_text(f"      {text}", "dim"), look)


def _host_lines(node: NodeExplanation, host: HostAnswer, look: Look) -> Iterator[Text]:
    if host.granted is not None:
        cells = [
            f"cell {cell.host_cell}"
            + (f" CPUs {format_cpu_list(cell.pinned_cpus)}" if cell.pinned_cpus else "")
            for cell in host.granted.claim.cells
        ]
        devices = [f"device {device.address}" for device in host.granted.changes.devices]
        got = f": {', '.join([*cells, *devices])}" if cells or devices else ""
        yield Text.assemble(("  host: ", "bold"), escape_text(f"grants the guest{got}"))
        for text in host.beyond_records:
            yield from _item(text, look)
        return
    yield Text.assemble(("  host: ", "bold"), "denies the guest")
    for text in host.reasons:
        yield from _item(text, look, look.signs.bad)
    if host.alone:
        yield from _item("without the scheduler's allocations the host would grant it", look)
    for some in host.excluded_by.sets:
        texts = " and ".join(sorted(condition.text for condition in some))
        yield from _item(f"it would fit without: {texts}", look, look.signs.bad)
    if not host.excluded_by.complete:
        yield from _item(CUT, look)
    yield from _cell_lines(node.cells)
    for device in node.devices:
        yield from _item(_device_text(device), look)


def _cell_lines(cells: Sequence[CellUse]) -> Iterator[Text]:
    """Yield a table of the cells, without the columns that are empty in all of them."""
    rows = [_cell_row(cell) for cell in cells]
    kept = [column for column in range(len(CELLS)) if any(row[column] for row in rows)]
    if rows:
        yield from table_lines(
            [CELLS[column] for column in kept],
            [[row[column] for column in kept] for row in rows],
            len(kept),
            indent=4,
        )


def _cell_row(cell: CellUse) -> tuple[str, ...]:
    return (
        str(cell.cell),
        (cell.free or "none") if cell.dedicated else "",
        cell.dedicated,
        cell.without_memory,
        str(cell.shared_used) if cell.shared else "",
        cell.shared,
        str(cell.free_memory_mb),
        ", ".join(f"{free} of {size} KiB" for size, free in cell.free_pages),
        ", ".join(f"{instance} {cpus}" for instance, cpus in cell.guests),
    )


def _device_text(device: RequestedDevice) -> str:
    place = f" on cell {device.cell}" if device.cell is not None else ""
    holder = f" by {device.instance}" if device.instance else ""
    return f"device {device.address}{place}: {device.state}{holder}"


def _item(text: str, look: Look, sign: str = "") -> Sequence[Text]:
    return wrap_line(escape_text(f"    {sign or look.signs.dot} {text}"), look)
