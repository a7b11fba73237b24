"""Files that a crash leaves beside the store's SQLite file: SQLite applies those that belong to the
file, others are set aside.

To tell them apart, every transaction writes the next number, a mark, into the file's header.
"""

import logging
import os
import secrets
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agent.model.names import printable
from agent.store.lock import present, sync_folder
from agent.store.schema import APPLICATION_ID

LAST = 2**31 - 1
LOG_MAGIC = (0x377F0682, 0x377F0683)
# The header of a database: the text at its beginning, the format (2: with a log), the user version
# and the application's id.
_HEADER = struct.Struct(">16s2xB41xi4xi28x")
_LOG_HEADER = struct.Struct(">IIII8sII")
_FRAME = struct.Struct(">II8s8x")
WITH_LOG = 2
HEADER_SIZE, LOG_HEADER_SIZE = _HEADER.size, _LOG_HEADER.size


class Header(NamedTuple):
    """The values in the header of a database."""

    mark: int
    """0 if the file was written by an agent without marks."""
    ours: bool
    has_log: bool


def header(page: bytes) -> Header | None:
    """Return the header in a database's first bytes, ``None`` if they are not a database's."""
    if len(page) < _HEADER.size:
        return None
    text, kind, mark, application = _HEADER.unpack_from(page)
    return (
        Header(mark, application == APPLICATION_ID, kind == WITH_LOG)
        if text == b"SQLite format 3\x00"
        else None
    )


def header_of(file: Path) -> Header | None:
    """Return the header of a file, ``None`` if it has none.

    Not to be used for a file that is open in this process, because closing it would release
    SQLite's locks.

    :raises OSError: the file cannot be read.
    """
    with file.open("rb") as opened:
        return header(opened.read(_HEADER.size))


def following(mark: int) -> int:
    """Return the mark that follows ``mark``."""
    return mark % LAST + 1


def new_mark() -> int:
    """Return a random mark, so that no other file is likely to have it."""
    return secrets.randbelow(LAST) + 1


class LogMarks(NamedTuple):
    """The marks in the committed part of a write-ahead log, in order."""

    marks: tuple[int, ...] = ()
    has_contents: bool = False
    """Whether the committed part changes anything besides marks."""

    def belong_to(self, file: Header) -> bool:
        """Return whether the log continues that file; true if an agent without marks wrote both,
        because then it is unknown.
        """
        if file.mark == 0 and not any(self.marks):
            return True
        return file.mark in self.marks or following(file.mark) in self.marks


def marks_of_log(log: Path) -> LogMarks:
    """Return the marks of a write-ahead log, none if SQLite would find nothing in it.

    :raises OSError: the log cannot be read.
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
    """Yield for each page in the log its number, whether a transaction ends with it, and the mark
    in it, which is valid if it is the first page of the database.
    """
    with log.open("rb") as opened:
        head = opened.read(_LOG_HEADER.size)
        if len(head) < _LOG_HEADER.size:
            return
        magic, _, size, _, salt, _, _ = _LOG_HEADER.unpack(head)
        if magic not in LOG_MAGIC or not 512 <= size <= 65536:
            return
        while len(head := opened.read(_FRAME.size)) == _FRAME.size:
            number, pages_after, own_salt = _FRAME.unpack(head)
            # The rest is from before the log was restarted.
            if own_salt != salt:
                return
            page = opened.read(_HEADER.size)
            if len(page) < _HEADER.size:
                return
            opened.seek(size - len(page), os.SEEK_CUR)
            yield number, pages_after != 0, _HEADER.unpack(page)[2]


LOG = logging.getLogger(__name__)

LOG_SUFFIX, JOURNAL_SUFFIX, INDEX_SUFFIX = "-wal", "-journal", "-shm"
# Files with changes that are not in the database file yet, or that must be rolled back.
LEFTOVERS = (LOG_SUFFIX, JOURNAL_SUFFIX)
ALL = (*LEFTOVERS, INDEX_SUFFIX)


def beside(file: Path, suffix: str) -> Path:
    """Return the path of the file with ``suffix`` that SQLite keeps beside ``file``."""
    return file.with_name(file.name + suffix)


def unsettled(file: Path) -> list[Path]:
    """Return the leftovers that have to be applied, because they belong to this file.

    :raises OSError: they cannot be read.
    """
    found = [beside(file, suffix) for suffix in LEFTOVERS if _has_contents(beside(file, suffix))]
    foreign = orphans(file)
    return [path for path in found if path not in foreign]


def set_aside_orphans(file: Path) -> bool:
    """Rename leftovers that belong to an earlier file of this name, so that SQLite does not apply
    them to this one. Return whether there were any.

    They are kept because the earlier file lacks their changes: beside that file, under its name,
    they complete it.

    :raises OSError: they cannot be read or renamed.
    """
    found = orphans(file)
    if not found:
        return False
    base = unused_name(file, "orphan")
    for path in found:
        if not _has_contents(path) or _only_a_mark(path):
            path.unlink()
            continue
        aside = beside(base, path.name.removeprefix(file.name))
        path.rename(aside)
        if not path.name.endswith(INDEX_SUFFIX):
            LOG.warning(
                "%s belongs to another file than %s, which was moved away or replaced after a "
                "crash; set aside as %s, with the last that was written there"
                " (to see it, put that file beside it, called %s)",
                printable(str(path)),
                printable(file.name),
                printable(aside.name),
                printable(base.name),
            )
    sync_folder(file.parent)
    return True


def unused_name(file: Path, why: str) -> Path:
    """Return an unused name beside the file, with the time in it."""
    stamp, count = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), 0
    base = file.with_name(f"{file.name}.{why}-{stamp}")
    while any(present(path) for path in (base, *(beside(base, suffix) for suffix in ALL))):
        count += 1
        base = file.with_name(f"{file.name}.{why}-{stamp}-{count}")
    return base


def orphans(file: Path) -> list[Path]:
    """Return the files beside ``file``, or beside where it would be, that do not belong to it.

    :raises OSError: they cannot be read.
    """
    log, journal = beside(file, LOG_SUFFIX), beside(file, JOURNAL_SUFFIX)
    if present(file) is None:
        return [path for path in (beside(file, suffix) for suffix in ALL) if present(path)]
    if not (_has_contents(log) or _has_contents(journal)):
        return []
    found = header_of(file)
    if found is not None and not found.ours:
        # A foreign database, with its own files.
        return []
    marks = marks_of_log(log) if _has_contents(log) else None
    is_orphan = marks is not None and (
        found is None or (bool(marks.marks or marks.has_contents) and not marks.belong_to(found))
    )
    foreign = [path for path in (log, beside(file, INDEX_SUFFIX)) if is_orphan and present(path)]
    # A file in log mode never has a rollback journal.
    if _has_contents(journal) and (found is None or found.has_log):
        foreign.append(journal)
    return foreign


def _only_a_mark(log: Path) -> bool:
    """Return whether a log contains nothing but the mark of an opening that a crash interrupted."""
    if not log.name.endswith(LOG_SUFFIX):
        return False
    found = marks_of_log(log)
    return bool(found.marks) and not found.has_contents


def _has_contents(file: Path) -> bool:
    status = present(file)
    return status is not None and status.st_size > 0
