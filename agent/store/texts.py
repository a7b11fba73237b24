"""Conversion between values and the JSON text in the store's columns."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from agent.model.guest import GuestCell, PlacedCell
from agent.model.host_units import MdevShare
from agent.model.instance import Flavor

Word = TypeVar("Word", bound=str)
TEXTS_KEPT = 2048
FLAVOR_NAMES = (
    "id",
    "name",
    "vcpus",
    "memory_mb",
    "root_gb",
    "ephemeral_gb",
    "swap_mb",
    "extra_specs",
)


def flavor_text(flavor: Flavor) -> str:
    """Return the text of a flavor; equal flavors have equal texts."""
    values = {
        "id": flavor.id,
        "name": flavor.name,
        "vcpus": flavor.vcpus,
        "memory_mb": flavor.memory_mb,
        "root_gb": flavor.root_gb,
        "ephemeral_gb": flavor.ephemeral_gb,
        "swap_mb": flavor.swap_mb,
        "extra_specs": dict(sorted(flavor.extra_specs.items())),
    }
    return json.dumps(values)


@lru_cache(TEXTS_KEPT)
def flavor_of(text: str) -> Flavor:
    """Return the flavor of a text.

    :raises ValueError, TypeError, KeyError: the text is invalid.
    """
    found = json.loads(text)
    _refuse_unknown(found, FLAVOR_NAMES)
    return Flavor(
        id=str(found["id"]),
        name=str(found["name"]),
        vcpus=whole(found["vcpus"]),
        memory_mb=whole(found["memory_mb"]),
        root_gb=whole(found["root_gb"]),
        ephemeral_gb=whole(found["ephemeral_gb"]),
        swap_mb=whole(found["swap_mb"]),
        extra_specs=_texts(found["extra_specs"]),
    )


@lru_cache(TEXTS_KEPT)
def properties_of(text: str) -> Mapping[str, str]:
    """Return the mapping of text to text.

    :raises ValueError: the text is invalid.
    """
    return _texts(json.loads(text))


def cells_text(cells: Collection[PlacedCell]) -> str:
    """Return the text of the placement of a guest's cells."""
    return json.dumps([_cell_values(cell) for cell in cells]) if cells else "[]"


@lru_cache(TEXTS_KEPT)
def cells_of(text: str) -> tuple[PlacedCell, ...]:
    """Return the placed cells of a text.

    :raises ValueError, TypeError, KeyError: the text is invalid.
    """
    return tuple(_cell(values) for values in json.loads(text))


def mdevs_text(mdevs: Collection[MdevShare]) -> str:
    """Return the text of a guest's shares of mediated devices."""
    return json.dumps([_share_values(share) for share in mdevs]) if mdevs else "[]"


@lru_cache(TEXTS_KEPT)
def mdevs_of(text: str) -> tuple[MdevShare, ...]:
    """Return the shares of mediated devices of a text.

    :raises ValueError, TypeError, KeyError: the text is invalid.
    """
    return tuple(_share(values) for values in json.loads(text))


def whole(value: Any) -> int:
    """Return ``value`` as an amount.

    :raises ValueError: it is not an integer, or is negative.
    """
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no amount")
    return value


def one_of(word: Any, words: Collection[Word]) -> Word:
    """Return ``word`` if it is among ``words``, those that this agent knows.

    :raises ValueError: it is not.
    """
    if word not in words:
        raise ValueError(f"{word!r} is none of {', '.join(sorted(words))}")
    known: Word = word
    return known


def _texts(found: Any) -> Mapping[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("no mapping of text to text")
    return found


def _cell_values(placed: PlacedCell) -> dict[str, Any]:
    return {
        "host_cell": placed.host_cell,
        "page_size_kib": placed.page_size_kib,
        "memory_mib": placed.cell.memory_mib,
        "shared": sorted(placed.cell.shared),
        "dedicated": sorted(placed.cell.dedicated),
        "pins": sorted(placed.pins.items()),
        "reserved": sorted(placed.reserved),
    }


def _cell(found: Any) -> PlacedCell:
    cell = GuestCell(_cpus(found["shared"]), _cpus(found["dedicated"]), whole(found["memory_mib"]))
    pins = {whole(guest): whole(host) for guest, host in found["pins"]}
    size = found["page_size_kib"]
    return PlacedCell(
        cell,
        whole(found["host_cell"]),
        None if size is None else whole(size),
        pins,
        _cpus(found["reserved"]),
    )


def _share_values(share: MdevShare) -> dict[str, Any]:
    return {
        "provider": share.provider,
        "resource_class": share.resource_class,
        "count": share.count,
        "parent": share.parent,
        "type": share.type,
    }


def _share(found: Any) -> MdevShare:
    _refuse_unknown(found, ("provider", "resource_class", "count", "parent", "type"))
    return MdevShare(
        provider=found["provider"],
        resource_class=found["resource_class"],
        count=whole(found["count"]),
        parent=found.get("parent"),
        type=found.get("type"),
    )


def _refuse_unknown(found: Iterable[str], known: Collection[str]) -> None:
    if unknown := set(found).difference(known):
        raise ValueError(f"unknown names: {', '.join(sorted(unknown))}")


def _cpus(found: Any) -> frozenset[int]:
    return frozenset(whole(cpu) for cpu in found)


def names_text(names: Iterable[str]) -> str:
    """Return the text of a set of names; equal sets have equal texts."""
    return json.dumps(sorted(names))


def mapping_text(mapping: Mapping[str, Any]) -> str:
    """Return the text of a mapping; equal mappings have equal texts."""
    return json.dumps({name: _plain(mapping[name]) for name in sorted(mapping)})


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


@lru_cache(maxsize=1024)
def names_of(text: str) -> frozenset[str]:
    """Return the set of names of a text.

    Equal texts return the same object, because hundreds of devices and thousands of nodes share a
    few sets.
    """
    return frozenset(json.loads(text))


def mapping_reader() -> Callable[[str], dict[str, Any]]:
    """Return a function that parses mappings; equal texts return the same object."""
    return lru_cache(maxsize=None)(lambda text: dict(json.loads(text)))
