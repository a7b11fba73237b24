"""The files of a configuration: which ones, in which order, and everything in them that oslo.config
could not parse.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oslo_config import cfg, iniparser

from agent.cli.options import Source
from agent.errors import ConfigError

PROJECT = "compute-node-agent"
PROGRAM = "agent"
# Stands in the place of what cannot be parsed, because lines that go on with a value may follow.
REPLACED = "replaced"
NO_SECTION = "a value before the first [section]"
REMEDY = "write name = value, or begin the line with # to make it a comment"
REMEDIES = {NO_SECTION: "put [DEFAULT] above it"}


@dataclass(frozen=True, slots=True)
class Value:
    """What a file says for an option: its text, and the line where it starts."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One readable file: its values by section (in lower case, but DEFAULT) and name, in the order
    given.

    ``lines``: where each section begins; ``mended``: the file's text without the lines that cannot
    be parsed, None if there are none.
    """

    path: Path
    sections: Mapping[str, Mapping[str, Sequence[Value]]]
    lines: Mapping[str, int] = field(default_factory=dict)
    mended: str | None = None


def usual_sources() -> tuple[Source, ...]:
    """``agent.conf`` and ``agent.conf.d`` in the first of the usual places that has them."""
    files = [Path(file) for file in cfg.find_config_files(PROJECT, PROGRAM)]
    folders = [Path(folder) for folder in cfg.find_config_dirs(PROJECT, PROGRAM)]
    # oslo.config looks for files named after the project too; those are not ours.
    return (
        *(Source(file) for file in files if file.stem == PROGRAM),
        *(
            Source(folder, is_folder=True)
            for folder in folders
            if folder.name == f"{PROGRAM}.conf.d"
        ),
    )


def sources_of(given: Sequence[Source]) -> tuple[Source, ...]:
    """What to read: what was given, and the usual places unless a file was; a folder given stands
    in for the usual one.
    """
    if any(not source.is_folder for source in given):
        return tuple(given)
    return (*(source for source in usual_sources() if not (given and source.is_folder)), *given)


def read_all(sources: Iterable[Source]) -> tuple[list[ConfigFile], list[ConfigError]]:
    """Every file that is text, in the order in which later ones win, and what is wrong with any."""
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
    """The file without the lines that cannot be parsed, None if it is no text; and what is wrong
    with it.
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
            # Read again with something harmless in its place, because there may be more.
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
    """Collects what oslo.config's own parser finds, with line numbers."""

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
        # Kept because an assignment is only complete on a later line.
        self._started_at = self.lineno
        return super()._split_key_value(line)
