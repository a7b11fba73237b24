"""Parsing YAML into plain data, with the position of every value for messages that name it;
constructs that could surprise a reader of the file are errors. A document is checked against a JSON
schema.

Scalars have the type that they appear to have: only ``true``, ``false``, ``null`` and decimal
numbers are not text, because YAML 1.1 would read the PCI address 0000:01:00.0 as a number and
``no`` as false.
"""

import difflib
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable

if TYPE_CHECKING:
    from jsonschema import ValidationError

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
    path = pointer(where)
    message = f"{file}:{place}: {f'{path}: ' if where else ''}{printable(what)}"
    return ConfigError(message, remedy, file=file, line=place.line, column=place.column, path=path)


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


def parse(content: bytes, file: str, *, aliases: bool = False) -> Document:
    """Parse ``content`` as one YAML document, named ``file`` in messages.

    :param aliases: whether anchors, ``*aliases`` and ``<<`` are allowed.
    :raises ConfigErrors: the content is not YAML or not UTF-8, or uses what is not allowed.
    """
    place = TextPosition()
    try:
        loader = _Loader(content.decode("utf-8-sig"))
        loader.aliases = aliases
        root = loader.get_single_node()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig")
        place = TextPosition(before.count("\n") + 1, len(before) - before.rfind("\n"))
        what, remedy = "is not UTF-8", "save the file as UTF-8"
        raise ConfigErrors([error_at(file, place, (), what, remedy)]) from error
    except yaml.YAMLError as error:
        what = f"{error}".splitlines()[0]
        if isinstance(error, yaml.MarkedYAMLError):
            what = error.problem or error.context or "is no YAML"
            if mark := error.problem_mark or error.context_mark:
                place = _place(mark)
        raise ConfigErrors([error_at(file, place, (), what, "correct the YAML")]) from error
    walk = _Walk(file)
    data = walk.value(root, ()) if root is not None else None
    return Document(file, data, walk.places, walk.errors)


