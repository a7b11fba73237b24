"""The store's folder, and files that come into being whole or not at all."""

import os
import tempfile
from pathlib import Path

from agent.store.failure import folder_unusable


def prepare(folder: Path) -> None:
    """Make the folder, for its owner only, if there is none.

    :raises StoreError: it cannot be made, or is no folder.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise folder_unusable(folder, error) from error


def present(file: Path) -> os.stat_result | None:
    """The file's status, None if there is no such file.

    :raises OSError: it cannot be told, for instance because a parent is no folder.
    """
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def place(finished: Path, file: Path) -> None:
    """Give the finished file its name, durably.

    :raises FileExistsError: the name is taken; it never replaces anything.
    """
    sync_file(finished)
    file.hardlink_to(finished)
    finished.unlink()
    sync_folder(file.parent)


def write_new(file: Path, text: str) -> None:
    """Write a file that did not exist, durably; after a crash at any moment it is whole or not
    there.

    :raises FileExistsError: it exists; it is left alone.
    """
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as opened:
            opened.write(text)
            os.fchmod(opened.fileno(), 0o644)
        place(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def sync_file(file: Path) -> None:
    """Make the file's contents durable."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Make the folder's names durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
