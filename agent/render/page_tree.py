"""The provider tree of the page: each provider, with a bar for each resource class. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.model.inventory import capacity

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bar:
    """One resource class of one provider. The bar is as long as what can be used and reserved,
    overcommitment included; its parts are in percent of it.
    """

    resource_class: str
    used: int | None
    """None if unknown."""
    reserved: int
    total: int
    ratio: float
    capacity: int
    reserved_part: float
    used_part: float
    total_mark: float | None
    """Where the total ends, if the class is overcommitted."""

    @property
    def free(self) -> int | None:
        """What can still be allocated; negative if more is used; None if unknown."""
        return None if self.used is None else self.capacity - self.used

    @property
    def over(self) -> bool:
        """Whether more is used than can be allocated."""
        return self.free is not None and self.free < 0


@dataclass(frozen=True, slots=True)
class PageProvider:
    """One provider, with its children."""

    name: str
    uuid: str | None
    generation: int | None
    owned: bool
    bars: tuple[Bar, ...]
    traits: tuple[str, ...]
    aggregates: tuple[str, ...]
    holders: tuple[int, ...]
    """The guests that are known to have an allocation of it, by their places."""
    children: tuple["PageProvider", ...]


def bars_of(providers: Sequence[PageProvider]) -> list[Bar]:
    """Return the bars of providers and of everything below them."""
    return [bar for provider in providers for bar in (*provider.bars, *bars_of(provider.children))]


def provider_tree(
    rows: Sequence[Document], holders: Mapping[str, Sequence[int]]
) -> tuple[PageProvider, ...]:
    """Return the roots of the rows of a tree, parents first. Where no provider has a uuid yet, the
    rows after the first are its children.

    ``holders``: the places of the guests with an allocation, by the provider's uuid.
    """
    below: dict[str | None, list[int]] = {}
    known = {row["uuid"] for row in rows if row["uuid"] is not None}
    for place, row in enumerate(rows):
        parent = row["parent"] if row["parent"] in known else None
        below.setdefault(parent, []).append(place)
    tops = below.get(None, [])
    if not known and tops:
        first, *others = (_provider(rows[place], (), ()) for place in tops)
        return (replace(first, children=tuple(others)),)

    def made(place: int) -> PageProvider:
        uuid = rows[place]["uuid"]
        beneath = below.get(uuid, []) if uuid is not None else []
        return _provider(rows[place], holders.get(uuid, ()), tuple(map(made, beneath)))

    return tuple(map(made, tops))


def _provider(
    row: Document, holders: Sequence[int], children: tuple[PageProvider, ...]
) -> PageProvider:
    return PageProvider(
        name=row["name"],
        uuid=row["uuid"],
        generation=row["generation"],
        owned=row["owned"],
        bars=tuple(bar_of(name, record) for name, record in row["inventories"].items()),
        traits=tuple(row["traits"]),
        aggregates=tuple(row["aggregates"]),
        holders=tuple(holders),
        children=children,
    )


def bar_of(resource_class: str, record: Document) -> Bar:
    """Return the bar of one inventory record with its ``used`` amount."""
    room, used = capacity(record), record["used"]
    reserved, total = record["reserved"], record["total"]
    length = max(room + reserved, total, reserved + (used or 0), 1)
    return Bar(
        resource_class=resource_class,
        used=used,
        reserved=reserved,
        total=total,
        ratio=record["allocation_ratio"],
        capacity=room,
        reserved_part=_percent(reserved, length),
        used_part=_percent(used or 0, length),
        total_mark=_percent(total, length) if total < room + reserved else None,
    )


def _percent(amount: int, whole: int) -> float:
    return round(100 * amount / whole, 2)
