"""The configuration files: which ones are read, in which order, and all errors that oslo.config's
parser finds in them.
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
# Replaces a line that cannot be parsed, because lines that continue its value may follow.
REPLACED = "replaced"
NO_SECTION = "a value before the first [section]"
REMEDY = "write name = value, or begin the line with # to make it a comment"
REMEDIES = {NO_SECTION: "put [DEFAULT] above it"}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of an option in a file."""

    text: str
    line: int
    """The line where the value starts."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file that could be read."""

    path: Path
    sections: Mapping[str, Mapping[str, Sequence[Value]]]
    """The values by section (in lower case, except DEFAULT) and name, in the order of the file."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line where each section begins."""
    mended: str | None = None
    """The text without the lines that cannot be parsed; None if there are none."""


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
    lines, errors = text.split("\n"), dict[int, ConfigError]()
    while True:
        parser = _IniParser()
        try:
            parser.parse(lines)
        except iniparser.ParseError as error:
            line = error.lineno
            # Parsed again with a harmless line in its place, because further errors may follow.
            if line in errors:
                lines[line - 1] = "#"
                continue
            lines[line - 1] = "[DEFAULT]" if error.msg == NO_SECTION else f"{REPLACED} ="
            # The line itself is not shown: it may hold a password.
            errors[line] = ConfigError(
                f"{path}:{line}: {error.msg}",
                REMEDIES.get(error.msg, REMEDY),
                file=str(path),
                line=line,
            )
        else:
            return ConfigFile(
                path, parser.values, parser.lines, "\n".join(lines) if errors else None
            ), list(errors.values())


class _IniParser(iniparser.BaseParser):
    """Collects what oslo.config's parser finds, with line numbers."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[Value]]] = {}
        self.lines: dict[str, int] = {}
        self._section = ""
        self._started_at = 0

    def new_section(self, section: str) -> None:
        self._section = section if section == "DEFAULT" else section.lower()
        self.values.setdefault(self._section, {})
        self.lines.setdefault(self._section, self.lineno)

    def assignment(self, key: str, value: list[str]) -> None:
        if not self._section:
            raise self.parse_exc(NO_SECTION, self._started_at, key)
        self.values[self._section].setdefault(key, []).append(
            Value("\n".join(value), self._started_at)
        )

    def _split_key_value(self, line: str) -> tuple[str, list[str]]:
        # Kept because an assignment is complete on a later line only.
        self._started_at = self.lineno
        return super()._split_key_value(line)
