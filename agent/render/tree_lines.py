"""A provider tree as aligned lines: guides, names, inventories and traits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from agent.model.inventory import Record, completed, without_empty
from agent.model.names import ProviderUuid, number_of, printable
from agent.model.provider import Provider
from agent.model.provider_tree import ProviderTree
from agent.render.json_report import HasTree, own_providers
from agent.render.look import LEAST_WIDTH, Look, Signs, escape_text, wrap_text

HEADINGS = ("used/total", "reserved", "ratio")
GAP = " " * 3


@dataclass(frozen=True, slots=True)
class _Amounts:
    """The amounts of one resource class, as text."""

    resource_class: str
    used: str
    total: str
    reserved: str
    ratio: str


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
    """The widths of a tree's columns, so that numbers are aligned across its levels."""

    label: int
    used: int
    total: int
    reserved: int
    ratio: int

    @property
    def slash(self) -> int:
        """The position of the slash between used and total, in the heading too."""
        return max(self.used, HEADINGS[0].index("/"))

    @property
    def amount(self) -> int:
        """The width of the column of used and total."""
        return max(self.slash + 1 + self.total, len(self.heading))

    @property
    def heading(self) -> str:
        """The heading of the column of used and total."""
        return " " * (self.slash - HEADINGS[0].index("/")) + HEADINGS[0]


TraitChanges = Mapping[str, tuple[frozenset[str], frozenset[str]]]
"""The traits of a provider before and after."""
UNCHANGED: TraitChanges = {}
SHOWN_AT_MOST = 6
"""Beyond this number of traits, their count is shown, because readers look for amounts here, and a
host has dozens of traits.
"""


def tree_lines(node: HasTree, look: Look, changes: TraitChanges = UNCHANGED) -> list[Text]:
    """Return the node's own tree as lines; none if the node has no tree. ``changes``: the traits of
    providers before and after the operations.
    """
    branches = list(_branches(node.tree, node.uuid, node.used, look.signs))
    if not branches:
        return []
    columns = _columns(branches)
    lines = [_headings(columns)] if any(branch.amounts for branch in branches) else []
    for branch in branches:
        lines.append(_name(branch, node, look))
        lines += [_amounts(branch.body, amounts, columns) for amounts in branch.amounts]
        lines += _tokens(branch.body, "", _traits(branch.provider, changes, look), look)
        lines += _tokens(branch.body, "aggregates ", sorted(branch.provider.aggregates), look)
    return lines


def _branches(
    tree: ProviderTree, root: str, used: Mapping[str, Mapping[str, int]], signs: Signs
) -> Iterator[_Branch]:
    space = " " * len(signs.bar)
    pending: list[tuple[ProviderUuid, str, str]] = [
        (uuid, "", "") for uuid in own_providers(tree, root)[:1]
    ]
    while pending:
        uuid, head, before = pending.pop()
        children, provider = tree.children(uuid), tree.provider(uuid)
        yield _Branch(
            provider,
            head,
            before + (signs.bar if children else space),
            _inventory(provider, used.get(uuid, {})),
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


def inventory_rows(provider: Provider, used: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Return the cells of a table: class, used, total, reserved and ratio of each class; a row of
    empty cells if there is no class.
    """
    found = _inventory(provider, used)
    return [
        (amounts.resource_class, amounts.used, amounts.total, amounts.reserved, amounts.ratio)
        for amounts in found
    ] or [("", "", "", "", "")]


def _inventory(provider: Provider, used: Mapping[str, int]) -> tuple[_Amounts, ...]:
    return tuple(
        _of_class(name, completed(record), used.get(name))
        for name, record in sorted(without_empty(provider.inventory).items())
    )


def _of_class(name: str, record: Record, used: int | None) -> _Amounts:
    return _Amounts(
        resource_class=printable(name),
        used="-" if used is None else str(used),
        total=str(record["total"]),
        reserved=str(record["reserved"]),
        ratio=str(float(record["allocation_ratio"])),
    )


def _columns(branches: Sequence[_Branch]) -> _Columns:
    rows = [(branch.body, amounts) for branch in branches for amounts in branch.amounts]
    return _Columns(
        label=max((cell_len(body + amounts.resource_class) for body, amounts in rows), default=0),
        used=max((len(amounts.used) for _, amounts in rows), default=0),
        total=max((len(amounts.total) for _, amounts in rows), default=0),
        reserved=max([len(HEADINGS[1]), *(len(amounts.reserved) for _, amounts in rows)]),
        ratio=max([len(HEADINGS[2]), *(len(amounts.ratio) for _, amounts in rows)]),
    )


def _headings(columns: _Columns) -> Text:
    _, reserved, ratio = HEADINGS
    cells = (
        " " * columns.label,
        columns.heading.ljust(columns.amount),
        reserved.rjust(columns.reserved),
        ratio.rjust(columns.ratio),
    )
    return Text(GAP.join(cells), "dim")


def _name(branch: _Branch, node: HasTree, look: Look) -> Text:
    provider = branch.provider
    line = Text.assemble((branch.head, "dim"), escape_text(provider.name, "bold"))
    if node.owned and provider.uuid not in node.owned:
        line.append("  foreign", "yellow")
    uuid = "" if node.provisional else f"  {printable(provider.uuid)}"
    if look.width is None or line.cell_len + cell_len(uuid) <= look.width:
        line.append(uuid, "dim")
    return line


def _amounts(body: str, amounts: _Amounts, columns: _Columns) -> Text:
    label = amounts.resource_class + " " * (columns.label - cell_len(body + amounts.resource_class))
    amount = f"{amounts.used.rjust(columns.slash)}/{amounts.total}".ljust(columns.amount)
    return Text.assemble(
        (body, "dim"),
        (label, "cyan"),
        f"{GAP}{amount}{GAP}",
        (amounts.reserved.rjust(columns.reserved), "dim" if amounts.reserved == "0" else ""),
        GAP,
        (amounts.ratio.rjust(columns.ratio), "dim" if amounts.ratio == "1.0" else ""),
    )


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
    lines = wrap_text(escape_text("  ".join(tokens)), room)
    titles = [title] + [" " * len(title)] * (len(lines) - 1)
    return [
        Text(body + before + line.plain, "dim") for before, line in zip(titles, lines, strict=True)
    ]
