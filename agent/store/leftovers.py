"""What a crash has left beside the store's SQLite file: taken in by SQLite if it is of that file, else set aside."""

import logging
import time
from pathlib import Path

from agent.model.names import printable
from agent.store.folder import present, sync_folder
from agent.store.marks import header_of, marks_of_log

LOG = logging.getLogger(__name__)

LOG_SUFFIX, JOURNAL_SUFFIX, INDEX_SUFFIX = "-wal", "-journal", "-shm"
# Changes that are not in the file yet, or that must be taken back.
LEFTOVERS = (LOG_SUFFIX, JOURNAL_SUFFIX)
ALL = (*LEFTOVERS, INDEX_SUFFIX)


def beside(file: Path, suffix: str) -> Path:
    """The file that SQLite has beside another for this."""
    return file.with_name(file.name + suffix)


def unsettled(file: Path) -> list[Path]:
    """The leftovers that have to be taken in, because they are of this very file.

    :raises OSError: they cannot be read.
    """
    found = [beside(file, suffix) for suffix in LEFTOVERS if _has_contents(beside(file, suffix))]
    foreign = orphans(file)
    return [one for one in found if one not in foreign]


def set_aside_orphans(file: Path) -> bool:
    """Give other names to leftovers of another file that was here before, so that SQLite does not take them into this one.

    They keep what the other file lacks: beside it, under its name, they make it whole again. Returns whether there were any.

    :raises OSError: they cannot be read or renamed.
    """
    found = orphans(file)
    if not found:
        return False
    base = unused_name(file, "orphan")
    for one in found:
        if not _has_contents(one) or _only_a_mark(one):
            one.unlink()
            continue
        aside = beside(base, one.name.removeprefix(file.name))
        one.rename(aside)
        if not one.name.endswith(INDEX_SUFFIX):
            LOG.warning(
                "%s belongs to another file than %s, which was moved away or replaced after a crash; set aside as %s, with the last that was written there"
                " (to see it, put that file beside it, called %s)", printable(str(one)), printable(file.name), printable(aside.name), printable(base.name),
            )  # fmt: skip
    sync_folder(file.parent)
    return True


def unused_name(file: Path, why: str) -> Path:
    """A name beside the file that nothing has, with the time in it."""
    stamp, count = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), 0
    base = file.with_name(f"{file.name}.{why}-{stamp}")
    while any(present(one) for one in (base, *(beside(base, suffix) for suffix in ALL))):
        count += 1
        base = file.with_name(f"{file.name}.{why}-{stamp}-{count}")
    return base


def orphans(file: Path) -> list[Path]:
    """What lies beside the file, or where it would be, and is not its own.

    :raises OSError: it cannot be read.
    """
    log, journal = beside(file, LOG_SUFFIX), beside(file, JOURNAL_SUFFIX)
    if present(file) is None:
        return [one for one in (beside(file, suffix) for suffix in ALL) if present(one)]
    if not (_has_contents(log) or _has_contents(journal)):
        return []
    found = header_of(file)
    if found is not None and not found.ours:
        # Somebody else's database, with what is theirs.
        return []
    marks = marks_of_log(log) if _has_contents(log) else None
    is_orphan = marks is not None and (found is None or (bool(marks.marks or marks.has_contents) and not marks.belong_to(found)))
    foreign = [one for one in (log, beside(file, INDEX_SUFFIX)) if is_orphan and present(one)]
    # A file that has a log has no journal, from its birth on.
    if _has_contents(journal) and (found is None or found.has_log):
        foreign.append(journal)
    return foreign


def _only_a_mark(log: Path) -> bool:
    """Whether there is nothing in it but the mark of an opening that a crash has interrupted."""
    if not log.name.endswith(LOG_SUFFIX):
        return False
    found = marks_of_log(log)
    return bool(found.marks) and not found.has_contents


def _has_contents(file: Path) -> bool:
    status = present(file)
    return status is not None and status.st_size > 0
