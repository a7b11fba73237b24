"""Free devices in lots of those that are alike for what one guest asks, so that no search depends
on how many there are. Pure.

Two devices are alike if the same requests may have them, on the same cell, and if it harms others
as much that they are taken. A card of which both the PF and its functions are asked for stands
apart, because it gives either the one or the others.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.names import ProviderUuid
from agent.pci.assignment import Aim, Choice, Flow, Given, Offer, Steps, cheapest
from agent.pci.device_request import matches

Node = int | None
Bits = int
"""A set of slots, by their positions."""
Kind = tuple[Node, Bits]


@dataclass(frozen=True, slots=True)
class RequestedDevices:
    """So many devices of one request, of the provider that the scheduler took them from, if it said
    so.
    """

    request: DeviceRequest
    count: int
    provider: ProviderUuid | None = None


@dataclass(frozen=True, slots=True)
class Lot:
    """Devices that are alike, the best first. ``harm``: 1 if taking one breaks a whole card, 2 if
    it takes functions from others.
    """

    node: Node
    slots: Bits
    harm: int
    devices: Sequence[DeviceRecord]


@dataclass(frozen=True, slots=True)
class LotCard:
    """A PF, and those of its functions that are free, by kind."""

    head: DeviceRecord
    functions: Sequence[Sequence[DeviceRecord]]

    @property
    def size(self) -> int:
        """How many functions are lost if the PF is taken."""
        return sum(map(len, self.functions))


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards that are alike: each gives its PF, or its functions. ``kinds``: those of
    the functions.
    """

    head: Kind
    kinds: tuple[Kind, ...]
    cards: Sequence[LotCard]

    def most(self, slots: Bits) -> Iterator[tuple[Node, int]]:
        """How many devices of each cell these slots can have at most."""
        head = len(self.cards) * bool(self.head[1] & slots)
        functions = [
            (node, sum(len(card.functions[number]) for card in self.cards))
            for number, (node, bits) in enumerate(self.kinds)
            if bits & slots
        ]
        if {node for node, _ in functions} == {self.head[0]}:
            # Each card gives at least as many functions as PFs.
            yield self.head[0], sum(count for _, count in functions)
        else:
            yield self.head[0], head
            yield from functions


@dataclass(frozen=True, slots=True)
class LotPlace:
    """How a cell's devices look from the guest's cells: the slots that may have them, the price of
    one, if it is far, and how far.
    """

    allowed: Bits
    price: int = 0
    far: int = 0
    distance: int = 0


HERE = LotPlace(-1)


@dataclass(frozen=True, slots=True)
class Table:
    """What can be given to a guest on its cells, and the devices behind it, cheapest first.
    ``cards``: those of each choice.
    """

    offers: Sequence[Offer]
    offered: Sequence[tuple[LotPlace, Sequence[DeviceRecord]]]
    choices: Sequence[Choice]
    cards: Sequence[tuple[LotPlace, Sequence[LotPlace], Sequence[LotCard]]]

    def cheapest(self, needed: Sequence[int], steps: Steps, aim: Aim = "cheapest") -> Given | None:
        """See :func:`agent.pci.assignment.cheapest`."""
        return cheapest(needed, self.offers, self.choices, steps, aim)

    def cost(self, given: Given) -> tuple[int, int]:
        """How many of those that are given are far, and the sum of their distances."""
        counts = [
            (place, sum(flow)) for (place, _), flow in zip(self.offered, given.offers, strict=True)
        ]
        for (head, kinds, _), flow, flows in zip(
            self.cards, given.heads, given.functions, strict=True
        ):
            counts += [
                (head, sum(flow)),
                *((place, sum(one)) for place, one in zip(kinds, flows, strict=True)),
            ]
        return sum(place.far * count for place, count in counts), sum(
            place.distance * count for place, count in counts
        )

    def devices(self, given: Given) -> Iterator[tuple[int, DeviceRecord]]:
        """The devices that are given, with the slot of each."""
        for (_, rows), flow in zip(self.offered, given.offers, strict=True):
            yield from zip(_each(flow), rows, strict=False)
        for (_, _, cards), flow, flows in zip(
            self.cards, given.heads, given.functions, strict=True
        ):
            broken = _each(flow)
            yield from zip(broken, (card.head for card in cards), strict=False)
            whole = sorted(cards[len(broken) :], key=lambda card: address_key(card.head.address))
            for kind, one in enumerate(flows):
                yield from zip(
                    _each(one),
                    (row for card in whole for row in card.functions[kind]),
                    strict=False,
                )


