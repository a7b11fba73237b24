"""A node in two lines, or as one row of a table."""

from collections.abc import Sequence

from agent.model.report import NodeReport
from agent.render.json_report import own_providers
from agent.render.look import GAP, STATE_STYLES, Look, Signs, Text, escape_text, padded

HEADINGS = ("node", "state", "driver", "providers", "operations", "drift", "errors", "seconds")
WORDS = 3  # The first columns hold words, the others numbers.


def header_lines(node: NodeReport, signs: Signs) -> list[Text]:
    """Return the lines with the node's name, state, driver and uuid."""
    style = STATE_STYLES[node.state]
    facts = [f"driver {node.driver}", *([] if node.provisional else [node.uuid])]
    if node.attempts > 1:
        facts.append(f"{node.attempts} attempts")
    return [
        Text.assemble(
            (f"{_mark(node, signs)} ", f"bold {style}"),
            escape_text(node.name, "bold"),
            "  ",
            (node.state, f"bold {style}"),
        ),
        escape_text("  " + f" {signs.dot} ".join(facts), "dim"),
    ]


def _mark(node: NodeReport, signs: Signs) -> str:
    marks = {
        "in-sync": signs.good,
        "changed": signs.good,
        "pending": signs.waiting,
        "degraded": "!",
    }
    return marks.get(node.state, signs.bad)


def summary_lines(nodes: Sequence[NodeReport], look: Look) -> list[Text]:
    """Return a table with one row for each node, for runs with too many nodes to show
    their trees.
    """
    headings, *rows = padded(HEADINGS, [_summary_row(node) for node in nodes], WORDS)
    lines = [Text(GAP.join(["", *headings]), "dim")]
    for node, (name, state, *others) in zip(nodes, rows, strict=True):
        style = STATE_STYLES[node.state]
        mark = (f"{_mark(node, look.signs)} ", style)
        told = (name, "bold"), GAP, (state, style), GAP, GAP.join(others)
        lines.append(Text.assemble(mark, *told))
    return lines


def _summary_row(node: NodeReport) -> tuple[str, ...]:
    numbers = (
        len(own_providers(node.tree, node.uuid)),
        len(node.outcomes),
        len(node.drift),
        len(node.errors),
    )
    return (
        node.name,
        node.state,
        node.driver,
        *map(str, numbers),
        f"{node.seconds.get('total', 0.0):.2f}",
    )
