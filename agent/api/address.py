"""The address of a Unix socket: its path, or a short way there if that is too long for the kernel."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# sockaddr_un has room for 108 bytes with the one that ends it.
LONGEST = 107


@contextmanager
def address(path: Path) -> Iterator[str]:
    """What to bind or connect to, for as long as the context lasts.

    :raises OSError: there is no such folder.
    """
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
