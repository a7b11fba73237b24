"""The form of text output: width, colour and characters, as far as the stream supports them.

rich is imported where a terminal or a character that is not ASCII needs it: a command whose output
is read by a program is to be quick.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Self, TextIO

from agent.model.names import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text as RichText

GAP = "  "


class Text:
    """A line, or a part of one: text in parts, each with a style of rich."""

    __slots__ = ("parts",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self.parts = [(text, style)]

    @classmethod
    def assemble(cls, *parts: "str | tuple[str, str] | Text") -> Self:
        """Return the parts as one text; a tuple is a text and its style."""
        found = cls()
        for part in parts:
            if isinstance(part, Text):
                found.parts += part.parts
            else:
                found.append(*((part,) if isinstance(part, str) else part))
        return found

    def append(self, text: str, style: str = "") -> None:
        """Add a part at the end."""
        self.parts.append((text, style))

    @property
    def plain(self) -> str:
        """The text without its styles."""
        return "".join(text for text, _ in self.parts)

    def styled(self) -> "RichText":
        """Return the text as rich has it."""
        from rich.text import Text as RichText

        return RichText.assemble(*self.parts)


def cell_len(text: str) -> int:
    """Return the columns that ``text`` takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich import cells

    return cells.cell_len(text)


def table_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], words: int, indent: int = 0
) -> list[Text]:
    """Return a table as lines. The first ``words`` columns hold words, the others numbers."""
    first, *others = [
        (" " * indent + GAP.join(cells)).rstrip() for cells in padded(headings, rows, words)
    ]
    return [Text(first, "dim"), *map(Text, others)]


def padded(
    headings: Sequence[str], rows: Sequence[Sequence[str]], words: int
) -> list[Sequence[str]]:
    """Return headings and rows, each cell as wide as its column. The first ``words`` columns hold
    words, the others numbers.
    """
    shown = [headings, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    return [
        [_pad(cell, widths[place], place < words) for place, cell in enumerate(row)]
        for row in shown
    ]


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
    width = _width(stream) if terminal else None
    return Look(width, colour, _carries(getattr(stream, "encoding", None) or "ascii"), wide)


def _width(terminal: TextIO) -> int:
    from rich.console import Console

    return Console(file=terminal, force_terminal=True, legacy_windows=False).width


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
    console = console_of(StringIO(), Look(), PLAIN_WIDTH)
    lines = []
    for line in text.styled().wrap(console, width):
        line.rstrip()
        parts = line.render(console, end="")
        lines.append(Text.assemble(*((part.text, str(part.style)) for part in parts)))
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
    if not look.colour:
        return "".join(f"{line.plain}\n" for line in lines)
    file = StringIO()
    console = console_of(file, look, look.wrap_at)
    for line in lines:
        console.print(line.styled(), soft_wrap=True)
    return file.getvalue()


def console_of(stream: TextIO, look: Look, width: int | None = None) -> "Console":
    """Return a console that writes to ``stream``. ``width``: its columns; None: those of the
    terminal.
    """
    from rich.console import Console

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


STATE_STYLES = {
    "in-sync": "green",
    "changed": "green",
    "pending": "yellow",
    "degraded": "yellow",
    "failed": "red",
    "refused": "red",
}


def state_style(state: str) -> str:
    """Return the style of a node's state. A newer daemon may have states that are unknown here."""
    return STATE_STYLES.get(state, "yellow")
