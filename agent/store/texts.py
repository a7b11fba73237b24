"""Conversion between values and the JSON text in the store's columns."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from msgspec.json import Decoder

from agent.model.guest import GuestCell, PlacedCell
from agent.model.host_units import MdevShare
from agent.model.instance import Flavor
from agent.model.names import ProviderUuid

Word = TypeVar("Word", bound=str)
TEXTS_KEPT = 2048
Amount = Annotated[int, Meta(ge=0)]


class _StoredFlavor(Struct, forbid_unknown_fields=True):
    """The text of a flavor."""

    id: str
    name: str
    vcpus: Amount
    memory_mb: Amount
    root_gb: Amount
    ephemeral_gb: Amount
    swap_mb: Amount
    extra_specs: dict[str, str]


class _StoredCell(Struct):
    """The text of a guest's cell on a host cell."""

    host_cell: Amount
    page_size_kib: Amount | None
    memory_mib: Amount
    shared: frozenset[Amount]
    dedicated: frozenset[Amount]
    pins: list[tuple[Amount, Amount]]
    reserved: frozenset[Amount]


class _StoredShare(Struct, forbid_unknown_fields=True):
    """The text of a guest's share of mediated devices."""

    provider: ProviderUuid
    resource_class: str
    count: Amount
    parent: str | None = None
    type: str | None = None


# Built once, because building a decoder costs more than using it.
_FLAVOR, _CELLS = Decoder(_StoredFlavor), Decoder(list[_StoredCell])
_SHARES, _TEXTS = Decoder(list[_StoredShare]), Decoder(dict[str, str])
_NAMES = Decoder(frozenset[str])


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

    :raises ValueError: the text is invalid.
    """
    found = _FLAVOR.decode(text)
    return Flavor(
        id=found.id,
        name=found.name,
        vcpus=found.vcpus,
        memory_mb=found.memory_mb,
        root_gb=found.root_gb,
        ephemeral_gb=found.ephemeral_gb,
        swap_mb=found.swap_mb,
        extra_specs=found.extra_specs,
    )


@lru_cache(TEXTS_KEPT)
def properties_of(text: str) -> Mapping[str, str]:
    """Return the mapping of text to text.

    :raises ValueError: the text is invalid.
    """
    return _TEXTS.decode(text)


def cells_text(cells: Collection[PlacedCell]) -> str:
    """Return the text of the placement of a guest's cells."""
    return json.dumps([_cell_values(cell) for cell in cells]) if cells else "[]"


@lru_cache(TEXTS_KEPT)
def cells_of(text: str) -> tuple[PlacedCell, ...]:
    """Return the placed cells of a text.

    :raises ValueError: the text is invalid.
    """
    return tuple(_cell(found) for found in _CELLS.decode(text))


def mdevs_text(mdevs: Collection[MdevShare]) -> str:
    """Return the text of a guest's shares of mediated devices."""
    return json.dumps([_share_values(share) for share in mdevs]) if mdevs else "[]"


@lru_cache(TEXTS_KEPT)
def mdevs_of(text: str) -> tuple[MdevShare, ...]:
    """Return the shares of mediated devices of a text.

    :raises ValueError: the text is invalid.
    """
    return tuple(_share(found) for found in _SHARES.decode(text))


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


def _cell(found: _StoredCell) -> PlacedCell:
    cell = GuestCell(found.shared, found.dedicated, found.memory_mib)
    return PlacedCell(cell, found.host_cell, found.page_size_kib, dict(found.pins), found.reserved)


def _share_values(share: MdevShare) -> dict[str, Any]:
    return {
        "provider": share.provider,
        "resource_class": share.resource_class,
        "count": share.count,
        "parent": share.parent,
        "type": share.type,
    }


def _share(found: _StoredShare) -> MdevShare:
    return MdevShare(
        provider=found.provider,
        resource_class=found.resource_class,
        count=found.count,
        parent=found.parent,
        type=found.type,
    )


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
    return _NAMES.decode(text)


def mapping_reader() -> Callable[[str], dict[str, Any]]:
    """Return a function that parses mappings; equal texts return the same object."""
    return lru_cache(maxsize=None)(lambda text: dict(json.loads(text)))
