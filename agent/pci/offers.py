"""Offers: what lots can give to a guest on its cells, for the assignment of devices, and how
the free devices of each cell rank for it. Pure.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.model.devices import DeviceRecord
from agent.model.instance import PciPolicy
from agent.pci.assignment import Aim, Choice, Flow, Given, Offer, Steps, cheapest
from agent.pci.device_request import FAR, Nearness
from agent.pci.lots import Bits, Cards, Kind, LotCard, Lots, Node, PooledCards, address_key


class LotPlace(NamedTuple):
    """How the devices of a cell rank for the guest's cells."""

    allowed: Bits
    """The slots that may have them."""
    price: int = 0
    """Of one device."""
    far: int = 0
    """1 if the cell is far, else 0."""
    distance: int = 0
    """To the nearest of the guest's cells."""


HERE = LotPlace(-1)
NOWHERE = LotPlace(0)

Places = Mapping[Node, LotPlace]


class PlaceRanking:
    """The places of the cells that have devices, for one guest on any of the host's cells."""

    def __init__(
        self, nodes: frozenset[Node], policies: Sequence[PciPolicy], count: int, nearness: Nearness
    ) -> None:
        """``nodes``: the cells that have devices. ``policies``: of each slot. ``count``: how many
        devices the guest wants.
        """
        self._nodes, self._policies, self._count = tuple(nodes), policies, count
        self._nearness = nearness
        # Each term of a price outweighs the sum of all terms before it: harm to others, unknown
        # cell, another socket, distance, not local.
        self._of_unknown = 2 * count + 1
        self._unknown = LotPlace(self.of_policy("preferred", "legacy"), self._of_unknown)
        # Without the socket of every cell no cell is known to be on the same one.
        self._sockets = {} if None in nearness.sockets.values() else nearness.sockets
        self._distances: dict[int, Sequence[int]] = {}
        # Of the cells that were asked about last.
        self._last: tuple[frozenset[int], Places] | None = None
        self._far: dict[tuple[bool, int], LotPlace] = {}

    @property
    def only_near(self) -> bool:
        """Whether no policy admits devices of other cells: only local ones, and perhaps devices of
        unknown cells.
        """
        return not self.of_policy("preferred", "socket")

    def of_policy(self, *policies: PciPolicy) -> Bits:
        """Return the slots that have one of these policies."""
        return sum(1 << slot for slot, policy in enumerate(self._policies) if policy in policies)

    def near(self, cells: frozenset[int]) -> Places:
        """Return the places of the devices that are not far from ``cells``."""
        places: dict[Node, LotPlace] = {node: HERE for node in self._nodes if node in cells}
        if None in self._nodes and self.only_near:
            places[None] = self._unknown
        return places

    def everywhere(self, cells: frozenset[int]) -> Places:
        """Return the places of all devices: local ones rank first, then those of unknown cells, of
        the same socket, and by distance.
        """
        if self._last is None or self._last[0] != cells:
            self._last = cells, self._places(cells)
        return self._last[1]

    def _places(self, cells: frozenset[int]) -> Places:
        sockets = {self._sockets.get(cell) for cell in cells}
        lines = [self._line(cell) for cell in cells] or [[FAR] * len(self._nodes)]
        return {
            node: self._unknown
            if node is None
            else HERE
            if node in cells
            else self._far_place(
                node in self._sockets and self._sockets[node] in sockets, min(distances)
            )
            for node, distances in zip(self._nodes, zip(*lines, strict=True), strict=True)
        }

    def _far_place(self, beside: bool, distance: int) -> LotPlace:
        """Return the place of a cell that is not the guest's. ``beside``: on the same socket."""
        known = self._far.get((beside, distance))
        if known is None:
            count = self._count
            far = (FAR * count + 1 + distance) * (count + 1) + (not beside)
            known = LotPlace(
                self.of_policy("preferred", *(("socket",) if beside else ())),
                far * (count + 1) * self._of_unknown,
                1,
                distance,
            )
            self._far[beside, distance] = known
        return known

    def _line(self, cell: int) -> Sequence[int]:
        """Return the distances of ``cell`` to all cells that have devices."""
        known = self._distances.get(cell)
        if known is None:
            line = self._nearness.distances.get(cell, {})
            known = self._distances[cell] = [
                FAR if node is None else line.get(node, FAR) for node in self._nodes
            ]
        return known


PlacedDevices = tuple[LotPlace, Sequence[DeviceRecord]]
PlacedKind = tuple[LotPlace, Bits]
"""The place of a kind of devices, and the slots that may have them there."""


