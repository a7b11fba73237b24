"""Parsing YAML into plain data, with the position of every value for messages that name it;
constructs that could surprise a reader of the file are errors.

Scalars have the type that they appear to have: only ``true``, ``false``, ``null`` and decimal
numbers are not text, because YAML 1.1 would read the PCI address 0000:01:00.0 as a number and
``no`` as false.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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


MAX_DEPTH = 16
# More than a file of the maximum size needs; values that aliases repeat count each time.
MAX_VALUES = 200_000

Pair = tuple[Any, Any]


def parse(content: bytes, file: str, *, aliases: bool = False) -> Document:
    """Parse ``content`` as one YAML document, named ``file`` in messages.

    :param aliases: whether anchors, ``*aliases`` and ``<<`` are allowed.
    :raises ConfigErrors: the content is not YAML or not UTF-8, or uses what is not allowed.
    """
    try:
        root = (_Loader if aliases else _StrictLoader)(
            content.decode("utf-8-sig")
        ).get_single_node()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig")
        place = TextPosition(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise ConfigErrors(
            [error_at(file, place, (), "is not UTF-8", "save the file as UTF-8")]
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "is no YAML"
        raise ConfigErrors(
            [error_at(file, _place(mark) if mark else TextPosition(), (), what, "correct the YAML")]
        ) from error
    except yaml.YAMLError as error:
        raise ConfigErrors(
            [error_at(file, TextPosition(), (), f"{error}".splitlines()[0], "correct the YAML")]
        ) from error
    walk = _Walk(file)
    data = walk.value(root, ()) if root is not None else None
    return Document(file, data, walk.places, walk.errors)


def _place(mark: Any) -> TextPosition:
    return TextPosition(mark.line + 1, mark.column + 1)


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """A loader of nodes that refuses tags and deep nesting, which only an attacker needs."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if getattr(event, "tag", None) is not None:
            raise yaml.composer.ComposerError(
                None, None, f"the tag {event.tag} is not allowed here", event.start_mark
            )
        if self.depth >= MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"is nested deeper than {MAX_DEPTH} levels", event.start_mark
            )
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), ["n", "~", ""]
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), ["t", "f"])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^-?(?:0|[1-9][0-9]{0,17})$"), list("-0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^-?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?$"),
    list("-.0123456789"),
)


class _StrictLoader(_Loader):
    """A loader that refuses aliases too."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise yaml.composer.ComposerError(
                None, None, "aliases are not allowed here: write the value out", event.start_mark
            )
        return super().compose_node(parent, index)


class _Walk:
    """The conversion of nodes to data, which collects positions and errors."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[Where, TextPosition] = {}
        self.errors: list[ConfigError] = []
        self.values = 0

    def value(self, node: Any, where: Where) -> Any:
        self.check_size(node, len(where))
        self.places.setdefault(where, _place(node.start_mark))
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, where)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*where, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, where)

    def check_size(self, node: Any, depth: int) -> None:
        """Check depth and number of values, because aliases can make a small file a very large or
        endless document.
        """
        self.values += 1
        if depth > MAX_DEPTH or self.values > MAX_VALUES:
            what = (
                f"is nested deeper than {MAX_DEPTH} levels"
                if depth > MAX_DEPTH
                else f"has more than {MAX_VALUES} values"
            )
            raise ConfigErrors(
                [
                    *self.errors,
                    error_at(
                        self.file, _place(node.start_mark), (), what, "use fewer aliases, or none"
                    ),
                ]
            )

    def mapping(self, node: Any, where: Where) -> dict[str, Any]:
        found: dict[str, Any] = {}
        own = [(key, value) for key, value in node.value if not _is_merge(key)]
        for key_node, value_node in own:
            place = _place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self.errors.append(
                    error_at(
                        self.file, place, where, "a key is a list or a mapping", "use text as a key"
                    )
                )
                continue
            key = key_node.value
            here = (*where, key)
            if key in found:
                what = f"the key is here twice, first in line {self.places[here].line}"
                self.errors.append(error_at(self.file, place, here, what, "keep one of them"))
                continue
            self.places[here] = place
            if printable(key) != key:
                self.errors.append(
                    error_at(self.file, place, here, "the key has a control character", "remove it")
                )
            found[key] = self.value(value_node, here)
        for key_node, value_node in self.merged(node, where, 0):
            here = (*where, key_node.value)
            # Own keys precede merged ones, and among those the first counts.
            if key_node.value not in found:
                self.places[here] = _place(key_node.start_mark)
                found[key_node.value] = self.value(value_node, here)
        return found

    def merged(self, node: Any, where: Where, depth: int) -> Iterator[Pair]:
        """Yield the pairs that ``<<`` merges."""
        for key, value in node.value:
            if not _is_merge(key):
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                self.check_size(source, len(where) + depth)
                if not isinstance(source, yaml.MappingNode):
                    self.errors.append(
                        error_at(
                            self.file,
                            _place(key.start_mark),
                            where,
                            "<< merges what is no mapping",
                            "name the anchor of a mapping",
                        )
                    )
                    continue
                yield from (
                    pair
                    for pair in source.value
                    if isinstance(pair[0], yaml.ScalarNode) and not _is_merge(pair[0])
                )
                yield from self.merged(source, where, depth + 1)

    def scalar(self, node: Any, where: Where) -> str | int | float | bool | None:
        text: str = node.value
        kind = node.tag.rpartition(":")[2]
        if kind == "str" and printable(text) != text:
            what, remedy = (
                f"{shown(text)} has a control character",
                "write it on one line, without control characters",
            )
            self.errors.append(error_at(self.file, _place(node.start_mark), where, what, remedy))
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


def _is_merge(key: Any) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and key.style is None
