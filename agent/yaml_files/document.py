"""A YAML file's data with the place of every value, for messages that lead there."""

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


Where = tuple[str | int, ...]
"""The way to a value: keys and places in lists, from the top."""

MAX_SHOWN = 60


@dataclass(frozen=True, slots=True, order=True)
class TextPosition:
    """Where something stands in a file, both counted from 1."""

    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Document:
    """A file's data. ``places`` has the place of every value and key, by its way from the top;
    ``errors`` what was wrong.
    """

    file: str
    data: Any
    places: Mapping[Where, TextPosition]
    errors: Sequence[ConfigError]

    def place(self, where: Where) -> TextPosition:
        """The place of the value at ``where``, or of that in which it is missing."""
        known = where
        while known and known not in self.places:
            known = known[:-1]
        return self.places.get(known, TextPosition())

    def error(self, where: Where, what: str, remedy: str) -> ConfigError:
        """An error about the value at ``where``, or about what is missing there."""
        return error_at(self.file, self.place(where), where, what, remedy)


def error_at(file: str, place: TextPosition, where: Where, what: str, remedy: str) -> ConfigError:
    """An error that begins with its place."""
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
    """A way as people write it: ``cells[0].memory_mib``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)
    return printable(text.removeprefix("."))


def shown(value: Any) -> str:
    """A value for a message, short and on one line."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "empty", True: "true", False: "false"}[value]
    text = printable(str(value))
    text = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    return f"'{text}'" if isinstance(value, str) else text
