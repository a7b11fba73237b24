"""Provider trees as a graph for Graphviz. Pure.

The text is ASCII, so that every stream can carry every name, and a name is never syntax: what is
not a letter, a digit or harmless is written as a character reference.
"""

import re
from collections.abc import Iterator, Sequence

from agent.model.inventory import Record, completed, without_empty
from agent.model.names import printable
from agent.render.json_report import StoredTree, own_providers

UNKNOWN = "?"
PLAIN = re.compile(r"[^A-Za-z0-9 _.:,?/-]")
LAST_REFERENCE = 0xFFFF
"""Graphviz makes invalid UTF-8 of references to later characters."""


def render_drawing(trees: Sequence[StoredTree]) -> str:
    """Return one graph of all trees: a box for each provider with its amounts, dashed if the
    provider is not the agent's, and an arrow to each of its children.
    """
    return "".join(f"{line}\n" for line in _lines(trees))


def _lines(trees: Sequence[StoredTree]) -> Iterator[str]:
    yield "digraph providers {"
    yield '  graph [rankdir="LR"];'
    yield '  node [shape="box", fontname="sans-serif"];'
    number = 0
    for shown in trees:
        numbers: dict[str, int] = {}
        for uuid in own_providers(shown.tree, shown.uuid):
            provider = shown.tree.provider(uuid)
            used = shown.used.get(uuid, {})
            amounts = (
                _amount(name, completed(record), used.get(name))
                for name, record in sorted(without_empty(provider.inventory).items())
            )
            label = "\\n".join(_escape(row) for row in (provider.name, *amounts))
            style = "solid" if uuid in shown.owned else "dashed"
            yield f'  p{number} [label="{label}", style="{style}"];'
            if (parent := numbers.get(provider.parent_uuid or "")) is not None:
                yield f"  p{parent} -> p{number};"
            numbers[uuid], number = number, number + 1
    yield "}"


def _amount(resource_class: str, record: Record, used: int | None) -> str:
    parts = [f"{resource_class} {UNKNOWN if used is None else used}/{record['total']}"]
    if record["reserved"]:
        parts.append(f"{record['reserved']} reserved")
    if record["allocation_ratio"] != 1:
        parts.append(f"ratio {record['allocation_ratio']:g}")
    return ", ".join(parts)


def _escape(text: str) -> str:
    return PLAIN.sub(_reference, printable(text))


def _reference(match: re.Match[str]) -> str:
    if match.group() == "\\":
        # Graphviz resolves references first, and a backslash from one would begin an escape.
        return "\\\\"
    if ord(match.group()) > LAST_REFERENCE:
        return f"\\\\U{ord(match.group()):08x}"
    return f"&#{ord(match.group())};"
