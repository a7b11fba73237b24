"""Reading the folder of provider config files, with all errors of all files reported together."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors, gathering
from agent.model.names import printable
from agent.provider_config.applying import Entry, Key, ProviderConfig
from agent.yaml_files.parsing import read_bytes

LOG = logging.getLogger(__name__)

ENDINGS = (".yaml", ".yml")
MAX_ENTRIES = 10_000
READABLE = "check the permissions: the agent has to read the folder and its files"


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
    return (
        Path(conf.compute.provider_config_location)
        if conf.compute.provider_config_location
        else None
    )


def read_folder(folder: Path) -> ProviderConfig:
    """Read the files of ``folder`` in the order of their names. A missing folder has no files.

    :raises ConfigErrors: any file has errors; all of them are listed.
    """
    names = _names(folder)
    files = [folder / name for name in names if name.endswith(ENDINGS)]
    warnings = [_unread(folder / name) for name in names if not name.endswith(ENDINGS)]
    entries: list[Entry] = []
    errors: list[ConfigError] = []
    if files:
        # Imported here to save memory in an agent without files.
        from agent.provider_config.file import read_file
    for file in files:
        with gathering(errors):
            found = read_file(read_bytes(file, READABLE), printable(str(file)))
            entries += found.entries
            warnings += sorted(found.warnings, key=_place)
            errors += sorted(found.errors, key=_place)
    if len(entries) > MAX_ENTRIES:
        errors.append(
            ConfigError(
                (
                    f"{printable(str(folder))}: {len(entries)} entries in all, and {MAX_ENTRIES} "
                    "are allowed"
                ),
                "name fewer providers",
            )
        )
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
        what = (
            f"{printable(str(folder))}: the folder of [compute] provider_config_location cannot "
            f"be read: {error.strerror}"
        )
        raise ConfigErrors([ConfigError(what, READABLE, file=printable(str(folder)))]) from error


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
            what = (
                f"{entry.file}:{entry.place}: there is another entry for {entry.key}, in "
                f"{other.file}:{other.place}"
            )
            yield ConfigError(
                what,
                "keep one of them",
                file=entry.file,
                line=entry.place.line,
                column=entry.place.column,
            )


def _place(error: ConfigError) -> tuple[int, int]:
    return error.data.get("line", 0), error.data.get("column", 0)
