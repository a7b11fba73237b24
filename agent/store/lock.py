"""The store's folder: durable creation of files that are complete or absent at any moment, and the
run lock, by which one run at a time uses the folder. The kernel releases the lock when the process
ends, however it ends.
"""

import errno
import fcntl
import os
import stat
import struct
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.errors import StoreError, StoreLocked
from agent.model.names import printable
from agent.store.store_errors import folder_unusable


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
    sync(finished)
    file.hardlink_to(finished)
    finished.unlink()
    sync(file.parent)


def write_file(file: Path, text: str) -> None:
    """Create or replace a file durably; after a crash at any moment it is the old or the new one.

    :raises OSError: it cannot be written; it is as it was.
    """
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as opened:
            opened.write(text)
            os.fchmod(opened.fileno(), 0o644)
        sync(temporary)
        temporary.replace(file)
        sync(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Make a file's contents, or a folder's entries, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


FILE_NAME = "lock"
# Linux's struct flock: type, whence, start, length, pid. The lock belongs to the open file, not to
# the process, so that the process itself sees it, and keeps it when it closes another descriptor.
_FLOCK = struct.Struct("@hhqqi4x")
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class RunLock:
    """The lock of one store. A second run does not wait for it but reports the holder and ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock and write this process's pid into its file.

        :raises StoreLocked: another run holds the lock.
        :raises StoreError: the folder cannot be created or written, or the lock's name is used by
            something else.
        """
        prepare(self._folder)
        file = self._folder / FILE_NAME
        try:
            self._descriptor = _open_file(file, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
            except BlockingIOError as error:
                pid = holder(self._folder)
                raise StoreLocked(
                    f"[store] path {self._folder} is in use by another run of the agent, pid "
                    f"{pid or 'unknown'}",
                    f"ask it: agent status; or wait until it is done or stop it (kill {pid})"
                    if pid
                    else "ask it: agent status; or try again",
                    pid=pid,
                ) from error
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode())
        except BaseException as error:
            self.release()
            if isinstance(error, OSError):
                raise folder_unusable(file, error) from error
            raise

    def release(self) -> None:
        """Release the lock if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def holder(folder: Path) -> int | None:
    """Return the pid of the run that holds the folder's lock, ``None`` if it is free, 0 if the pid
    is unknown. Nothing is locked or written.

    :raises StoreError: the lock's file cannot be read.
    """
    try:
        with os.fdopen(_open_file(folder / FILE_NAME, os.O_RDONLY), "rb") as opened:
            kind, *_ = _FLOCK.unpack(fcntl.fcntl(opened, fcntl.F_OFD_GETLK, _WHOLE_FILE))
            written = opened.read(32).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise folder_unusable(folder, error) from error
    if kind == fcntl.F_UNLCK:
        return None
    return int(written) if written.isdigit() else 0


def _open_file(file: Path, how: int) -> int:
    """Open the lock's file, following no link, because a user with write access to the folder could
    redirect it to another file, which would then be emptied.

    :raises StoreError: something other than a regular file has the lock's name.
    """
    try:
        # Without blocking on a named pipe.
        descriptor = os.open(file, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _no_lock(file) from error
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise _no_lock(file)
    return descriptor


def _no_lock(file: Path) -> StoreError:
    what = (
        f"[store] path: {printable(str(file))} is a link or no file, where the agent's own lock "
        "belongs"
    )
    return StoreError(what, "remove it, and see who can write that folder", place=str(file))
