"""The form of text output: width, colour and characters, as far as the stream supports them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from agent.model.names import printable

GAP = "  "


def table_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], words: int, indent: int = 0
) -> list[Text]:
    """Return a table as lines. The first ``words`` columns hold words, the others numbers."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(headings, *shown, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return (
            " " * indent
            + GAP.join(
                _pad(cell, width, place < words)
                for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
        )

    return [Text(line(headings), "dim"), *(Text(line(row)) for row in shown)]


def _pad(cell: str, width: int, is_word: bool) -> str:
    space = " " * (width - cell_len(cell))
    return cell + space if is_word else space + cell


PLAIN_WIDTH = 120
LEAST_WIDTH = 24
INDENT = 4


@dataclass(frozen=True, slots=True)
class Signs:
    """The characters for tree guides, marks and arrows."""

    branch: str = "├─ "
    last: str = "└─ "
    bar: str = "│  "
    change: str = "→"
    reshape: str = "⇄"
    reason: str = "—"
    dot: str = "·"
    good: str = "✓"
    bad: str = "✗"
    waiting: str = "…"


UNICODE = Signs()
ASCII = Signs("|- ", "`- ", "|  ", "->", "<>", "--", "-", "*", "x", ".")


@dataclass(frozen=True, slots=True)
class Look:
    """The form of text output to one stream."""

    width: int | None = None
    """The columns of the terminal; None without a terminal: lines are not wrapped."""
    colour: bool = False
    unicode: bool = True
    wide: bool = False
    """Whether nothing is left out."""

    @property
    def signs(self) -> Signs:
        """The characters that the stream can carry."""
        return UNICODE if self.unicode else ASCII

    @property
    def wrap_at(self) -> int:
        """The width at which lists are wrapped: that of the terminal, or a fixed one."""
        return max(self.width, LEAST_WIDTH) if self.width else PLAIN_WIDTH


def look_of(stream: TextIO, environ: Mapping[str, str] = os.environ, *, wide: bool = False) -> Look:
    """Return what ``stream`` supports. ``FORCE_COLOR`` is ignored, because escape codes belong on
    terminals only.
    """
    terminal = stream.isatty()
    colour = (
        terminal
        and "NO_COLOR" not in environ
        and environ.get("TERM", "") not in ("dumb", "unknown")
    )
    width = (
        Console(file=stream, force_terminal=True, legacy_windows=False).width if terminal else None
    )
    return Look(width, colour, _carries(getattr(stream, "encoding", None) or "ascii"), wide)


def _carries(encoding: str) -> bool:
    try:
        "".join(UNICODE.__getattribute__(name) for name in UNICODE.__slots__).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def escape_text(text: str, style: str = "") -> Text:
    """Return text from outside, with control characters escaped and without markup."""
    return Text(printable(text), style)


def wrap_text(text: Text, width: int) -> list[Text]:
    """Return ``text`` in lines of at most ``width`` columns, broken between words."""
    lines = list(text.wrap(console_of(StringIO(), Look(), PLAIN_WIDTH), width))
    for line in lines:
        line.rstrip()
    return lines


def wrap_line(line: Text, look: Look) -> list[Text]:
    """Return ``line`` as it is without a terminal, else wrapped to its width, with the further
    lines indented.
    """
    if look.width is None:
        return [line]
    first, *rest = wrap_text(line, look.wrap_at - INDENT)
    return [first, *(Text.assemble(" " * INDENT, part) for part in rest)]


def to_string(lines: Iterable[Text], look: Look) -> str:
    """Return the lines as they are written to the stream, each ended by a newline."""
    file = StringIO()
    console_of(file, look, look.wrap_at).print(Text("\n").join(lines), soft_wrap=True)
    return file.getvalue()


def console_of(stream: TextIO, look: Look, width: int | None = None) -> Console:
    """Return a console that writes to ``stream``. ``width``: its columns; None: those of the
    terminal.
    """
    # All settings are given, because rich would guess them from the environment, and look_of has
    # decided them.
    return Console(
        file=stream,
        width=width,
        force_terminal=look.colour,
        color_system="standard" if look.colour else None,
        no_color=not look.colour,
        legacy_windows=False,
        force_jupyter=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
