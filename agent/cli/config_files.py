"""The configuration files: which ones are read, in which order, their values with their lines, and
all errors in them. Nothing else reads them.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oslo_config import cfg, iniparser

from agent.cli.command import Source
from agent.errors import ConfigError

PROJECT = "compute-node-agent"
PROGRAM = "agent"
NO_SECTION = "a value before the first [section]"
REMEDY = "write name = value, or begin the line with # to make it a comment"
REMEDIES = {NO_SECTION: "put [DEFAULT] above it"}
# A file with one of these sections is nova's: no other service has them, and every nova.conf that
# is in use has one.
_ONLY_NOVAS = frozenset(
    {
        "api_database",
        "barbican_service_user",
        "cells",
        "conductor",
        "console",
        "filter_scheduler",
        "glance",
        "guestfs",
        "notifications",
        "quota",
        "scheduler",
        "serial_console",
        "spice",
        "upgrade_levels",
        "vnc",
    }
)
_NOVAS_FOLDER = "nova.conf.d"


class Value(str):
    """A value of an option in a file: its text, and where it is."""

    file: Path
    line: int
    """The line where the value starts."""

    @classmethod
    def at(cls, file: Path, line: int, text: str) -> "Value":
        """Return the value with its place."""
        value = cls(text)
        value.file, value.line = file, line
        return value


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file that could be read, without the lines that cannot be parsed."""

    path: Path
    sections: Mapping[str, Mapping[str, Sequence[Value]]]
    """The values by section (in lower case, except DEFAULT) and name, in the order of the file."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line where each section begins."""

    @property
    def is_novas(self) -> bool:
        """Whether the file is one that nova reads."""
        by_name = self.path.name.startswith("nova") or self.path.parent.name == _NOVAS_FOLDER
        return by_name or not _ONLY_NOVAS.isdisjoint(self.sections)


def is_novas_section(section: str) -> bool:
    """Return whether only nova has the section."""
    return section in _ONLY_NOVAS


def usual_sources() -> tuple[Source, ...]:
    """Return ``agent.conf`` and ``agent.conf.d``, each from the first usual place that has it."""
    files = [Path(file) for file in cfg.find_config_files(PROJECT, PROGRAM)]
    folders = [Path(folder) for folder in cfg.find_config_dirs(PROJECT, PROGRAM)]
    # oslo.config also finds files named after the project; the agent does not read these.
    return (
        *(Source(file) for file in files if file.stem == PROGRAM),
        *(
            Source(folder, is_folder=True)
            for folder in folders
            if folder.name == f"{PROGRAM}.conf.d"
        ),
    )


def sources_of(given: Sequence[Source]) -> tuple[Source, ...]:
    """Return the sources to read: the given ones, and the usual ones unless a file is given. A
    given folder replaces the usual folder.
    """
    if any(not source.is_folder for source in given):
        return tuple(given)
    return (*(source for source in usual_sources() if not (given and source.is_folder)), *given)


def read_all(sources: Iterable[Source]) -> tuple[list[ConfigFile], list[ConfigError]]:
    """Return every file that is text, in the order of precedence (the last file wins), and all
    errors.
    """
    files: list[ConfigFile] = []
    errors: list[ConfigError] = []
    for source in sources:
        try:
            paths = (
                _in_folder(source.path.expanduser())
                if source.is_folder
                else [source.path.expanduser()]
            )
        except OSError as error:
            errors.append(_unreadable("--config-dir", source.path, error))
            continue
        for path in paths:
            file, wrong = _read(path)
            files += [file] if file else []
            errors += wrong
    return files, errors


def _in_folder(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return sorted(
            folder / entry.name
            for entry in entries
            if entry.name.endswith(".conf") and not entry.name.startswith(".")
        )


def _unreadable(option: str, path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{option} {path}: {error.strerror}",
        "check the path, and that the agent's user may read it",
        file=str(path),
    )


def _read(path: Path) -> tuple[ConfigFile | None, list[ConfigError]]:
    """Return the file without the lines that cannot be parsed, None if it is not text; and its
    errors.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        return None, [_unreadable("--config-file", path, error)]
    except UnicodeDecodeError as error:
        return None, [
            ConfigError(
                f"{path}: not text in UTF-8, at byte {error.start}",
                "name a configuration file",
                file=str(path),
            )
        ]
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        return None, [
            ConfigError(
                f"{path}:{line}: a NUL byte, which no text has",
                "name a configuration file",
                file=str(path),
                line=line,
            )
        ]
    parser = _IniParser(path)
    parser.parse(text.split("\n"))
    # The lines themselves are not shown: they may hold a password.
    return ConfigFile(path, parser.values, parser.lines), [
        ConfigError(
            f"{path}:{line}: {message}",
            REMEDIES.get(message, REMEDY),
            file=str(path),
            line=line,
        )
        for line, message in sorted(parser.errors.items())
    ]


class _IniParser(iniparser.BaseParser):
    """oslo.config's parser, which notes an error and goes on, and keeps the line of each value."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.values: dict[str, dict[str, list[Value]]] = {}
        self.lines: dict[str, int] = {}
        self.errors: dict[int, str] = {}
        """The message of the first error in each line."""
        self._path, self._section, self._started_at, self._skipped = path, "", 0, -1

    def new_section(self, section: str) -> None:
        self._section = section if section == "DEFAULT" else section.lower()
        self.values.setdefault(self._section, {})
        self.lines.setdefault(self._section, self.lineno)

    def assignment(self, key: str, value: list[str]) -> None:
        if not self._section:
            self.errors.setdefault(self._started_at, NO_SECTION)
            self.new_section("DEFAULT")
            return
        found = Value.at(self._path, self._started_at, "\n".join(value))
        self.values[self._section].setdefault(key, []).append(found)

    def _split_key_value(self, line: str) -> tuple[str, list[str]]:
        # Kept because an assignment is complete on a later line only.
        self._started_at = self.lineno
        try:
            return super()._split_key_value(line)
        except iniparser.ParseError as error:
            self._note(error.msg)
            return "", []

    def _get_section(self, line: str) -> str:
        try:
            return super()._get_section(line)
        except iniparser.ParseError as error:
            self._note(error.msg)
            return ""

    def error_empty_key(self, _line: str) -> None:  # type: ignore[override]
        self._note("Key cannot be empty")

    def error_unexpected_continuation(self, _line: str) -> None:  # type: ignore[override]
        # What continues a line that cannot be parsed is no error of its own.
        if self._skipped == self.lineno - 1:
            self._skipped = self.lineno
        else:
            self._note("Unexpected continuation line")

    def _note(self, message: str) -> None:
        self.errors.setdefault(self.lineno, message)
        self._skipped = self.lineno
