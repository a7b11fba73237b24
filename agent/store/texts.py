"""Names, records and times as the JSON text that the store keeps, and back."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any


def names_text(names: Iterable[str]) -> str:
    """A set of names; equal sets are equal texts."""
    return json.dumps(sorted(names))


def mapping_text(mapping: Mapping[str, Any]) -> str:
    """A mapping by name; equal mappings are equal texts."""
    return json.dumps({name: _plain(mapping[name]) for name in sorted(mapping)})


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


@lru_cache(maxsize=1024)
def names_of(text: str) -> frozenset[str]:
    """A set of names; equal ones are the same object, because hundreds of devices and thousands of nodes share a few."""
    return frozenset(json.loads(text))


def mapping_reader() -> Callable[[str], dict[str, Any]]:
    """Reads mappings, each text once; equal ones are the same object."""
    return lru_cache(maxsize=None)(lambda text: dict(json.loads(text)))