@dataclass(frozen=True, slots=True)
class Lots:
    """All that is free and asked for."""

    lots: Sequence[Lot]
    cards: Sequence[Cards]
    nodes: frozenset[Node]

    @staticmethod
    def of_cells(free: Iterable[DeviceRecord]) -> Mapping[Node, int]:
        """How many devices of each cell there are, whatever they are."""
        return Counter(one.numa_node for one in free)

    def counts(self, slots: Bits) -> Mapping[Node, int]:
        """How many devices of each cell these slots can have together, at most."""
        counts: Counter[Node] = Counter()
        for lot in self.lots:
            counts[lot.node] += len(lot.devices) * bool(lot.slots & slots)
        for cards in self.cards:
            for node, count in cards.most(slots):
                counts[node] += count
        return counts

    def kind(self, cell: int) -> Hashable:
        """What the cell has, however its devices are called."""
        lots = Counter[Bits]()
        for lot in self.lots:
            if lot.node == cell:
                lots[lot.slots] += len(lot.devices)
        cards = Counter(
            (
                tuple(
                    (None if node == cell else (node,), bits)
                    for node, bits in (one.head, *one.kinds)
                ),
                tuple(map(len, card.functions)),
            )
            for one in self.cards
            if cell in {node for node, _ in (one.head, *one.kinds)}
            for card in one.cards
        )
        return frozenset(lots.items()), frozenset(cards.items())

    def total(self, slots: Bits, places: Mapping[Node, LotPlace]) -> int:
        """How many devices these slots may have, each by itself."""
        kinds = [((one.node, one.slots), len(one.devices)) for one in self.lots]
        for cards in self.cards:
            kinds += [(cards.head, len(cards.cards))]
            kinds += [
                (kind, sum(len(card.functions[number]) for card in cards.cards))
                for number, kind in enumerate(cards.kinds)
            ]
        return sum(
            count
            for (node, bits), count in kinds
            if node in places and bits & places[node].allowed & slots
        )

    def table(self, places: Mapping[Node, LotPlace]) -> Table:
        """What can be given, if cells look so from the guest's. Cards that look alike from there
        are one choice.
        """
        offers: list[tuple[Offer, tuple[LotPlace, Sequence[DeviceRecord]]]] = []
        alike: dict[
            Hashable, tuple[tuple[LotPlace, Bits], list[tuple[LotPlace, Bits]], list[LotCard]]
        ] = {}

        def seen(kind: Kind) -> tuple[LotPlace, Bits]:
            place = places.get(kind[0], NOWHERE)
            return place, kind[1] & place.allowed

        for lot in self.lots:
            place, bits = seen((lot.node, lot.slots))
            if bits:
                offers.append(
                    (Offer(bits, place.price + lot.harm, len(lot.devices)), (place, lot.devices))
                )
        for number, one in enumerate(self.cards):
            head, kinds = seen(one.head), [seen(kind) for kind in one.kinds]
            if head[1] and any(bits for _, bits in kinds):
                key = head, *kinds, None if len(kinds) == 1 else number
                alike.setdefault(key, (head, kinds, []))[2].extend(one.cards)
                continue
            rows = [(head, 2, [card.head for card in one.cards])]
            rows += [
                (kind, 1, [row for card in one.cards for row in card.functions[place]])
                for place, kind in enumerate(kinds)
            ]
            offers += [
                (Offer(bits, place.price + harm, len(devices)), (place, devices))
                for (place, bits), harm, devices in rows
                if bits
            ]
        choices = [_choice(*one) for one in alike.values()]
        return Table(
            [one for one, _ in offers],
            [one for _, one in offers],
            [one for one, _ in choices],
            [
                (head[0], [place for place, _ in kinds], cards)
                for (_, cards), (head, kinds, _) in zip(choices, alike.values(), strict=True)
            ],
        )


NOWHERE = LotPlace(0)


@dataclass(slots=True)
class _Family:
    """The devices of one card that somebody asks for."""

    head: tuple[Kind, DeviceRecord] | None = None
    functions: dict[Kind, list[DeviceRecord]] = field(default_factory=dict)


def slots_of(requests: Iterable[DeviceRequest]) -> list[RequestedDevices]:
    """What the requests ask for."""
    slots = []
    for request in requests:
        if request.providers:
            slots += [
                RequestedDevices(request, count, uuid)
                for uuid, count in Counter(request.providers).items()
            ]
        else:
            slots.append(RequestedDevices(request, request.count))
    return slots


