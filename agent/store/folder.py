"""The store's folder, and durable creation of files that are complete or absent at any moment."""

import os
import tempfile
from pathlib import Path

from agent.store.failure import folder_unusable


def prepare(folder: Path) -> None:
    """Create the folder, accessible to its owner only, unless it exists.

    :raises StoreError: it cannot be created, or the name is not a folder's.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise folder_unusable(folder, error) from error


def present(file: Path) -> os.stat_result | None:
    """Return the file's status, ``None`` if there is no such file.

    :raises OSError: the status cannot be read, for instance because a parent is not a folder.
    """
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def place(finished: Path, file: Path) -> None:
    """Rename a finished file durably.

    :raises FileExistsError: the new name is in use; nothing is ever replaced.
    """
    sync_file(finished)
    file.hardlink_to(finished)
    finished.unlink()
    sync_folder(file.parent)


def write_new(file: Path, text: str) -> None:
    """Create a file durably; after a crash at any moment it is complete or absent.

    :raises FileExistsError: the file exists; it is left unchanged.
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
    """Make the folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
