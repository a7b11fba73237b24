"""Lots: free devices grouped by what is alike for one guest, so that no search depends on the
number of devices. Pure.

Two devices are alike if the same requests may have them, if they are on the same cell, and if
taking them harms other guests equally. A card of which both the PF and its functions are requested
is kept apart, because it gives either the one or the others.
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
    """One slot: some devices of one request, of one provider if the scheduler allocated
    providers.
    """

    request: DeviceRequest
    count: int
    provider: ProviderUuid | None = None
    """The provider that the scheduler allocated; None without an allocation."""


@dataclass(frozen=True, slots=True)
class Lot:
    """Devices that are alike."""

    node: Node
    """The cell; None if not known."""
    slots: Bits
    """The slots that may have them."""
    harm: int
    """1 if taking a device breaks a whole card, 2 if taking it makes functions of its card
    unusable.
    """
    devices: Sequence[DeviceRecord]
    """The best first."""


@dataclass(frozen=True, slots=True)
class LotCard:
    """A PF with those of its functions that are free, by kind."""

    head: DeviceRecord
    functions: Sequence[Sequence[DeviceRecord]]

    @property
    def size(self) -> int:
        """The number of functions that are lost if the PF is taken."""
        return sum(map(len, self.functions))


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards that are alike: each gives its PF, or its functions."""

    head: Kind
    """The kind of the PFs."""
    kinds: tuple[Kind, ...]
    """The kinds of the functions."""
    cards: Sequence[LotCard]

    def most(self, slots: Bits) -> Iterator[tuple[Node, int]]:
        """Yield how many devices of each cell these slots can have at most."""
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


@dataclass(frozen=True, slots=True)
class Table:
    """What can be given to a guest on its cells, with the devices of each offer and choice."""

    offers: Sequence[Offer]
    offered: Sequence[tuple[LotPlace, Sequence[DeviceRecord]]]
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
            counts += [
                (head, sum(flow)),
                *((place, sum(one)) for place, one in zip(kinds, flows, strict=True)),
            ]
        return sum(place.far * count for place, count in counts), sum(
            place.distance * count for place, count in counts
        )

    def devices(self, given: Given) -> Iterator[tuple[int, DeviceRecord]]:
        """Yield the given devices, with the slot of each."""
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
    """All devices that are free and requested."""

    lots: Sequence[Lot]
    cards: Sequence[Cards]
    nodes: frozenset[Node]
    """The cells of the devices."""

    @staticmethod
    def of_cells(free: Iterable[DeviceRecord]) -> Mapping[Node, int]:
        """Return the number of devices on each cell, of all kinds."""
        return Counter(one.numa_node for one in free)

    def counts(self, slots: Bits) -> Mapping[Node, int]:
        """Return how many devices of each cell these slots can have together, at most."""
        counts: Counter[Node] = Counter()
        for lot in self.lots:
            counts[lot.node] += len(lot.devices) * bool(lot.slots & slots)
        for cards in self.cards:
            for node, count in cards.most(slots):
                counts[node] += count
        return counts

    def kind(self, cell: int) -> Hashable:
        """Return what the cell has, without the addresses of its devices."""
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
        """Return how many devices these slots may have, PFs and functions of a card counted
        separately.
        """
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
        """Return what can be given with these places of the cells. Cards with equal places are one
        choice.
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
    """The requested devices of one card."""

    head: tuple[Kind, DeviceRecord] | None = None
    functions: dict[Kind, list[DeviceRecord]] = field(default_factory=dict)


def slots_of(requests: Iterable[DeviceRequest]) -> list[RequestedDevices]:
    """Return the slots of the requests."""
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
    """Return the requested ones of the devices ``free``, the best first, as lots. ``providers``:
    device address to the provider that counts the device.
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
    """Return a key that sorts addresses by their numbers."""
    return tuple(int(part, 16) for part in address.replace(".", ":").split(":"))


def _each(flow: Flow) -> list[int]:
    """Return the slot of each given device."""
    return [slot for slot, count in enumerate(flow) for _ in range(count)]


def _choice(
    head: tuple[LotPlace, Bits], kinds: Sequence[tuple[LotPlace, Bits]], cards: Sequence[LotCard]
) -> tuple[Choice, Sequence[LotCard]]:
    """Return the choice among cards, and the cards in the order in which their PFs are taken: those
    first that lose the fewest functions.
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
        # Of cards with functions of one kind it is always better to break the smaller one; with
        # several kinds only equal cards can be compared.
        classes[kind, kinds, None if len(kinds) == 1 else tuple(map(len, card.functions))].append(
            card
        )
    return [
        Cards(head, kinds, sorted(cards, key=lambda one: one.size))
        for (head, kinds, _), cards in classes.items()
    ]


class _Sorter:
    """Finds the slots that may have a device, once for all devices of a kind."""

    def __init__(
        self, slots: Sequence[RequestedDevices], providers: Mapping[str, ProviderUuid]
    ) -> None:
        self._slots, self._providers = slots, providers
        self._named = {one.provider for one in slots if one.provider is not None}
        specs = [spec for one in slots for spec in one.request.specs]
        # Addresses tell devices apart only if a request names one.
        self._addresses = {spec["address"].lower() for spec in specs if "address" in spec}
        self._known: dict[Hashable, Bits] = {}

    def slots(self, device: DeviceRecord) -> Bits:
        """Return the slots that may have the device."""
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
