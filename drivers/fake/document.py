"""YAML as plain data with the line of every value; whatever could surprise a reader of the file is an error.

Scalars mean what they look like: only ``true``, ``false``, ``null`` and decimal numbers are anything but text, because
YAML 1.1 would read the PCI address 0000:01:00.0 as a number and ``no`` as false.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable

Where = tuple[str | int, ...]

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 16
MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Document:
    """A file's data. ``lines`` has the line of every value and key, by its path from the top; ``errors`` what was wrong."""

    file: str
    data: Any
    lines: Mapping[Where, int]
    errors: Sequence[ConfigError]

    def error(self, where: Where, what: str, remedy: str) -> ConfigError:
        """An error about the value at ``where``, or about what is missing there."""
        known = where
        while known and known not in self.lines:
            known = known[:-1]
        return _error(self.file, self.lines.get(known, 1), where, what, remedy)


def _error(file: str, line: int, where: Where, what: str, remedy: str) -> ConfigError:
    place = f"{pointer(where)}: " if where else ""
    return ConfigError(f"{file}:{line}: {place}{printable(what)}", remedy, file=file, line=line, path=pointer(where))


def pointer(where: Where) -> str:
    """A path as people write it: ``cells[0].memory_mib``."""
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


def read_bytes(path: Path) -> bytes:
    """The content of a regular file.

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
        raise refused(f"cannot be read: {error.strerror}", "check [fake] host_file and the file's permissions") from error
    if len(content) > MAX_BYTES:
        raise refused(f"is larger than {MAX_BYTES} bytes", "describe fewer nodes in one file")
    return content


def parse(content: bytes, file: str) -> Document:
    """Read ``content`` as one YAML document; ``file`` is its name in messages.

    :raises ConfigErrors: it is no YAML, or uses what is not allowed here.
    """
    try:
        root = _Loader(content.decode("utf-8-sig")).get_single_node()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigErrors([_error(file, line, (), "is not UTF-8", "save the file as UTF-8")]) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "is no YAML"
        raise ConfigErrors([_error(file, mark.line + 1 if mark else 1, (), what, "correct the YAML")]) from error
    except yaml.YAMLError as error:
        raise ConfigErrors([_error(file, 1, (), f"{error}".splitlines()[0], "correct the YAML")]) from error
    walk = _Walk(file)
    data = walk.value(root, ()) if root is not None else None
    return Document(file, data, walk.lines, walk.errors)


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """Composes nodes, without what a description of a host does not need and an attacker might."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed here: write the value out", event.start_mark)
        if event.tag is not None:
            raise yaml.composer.ComposerError(None, None, f"the tag {event.tag} is not allowed here", event.start_mark)
        if self.depth >= MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, f"is nested deeper than {MAX_DEPTH} levels", event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), ["n", "~", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), ["t", "f"])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^-?(?:0|[1-9][0-9]{0,17})$"), list("-0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^-?[0-9]+\.[0-9]+(?:e[-+]?[0-9]+)?$"), list("-0123456789"))


class _Walk:
    """Turns nodes into data, and remembers lines and errors."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Where, int] = {}
        self.errors: list[ConfigError] = []

    def value(self, node: Any, where: Where) -> Any:
        self.lines.setdefault(where, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, where)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*where, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, where)

    def mapping(self, node: Any, where: Where) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.errors.append(_error(self.file, line, where, "a key is a list or a mapping", "use text as a key"))
                continue
            key = key_node.value
            here = (*where, key)
            if key in found:
                self.errors.append(_error(self.file, line, here, f"the key is here twice, first in line {self.lines[here]}", "keep one of them"))
                continue
            self.lines[here] = line
            if not key.isprintable():
                self.errors.append(_error(self.file, line, here, "the key has a control character", "remove it"))
            found[key] = self.value(value_node, here)
        return found

    def scalar(self, node: Any, where: Where) -> str | int | float | bool | None:
        text: str = node.value
        kind = node.tag.rpartition(":")[2]
        if kind == "str" and not text.isprintable():
            line = node.start_mark.line + 1
            self.errors.append(_error(self.file, line, where, f"{shown(text)} has a control character", "write it on one line, without control characters"))
        match kind:
            case "null":
                return None
            case "bool":
                return text == "true"
            case "int":
                return int(text)
            case "float":
                return float(text)
        return text
