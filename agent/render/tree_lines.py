"""A provider tree as aligned lines: guides, names, inventories and traits; and as a graph for
Graphviz, in ASCII, in which a name is never syntax: what is not a letter, a digit or harmless is
written as a character reference.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from agent.model.inventory import Record, completed, without_empty
from agent.model.names import ProviderUuid, number_of, printable
from agent.model.provider_tree import Provider
from agent.render.document import command_line
from agent.render.json_report import HasTree, StoredTree, counted_amounts, own_providers
from agent.render.look import (
    LEAST_WIDTH,
    Look,
    Signs,
    Text,
    cell_len,
    escape_text,
    wrap_line,
)

HEADINGS = ("on record", "in Placement", "total", "reserved", "ratio")
USED = 2
"""How many of the columns say what is used; one of which nothing is known is left out."""
USUAL = {0: "-", 1: "not asked", 3: "0", 4: "1.0"}
"""The cells that say nothing, by column."""
GAP = " " * 3
NONE_ON_RECORD, NOT_ASKED, NOT_THERE = "-", "not asked", "not there"
NO_FIGURE, NO_FIGURES = (
    "the records do not say how much of it is used",
    "the records do not say what is used here",
)
WAY_TO_ASK = "agent --once --dry-run --with-usages"


_Amounts = tuple[str, ...]
"""A resource class and its amounts, as text: one for each heading."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """One provider, with the guides before its name and before its details."""

    provider: Provider
    head: str
    """The guides before the name."""
    body: str
    """The guides before the details."""
    amounts: tuple[_Amounts, ...]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a tree that are shown, with their widths, so that numbers are aligned across
    its levels.
    """

    label: int
    headings: Mapping[int, str]
    """By the place in HEADINGS."""
    widths: Mapping[int, int]


TraitChanges = Mapping[str, tuple[frozenset[str], frozenset[str]]]
"""The traits of a provider before and after."""
UNCHANGED: TraitChanges = {}
SHOWN_AT_MOST = 6
"""Beyond this number of traits, their count is shown, because readers look for amounts here, and a
host has dozens of traits.
"""


def tree_lines(
    node: HasTree, look: Look, changes: TraitChanges = UNCHANGED, observes: bool = False
) -> list[Text]:
    """Return the node's own tree as lines; none if the node has no tree. ``changes``: the traits of
    providers before and after the operations. ``observes``: another program has to write it.
    """
    branches = list(_branches(node, look.signs))
    if not branches:
        return []
    columns = _columns(branches)
    lines = [_headings(columns)] if any(branch.amounts for branch in branches) else []
    for branch in branches:
        lines.append(_name(branch, node, look))
        lines += [_amounts(branch.body, amounts, columns) for amounts in branch.amounts]
        lines += _tokens(branch.body, "", _traits(branch.provider, changes, look), look)
        lines += _tokens(branch.body, "aggregates ", sorted(branch.provider.aggregates), look)
    amounts_used = [amounts[1:] for branch in branches for amounts in branch.amounts]
    legend = used_legend(amounts_used, observes=observes)
    return [*lines, *wrap_line(Text(legend, "dim"), look)] if legend else lines


def used_legend(rows: Sequence[Sequence[str]], *, observes: bool = False) -> str:
    """Return what explains the columns of ``rows`` that say what is used, and those that are left
    out; empty if every figure is known. ``observes``: another program has to write what is missing.
    """
    if not rows:
        return ""
    recorded, counted = ([row[column] for row in rows] for column in range(USED))
    # An observer keeps no records, and counts each guest as if it had one.
    known = {*recorded} != {NONE_ON_RECORD}
    parts = ["on record: what the guests that are shown here have"] if observes and known else []
    if not known:
        parts.append(NO_FIGURES)
    elif NONE_ON_RECORD in recorded:
        parts.append(f"{NONE_ON_RECORD}: {NO_FIGURE}")
    if NOT_THERE in counted:
        what = "the node is" if {*counted} == {NOT_THERE} else f"{NOT_THERE}:"
        way = "" if observes else f", which {command_line('agent --once')} writes"
        parts.append(f"{what} not in Placement yet{way}")
    if NOT_ASKED in counted:
        where = "" if {*counted} <= {NOT_ASKED, NOT_THERE} else "everywhere "
        way = command_line(WAY_TO_ASK)
        parts.append(f"Placement was not asked {where}what is used: {way}")
    return "; ".join(parts)


def _branches(node: HasTree, signs: Signs) -> Iterator[_Branch]:
    tree, space = node.tree, " " * len(signs.bar)
    pending: list[tuple[ProviderUuid, str, str]] = [
        (uuid, "", "") for uuid in own_providers(tree, node.uuid)[:1]
    ]
    while pending:
        uuid, head, before = pending.pop()
        children, provider = tree.children(uuid), tree.provider(uuid)
        yield _Branch(
            provider, head, before + (signs.bar if children else space), _inventory(provider, node)
        )
        for child in reversed(children):
            is_last = child == children[-1]
            pending.append(
                (
                    child,
                    before + (signs.last if is_last else signs.branch),
                    before + (space if is_last else signs.bar),
                )
            )


