"""Words and numbers in columns that line up."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from agent.model.names import printable

GAP = "  "


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int, indent: int = 0) -> list[Text]:
    """The headings and the rows; the first columns hold ``words``, the others numbers."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(headings, *shown, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return " " * indent + GAP.join(_padded(cell, width, place < words) for place, (cell, width) in enumerate(zip(cells, widths, strict=True))).rstrip()

    return [Text(line(headings), "dim"), *(Text(line(row)) for row in shown)]


def _padded(cell: str, width: int, is_word: bool) -> str:
    space = " " * (width - cell_len(cell))
    return cell + space if is_word else space + cell