def lots_of(
    free: Sequence[DeviceRecord],
    slots: Sequence[RequestedDevices],
    providers: Mapping[str, ProviderUuid],
) -> Lots:
    """The devices of ``free``, the best first, by what the slots may have. ``providers``: which one
    counts the device of an address.
    """
    sorter = _Sorter(slots, providers)
    asked = [(one, bits) for one in free if (bits := sorter.slots(one))]
    cards, heads = (
        {one.parent for one, _ in asked if one.parent is not None},
        {one.address for one, _ in asked},
    )
    contested = cards & heads
    with_functions, whole = {one.parent for one in free}, {one.address for one in free}
    lots: dict[tuple[Node, Bits, int], list[DeviceRecord]] = defaultdict(list)
    families: dict[str, _Family] = defaultdict(_Family)
    for one, bits in asked:
        kind = (one.numa_node, bits)
        if one.address in contested:
            families[one.address].head = (kind, one)
        elif one.parent in contested:
            assert one.parent is not None
            families[one.parent].functions.setdefault(kind, []).append(one)
        else:
            harm = (
                2
                if one.address in with_functions
                else int(one.parent is not None and one.parent in whole)
            )
            lots[*kind, harm].append(one)
    return Lots(
        [Lot(node, bits, harm, devices) for (node, bits, harm), devices in lots.items()],
        _alike(families.values()),
        frozenset(one.numa_node for one, _ in asked),
    )


def address_key(address: str) -> tuple[int, ...]:
    """Addresses in the order of their numbers."""
    return tuple(int(part, 16) for part in address.replace(".", ":").split(":"))


def _each(flow: Flow) -> list[int]:
    """The slot of each device that is given."""
    return [slot for slot, count in enumerate(flow) for _ in range(count)]


def _choice(
    head: tuple[LotPlace, Bits], kinds: Sequence[tuple[LotPlace, Bits]], cards: Sequence[LotCard]
) -> tuple[Choice, Sequence[LotCard]]:
    """The choice among cards, and they in the order in which their PFs are taken: those first with
    which least is lost.
    """
    ordered = sorted(cards, key=lambda one: one.size)
    left = []
    for kind in range(len(kinds)):
        lost = list(accumulate((len(card.functions[kind]) for card in ordered), initial=0))
        left.append([lost[-1] - one for one in lost])
    functions = [
        Offer(bits, place.price + 1, there[0])
        for (place, bits), there in zip(kinds, left, strict=True)
    ]
    return Choice(Offer(head[1], head[0].price + 2, len(cards)), functions, left), ordered


def _alike(families: Iterable[_Family]) -> list[Cards]:
    classes: dict[tuple[Kind, tuple[Kind, ...], Hashable], list[LotCard]] = defaultdict(list)
    for family in families:
        assert family.head is not None
        kind, head = family.head
        kinds = tuple(sorted(family.functions, key=str))
        card = LotCard(head, [family.functions[one] for one in kinds])
        # Of cards with functions of one kind the smaller one is always the better to break; with
        # several kinds only equal ones compare.
        classes[kind, kinds, None if len(kinds) == 1 else tuple(map(len, card.functions))].append(
            card
        )
    return [
        Cards(head, kinds, sorted(cards, key=lambda one: one.size))
        for (head, kinds, _), cards in classes.items()
    ]


class _Sorter:
    """Knows which slots may have a device, and asks once for all that are of a kind."""

    def __init__(
        self, slots: Sequence[RequestedDevices], providers: Mapping[str, ProviderUuid]
    ) -> None:
        self._slots, self._providers = slots, providers
        self._named = {one.provider for one in slots if one.provider is not None}
        specs = [spec for one in slots for spec in one.request.specs]
        # Addresses tell devices apart only if somebody asks by them.
        self._addresses = {spec["address"].lower() for spec in specs if "address" in spec}
        self._known: dict[Hashable, Bits] = {}

    def slots(self, device: DeviceRecord) -> Bits:
        """The slots that may have the device."""
        provider = self._providers.get(device.address) if self._named else None
        address = device.address if device.address.lower() in self._addresses else None
        kind = (
            device.type,
            device.vendor_id,
            device.product_id,
            tuple(device.tags.items()),
            address,
            provider,
        )
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._asked(device, provider)
        return known

    def _asked(self, device: DeviceRecord, provider: object) -> Bits:
        return sum(
            1 << number
            for number, slot in enumerate(self._slots)
            if slot.provider in (None, provider) and matches(device, slot.request)
        )