def inventory_rows(provider: Provider, node: HasTree) -> list[tuple[str, ...]]:
    """Return the cells of a table: class, then one for each of the headings; a row of empty cells
    if there is no class.
    """
    return list(_inventory(provider, node)) or [("",) * (1 + len(HEADINGS))]


def _inventory(provider: Provider, node: HasTree) -> tuple[_Amounts, ...]:
    used, counted = node.used.get(provider.uuid, {}), counted_amounts(node, provider.uuid)
    # A provider has its generation from Placement.
    unknown = NOT_THERE if provider.generation is None else NOT_ASKED
    return tuple(
        (
            printable(name),
            on_record(used.get(name)),
            unknown if counted is None else str(counted.get(name, 0)),
            str(record["total"]),
            str(record["reserved"]),
            str(float(record["allocation_ratio"])),
        )
        for name, record in (
            (name, completed(found))
            for name, found in sorted(without_empty(provider.inventory).items())
        )
    )


def on_record(amount: int | None) -> str:
    """Return an amount that the records count, None if they have none, as text."""
    return NONE_ON_RECORD if amount is None else str(amount)


def in_placement(amount: int | None) -> str:
    """Return an amount that Placement counts, None if it was not asked, as text."""
    return NOT_ASKED if amount is None else str(amount)


def _columns(branches: Sequence[_Branch]) -> _Columns:
    rows = [(branch.body, amounts) for branch in branches for amounts in branch.amounts]
    label = max((cell_len(body + amounts[0]) for body, amounts in rows), default=0)
    headings: dict[int, str] = {}
    widths: dict[int, int] = {}
    for column, heading in enumerate(HEADINGS):
        cells = [amounts[1 + column] for _, amounts in rows]
        if column < USED and not any(cell.isdigit() for cell in cells):
            continue
        is_first_of_used = column < USED and not headings
        headings[column] = f"used {heading}" if is_first_of_used else heading
        widths[column] = max(map(len, (headings[column], *cells)))
    return _Columns(label, headings, widths)


def _headings(columns: _Columns) -> Text:
    cells = [columns.headings[column].rjust(width) for column, width in columns.widths.items()]
    return Text(GAP.join([" " * columns.label, *cells]), "dim")


def _name(branch: _Branch, node: HasTree, look: Look) -> Text:
    provider = branch.provider
    line = Text.assemble((branch.head, "dim"), escape_text(provider.name, "bold"))
    if node.owned and provider.uuid not in node.owned:
        line.append("  foreign", "yellow")
    uuid = "" if node.provisional else f"  {printable(provider.uuid)}"
    if look.width is None or cell_len(line.plain + uuid) <= look.width:
        line.append(uuid, "dim")
    return line


def _amounts(body: str, amounts: _Amounts, columns: _Columns) -> Text:
    name, *cells = amounts
    label = name + " " * (columns.label - cell_len(body + name))
    line = Text.assemble((body, "dim"), (label, "cyan"))
    for column, width in columns.widths.items():
        cell = cells[column]
        line.append(f"{GAP}{cell.rjust(width)}", "dim" if cell == USUAL.get(column) else "")
    return line


def _traits(provider: Provider, changes: TraitChanges, look: Look) -> list[str]:
    """Return all traits; of many, their count and the changed ones."""
    traits = provider.traits
    if look.wide or len(traits) <= SHOWN_AT_MOST:
        return sorted(traits)
    before, after = changes.get(provider.uuid, (traits, traits))
    added, removed = sorted(after - before), sorted(before - after)
    changed = [f"+{name}" for name in added] + [f"-{name}" for name in removed]
    if len(changed) > SHOWN_AT_MOST:
        changed = [
            f"{count} {verb}"
            for count, verb in ((len(added), "added"), (len(removed), "removed"))
            if count
        ]
    return [number_of(len(traits), "trait"), *changed]


def _tokens(body: str, title: str, tokens: Sequence[str], look: Look) -> list[Text]:
    if not tokens:
        return []
    room = max(look.wrap_at - cell_len(body) - len(title), LEAST_WIDTH)
    # Not by rich, which takes long to load, and which only text that may be wide needs.
    lines = wrap(printable("  ".join(tokens)), room, break_on_hyphens=False)
    titles = [title] + [" " * len(title)] * (len(lines) - 1)
    return [Text(body + before + line, "dim") for before, line in zip(titles, lines, strict=True)]


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
            label = "\\n".join(
                PLAIN.sub(_reference, printable(row)) for row in (provider.name, *amounts)
            )
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


def _reference(match: re.Match[str]) -> str:
    if match.group() == "\\":
        # Graphviz resolves references first, and a backslash from one would begin an escape.
        return "\\\\"
    if ord(match.group()) > LAST_REFERENCE:
        return f"\\\\U{ord(match.group()):08x}"
    return f"&#{ord(match.group())};"
