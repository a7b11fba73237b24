"""The data of a YAML file with the position of every value, for messages that name it."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable

MAX_BYTES = 1024 * 1024


def read_bytes(path: Path, remedy: str) -> bytes:
    """Return the content of a regular file.

    :param remedy: what to do if the file cannot be read.
    :raises ConfigErrors: the file cannot be read, is not a regular file, or exceeds ``MAX_BYTES``.
    """
    file = printable(str(path))

    def refused(what: str, remedy: str) -> ConfigErrors:
        return ConfigErrors([ConfigError(f"{file}: {what}", remedy, file=file)])

    try:
        # Without O_NONBLOCK opening a named pipe would block.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise refused("is not a regular file", "name a YAML file")
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise refused(f"cannot be read: {error.strerror}", remedy) from error
    if len(content) > MAX_BYTES:
        raise refused(f"is larger than {MAX_BYTES} bytes", "say less in one file")
    return content


Where = tuple[str | int, ...]
"""The path of a value in a document: keys and list indexes, from the top."""

MAX_SHOWN = 60


@dataclass(frozen=True, slots=True, order=True)
class TextPosition:
    """A position in a file; line and column count from 1."""

    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Document:
    """The data of a file."""

    file: str
    data: Any
    places: Mapping[Where, TextPosition]
    """The position of every value and key, by its path."""
    errors: Sequence[ConfigError]
    """The errors found in parsing."""

    def place(self, where: Where) -> TextPosition:
        """Return the position of the value at ``where``, or of the nearest one above it."""
        known = where
        while known and known not in self.places:
            known = known[:-1]
        return self.places.get(known, TextPosition())

    def error(self, where: Where, what: str, remedy: str) -> ConfigError:
        """Return an error about the value at ``where``, or about its absence."""
        return error_at(self.file, self.place(where), where, what, remedy)


def error_at(file: str, place: TextPosition, where: Where, what: str, remedy: str) -> ConfigError:
    """Return an error whose message begins with the position."""
    path = f"{pointer(where)}: " if where else ""
    return ConfigError(
        f"{file}:{place}: {path}{printable(what)}",
        remedy,
        file=file,
        line=place.line,
        column=place.column,
        path=pointer(where),
    )


def pointer(where: Where) -> str:
    """Return a path as people write it: ``cells[0].memory_mib``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)
    return printable(text.removeprefix("."))


def shown(value: Any) -> str:
    """Return a value for a message, shortened and on one line."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "empty", True: "true", False: "false"}[value]
    text = printable(str(value))
    text = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    return f"'{text}'" if isinstance(value, str) else text
