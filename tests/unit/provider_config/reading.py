"""Reads a folder of files as a test writes them, and tells what came of it."""

from pathlib import Path

import pytest

from agent.errors import ConfigError, ConfigErrors
from agent.provider_config.applying import ProviderConfig
from agent.provider_config.reading import read_folder

META = "meta: {schema_version: '1.0'}\n"
NODE = "5f9c2a34-7d1e-4a8b-9c46-000000000001"


def written(folder: Path, **files: str | bytes) -> Path:
    """A folder with the files ``a=...`` as ``a.yaml``."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def read(folder: Path, **files: str | bytes) -> ProviderConfig:
    """What is read of them."""
    return read_folder(written(folder, **files))


def refused(folder: Path, **files: str | bytes) -> tuple[ConfigError, ...]:
    """Everything that is wrong with them."""
    with pytest.raises(ConfigErrors) as caught:
        read(folder, **files)
    return caught.value.errors


def told(folder: Path, **files: str | bytes) -> list[str]:
    """The same as text, without the folder."""
    errors = refused(folder, **files)
    assert all(
        error.remedy and "\n" not in error.message and "\n" not in error.remedy for error in errors
    )
    return [str(error).replace(f"{folder}/", "") for error in errors]


def warned(config: ProviderConfig) -> list[str]:
    """What it is warned of, without the folder."""
    return [str(warning).replace(f"{config.folder}/", "") for warning in config.warnings]


def entry(identification: str, more: str = "traits: {additional: [CUSTOM_A]}") -> str:
    """A whole file with one entry."""
    return f"{META}providers:\n- identification: {identification}\n  {more}\n"


def inventory(records: str) -> str:
    """A whole file with one entry for the node's root."""
    return entry("{uuid: $COMPUTE_NODE}", f"inventories:\n    additional: {records}")
