"""Rendering of a hypervisor's guests as text and as a document, from documents of the local API."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.text import Text

from agent.model.names import number_of
from agent.render.json_report import problems_in
from agent.render.look import Look, escape_text, to_string, wrap_line
from agent.render.records import cell_text
from agent.render.text import error_lines

Document = Mapping[str, Any]

# The words for a guest's outcome, and their style.
OUTCOMES: Mapping[str, tuple[str, str]] = {
    "known": ("on record", "dim"),
    "elsewhere": ("on record, on another node", "dim"),
    "importable": ("not on record", "bold yellow"),
    "imported": ("imported", "bold green"),
    "refused": ("cannot be imported", "bold red"),
}


@dataclass(frozen=True, slots=True)
class GuestList:
    """The guests by node, as a command shows them."""

    name: Literal["guests", "guests-import"]
    """The name of the command in the document."""
    source: Literal["daemon", "driver"]
    """Whether the daemon was asked, or the driver itself."""
    dry_run: bool
    nodes: Sequence[Document]
    exit_code: int


def guests_document(found: GuestList) -> Document:
    """Return the document of the command."""
    return {
        "schema": f"compute-node-agent/{found.name}/1",
        "source": found.source,
        "dry_run": found.dry_run,
        "nodes": list(found.nodes),
        "errors": [],
        "exit_code": found.exit_code,
    }


def render_guests(found: GuestList, look: Look) -> str:
    """Return the text: each node with its guests, and the number of guests by outcome."""
    lines = (
        [Text("the daemon was not asked; this is what the driver reports", "yellow"), Text()]
        if found.source == "driver"
        else []
    )
    for node in found.nodes:
        lines += [*_node(node, look), Text()]
    return to_string([*lines, _closing(found)], look)


def _node(node: Document, look: Look) -> Iterator[Text]:
    yield Text.assemble(
        escape_text(node["name"], "bold"), escape_text(f"  {node['uuid'] or ''}".rstrip(), "dim")
    )
    for guest in node["guests"]:
        word, style = OUTCOMES[guest["outcome"]]
        yield Text.assemble(
            "  ",
            escape_text(guest["name"], "bold"),
            escape_text(f"  {guest['uuid']}  "),
            (word, style),
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
            yield from wrap_line(
                Text.assemble(
                    (f"      {look.signs.change} ", "dim"), escape_text(refusal["remedy"])
                ),
                look,
            )
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


def _closing(found: GuestList) -> Text:
    counts = Counter(guest["outcome"] for node in found.nodes for guest in node["guests"])
    entries = [number_of(sum(counts.values()), "guest")]
    entries += [
        f"{counts[outcome]} {word}" for outcome, (word, _) in OUTCOMES.items() if counts[outcome]
    ]
    return Text(
        ", ".join(entries) + ("; dry run: nothing was written" if found.dry_run else ""), "bold"
    )