def _place(mark: Any) -> TextPosition:
    return TextPosition(mark.line + 1, mark.column + 1)


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """A loader of nodes that refuses tags and deep nesting, which only an attacker needs."""

    aliases = False
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        what = None
        if isinstance(event, yaml.AliasEvent) and not self.aliases:
            what = "aliases are not allowed here: write the value out"
        elif getattr(event, "tag", None) is not None:
            what = f"the tag {event.tag} is not allowed here"
        elif self.depth >= MAX_DEPTH:
            what = f"is nested deeper than {MAX_DEPTH} levels"
        if what:
            raise yaml.composer.ComposerError(None, None, what, event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"^(?:null|~|)$", ["n", "~", ""]),
    ("bool", r"^(?:true|false)$", ["t", "f"]),
    ("int", r"^-?(?:0|[1-9][0-9]{0,17})$", list("-0123456789")),
    ("float", r"^-?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?$", list("-.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


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

    def wrong(self, node: Any, where: Where, what: str, remedy: str) -> None:
        self.errors.append(error_at(self.file, _place(node.start_mark), where, what, remedy))

    def check_size(self, node: Any, depth: int) -> None:
        """Check depth and number of values, because aliases can make a small file a very large or
        endless document.
        """
        self.values += 1
        if depth <= MAX_DEPTH and self.values <= MAX_VALUES:
            return
        deep = f"is nested deeper than {MAX_DEPTH} levels"
        what = deep if depth > MAX_DEPTH else f"has more than {MAX_VALUES} values"
        self.wrong(node, (), what, "use fewer aliases, or none")
        raise ConfigErrors(self.errors)

    def mapping(self, node: Any, where: Where) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if _is_merge(key_node):
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self.wrong(key_node, where, "a key is a list or a mapping", "use text as a key")
                continue
            key = printable(key_node.value)
            here = (*where, key)
            if key in found:
                what = f"the key is here twice, first in line {self.places[here].line}"
                self.wrong(key_node, here, what, "keep one of them")
                continue
            self.places[here] = _place(key_node.start_mark)
            if key != key_node.value:
                self.wrong(key_node, here, "the key has a control character", "remove it")
            found[key] = self.value(value_node, here)
        # Own keys precede merged ones, and among those the first counts.
        for key_node, value_node in self.merged(node, where, 0):
            key = printable(key_node.value)
            if key not in found:
                self.places[*where, key] = _place(key_node.start_mark)
                found[key] = self.value(value_node, (*where, key))
        return found

    def merged(self, node: Any, where: Where, depth: int) -> Iterator[tuple[Any, Any]]:
        """Yield the pairs that ``<<`` merges."""
        for key, value in filter(lambda pair: _is_merge(pair[0]), node.value):
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                self.check_size(source, len(where) + depth)
                if not isinstance(source, yaml.MappingNode):
                    what, remedy = "<< merges what is no mapping", "name the anchor of a mapping"
                    self.wrong(key, where, what, remedy)
                    continue
                for pair in source.value:
                    if isinstance(pair[0], yaml.ScalarNode) and not _is_merge(pair[0]):
                        yield pair
                yield from self.merged(source, where, depth + 1)

    def scalar(self, node: Any, where: Where) -> str | int | float | bool | None:
        # Escaped, so that the end of a line that a text contains is not taken for the text's end.
        text = printable(node.value)
        kind = node.tag.rpartition(":")[2]
        if text != node.value:
            what = f"{shown(text)} has a control character"
            self.wrong(node, where, what, "write it on one line, without control characters")
        return _SCALARS[kind](text)


_SCALARS: Mapping[str, Callable[[str], str | int | float | bool | None]] = {
    "null": lambda _text: None,
    "bool": lambda text: text == "true",
    "int": int,
    "float": float,
    "str": str,
}


def _is_merge(key: Any) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and key.style is None


TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


class DocumentSchema:
    """The schema in the file ``name`` of a package; remedies refer to the file ``example``."""

    def __init__(self, package: str, name: str, example: str) -> None:
        self._package, self._name, self._example = package, name, example

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """The schema itself."""
        found: Mapping[str, Any] = json.loads(
            files(self._package).joinpath(self._name).read_text(encoding="utf-8")
        )
        return found

    def errors(self, document: Document) -> dict[Where, list[ConfigError]]:
        """Return all errors of the document's structure, by the path of the wrong value."""
        # Imported here, because it takes a tenth of the start, and most hosts have no such file.
        from jsonschema import Draft202012Validator

        errors: dict[Where, list[ConfigError]] = {}
        for found in Draft202012Validator(self.content).iter_errors(document.data):
            for where, what, remedy in self._describe(found):
                errors.setdefault(where, []).append(document.error(where, what, remedy))
        return errors

    def _describe(self, error: "ValidationError") -> Iterator[tuple[Where, str, str]]:
        where: Where = tuple(error.absolute_path)
        expected = error.schema.get("description", "") if isinstance(error.schema, dict) else ""
        remedy = (
            f"write {expected}" if expected else f"see the commented example in {self._example}"
        )
        match error.validator:
            case "additionalProperties":
                yield from _unknown_keys(error, where)
            case "required":
                # jsonschema reports each missing key separately; its message begins with the key's
                # repr.
                key = next(
                    name for name in error.validator_value if error.message.startswith(repr(name))
                )
                yield where, f"lacks {key}", f"add {key}"
            case "type":
                kinds = (
                    [error.validator_value]
                    if isinstance(error.validator_value, str)
                    else error.validator_value
                )
                yield (
                    where,
                    f"is {shown(error.instance)}, not {' or '.join(TYPES[kind] for kind in kinds)}",
                    remedy,
                )
            case "not":
                yield where, "is not allowed here", remedy
            case _ if "propertyNames" in error.absolute_schema_path:
                yield (*where, str(error.instance)), "cannot be a key here", remedy
            case "uniqueItems":
                yield where, "has an item twice", "keep one of them"
            case "minItems" | "minProperties":
                yield where, "is empty", remedy
            case "maxProperties":
                yield where, f"has {' and '.join(sorted(error.instance))}", remedy
            case _:
                yield where, f"is {shown(error.instance)}", remedy


def meant(key: str, known: Collection[str]) -> str:
    """Return a remedy for an unknown key: the most similar known key, or all known keys."""
    close = difflib.get_close_matches(key, sorted(known), 1)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(sorted(known))}"


def _unknown_keys(error: "ValidationError", where: Where) -> Iterator[tuple[Where, str, str]]:
    known = error.schema["properties"]
    for key in error.instance:
        if key not in known:
            yield (*where, key), "is an unknown key", meant(key, known)
