"""Rendering of claims, moves, migrations, a hypervisor's guests, and what nodes have and what of it
is free, as text, from documents of the local API.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from agent.model.names import format_cpu_list, number_of
from agent.render.document import Document, command_line, error_lines, problems_in, remedy_lines
from agent.render.look import (
    Look,
    Text,
    escape_text,
    state_style,
    table_lines,
    to_string,
    wrap_line,
)
from agent.render.tree_lines import (
    NO_FIGURES,
    NONE_ON_RECORD,
    in_placement,
    on_record,
    used_legend,
)

STYLES = {"held": "yellow", "consumed": "green", "released": "dim"}
UNKNOWN_STYLE = "yellow"
"""The style of a word that only a newer daemon knows."""


def claim_lines(claims: Sequence[Document], look: Look) -> list[Text]:
    """Return the lines of claims: id, state, instance, node, and what they hold."""
    return [line for claim in claims for line in _claim(claim, look)]


def move_lines(moves: Sequence[Document], look: Look) -> list[Text]:
    """Return the lines of moves: the migration, and its claims below."""
    lines: list[Text] = []
    for move in moves:
        lines += [
            *migration_lines([move["migration"]], look),
            *(Text.assemble("  ", line) for line in claim_lines(move["claims"], look)),
        ]
    return lines


def migration_lines(migrations: Sequence[Document], look: Look) -> list[Text]:
    """Return the lines of migrations: uuid, type, status, instance, source and destination."""
    lines: list[Text] = []
    for migration in migrations:
        lines.append(
            Text.assemble(
                escape_text(migration["uuid"], "bold"),
                escape_text(f"  {migration['type']}  "),
                escape_text(migration["status"], "bold"),
            )
        )
        lines += _details([f"instance {migration['instance']}", *_way(migration, look)], look)
    return lines


def _claim(claim: Document, look: Look) -> list[Text]:
    half = "" if claim["half"] == "only" else f", the {claim['half']} half"
    first = Text.assemble(
        escape_text(claim["id"], "bold"),
        "  ",
        escape_text(claim["state"], f"bold {STYLES.get(claim['state'], UNKNOWN_STYLE)}"),
        escape_text(f"  {claim['purpose']}{half}"),
    )
    return [
        first,
        *_details([f"instance {claim['instance']}", f"node {_node(claim)}"], look),
        *_details(list(_held(claim)), look),
    ]


def _node(claim: Document) -> str:
    name = claim.get("node_name")
    return f"{name} ({claim['node']})" if name else str(claim["node"])


def _held(claim: Document) -> Iterator[str]:
    amounts = claim["amounts"]
    if any(amounts.values()):
        yield f"{amounts['memory_mb']} MiB memory"
        yield number_of(amounts["vcpus"], "CPU")
        yield f"{amounts['disk_mb']} MiB disk"
    yield from map(cell_text, claim["cells"])
    if claim["devices"]:
        yield f"devices {', '.join(device['address'] for device in claim['devices'])}"
    if claim["units"]:
        yield f"units {', '.join(unit['identifier'] for unit in claim['units'])}"
    for mdev in claim["mdevs"]:
        yield f"{mdev['count']} {mdev['type'] or mdev['resource_class']}" + (
            f" of {mdev['parent']}" if mdev["parent"] else ""
        )


def cell_text(cell: Document) -> str:
    """Return the host cell of a guest's cell, and the host's CPUs that the cell is pinned to."""
    pinned = format_cpu_list({*cell["pins"].values(), *cell["emulator"]})
    return f"cell {cell['host_cell']}" + (f" pinned to {pinned}" if pinned else "")


def _way(migration: Document, look: Look) -> Iterator[str]:
    arrow = look.signs.change
    yield f"{migration['source_compute'] or '?'} {arrow} {migration['dest_compute'] or '?'}"
    if migration["old_flavor_id"] != migration["new_flavor_id"] and migration["new_flavor_id"]:
        yield f"flavor {migration['old_flavor_id'] or '?'} {arrow} {migration['new_flavor_id']}"


def _details(parts: Sequence[str], look: Look) -> list[Text]:
    return (
        wrap_line(escape_text("  " + f" {look.signs.dot} ".join(parts), "dim"), look)
        if parts
        else []
    )


# The words for a guest's outcome, and their style.
OUTCOMES: Mapping[str, tuple[str, str]] = {
    "known": ("on record", "dim"),
    "elsewhere": ("on record, on another node", "dim"),
    "importable": ("not on record", "bold yellow"),
    "imported": ("imported", "bold green"),
    "refused": ("cannot be imported", "bold red"),
}


def render_guests(
    nodes: Sequence[Document], look: Look, *, from_driver: bool, dry_run: bool
) -> str:
    """Return the text: each node with its guests, and the number of guests by outcome.

    ``from_driver``: no daemon was asked, but the driver. ``dry_run``: they were to be imported.
    """
    lines = (
        [Text("the daemon was not asked; this is what the driver reports", "yellow"), Text()]
        if from_driver
        else []
    )
    for node in nodes:
        lines += [*_guests_of_node(node, look), Text()]
    counts = Counter(guest["outcome"] for node in nodes for guest in node["guests"])
    entries = [number_of(sum(counts.values()), "guest")]
    entries += [
        f"{counts[outcome]} {word}" for outcome, (word, _) in OUTCOMES.items() if counts[outcome]
    ]
    end = "; dry run: nothing was written" if dry_run else ""
    return to_string([*lines, Text(", ".join(entries) + end, "bold")], look)


def _guests_of_node(node: Document, look: Look) -> Iterator[Text]:
    yield Text.assemble(
        escape_text(node["name"], "bold"), escape_text(f"  {node['uuid'] or ''}".rstrip(), "dim")
    )
    for guest in node["guests"]:
        word, style = OUTCOMES.get(guest["outcome"], (guest["outcome"], UNKNOWN_STYLE))
        yield Text.assemble(
            "  ",
            escape_text(guest["name"], "bold"),
            escape_text(f"  {guest['uuid']}  "),
            escape_text(word, style),
        )
        yield from wrap_line(
            escape_text("    " + f" {look.signs.dot} ".join(_facts(guest)), "dim"), look
        )
        for refusal in guest["refusals"]:
            yield from wrap_line(
                Text.assemble(
                    (f"    {look.signs.bad} ", "bold red"), escape_text(refusal["reason"], "red")
                ),
                look,
            )
            yield from remedy_lines(refusal["remedy"], look, "      ")
    if not node["guests"] and not node["errors"]:
        yield Text("  no guests", "dim")
    yield from error_lines(problems_in(node["errors"]), look)


def _facts(guest: Document) -> Iterator[str]:
    yield guest["state"]
    if guest["vcpus"] is not None:
        yield number_of(guest["vcpus"], "CPU")
    yield f"{guest['memory_mb']} MiB memory"
    yield from map(cell_text, guest["cells"])
    if guest["devices"]:
        yield f"devices {', '.join(guest['devices'])}"
    if guest["flavor"] is not None:
        yield f"flavor {guest['flavor']}"


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
        rows = [_row(node) for node in nodes]
        dash = [Text("-: not known", "dim")] if any("-" in row for row in rows) else []
        return [*table_lines(NODES, rows, 2), *dash]
    lines: list[Text] = []
    for node in nodes:
        lines += [
            *([Text()] if lines else []),
            _head(node),
            *_offered(node["placement"], look),
            *_node_lines(node["records"], look),
        ]
    return lines


def _row(node: Document) -> tuple[str, ...]:
    name, records = (node["name"], node["state"] or "-"), node["records"]
    if records is None:
        return (*name, *["-"] * (len(NODES) - 2))
    amounts = [
        text
        for _, key in KINDS
        for text in (str(_used(records, key)), _known(records["total"][key]))
    ]
    return (*name, *amounts, str(records["usage"]["instances"]))


def _used(records: Document, key: str) -> int:
    """Return what guests use: what is reserved is shown beside it."""
    return int(records["usage"][f"{key}_used"] - records["reserved"][key])


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
        # The column is shown all the same.
        dash = f"{NONE_ON_RECORD}: " if legend.startswith(NO_FIGURES) else ""
        yield from wrap_line(Text(f"  {dash}{legend}", "dim"), look)
        if dash:
            way = command_line("agent guests import")
            yield Text(f"  guests that run already get a record by: {way}", "dim")


def _head(node: Document) -> Text:
    state = node["state"]
    return Text.assemble(
        escape_text(node["name"], "bold"),
        escape_text(f"  {state}", f"bold {state_style(state)}") if state else "",
        escape_text(f"  {node['uuid']}", "dim"),
    )


def _node_lines(records: Document | None, look: Look) -> Iterator[Text]:
    if records is None:
        yield Text("  not audited yet", "yellow")
        return
    yield from table_lines(HOST, [_amounts(records, name, key) for name, key in KINDS], 1, indent=2)
    if None in records["total"].values():
        yield Text("  -: the driver does not say how much the host has", "dim")
    for fact in (*map(_cell, records["cells"]), *_others(records)):
        yield from wrap_line(escape_text(f"  {fact}"), look)
    for problem in records["problems"]:
        yield from wrap_line(
            Text.assemble(("  ! ", "bold yellow"), escape_text(problem, "yellow")), look
        )


def _amounts(records: Document, name: str, key: str) -> tuple[str, ...]:
    used, total, reserved = _used(records, key), records["total"][key], records["reserved"][key]
    free = None if total is None else total - reserved - used
    return name, str(used), _known(total), str(reserved), _known(free)


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
