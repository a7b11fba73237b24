"""The text report: each node with its tree, its operations and its problems, and a closing line."""

from collections import Counter
from collections.abc import Sequence

from agent.model.names import printable
from agent.model.operation import SetTraits
from agent.model.report import METHODS, NodeReport, Report
from agent.render.document import all_drift_lines, error_lines
from agent.render.json_report import StoredTree, own_providers, provisional_names
from agent.render.look import (
    GAP,
    STATE_STYLES,
    Look,
    Signs,
    Text,
    escape_text,
    padded,
    table_lines,
    to_string,
    wrap_line,
)
from agent.render.operation_lines import operation_lines
from agent.render.tree_lines import (
    HEADINGS,
    TraitChanges,
    inventory_rows,
    tree_lines,
    used_legend,
)

TREES_AT_MOST = 20
TREE_HEADINGS = ("node", "provider", "class", *HEADINGS)
ROWS_AT_MOST = 100
DETAILED_AT_MOST = 50
NODE_HEADINGS = (
    "node",
    "state",
    "driver",
    "providers",
    "operations",
    "drift",
    "errors",
    "seconds",
)
NODE_WORDS = 3  # The first columns hold words, the others numbers.


def render_report(report: Report, look: Look) -> str:
    """Return the report as text that ends in a newline."""
    lines = (
        [*wrap_line(escape_text(report.notice, "italic"), look), Text()] if report.notice else []
    )
    if len(report.nodes) > TREES_AT_MOST:
        lines += _many(report.nodes, look)
    else:
        lines += [
            line
            for node in report.nodes
            for line in (
                *_node(node, look, tree_lines(node, look, _trait_changes(node), report.observes)),
                Text(),
            )
        ]
    if report.errors:
        lines += [*error_lines(report.errors, look), Text()]
    return to_string([*lines, _closing(report)], look)


def _many(nodes: Sequence[NodeReport], look: Look) -> list[Text]:
    """Return the lines for many nodes: a table in place of the trees, and the details of as many
    nodes as a person may read, those with errors first.
    """
    # The sort is stable, so that nodes with errors stay in their order, and so do the others.
    eventful = sorted(
        (node for node in nodes if node.outcomes or node.drift or node.errors),
        key=lambda node: not node.errors,
    )
    in_table = nodes if len(nodes) <= ROWS_AT_MOST else eventful[:ROWS_AT_MOST]
    lines = (
        [*_summary_lines(in_table, look), *_more(len(nodes) - len(in_table), ""), Text()]
        if in_table
        else []
    )
    lines += [
        line for node in eventful[:DETAILED_AT_MOST] for line in (*_node(node, look, []), Text())
    ]
    return [
        *lines,
        *(
            [*left, Text()]
            if (
                left := _more(
                    len(eventful) - DETAILED_AT_MOST, ", with operations, drift or errors"
                )
            )
            else []
        ),
    ]


def _header_lines(node: NodeReport, signs: Signs) -> list[Text]:
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


def _summary_lines(nodes: Sequence[NodeReport], look: Look) -> list[Text]:
    """Return a table with one row for each node, for runs with too many nodes to show
    their trees.
    """
    headings, *rows = padded(NODE_HEADINGS, [_summary_row(node) for node in nodes], NODE_WORDS)
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


def _more(count: int, what: str) -> list[Text]:
    text = (
        f"and {count} more node{'' if count == 1 else 's'}{what}: choose some with --node, or see "
        "all with --format json"
    )
    return [Text(text, "dim")] if count > 0 else []


def render_trees(trees: Sequence[StoredTree], look: Look) -> str:
    """Return trees as text, one below the other."""
    lines: list[Text] = []
    for tree in trees:
        seen = Text.assemble(
            escape_text(tree.name, "bold"), (f" as last seen at {printable(tree.endpoint)}", "dim")
        )
        lines += [
            *([Text()] if lines else []),
            seen,
            Text(),
            *(tree_lines(tree, look) or [Text("no providers", "dim")]),
        ]
    return to_string(lines, look)


def render_tree_table(trees: Sequence[StoredTree], look: Look) -> str:
    """Return a table with one line for each resource class of each provider, and for each provider
    without any.
    """
    rows = [
        (stored.name, provider.name, *cells)
        for stored in trees
        for provider in map(stored.tree.provider, own_providers(stored.tree, stored.uuid))
        for cells in inventory_rows(provider, stored)
    ]
    legend = used_legend([row[3:] for row in rows if row[2]])
    lines = [*table_lines(TREE_HEADINGS, rows, 3), *([Text(legend, "dim")] if legend else [])]
    return to_string(lines, look)


def _node(node: NodeReport, look: Look, tree: list[Text]) -> list[Text]:
    hidden = provisional_names(node)
    names: dict[str, str] = {one.uuid: one.name for one in node.tree.providers()}
    sections = [
        ("", tree),
        ("operations", operation_lines(node, look)),
        (
            "drift",
            all_drift_lines(node.drift, look, hidden, names),
        ),
        ("errors", error_lines(node.errors, look, hidden)),
        ("hint", wrap_line(escape_text(node.hint), look) if node.hint else []),
    ]
    lines = _header_lines(node, look.signs)
    for title, body in sections:
        if body:
            lines += [Text(), *([Text(title, "underline")] if title else []), *body]
    return lines


def _trait_changes(node: NodeReport) -> TraitChanges:
    sent = (outcome.operation for outcome in node.outcomes if outcome.status in ("done", "planned"))
    return {
        operation.provider.uuid: (operation.old, operation.new)
        for operation in sent
        if isinstance(operation, SetTraits)
    }


def _closing(report: Report) -> Text:
    states = Counter[str](node.state for node in report.nodes)
    statuses = Counter[str](outcome.status for node in report.nodes for outcome in node.outcomes)
    counts = [node.requests for node in report.nodes] + [report.requests]
    methods = Counter({method: sum(count.get(method, 0) for count in counts) for method in METHODS})
    parts = [
        count_with_parts("node", states),
        count_with_parts("operation", statuses),
        count_with_parts("request", +methods),
        f"{report.seconds:.2f} s",
    ]
    if report.observes or report.dry_run:
        how = "observed" if report.observes else "dry run"
        parts.append(f"{how}: nothing was written")
    return Text(", ".join(parts), "bold")


def count_with_parts(noun: str, parts: Counter[str]) -> str:
    """Return ``3 requests (2 GET, 1 PUT)``."""
    number = parts.total()
    text = f"{number} {noun}" + ("" if number == 1 else "s")
    return text + (
        f" ({', '.join(f'{count} {name}' for name, count in parts.items())})" if parts else ""
    )
