"""Reading the folder of provider config files, with all errors of all files reported together."""

import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors, gathering
from agent.model.devices import PMEM_PREFIX
from agent.model.inventory import Inventories, Record, completed, problems
from agent.model.names import AGENT_MARK, is_custom, is_token, normal_uuid, printable
from agent.provider_config.applying import COMPUTE_NODE, Entry, Key, ProviderConfig
from agent.yaml_files import (
    Document,
    DocumentSchema,
    Where,
    error_at,
    meant,
    parse,
    pointer,
    read_bytes,
    shown,
)

LOG = logging.getLogger(__name__)

SCHEMA = DocumentSchema(
    "agent.provider_config", "provider-config.schema.json", "etc/provider_config/example.yaml"
)
ENDINGS = (".yaml", ".yml")
MAX_ENTRIES = 10_000
READABLE = "check the permissions: the agent has to read the folder and its files"


# --- the folder -----------------------------------------------------------------------------------


def load_provider_config(conf: cfg.ConfigOpts) -> ProviderConfig:
    """Read the files of ``[compute] provider_config_location`` and log their warnings.

    :raises ConfigErrors: any file has errors; all of them are listed.
    """
    folder = folder_of(conf)
    found = read_folder(folder) if folder else ProviderConfig()
    for warning in found.warnings:
        LOG.warning("%s", warning)
    if folder and not found.files:
        LOG.info(
            "no provider configuration: %s has no *.yaml that the agent may see",
            printable(str(folder)),
        )
    return found


def folder_of(conf: cfg.ConfigOpts) -> Path | None:
    """Return the configured folder, ``None`` if there is none."""
    location = conf.compute.provider_config_location
    return Path(location) if location else None


def read_folder(folder: Path) -> ProviderConfig:
    """Read the files of ``folder`` in the order of their names. A missing folder has no files.

    :raises ConfigErrors: any file has errors; all of them are listed.
    """
    names = _names(folder)
    files = [folder / name for name in names if name.endswith(ENDINGS)]
    warnings = [_unread(folder / name) for name in names if not name.endswith(ENDINGS)]
    entries: list[Entry] = []
    errors: list[ConfigError] = []
    for file in files:
        with gathering(errors):
            found = _read_file(read_bytes(file, READABLE), printable(str(file)))
            entries += found.entries
            warnings += sorted(found.warnings, key=_place)
            errors += sorted(found.errors, key=_place)
    if len(entries) > MAX_ENTRIES:
        what = f"{len(entries)} entries in all, and {MAX_ENTRIES} are allowed"
        errors.append(ConfigError(f"{printable(str(folder))}: {what}", "name fewer providers"))
    errors += _repeated_entries(entries)
    ConfigErrors.raise_if_any(errors)
    used = tuple(entry for entry in entries if entry.inventories or entry.traits)
    return ProviderConfig(
        folder, tuple(printable(str(file)) for file in files), used, tuple(warnings)
    )


def _names(folder: Path) -> Sequence[str]:
    """Return the sorted names in the folder, without hidden ones.

    :raises ConfigErrors: the folder cannot be read.
    """
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208 - names, not paths, are compared
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigErrors(
            [
                ConfigError(
                    (
                        f"{printable(str(folder))}: the folder of [compute] "
                        f"provider_config_location cannot be read: {error.strerror}"
                    ),
                    READABLE,
                    file=printable(str(folder)),
                )
            ]
        ) from error


def _unread(path: Path) -> ConfigError:
    file = printable(str(path))
    return ConfigError(
        f"{file}: is not read",
        f"call it *{ENDINGS[0]} if it is to be read, or put it elsewhere",
        file=file,
    )


def _repeated_entries(entries: Sequence[Entry]) -> Iterator[ConfigError]:
    """Yield an error for each further entry of the same provider."""
    first: dict[Key, Entry] = {}
    for entry in entries:
        if (other := first.get(entry.key)) is None:
            first[entry.key] = entry
        else:
            yield error_at(
                entry.file,
                entry.place,
                (),
                f"there is another entry for {entry.key}, in {other.file}:{other.place}",
                "keep one of them",
            )


def _place(error: ConfigError) -> tuple[int, int]:
    return error.data.get("line", 0), error.data.get("column", 0)


# --- one file -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _ProviderFile:
    """The content of one file."""

    entries: list[Entry] = field(default_factory=list)
    """Complete if there are no ``errors``; includes entries that add nothing."""
    errors: list[ConfigError] = field(default_factory=list)
    warnings: list[ConfigError] = field(default_factory=list)


def _read_file(content: bytes, file: str) -> _ProviderFile:
    """Read one file, named ``file`` in messages. Never raises: the errors are in the result."""
    found = _ProviderFile()
    with gathering(found.errors):
        document = parse(content, file, aliases=True)
        found.errors += document.errors
        newer = _is_newer(document, found.errors)
        if document.data.get("providers", []) is None:
            found.warnings.append(
                document.error(
                    ("providers",),
                    "is empty, so that the file adds nothing",
                    "write [] for no providers, or remove the key",
                )
            )
            document = replace(document, data={**document.data, "providers": []})
        unknown: dict[Where, Collection[str]] = {}
        known = _known_part(SCHEMA.content, document.data, (), newer, unknown)
        found.warnings += _of_unknown(document, unknown, newer=newer)
        _Entries(replace(document, data=known), found).read()
    return found


KNOWN = (1, 0)
"""The known version of the format."""
FIRST_LINE = "let the file begin with the line   meta: {schema_version: '1.0'}"
QUOTED = "write the version in quotes: '1.0'"
WHERE: Where = ("meta", "schema_version")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


