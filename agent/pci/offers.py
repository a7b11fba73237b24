"""Offers: what lots can give to a guest on its cells, how the free devices of each cell rank for
it, and the cheapest assignment of the offers to slots. Pure.

Without cards that give either their PF or their functions, the sets of devices that can be assigned
together are a matroid, because each device is assigned to one slot: lots are taken from the
cheapest on, and of each as many devices as find a slot, if need be by moving other devices to other
slots. Cards are decided on top of that: first as if they gave both, and where they cannot, once
with more and once with fewer PFs.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agent.errors import Undecided
from agent.model.devices import DeviceRecord
from agent.model.instance import PciPolicy
from agent.pci.device_request import FAR, Nearness
from agent.pci.lots import Bits, Cards, Kind, LotCard, Lots, Node, PooledCards, address_key

Aim = Literal["cheapest", "any", "least"]
# After so many attempts for a lower price the cheapest assignment so far is taken.
ENOUGH = 40
Flow = Sequence[int]
"""The number of devices of a lot that each slot gets."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Devices that are alike."""

    slots: int
    """The slots that may have them, as bits."""
    price: int
    """Of one device."""
    count: int


class Choice(NamedTuple):
    """Cards of which each gives one of ``head`` or its share of ``functions``."""

    head: Offer
    functions: Sequence[Offer]
    left: Sequence[Sequence[int]]
    """For each kind of functions, how many there are if 0, 1, 2 ... PFs are taken; the cards whose
    PFs cost least first.
    """


@dataclass(frozen=True, slots=True)
class Given:
    """An assignment."""

    price: int
    offers: Sequence[Flow]
    """Of each offer."""
    heads: Sequence[Flow]
    """Of the PFs of each choice."""
    functions: Sequence[Sequence[Flow]]
    """Of each kind of functions of each choice."""


class Steps:
    """The budget of a search. Steps are counted and never timed, so that no answer depends on
    load.
    """

    def __init__(self, count: int) -> None:
        self.left = count

    def take(self, count: int) -> None:
        """Take ``count`` steps of the budget.

        :raises Undecided: the budget is used up.
        """
        self.left -= count
        if self.left < 0:
            raise Undecided(
                "no answer after as many attempts to give out devices as are allowed",
                "another host, or ask for fewer kinds of devices",
            )


class _QueueEntry(NamedTuple):
    """An offer with its place: in the list of offers (``choice`` -1), or among the functions of a
    choice; ``kind`` -1 for the head of a choice.
    """

    offer: Offer
    choice: int
    kind: int


Bounds = tuple[tuple[int, int], ...]
"""For each choice the least and the greatest number of PFs that it gives."""


def cheapest(
    needed: Sequence[int],
    offers: Sequence[Offer],
    choices: Sequence[Choice],
    steps: Steps,
    aim: Aim = "cheapest",
) -> Given | None:
    """Return an assignment that gives each slot what it needs, None if there is none.

    ``aim``: ``any`` assignment; the ``cheapest`` one, or almost the cheapest if there are very
    many; or ``least``, the lower bound at which cards give both their PF and their functions.

    :raises Undecided: it took too many steps.
    """
    entries = _queue(offers, choices)
    best: Given | None = None
    # What is still to be tried, each with a price that it cannot go below.
    waiting: list[tuple[int, Bounds]] = [(0, tuple((0, choice.head.count) for choice in choices))]
    attempts = 0
    while waiting and (best is None or attempts < ENOUGH):
        # Until there is an assignment the narrowest bounds come first, then the most promising.
        at = -1 if best is None else min(range(len(waiting)), key=lambda one: waiting[one][0])
        least, bounds = waiting.pop(at)
        if best is not None and least >= best.price:
            break
        steps.take(len(entries))
        attempts += 1
        flows = _fill(
            needed, [(entry.offer.slots, _count(entry, choices, bounds)) for entry in entries]
        )
        if flows is None:
            continue
        price = sum(
            entry.offer.price * sum(flow) for entry, flow in zip(entries, flows, strict=False)
        )
        if best is not None and price >= best.price:
            continue
        given = _collect_given(price, entries, flows, offers, choices, len(needed))
        torn = None if aim == "least" else _first_torn(choices, given)
        if torn is not None:
            waiting += [
                (price, narrower) for narrower in _narrower(bounds, torn, sum(given.heads[torn]))
            ]
            continue
        best = given
        if aim == "any":
            break
    return best