@dataclass(frozen=True, slots=True)
class OfferTable:
    """What can be given to a guest on its cells, with the devices of each offer and choice."""

    offers: Sequence[Offer]
    offered: Sequence[PlacedDevices]
    """The place and the devices of each offer, cheapest device first."""
    choices: Sequence[Choice]
    cards: Sequence[tuple[LotPlace, Sequence[LotPlace], Sequence[LotCard]]]
    """The places of the PFs and of the functions, and the cards, of each choice."""

    def cheapest(self, needed: Sequence[int], steps: Steps, aim: Aim = "cheapest") -> Given | None:
        """See :func:`agent.pci.assignment.cheapest`."""
        return cheapest(needed, self.offers, self.choices, steps, aim)

    def cost(self, given: Given) -> tuple[int, int]:
        """Return how many of the given devices are far, and the sum of their distances."""
        counts = [
            (place, sum(flow)) for (place, _), flow in zip(self.offered, given.offers, strict=True)
        ]
        for (head, kinds, _), flow, flows in zip(
            self.cards, given.heads, given.functions, strict=True
        ):
            counts.append((head, sum(flow)))
            counts += [(place, sum(of_kind)) for place, of_kind in zip(kinds, flows, strict=True)]
        return sum(place.far * count for place, count in counts), sum(
            place.distance * count for place, count in counts
        )

    def devices(self, given: Given) -> Iterator[tuple[int, DeviceRecord]]:
        """Yield the given devices, with the slot of each."""
        for (_, devices), flow in zip(self.offered, given.offers, strict=True):
            yield from zip(_slots(flow), devices, strict=False)
        for (_, _, cards), flow, flows in zip(
            self.cards, given.heads, given.functions, strict=True
        ):
            broken = _slots(flow)
            yield from zip(broken, (card.head for card in cards), strict=False)
            whole = sorted(cards[len(broken) :], key=lambda card: address_key(card.head.address))
            for kind, of_kind in enumerate(flows):
                yield from zip(
                    _slots(of_kind),
                    (device for card in whole for device in card.functions[kind]),
                    strict=False,
                )


def offer_table(lots: Lots, places: Places) -> OfferTable:
    """Return what can be given with these places of the cells. Cards with equal places are one
    choice.
    """
    offers: list[tuple[Offer, PlacedDevices]] = []
    groups: dict[Hashable, tuple[PlacedKind, list[PlacedKind], list[int]]] = {}
    for lot in lots.lots:
        offers += _offers(_place_kind((lot.node, lot.slots), places), lot.harm, lot.devices)
    for number, cards in enumerate(lots.cards):
        head, kinds = (
            _place_kind(cards.head, places),
            [_place_kind(kind, places) for kind in cards.kinds],
        )
        if head[1] and any(bits for _, bits in kinds):
            key = head, *kinds, None if len(kinds) == 1 else number
            groups.setdefault(key, (head, kinds, []))[2].append(number)
        else:
            offers += _decided_offers(cards, head, kinds)
    pools = [lots.pooled(tuple(numbers)) for _, _, numbers in groups.values()]
    return OfferTable(
        [offer for offer, _ in offers],
        [devices for _, devices in offers],
        [
            _choice(head, kinds, pool)
            for pool, (head, kinds, _) in zip(pools, groups.values(), strict=True)
        ],
        [
            (head[0], [place for place, _ in kinds], pool.cards)
            for pool, (head, kinds, _) in zip(pools, groups.values(), strict=True)
        ],
    )


def offered_count(lots: Lots, slots: Bits, places: Places) -> int:
    """Return how many devices these slots may have, PFs and functions of a card counted
    separately.
    """
    kinds = [((lot.node, lot.slots), len(lot.devices)) for lot in lots.lots]
    for cards in lots.cards:
        kinds.append((cards.head, len(cards.cards)))
        kinds += zip(cards.kinds, map(len, cards.functions), strict=True)
    return sum(
        count
        for (node, bits), count in kinds
        if node in places and bits & places[node].allowed & slots
    )


def _place_kind(kind: Kind, places: Places) -> PlacedKind:
    place = places.get(kind[0], NOWHERE)
    return place, kind[1] & place.allowed


def _offers(
    kind: PlacedKind, harm: int, devices: Sequence[DeviceRecord]
) -> list[tuple[Offer, PlacedDevices]]:
    place, bits = kind
    return [(Offer(bits, place.price + harm, len(devices)), (place, devices))] if bits else []


def _decided_offers(
    cards: Cards, head: PlacedKind, kinds: Sequence[PlacedKind]
) -> list[tuple[Offer, PlacedDevices]]:
    """Return the offers of cards of which only the PFs or only the functions may be given."""
    offers = _offers(head, 2, cards.heads)
    for kind, functions in zip(kinds, cards.functions, strict=True):
        offers += _offers(kind, 1, functions)
    return offers


def _choice(head: PlacedKind, kinds: Sequence[PlacedKind], pool: PooledCards) -> Choice:
    functions = [
        Offer(bits, place.price + 1, left[0])
        for (place, bits), left in zip(kinds, pool.left, strict=True)
    ]
    return Choice(Offer(head[1], head[0].price + 2, len(pool.cards)), functions, pool.left)


def _slots(flow: Flow) -> list[int]:
    """Return the slot of each given device."""
    return [slot for slot, count in enumerate(flow) for _ in range(count)]