def _is_newer(document: Document, errors: list[ConfigError]) -> bool:
    """Return whether the file has a newer minor version than the known one. An error after which
    the rest of the file can be checked all the same is added to ``errors``.

    :raises ConfigError: the rest cannot be checked.
    """
    data = document.data
    if not isinstance(data, dict):
        raise document.error((), f"is {shown(data)}, not a mapping", FIRST_LINE)
    meta = data.get("meta", {})
    if not isinstance(meta, dict):
        errors.append(document.error(("meta",), f"is {shown(meta)}, not a mapping", FIRST_LINE))
    elif "schema_version" not in meta:
        where, lacking = (("meta",), "schema_version") if "meta" in data else ((), "meta")
        errors.append(document.error(where, f"lacks {lacking}", FIRST_LINE))
    elif not isinstance(text := meta["schema_version"], str):
        errors.append(document.error(WHERE, f"is {shown(text)}, not text", QUOTED))
    else:
        number = _VERSION.fullmatch(text)
        if number is None:
            raise document.error(WHERE, f"is {shown(text)}, not a version", QUOTED)
        major, minor = map(int, number.groups())
        if major != KNOWN[0]:
            raise document.error(
                WHERE,
                f"is {shown(text)}, which is not supported here",
                f"supported: {KNOWN[0]}.N, known up to {KNOWN[0]}.{KNOWN[1]}",
            )
        return minor > KNOWN[1]
    return False


def _known_part(
    schema: Mapping[str, Any],
    data: Any,
    where: Where,
    newer: bool,
    unknown: dict[Where, Collection[str]],
) -> Any:
    """Return ``data`` with known keys only. The keys that were removed are added to ``unknown``,
    with those that are known in their place.

    :param newer: whether the data are written for a newer version of the schema.
    """
    if "$ref" in schema:
        schema = SCHEMA.content["$defs"][schema["$ref"].rpartition("/")[2]]
    known, others = schema.get("properties"), schema.get("additionalProperties")

    def below(part: Mapping[str, Any], value: Any, step: str | int) -> Any:
        return _known_part(part, value, (*where, step), newer, unknown)

    if isinstance(data, list):
        return [below(schema.get("items", {}), item, index) for index, item in enumerate(data)]
    if not isinstance(data, dict):
        return data
    kept = {}
    for key, value in data.items():
        if known and key in known:
            kept[key] = below(known[key], value, key)
        elif isinstance(others, dict):
            kept[key] = below(others, value, key)
        elif not known or others is True or (others is False and not newer):
            kept[key] = value
        else:
            unknown[*where, key] = known
    return kept


def _of_unknown(
    document: Document, unknown: Mapping[Where, Collection[str]], *, newer: bool
) -> Iterator[ConfigError]:
    if newer:
        known = ".".join(map(str, KNOWN))
        ignored = ", ".join(map(pointer, sorted(unknown, key=document.place))) or "nothing"
        yield document.error(
            WHERE,
            (
                f"is {document.data['meta']['schema_version']}, newer than {known}, which is known "
                f"here; ignored: {ignored}"
            ),
            f"upgrade the agent, or write for {known}",
        )
        return
    for where, known_keys in unknown.items():
        yield document.error(
            where,
            "is an unknown key, and ignored with all below it",
            meant(str(where[-1]), known_keys),
        )


# The prefixes of names that the agent itself gives: of classes, which it derives from the host's
# devices, and of traits, by which agents find their nodes again. Two owners of one name would undo
# each other's changes.
_RESERVED = {"resource classes": ("CUSTOM_PCI_", PMEM_PREFIX), "traits": (AGENT_MARK,)}


def _name_problems(kind: str, well_formed: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the names of classes or traits, each with its remedy."""
    names, empty = sorted(set(well_formed)), "CUSTOM_"
    standard = [name for name in names if not is_custom(name) and name != empty]
    if standard:
        yield (
            f"not custom {kind}: {', '.join(standard)}",
            f"only {kind} whose names begin with CUSTOM_ can be added; others are the driver's",
        )
    if empty in names:
        yield f"{empty} alone is no name", "let a name follow it"
    taken = [name for name in names if name.startswith(_RESERVED[kind])]
    if taken:
        yield f"{kind} that only the agent itself gives: {', '.join(taken)}", "choose another name"


class _Entries:
    """Reads the entries of a file.

    Errors of the structure are found first; the sound parts are then checked further.
    """

    def __init__(self, document: Document, found: _ProviderFile) -> None:
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
            self.found.warnings.append(
                self.document.error(
                    (*where, "name"),
                    f"is {COMPUTE_NODE}, and taken as the uuid that stands for every node",
                    f"write uuid: {COMPUTE_NODE}",
                )
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
                line = self.document.place(other).line
                self.wrong(
                    here, f"the class is here twice, first in line {line}", "keep one of them"
                )
            elif self.sound(here):
                found[name] = completed(record)
                for text in problems(name, found[name]):
                    self.wrong(here, text.removeprefix(f"{name}: "), "correct the amounts")
        self.check("resource classes", filter(is_token, first), where, key)
        return found

    def traits(self, data: list[Any], where: Where, key: Key | None) -> frozenset[str]:
        names = frozenset(name for index, name in enumerate(data) if self.sound((*where, index)))
        self.check("traits", names, where, key)
        return names

    def check(self, kind: str, names: Iterable[str], where: Where, key: Key | None) -> None:
        for what, remedy in _name_problems(kind, names):
            self.wrong(where, f"{key}: {what}" if key else what, remedy)


def _additional(data: dict[str, Any], part: str) -> list[Any]:
    """Return the list ``additional`` below ``part``, empty if it is missing or not a list."""
    above = data.get(part)
    found = above.get("additional", []) if isinstance(above, dict) else []
    return found if isinstance(found, list) else []