def _queue(offers: Sequence[Offer], choices: Sequence[Choice]) -> list[_QueueEntry]:
    """Return all offers, the cheapest first."""
    entries = [_QueueEntry(offer, -1, place) for place, offer in enumerate(offers)]
    for number, choice in enumerate(choices):
        entries.append(_QueueEntry(choice.head, number, -1))
        entries += [_QueueEntry(offer, number, kind) for kind, offer in enumerate(choice.functions)]
    return sorted(entries, key=lambda entry: entry.offer.price)


def _first_torn(choices: Sequence[Choice], given: Given) -> int | None:
    """Return the first choice that gives more than it has; None if there is none."""
    for number, (choice, head, functions) in enumerate(
        zip(choices, given.heads, given.functions, strict=True)
    ):
        if _torn(choice, head, functions):
            return number
    return None


def _narrower(bounds: Bounds, torn: int, heads: int) -> list[Bounds]:
    """Return the bounds with which the choice ``torn`` gives fewer PFs than ``heads``, and those
    with which it gives so many or more.
    """
    least, most = bounds[torn]
    return [
        (*bounds[:torn], limits, *bounds[torn + 1 :])
        for limits in ((least, heads - 1), (heads, most))
    ]


def _count(entry: _QueueEntry, choices: Sequence[Choice], bounds: Bounds) -> int:
    if entry.choice < 0:
        return entry.offer.count
    least, most = bounds[entry.choice]
    return most if entry.kind < 0 else choices[entry.choice].left[entry.kind][least]


def _torn(choice: Choice, head: Flow, functions: Sequence[Flow]) -> bool:
    """Return whether more functions are given than are left beside the PFs."""
    heads = sum(head)
    return any(sum(flow) > left[heads] for flow, left in zip(functions, choice.left, strict=True))


def _collect_given(
    price: int,
    entries: Sequence[_QueueEntry],
    flows: Sequence[Flow],
    offers: Sequence[Offer],
    choices: Sequence[Choice],
    width: int,
) -> Given:
    nothing: Flow = [0] * width
    of_offers: list[Flow] = [nothing] * len(offers)
    heads: list[Flow] = [nothing] * len(choices)
    functions: list[list[Flow]] = [[nothing] * len(choice.functions) for choice in choices]
    for entry, flow in zip(entries, flows, strict=False):
        if entry.choice < 0:
            of_offers[entry.kind] = flow
        elif entry.kind < 0:
            heads[entry.choice] = flow
        else:
            functions[entry.choice][entry.kind] = flow
    return Given(price, of_offers, heads, functions)


def _fill(needed: Sequence[int], sources: Sequence[tuple[int, int]]) -> list[list[int]] | None:
    """Return how many devices each slot gets of each source (slots as bits, count), of earlier
    sources as many as possible; None if some slot is not filled.

    Sources at the end that are not needed are left out of the result.
    """
    left, missing = list(needed), sum(needed)
    flows: list[list[int]] = []
    for slots, there in sources:
        if not missing:
            break
        count, flow = there, [0] * len(left)
        flows.append(flow)
        for slot, wanted in enumerate(left):
            if wanted and slots >> slot & 1:
                taken = min(count, wanted)
                flow[slot] += taken
                left[slot] -= taken
                missing -= taken
                count -= taken
        while count and missing and (moved := _moved_on(slots, count, left, sources, flows)):
            missing -= moved
            count -= moved
    return None if missing else flows


def _moved_on(
    slots: int,
    count: int,
    left: list[int],
    sources: Sequence[tuple[int, int]],
    flows: list[list[int]],
) -> int:
    """Give up to ``count`` devices of the last source to slots that are full, by moving devices of
    these to other slots. Returns how many.
    """
    # Each slot reached, with the slot and the source from which a device moves there.
    reached: dict[int, tuple[int, int]] = {
        slot: (-1, -1) for slot in range(len(left)) if slots >> slot & 1
    }
    queue = list(reached)
    for slot in queue:
        for number, flow in enumerate(flows[:-1]):
            if flow[slot]:
                for other in range(len(left)):
                    if other not in reached and sources[number][0] >> other & 1:
                        reached[other] = (slot, number)
                        queue.append(other)
    end = next((slot for slot in queue if left[slot]), None)
    if end is None:
        return 0
    path, at = [], end
    while (step := reached[at])[0] >= 0:
        path.append((*step, at))
        at = step[0]
    moved = min([count, left[end], *(flows[number][before] for before, number, _ in path)])
    for before, number, after in path:
        flows[number][before] -= moved
        flows[number][after] += moved
    flows[-1][at] += moved
    left[end] -= moved
    return moved


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
        """See :func:`agent.pci.offers.cheapest`."""
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
