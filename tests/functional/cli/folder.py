"""All of a folder, for telling that not a byte of it has changed."""

import os
import stat
from pathlib import Path

State = dict[str, tuple[int, int, int, bytes]]


def all_of(folder: Path) -> State:
    """Every file and folder at and below ``folder``: mode, inode, time of its last change, content.
    Empty if there is none.
    """
    if not folder.exists():
        return {}
    return {
        str(path.relative_to(folder)): _state(path) for path in sorted([folder, *folder.rglob("*")])
    }


def _state(path: Path) -> tuple[int, int, int, bytes]:
    status = os.lstat(path)
    return (
        status.st_mode,
        status.st_ino,
        status.st_mtime_ns,
        path.read_bytes() if stat.S_ISREG(status.st_mode) else b"",
    )
