"""A node in two lines, or as one row of a table."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from agent.model.names import printable
from agent.model.report import NodeReport
from agent.render.json_report import own_providers
from agent.render.look import Look, Signs, escape_text

STATE_STYLES = {
    "in-sync": "green",
    "changed": "green",
    "pending": "yellow",
    "degraded": "yellow",
    "failed": "red",
    "refused": "red",
}
HEADINGS = ("node", "state", "driver", "providers", "operations", "drift", "errors", "seconds")
WORDS = 3  # The first columns hold words, the others numbers.


def state_style(state: str) -> str:
    """Return the style of a node's state. A newer daemon may have states that are unknown here."""
    return STATE_STYLES.get(state, "yellow")


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
    rows = [[printable(cell) for cell in _summary_row(node)] for node in nodes]
    widths = [max(map(cell_len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    heading = Text(
        "  "
        + "  ".join(
            _pad(cell, width, index)
            for index, (cell, width) in enumerate(zip(HEADINGS, widths, strict=True))
        ),
        "dim",
    )
    lines = [heading]
    for node, row in zip(nodes, rows, strict=True):
        cells = [
            _pad(cell, width, index)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        style = STATE_STYLES[node.state]
        lines.append(
            Text.assemble(
                (f"{_mark(node, look.signs)} ", style),
                (cells[0], "bold"),
                "  ",
                (cells[1], style),
                "  ",
                "  ".join(cells[2:]),
            )
        )
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


def _pad(cell: str, width: int, index: int) -> str:
    space = " " * (width - cell_len(cell))
    return cell + space if index < WORDS else space + cell
