"""The content of a file that a person wrote: a regular one, and not larger than such a file is."""

import os
import stat
from pathlib import Path

from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable

MAX_BYTES = 1024 * 1024


def read_bytes(path: Path, remedy: str) -> bytes:
    """The content of a regular file. ``remedy``: what to do if it cannot be read.

    :raises ConfigErrors: it cannot be read, or is too large for what it should be.
    """
    file = printable(str(path))

    def refused(what: str, remedy: str) -> ConfigErrors:
        return ConfigErrors([ConfigError(f"{file}: {what}", remedy, file=file)])

    try:
        # Without O_NONBLOCK the opening of a named pipe would wait for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise refused("is not a regular file", "name a YAML file")
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise refused(f"cannot be read: {error.strerror}", remedy) from error
    if len(content) > MAX_BYTES:
        raise refused(f"is larger than {MAX_BYTES} bytes", "say less in one file")
    return content
