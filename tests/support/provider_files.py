"""A folder of the operator's provider files, written as the tests say."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VERSION = "1.0"


def by_uuid(uuid: str, *traits: str, **records: Any) -> dict[str, Any]:
    """An entry: ``by_uuid(ROOT, "CUSTOM_A", CUSTOM_L={"total": 3})``."""
    return _entry({"uuid": uuid}, traits, records)


def by_name(name: str, *traits: str, **records: Any) -> dict[str, Any]:
    """The same for a provider that is named."""
    return _entry({"name": name}, traits, records)


def default(*traits: str, **records: Any) -> dict[str, Any]:
    """The same for every node that has no entry of its own."""
    return by_uuid("$COMPUTE_NODE", *traits, **records)


def _entry(
    identification: Mapping[str, str], traits: Sequence[str], records: Mapping[str, Any]
) -> dict[str, Any]:
    entry: dict[str, Any] = {"identification": identification}
    if records:
        entry["inventories"] = {"additional": [{name: record} for name, record in records.items()]}
    if traits:
        entry["traits"] = {"additional": list(traits)}
    return entry


class ProviderFiles:
    """The folder. What is written replaces the file of that name, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def write(self, name: str, *entries: Mapping[str, Any], version: str = VERSION) -> Path:
        """A right file."""
        # JSON is YAML, and its strings are quoted, so that a version stays text.
        return self.text(
            name,
            json.dumps(
                {"meta": {"schema_version": version}, "providers": entries}, ensure_ascii=False
            ),
        )

    def text(self, name: str, text: str) -> Path:
        """A file of any content, there all at once."""
        new, file = self.folder / f".{name}", self.folder / name
        new.write_text(text)
        new.replace(file)
        return file

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()
