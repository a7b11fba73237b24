"""Rendering of claims, moves, migrations and a hypervisor's guests as text, from documents of the
local API.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.model.names import number_of
from agent.model.topology import format_cpu_list
from agent.render.document import problems_in
from agent.render.look import Look, Text, escape_text, to_string, wrap_line
from agent.render.problem_lines import error_lines, remedy_lines

Document = Mapping[str, Any]

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
