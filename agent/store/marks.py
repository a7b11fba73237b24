"""The marks in a SQLite file and its write-ahead log, by which it shows whether the two belong together.

SQLite replays a log into whatever file it lies beside. So every transaction that writes leaves a number in the file's header, one more than
the one before it, and every opening of the store begins at a number that nobody could foresee. A log belongs to a file whose mark is one of
its own, or the one before its first. https://www.sqlite.org/fileformat2.html
"""

import os
import secrets
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agent.store.schema import APPLICATION_ID

LAST = 2**31 - 1
LOG_MAGIC = (0x377F0682, 0x377F0683)
# Of a database: the text at its beginning, the format (2: with a log), the user version and the application's id.
_HEADER = struct.Struct(">16s2xB41xi4xi28x")
_LOG_HEADER = struct.Struct(">IIII8sII")
_FRAME = struct.Struct(">II8s8x")
WITH_LOG = 2
HEADER_SIZE = _HEADER.size


class Header(NamedTuple):
    """What the first page of a database says. ``mark`` 0: written by an agent that had no marks."""

    mark: int
    ours: bool
    has_log: bool


def header(page: bytes) -> Header | None:
    """What a database's first bytes say, None if they are not a database's."""
    if len(page) < _HEADER.size:
        return None
    text, kind, mark, application = _HEADER.unpack_from(page)
    return Header(mark, application == APPLICATION_ID, kind == WITH_LOG) if text == b"SQLite format 3\x00" else None


def header_of(file: Path) -> Header | None:
    """The header of a file, None if it has none. Not of a file that is open in this process: that would end SQLite's locks.

    :raises OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        return header(opened.read(_HEADER.size))


def following(mark: int) -> int:
    """The mark after this one."""
    return mark % LAST + 1


def new_mark() -> int:
    """A mark that no other file has."""
    return secrets.randbelow(LAST) + 1


class LogMarks(NamedTuple):
    """What the committed part of a write-ahead log has: its marks in their order, and whether it has anything beside them."""

    marks: tuple[int, ...] = ()
    has_contents: bool = False

    def belong_to(self, file: Header) -> bool:
        """Whether the log continues that file. Of those that an agent without marks wrote, nobody can tell."""
        if file.mark == 0 and not any(self.marks):
            return True
        return file.mark in self.marks or following(file.mark) in self.marks


def marks_of_log(log: Path) -> LogMarks:
    """The marks of a write-ahead log, none if SQLite would find nothing in it.

    :raises OSError: it cannot be read.
    """
    marks: list[int] = []
    found: list[int] = []
    contents = has_contents = False
    for page_number, commits, mark in _frames(log):
        if page_number == 1:
            found.append(mark)
        else:
            contents = True
        if commits:
            marks, has_contents = [*marks, *found], has_contents or contents
            found, contents = [], False
    return LogMarks(tuple(marks), has_contents)


def _frames(log: Path) -> Iterator[tuple[int, bool, int]]:
    """Of each page in the log: its number, whether a transaction ends with it, and the mark that stands in it if it is the first."""
    with log.open("rb") as opened:
        head = opened.read(_LOG_HEADER.size)
        if len(head) < _LOG_HEADER.size:
            return
        magic, _, size, _, salt, _, _ = _LOG_HEADER.unpack(head)
        if magic not in LOG_MAGIC or not 512 <= size <= 65536:
            return
        while len(head := opened.read(_FRAME.size)) == _FRAME.size:
            number, pages_after, own_salt = _FRAME.unpack(head)
            # What follows is left from before the log began anew.
            if own_salt != salt:
                return
            page = opened.read(_HEADER.size)
            if len(page) < _HEADER.size:
                return
            opened.seek(size - len(page), os.SEEK_CUR)
            yield number, pages_after != 0, _HEADER.unpack(page)[2]
