"""Rendering of claims, moves and migrations as text, from documents of the local API."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from agent.model.cpu_list import format_cpu_list
from agent.render.look import Look, hanging, shown, some

Document = Mapping[str, Any]

STYLES = {"held": "yellow", "consumed": "green", "released": "dim"}


def claim_lines(claims: Sequence[Document], look: Look) -> list[Text]:
    """Return the lines of claims: id, state, instance, node, and what they hold."""
    return [line for one in claims for line in _claim(one, look)]


def move_lines(moves: Sequence[Document], look: Look) -> list[Text]:
    """Return the lines of moves: the migration, and its claims below."""
    lines: list[Text] = []
    for one in moves:
        lines += [
            *migration_lines([one["migration"]], look),
            *(Text.assemble("  ", line) for line in claim_lines(one["claims"], look)),
        ]
    return lines


def migration_lines(migrations: Sequence[Document], look: Look) -> list[Text]:
    """Return the lines of migrations: uuid, type, status, instance, source and destination."""
    lines: list[Text] = []
    for one in migrations:
        lines.append(
            Text.assemble(
                shown(one["uuid"], "bold"),
                shown(f"  {one['type']}  "),
                shown(one["status"], "bold"),
            )
        )
        lines += _details([f"instance {one['instance']}", *_way(one, look)], look)
    return lines


def _claim(claim: Document, look: Look) -> list[Text]:
    half = "" if claim["half"] == "only" else f", the {claim['half']} half"
    first = Text.assemble(
        shown(claim["id"], "bold"),
        "  ",
        (claim["state"], f"bold {STYLES[claim['state']]}"),
        shown(f"  {claim['purpose']}{half}"),
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
        yield some(amounts["vcpus"], "CPU")
        yield f"{amounts['disk_mb']} MiB disk"
    for one in claim["cells"]:
        pinned = format_cpu_list({*one["pins"].values(), *one["emulator"]})
        yield f"cell {one['host_cell']}" + (f" pinned to {pinned}" if pinned else "")
    if claim["devices"]:
        yield f"devices {', '.join(one['address'] for one in claim['devices'])}"
    if claim["units"]:
        yield f"units {', '.join(one['identifier'] for one in claim['units'])}"
    for one in claim["mdevs"]:
        yield f"{one['count']} {one['type'] or one['resource_class']}" + (
            f" of {one['parent']}" if one["parent"] else ""
        )


def _way(migration: Document, look: Look) -> Iterator[str]:
    arrow = look.signs.change
    yield f"{migration['source_compute'] or '?'} {arrow} {migration['dest_compute'] or '?'}"
    if migration["old_flavor_id"] != migration["new_flavor_id"] and migration["new_flavor_id"]:
        yield f"flavor {migration['old_flavor_id'] or '?'} {arrow} {migration['new_flavor_id']}"


def _details(parts: Sequence[str], look: Look) -> list[Text]:
    return hanging(shown("  " + f" {look.signs.dot} ".join(parts), "dim"), look) if parts else []
