"""Rendering of what nodes have, with what is used and free of it on record and in Placement, as
text, from documents of the local API.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.model.names import number_of
from agent.model.topology import format_cpu_list
from agent.render.look import Look, Text, escape_text, state_style, table_lines, wrap_line
from agent.render.tree_lines import in_placement, on_record, used_legend

Document = Mapping[str, Any]

OFFERED = (
    "provider tree",
    "on record",
    "free",
    "in Placement",
    "free",
    "total",
    "reserved",
    "ratio",
)
HOST = ("on record", "used", "total", "reserved", "free")
NODES = ("node", "state", "CPUs", "of", "memory MiB", "of", "disk MiB", "of", "instances")
NODES_AT_MOST = 20
"""Beyond this number of nodes, each node has one line."""
KINDS = (("CPUs", "vcpus"), ("memory MiB", "memory_mb"), ("disk MiB", "disk_mb"))


def resource_lines(nodes: Sequence[Document], look: Look) -> list[Text]:
    """Return the lines of the nodes, one block for each, or a table of many."""
    if len(nodes) > NODES_AT_MOST:
        return resource_table(nodes, look)
    lines: list[Text] = []
    for node in nodes:
        lines += [
            *([Text()] if lines else []),
            _head(node),
            *_offered(node["placement"], look),
            *_node(node["records"], look),
        ]
    return lines


def resource_table(nodes: Sequence[Document], _look: Look) -> list[Text]:
    """Return a table with one line for each node: what is used of the host's totals."""
    return table_lines(NODES, [_row(node) for node in nodes], 2) if nodes else []


def _row(node: Document) -> tuple[str, ...]:
    name, records = (node["name"], node["state"] or "-"), node["records"]
    if records is None:
        return (*name, *["-"] * (len(NODES) - 2))
    amounts = [
        text
        for _, key in KINDS
        for text in (str(records["usage"][f"{key}_used"]), _known(records["total"][key]))
    ]
    return (*name, *amounts, str(records["usage"]["instances"]))


def _known(amount: int | None) -> str:
    return "-" if amount is None else str(amount)


def _offered(rows: Sequence[Document], look: Look) -> Iterator[Text]:
    """Return the amounts of the tree, with what is used and free of them on record, and in
    Placement where it was asked.
    """
    if not rows:
        yield Text("  not in Placement yet", "yellow")
        return
    root = rows[0]["provider"]["uuid"]
    cells = [
        (
            row["resource_class"]
            if row["provider"]["uuid"] == root
            else f"{row['provider']['name']} {row['resource_class']}",
            on_record(row["used"]),
            on_record(row["free"]),
            in_placement(row["in_placement"]),
            "" if row["free_in_placement"] is None else str(row["free_in_placement"]),
            str(row["total"]),
            str(row["reserved"]),
            str(float(row["allocation_ratio"])),
        )
        for row in rows
    ]
    yield from table_lines(OFFERED, cells, 1, indent=2)
    legend = used_legend([(row[1], row[3]) for row in cells])
    if legend:
        yield from wrap_line(Text(f"  {legend}", "dim"), look)


def _head(node: Document) -> Text:
    state = node["state"]
    return Text.assemble(
        escape_text(node["name"], "bold"),
        escape_text(f"  {state}", f"bold {state_style(state)}") if state else "",
        escape_text(f"  {node['uuid']}", "dim"),
    )


def _node(records: Document | None, look: Look) -> Iterator[Text]:
    if records is None:
        yield Text("  not audited yet", "yellow")
        return
    yield from table_lines(HOST, [_amounts(records, name, key) for name, key in KINDS], 1, indent=2)
    for fact in (*map(_cell, records["cells"]), *_others(records)):
        yield from wrap_line(escape_text(f"  {fact}"), look)
    for problem in records["problems"]:
        yield from wrap_line(
            Text.assemble(("  ! ", "bold yellow"), escape_text(problem, "yellow")), look
        )


def _amounts(records: Document, name: str, key: str) -> tuple[str, ...]:
    used, total = records["usage"][f"{key}_used"], records["total"][key]
    known = ("-", "-") if total is None else (str(total), str(total - used))
    return name, str(used), known[0], str(records["reserved"][key]), known[1]


def _cell(cell: Document) -> str:
    """Return the usage of one cell. CPUs that went offline under a guest are named."""
    parts = [f"cell {cell['id']}: {cell['memory_mb_used']} of {cell['memory_mb']} MiB"]
    if cell["shared"]:
        parts.append(
            f"{number_of(cell['shared_used'], 'guest CPU')} on "
            f"{format_cpu_list(set(cell['shared']))}"
        )
    if cell["dedicated"] or cell["pinned"]:
        parts.append(
            f"pinned {format_cpu_list(set(cell['pinned'])) or 'none'} of "
            f"{format_cpu_list(set(cell['dedicated']))}"
        )
    # Pages of the smallest size are not shown; they are the rest of the memory.
    ordinary = min((pages["size_kib"] for pages in cell["pages"]), default=None)
    parts += [
        f"{pages['used']} of {pages['total'] - pages['reserved']} pages of {pages['size_kib']} KiB"
        for pages in cell["pages"]
        if pages["size_kib"] != ordinary
    ]
    if cell["degraded"]:
        parts.append(f"offline under a guest: {format_cpu_list(set(cell['degraded']))}")
    return ", ".join(parts)


def _others(records: Document) -> Iterator[str]:
    usage, devices, units = records["usage"], records["devices"], records["units"]
    if sum(devices.values()):
        yield "devices: " + ", ".join(
            f"{count} {state}" for state, count in devices.items() if count
        )
    if units:
        yield f"units: {sum(unit['holder'] is not None for unit in units)} of {len(units)} held"
    yield ", ".join(
        number_of(usage[f"{noun}s"], noun) for noun in ("instance", "claim", "migration")
    )
    if records["failed_builds"]:
        yield f"{number_of(records['failed_builds'], 'failed build')} in a row"
    if records["dirty"]:
        yield "something has changed that is not in Placement yet"
    if records["available"] is False:
        yield "the driver does not offer the node now"
