"""Reading one provider config file: its entries, all its errors, and warnings."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import ConfigError, ConfigErrors
from agent.model.inventory import Inventories, Record, completed, problems
from agent.model.names import is_custom, is_token, normal_uuid
from agent.provider_config.applying import COMPUTE_NODE, Entry, Key
from agent.yaml_files.parsing import Document, Where, parse, pointer, shown
from agent.yaml_files.schema import DocumentSchema, meant

Part = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """An unknown key that was removed, and the keys that are known in its place."""

    where: Where
    known: Collection[str]


def prune(document: Document, schema: Part, *, newer: bool) -> tuple[Document, list[UnknownKey]]:
    """Return ``document`` with known keys only, and the keys that were removed.

    :param newer: whether the document is written for a newer version of the schema.
    """
    work = _Pruning(schema, newer)
    return replace(document, data=work.part(schema, document.data, ())), work.unknown


class _Pruning:
    def __init__(self, schema: Part, newer: bool) -> None:
        self.definitions: Part = schema["$defs"]
        self.newer = newer
        self.unknown: list[UnknownKey] = []

    def part(self, schema: Part, data: Any, where: Where) -> Any:
        if "$ref" in schema:
            return self.part(self.definitions[schema["$ref"].rpartition("/")[2]], data, where)
        if isinstance(data, list):
            return [
                self.part(schema.get("items", {}), item, (*where, index))
                for index, item in enumerate(data)
            ]
        if not isinstance(data, dict):
            return data
        parts = {key: self.below(schema, (*where, key)) for key in data}
        return {
            key: self.part(part, data[key], (*where, key))
            for key, part in parts.items()
            if part is not None
        }

    def below(self, schema: Part, where: Where) -> Part | None:
        """Return the schema of a key, ``None`` if the key is unknown and has to be removed."""
        key, known, others = (
            where[-1],
            schema.get("properties", {}),
            schema.get("additionalProperties"),
        )
        if key in known:
            found: Part = known[key]
            return found
        if isinstance(others, dict):
            return others
        if not known or others is True or (others is False and not self.newer):
            return {}
        self.unknown.append(UnknownKey(where, known))
        return None


# The prefixes of classes that the agent derives from the host's devices: two owners of one name
# would undo each other's changes.
RESERVED_CLASSES = ("CUSTOM_PCI_", "CUSTOM_PMEM_NAMESPACE_")
# The prefixes of traits by which an agent finds its nodes again.
RESERVED_TRAITS = ("CUSTOM_COMPUTE_NODE_AGENT_",)

Fault = tuple[str, str]
"""A problem and its remedy."""


def class_problems(names: Iterable[str]) -> Iterator[Fault]:
    """Yield the problems of well-formed resource classes."""
    yield from _problems(sorted(set(names)), "resource classes", RESERVED_CLASSES)


def trait_problems(names: Iterable[str]) -> Iterator[Fault]:
    """Yield the problems of well-formed traits."""
    yield from _problems(sorted(set(names)), "traits", RESERVED_TRAITS)


def _problems(names: list[str], kind: str, reserved: tuple[str, ...]) -> Iterator[Fault]:
    empty = "CUSTOM_"
    standard = [name for name in names if not is_custom(name) and name != empty]
    if standard:
        yield (
            f"not custom {kind}: {', '.join(standard)}",
            f"only {kind} whose names begin with CUSTOM_ can be added; others are the driver's",
        )
    if empty in names:
        yield f"{empty} alone is no name", "let a name follow it"
    taken = [name for name in names if name.startswith(reserved)]
    if taken:
        yield f"{kind} that only the agent itself gives: {', '.join(taken)}", "choose another name"


KNOWN = (1, 0)
FIRST_LINE = "let the file begin with the line   meta: {schema_version: '1.0'}"
QUOTED = "write the version in quotes: '1.0'"
WHERE: Where = ("meta", "schema_version")

_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class FormatVersion:
    """The schema version of a file."""

    text: str = ""
    """The version as written in the file."""
    readable: bool = False
    """Whether the rest of the file can be checked."""
    newer: bool = False
    """Whether the version is newer than the known one."""
    error: ConfigError | None = None


def version_of(document: Document) -> FormatVersion:
    """Return the version of a file, or the error in it."""
    data = document.data
    if not isinstance(data, dict):
        return FormatVersion(
            error=document.error((), f"is {shown(data)}, not a mapping", FIRST_LINE)
        )
    meta = data.get("meta")
    if not isinstance(meta, dict) or "schema_version" not in meta:
        what = (
            "lacks meta"
            if "meta" not in data
            else "lacks schema_version"
            if isinstance(meta, dict)
            else f"is {shown(meta)}, not a mapping"
        )
        return FormatVersion(
            readable=True,
            error=document.error(("meta",) if "meta" in data else (), what, FIRST_LINE),
        )
    text = meta["schema_version"]
    if not isinstance(text, str):
        return FormatVersion(
            readable=True, error=document.error(WHERE, f"is {shown(text)}, not text", QUOTED)
        )
    found = _VERSION.fullmatch(text)
    if found is None:
        return FormatVersion(
            error=document.error(WHERE, f"is {shown(text)}, not a version", QUOTED)
        )
    major, minor = (int(number) for number in found.groups())
    if major != KNOWN[0]:
        return FormatVersion(
            error=document.error(
                WHERE, f"is {shown(text)}, which is not supported here", f"supported: {supported()}"
            )
        )
    return FormatVersion(text, readable=True, newer=minor > KNOWN[1])


def supported() -> str:
    """Return the supported versions as a text."""
    return f"{KNOWN[0]}.N, known up to {KNOWN[0]}.{KNOWN[1]}"


SCHEMA = DocumentSchema(
    "agent.provider_config", "provider-config.schema.json", "etc/provider_config/example.yaml"
)


@dataclass(slots=True)
class ProviderFile:
    """The content of one file."""

    entries: list[Entry] = field(default_factory=list)
    """Complete if there are no ``errors``; includes entries that add nothing."""
    errors: list[ConfigError] = field(default_factory=list)
    warnings: list[ConfigError] = field(default_factory=list)


def read_file(content: bytes, file: str) -> ProviderFile:
    """Read one file, named ``file`` in messages. Never raises: the errors are in the result."""
    try:
        document = parse(content, file, aliases=True)
    except ConfigErrors as several:
        return ProviderFile(errors=list(several.errors))
    version = version_of(document)
    found = ProviderFile(errors=[*document.errors, *([version.error] if version.error else [])])
    if version.readable:
        known, unknown = prune(
            _with_providers(document, found), SCHEMA.content, newer=version.newer
        )
        found.warnings += _of_unknown(document, version, unknown)
        _Entries(known, found).read()
    return found


def _with_providers(document: Document, found: ProviderFile) -> Document:
    """Return ``document`` with an empty list of providers if the key has no value."""
    if document.data.get("providers", []) is not None:
        return document
    found.warnings.append(
        document.error(
            ("providers",),
            "is empty, so that the file adds nothing",
            "write [] for no providers, or remove the key",
        )
    )
    return replace(document, data={**document.data, "providers": []})


def _of_unknown(
    document: Document, version: FormatVersion, unknown: Collection[UnknownKey]
) -> Iterator[ConfigError]:
    if version.newer:
        known = ".".join(map(str, KNOWN))
        ignored = [
            pointer(key.where) for key in sorted(unknown, key=lambda key: document.place(key.where))
        ]
        what = (
            f"is {version.text}, newer than {known}, which is known here; ignored: "
            f"{', '.join(ignored) or 'nothing'}"
        )
        yield document.error(WHERE, what, f"upgrade the agent, or write for {known}")
        return
    for key in unknown:
        yield document.error(
            key.where,
            "is an unknown key, and ignored with all below it",
            meant(str(key.where[-1]), key.known),
        )


class _Entries:
    """Reads the entries of a file.

    Errors of the structure are found first; the sound parts are then checked further.
    """

    def __init__(self, document: Document, found: ProviderFile) -> None:
        self.document, self.found = document, found
        structure = {
            where: errors
            for where, errors in SCHEMA.errors(document).items()
            if where[:1] == ("providers",)
        }
        found.errors += [error for errors in structure.values() for error in errors]
        self.broken = structure.keys()
        self.above_broken = {where[:length] for where in structure for length in range(len(where))}

    def sound(self, where: Where) -> bool:
        """Return whether the structure is valid, there and below."""
        # An error of the provider itself, a missing identification, does not affect its parts.
        return where not in self.above_broken and not any(
            where[:length] in self.broken for length in range(3, len(where) + 1)
        )

    def wrong(self, where: Where, what: str, remedy: str) -> None:
        self.found.errors.append(self.document.error(where, what, remedy))

    def read(self) -> None:
        providers = self.document.data.get("providers", [])
        for index, data in enumerate(providers if isinstance(providers, list) else ()):
            if isinstance(data, dict):
                self.entry(data, ("providers", index))

    def entry(self, data: dict[str, Any], where: Where) -> None:
        before, identified = len(self.found.errors), (*where, "identification")
        key = (
            self.key(data["identification"], identified)
            if "identification" in data and self.sound(identified)
            else None
        )
        inventories = self.inventories(
            _additional(data, "inventories"), (*where, "inventories", "additional"), key
        )
        traits = self.traits(_additional(data, "traits"), (*where, "traits", "additional"), key)
        if key is None:
            return
        self.found.entries.append(
            Entry(key, self.document.file, self.document.place(identified), inventories, traits)
        )
        if not (inventories or traits) and len(self.found.errors) == before and self.sound(where):
            self.found.warnings.append(
                self.document.error(
                    where,
                    f"{key}: adds nothing and is left out",
                    "give it inventories or traits, or remove it",
                )
            )

    def key(self, data: dict[str, str], where: Where) -> Key:
        if data.get("name") == COMPUTE_NODE:
            what = f"is {COMPUTE_NODE}, and taken as the uuid that stands for every node"
            self.found.warnings.append(
                self.document.error((*where, "name"), what, f"write uuid: {COMPUTE_NODE}")
            )
            return Key("uuid", COMPUTE_NODE)
        if "name" in data:
            return Key("name", data["name"])
        uuid = data["uuid"]
        return Key("uuid", uuid if uuid == COMPUTE_NODE else normal_uuid(uuid))

    def inventories(self, data: list[Any], where: Where, key: Key | None) -> Inventories:
        found: dict[str, Record] = {}
        first: dict[str, Where] = {}
        for index, name, record in [
            (index, *pair)
            for index, item in enumerate(data)
            if isinstance(item, dict)
            for pair in item.items()
        ]:
            here = (*where, index, name)
            if (other := first.setdefault(name, here)) is not here:
                self.wrong(
                    here,
                    f"the class is here twice, first in line {self.document.place(other).line}",
                    "keep one of them",
                )
            elif self.sound(here):
                found[name] = completed(record)
                for text in problems(name, found[name]):
                    self.wrong(here, text.removeprefix(f"{name}: "), "correct the amounts")
        self.check(class_problems(filter(is_token, first)), where, key)
        return found

    def traits(self, data: list[Any], where: Where, key: Key | None) -> frozenset[str]:
        names = frozenset(name for index, name in enumerate(data) if self.sound((*where, index)))
        self.check(trait_problems(names), where, key)
        return names

    def check(self, faults: Iterable[tuple[str, str]], where: Where, key: Key | None) -> None:
        for what, remedy in faults:
            self.wrong(where, f"{key}: {what}" if key else what, remedy)


def _additional(data: dict[str, Any], part: str) -> list[Any]:
    """Return the list ``additional`` below ``part``, empty if it is missing or not a list."""
    above = data.get(part)
    found = above.get("additional", []) if isinstance(above, dict) else []
    return found if isinstance(found, list) else []
