"""Rendering of claims, moves and migrations as text, from documents of the local API."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from agent.model.cpu_list import format_cpu_list
from agent.model.names import number_of
from agent.render.look import Look, escape_text, wrap_line

Document = Mapping[str, Any]

STYLES = {"held": "yellow", "consumed": "green", "released": "dim"}


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
        (claim["state"], f"bold {STYLES[claim['state']]}"),
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
