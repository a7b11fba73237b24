"""Provider trees as graphs for programs that draw: Graphviz and Mermaid. Pure.

The text is ASCII, so that every stream can carry every name, and a name is never syntax: what is
not a letter, a digit or harmless is written as a character reference.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from agent.model.inventory import Record, completed, without_empty
from agent.model.names import printable
from agent.render.json_report import StoredTree, own_providers

Drawing = Literal["dot", "mermaid"]
UNKNOWN = "?"
# A reference is "&#34;" in Graphviz, and "#34;" in Mermaid.
PLAIN = re.compile(r"[^A-Za-z0-9 _.:,?/-]")
REFERENCES: Mapping[Drawing, str] = {"dot": "&#{};", "mermaid": "#{};"}
LAST_REFERENCE = 0xFFFF
"""Graphviz makes invalid UTF-8 of references to later characters."""
BREAKS: Mapping[Drawing, str] = {"dot": "\\n", "mermaid": "<br/>"}


def render_drawing(trees: Sequence[StoredTree], drawing: Drawing) -> str:
    """Return one graph of all trees: a box for each provider with its amounts, dashed if the
    provider is not the agent's, and an arrow to each of its children.
    """
    lines = _dot_lines(trees) if drawing == "dot" else _mermaid_lines(trees)
    return "".join(f"{line}\n" for line in lines)


def _dot_lines(trees: Sequence[StoredTree]) -> Iterator[str]:
    yield "digraph providers {"
    yield '  graph [rankdir="LR"];'
    yield '  node [shape="box", fontname="sans-serif"];'
    for number, label, is_own, parent in _boxes(trees, "dot"):
        style = "solid" if is_own else "dashed"
        yield f'  p{number} [label="{label}", style="{style}"];'
        if parent is not None:
            yield f"  p{parent} -> p{number};"
    yield "}"


def _mermaid_lines(trees: Sequence[StoredTree]) -> Iterator[str]:
    yield "flowchart LR"
    yield "  classDef foreign stroke-dasharray: 4"
    for number, label, is_own, parent in _boxes(trees, "mermaid"):
        yield f'  p{number}["{label}"]{"" if is_own else ":::foreign"}'
        if parent is not None:
            yield f"  p{parent} --> p{number}"


def _boxes(
    trees: Sequence[StoredTree], drawing: Drawing
) -> Iterator[tuple[int, str, bool, int | None]]:
    """Yield the number of each provider, its label, whether it is the agent's, and the number of
    its parent, parents first.
    """
    number = 0
    for shown in trees:
        numbers: dict[str, int] = {}
        for uuid in own_providers(shown.tree, shown.uuid):
            provider = shown.tree.provider(uuid)
            used = shown.used.get(uuid, {})
            rows = [
                provider.name,
                *(
                    _amount(name, completed(record), used.get(name))
                    for name, record in sorted(without_empty(provider.inventory).items())
                ),
            ]
            label = BREAKS[drawing].join(_escape(row, drawing) for row in rows)
            yield number, label, uuid in shown.owned, numbers.get(provider.parent_uuid or "")
            numbers[uuid], number = number, number + 1


def _amount(resource_class: str, record: Record, used: int | None) -> str:
    parts = [f"{resource_class} {UNKNOWN if used is None else used}/{record['total']}"]
    if record["reserved"]:
        parts.append(f"{record['reserved']} reserved")
    if record["allocation_ratio"] != 1:
        parts.append(f"ratio {record['allocation_ratio']:g}")
    return ", ".join(parts)


def _escape(text: str, drawing: Drawing) -> str:
    def escaped(match: re.Match[str]) -> str:
        if drawing == "dot" and match.group() == "\\":
            # Graphviz resolves references first, and a backslash from one would begin an escape.
            return "\\\\"
        if drawing == "dot" and ord(match.group()) > LAST_REFERENCE:
            return f"\\\\U{ord(match.group()):08x}"
        return REFERENCES[drawing].format(ord(match.group()))

    return PLAIN.sub(escaped, printable(text))
