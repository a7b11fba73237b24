"""Rendering of ``agent provider-config check``, as a document and as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from agent.model.names import printable
from agent.model.report import NodeReport, Problem
from agent.render.json_report import error_rows, node_document
from agent.render.look import Look, escape_text, to_string, wrap_line
from agent.render.operation_lines import operation_lines
from agent.render.text import error_lines

SHOWN = ("name", "uuid", "operations", "errors")


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking valid files."""

    folder: str
    files: Sequence[str]
    entries: Sequence[Mapping[str, Any]]
    warnings: Sequence[Problem]
    nodes: Sequence[NodeReport]
    """What the files would change on each node."""
    note: str
    """Why ``nodes`` is unknown; empty if it is known."""
    exit_code: int


def check_document(checked: Checked) -> dict[str, Any]:
    """Return the document of the command."""
    nodes = [
        {key: value for key, value in node_document(node).items() if key in SHOWN}
        for node in checked.nodes
    ]
    return {
        "schema": "compute-node-agent/provider-config-check/1",
        "folder": checked.folder,
        "files": list(checked.files),
        "entries": list(checked.entries),
        "warnings": error_rows(checked.warnings),
        "nodes": nodes,
        "errors": [],
        "exit_code": checked.exit_code,
    }


def render_check(checked: Checked, look: Look) -> str:
    """Return the text of the command."""
    count, files = len(checked.entries), len(checked.files)
    what = (
        f"{count} {'entry' if count == 1 else 'entries'} in {files} "
        f"{'file' if files == 1 else 'files'} of {printable(checked.folder)}"
    )
    lines = [
        *wrap_line(Text.assemble((f"{look.signs.good} ", "bold green"), escape_text(what)), look)
    ]
    for warning in checked.warnings:
        remedy = f" ({warning.remedy})" if warning.remedy else ""
        lines += wrap_line(
            Text.assemble(("! ", "bold yellow"), escape_text(f"{warning.message}{remedy}")), look
        )
    for node in checked.nodes:
        changes = operation_lines(node, look) or (
            [] if node.errors else [Text("nothing would change", "dim")]
        )
        lines += [
            Text(),
            Text.assemble(escape_text(node.name, "bold"), (f"  {node.uuid}", "dim")),
            *changes,
            *error_lines(node.errors, look),
        ]
    if checked.note:
        lines += [Text(), *wrap_line(escape_text(checked.note, "dim"), look)]
    return to_string(lines, look)
