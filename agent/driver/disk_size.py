"""The size of the file system that contains a folder."""

from pathlib import Path

import psutil

from agent.errors import DriverError
from agent.model.names import printable

GIB = 1024**3


def read_total_gib(folder: Path) -> int:
    """Return the size in GiB, rounded down, of the file system of ``folder``, or of its nearest
    parent that exists.

    The parent stands in because the folder is created with the first guest.

    :raises DriverError: the file system does not answer.
    """
    for place in (folder, *folder.parents):
        try:
            return int(psutil.disk_usage(str(place)).total) // GIB
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DriverError(
                printable(f"{folder}: the size of its file system cannot be read: {error.strerror}")
            ) from error
    raise DriverError(printable(f"{folder}: no parent of it exists"))
