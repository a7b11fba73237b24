"""The run lock: one run at a time uses a store's folder. The kernel lets go of it when its holder dies, however."""

import fcntl
import os
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import fasteners

from agent.errors import StoreLocked
from agent.store.failure import folder_unusable
from agent.store.folder import prepare

FILE_NAME = "lock"
# Linux's struct flock: type, whence, start, length, pid.
_FLOCK = struct.Struct("@hhqqi4x")
# Which locks this very process holds, by pid because a forked child does not inherit them: the kernel never reports
# a process its own locks, and lets go of them as soon as the process closes any descriptor of the file.
_HELD: dict[Path, int] = {}
_HELD_CHANGES = threading.Lock()


class RunLock:
    """The lock of one store. Not waited for: a second run says who has it and goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = fasteners.InterProcessLock(folder / FILE_NAME)

    def acquire(self) -> None:
        """Take the lock and write this process's pid into its file.

        :raises StoreLocked: another run holds it.
        :raises StoreError: the folder cannot be made or written.
        """
        prepare(self._folder)
        with _HELD_CHANGES:
            self._take(_file(self._folder))

    def _take(self, file: Path) -> None:
        if _HELD.get(file) == os.getpid():
            raise _locked(self._folder, os.getpid())
        try:
            if not self._lock.acquire(blocking=False):
                self._lock.lockfile.close()
                raise _locked(self._folder, holder(self._folder))
            _HELD[file] = os.getpid()
            self._write_pid()
        except (OSError, threading.ThreadError) as error:
            self.release()
            raise folder_unusable(file, error if isinstance(error, OSError) else OSError(0, str(error))) from error

    def _write_pid(self) -> None:
        # Through the lock's own descriptor, because closing another one would let go of the lock.
        self._lock.lockfile.truncate(0)
        self._lock.lockfile.write(f"{os.getpid()}\n")
        self._lock.lockfile.flush()

    def release(self) -> None:
        """Let go of the lock; harmless when it is not held."""
        if self._lock.acquired:
            self._lock.release()
            _HELD.pop(_file(self._folder), None)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def holder(folder: Path) -> int | None:
    """The pid of the run that holds the folder's lock, None if nobody does. Takes and writes nothing.

    :raises StoreError: the lock's file cannot be read.
    """
    file = _file(folder)
    if _HELD.get(file) == os.getpid():
        return os.getpid()
    try:
        with file.open("rb") as opened:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(opened, fcntl.F_GETLK, asked))
            written = opened.read(32).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise folder_unusable(folder, error) from error
    if kind == fcntl.F_UNLCK:
        return None
    # The kernel knows no pid for a holder in another container.
    return int(pid) if pid > 0 else int(written) if written.isdigit() else 0


def _file(folder: Path) -> Path:
    return folder.resolve() / FILE_NAME


def _locked(folder: Path, pid: int | None) -> StoreLocked:
    return StoreLocked(
        f"[store] path {folder} is in use by another run of the agent, pid {pid or 'unknown'}",
        f"ask it with agent status, or wait until it is done or stop it (kill {pid})" if pid else "ask it with agent status, or try again",
        pid=pid,
    )
