"""Lots: free devices grouped by what is alike for one guest, so that no search depends on the
number of devices. Pure.

Two devices are alike if the same requests may have them, if they are on the same cell, and if
taking them harms other guests equally. A card of which both the PF and its functions are requested
is kept apart, because it gives either the one or the others.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.names import ProviderUuid
from agent.pci.device_request import matches

Node = int | None
Bits = int
"""A set of slots, by their positions."""
Weights = Sequence[int]
"""How much a device counts that a slot has: a number for each slot, 0 for those that are left out,
also at the end.
"""
Kind = tuple[Node, Bits]


@dataclass(frozen=True, slots=True)
class RequestedDevices:
    """One slot: some devices of one request, of one provider if the scheduler allocated
    providers.
    """

    request: DeviceRequest
    position: int
    """The position of the request among those of the guest."""
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


@dataclass(frozen=True)
class Cards:
    """Cards that are alike: each gives its PF, or its functions."""

    head: Kind
    """The kind of the PFs."""
    kinds: tuple[Kind, ...]
    """The kinds of the functions."""
    cards: Sequence[LotCard]

    @cached_property
    def heads(self) -> Sequence[DeviceRecord]:
        """All PFs."""
        return [card.head for card in self.cards]

    @cached_property
    def functions(self) -> Sequence[Sequence[DeviceRecord]]:
        """All functions of each kind."""
        return [
            [device for card in self.cards for device in card.functions[number]]
            for number in range(len(self.kinds))
        ]

    def most(self, weights: Weights) -> Iterator[tuple[Node, int]]:
        """Yield how much these slots can have of each cell at most."""
        head = _weight(self.head[1], weights)
        functions = [(node, _weight(bits, weights)) for node, bits in self.kinds]
        if all(node == self.head[0] for node, weight in functions if weight):
            for card in self.cards:
                whole = sum(
                    weight * len(devices)
                    for (_, weight), devices in zip(functions, card.functions, strict=True)
                )
                yield self.head[0], max(head, whole)
        else:
            yield self.head[0], head * len(self.cards)
            for (node, weight), devices in zip(functions, self.functions, strict=True):
                yield node, weight * len(devices)


@dataclass(frozen=True, slots=True)
class PooledCards:
    """Cards of several lots, of which each gives its PF or its functions."""

    cards: Sequence[LotCard]
    """Those first that lose the fewest functions if their PF is taken."""
    left: Sequence[Sequence[int]]
    """For each kind of functions, how many there are if 0, 1, 2 ... PFs are taken."""


@dataclass(frozen=True, slots=True)
class Lots:
    """All devices that are free and requested."""

    lots: Sequence[Lot]
    cards: Sequence[Cards]
    nodes: frozenset[Node]
    """The cells of the devices."""
    _pooled: dict[tuple[int, ...], PooledCards] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def pooled(self, numbers: tuple[int, ...]) -> PooledCards:
        """Return the cards of these positions, which have as many kinds of functions, as one."""
        known = self._pooled.get(numbers)
        if known is None:
            cards = sorted(
                (card for number in numbers for card in self.cards[number].cards),
                key=lambda card: card.size,
            )
            left = []
            for kind in range(len(self.cards[numbers[0]].kinds)):
                lost = list(accumulate((len(card.functions[kind]) for card in cards), initial=0))
                left.append([lost[-1] - count for count in lost])
            known = self._pooled[numbers] = PooledCards(cards, left)
        return known

    def weighed(self, weights: Weights) -> Mapping[Node, int]:
        """Return how much the slots can have of each cell together, at most."""
        found: Counter[Node] = Counter()
        for lot in self.lots:
            found[lot.node] += len(lot.devices) * _weight(lot.slots, weights)
        for cards in self.cards:
            for node, weight in cards.most(weights):
                found[node] += weight
        return found

    @property
    def card_sizes(self) -> Sequence[int]:
        """How many functions the cards have that give either these or their PF: each number that
        there is.
        """
        return sorted({card.size for cards in self.cards for card in cards.cards} - {0, 1})

    def kind(self, cell: Node) -> Hashable:
        """Return what the cell has, without the addresses of its devices."""
        lots = Counter[Bits]()
        for lot in self.lots:
            if lot.node == cell:
                lots[lot.slots] += len(lot.devices)
        cards = Counter(
            (
                tuple(
                    (None if node == cell else (node,), bits)
                    for node, bits in (alike.head, *alike.kinds)
                ),
                tuple(map(len, card.functions)),
            )
            for alike in self.cards
            if cell in {node for node, _ in (alike.head, *alike.kinds)}
            for card in alike.cards
        )
        return frozenset(lots.items()), frozenset(cards.items())


@dataclass(slots=True)
class _Family:
    """The requested devices of one card."""

    head: tuple[Kind, DeviceRecord] | None = None
    functions: dict[Kind, list[DeviceRecord]] = field(default_factory=dict)


def slots_of(requests: Iterable[DeviceRequest]) -> list[RequestedDevices]:
    """Return the slots of the requests."""
    slots = []
    for position, request in enumerate(requests):
        if request.providers:
            slots += [
                RequestedDevices(request, position, count, uuid)
                for uuid, count in Counter(request.providers).items()
            ]
        else:
            slots.append(RequestedDevices(request, position, request.count))
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
    requested = [(device, bits) for device in free if (bits := sorter.slots(device))]
    with_requested_functions = {
        device.parent for device, _ in requested if device.parent is not None
    }
    contested = with_requested_functions & {device.address for device, _ in requested}
    with_functions, whole = (
        {device.parent for device in free},
        {device.address for device in free},
    )
    lots: dict[tuple[Node, Bits, int], list[DeviceRecord]] = defaultdict(list)
    families: dict[str, _Family] = defaultdict(_Family)
    for device, bits in requested:
        kind = (device.numa_node, bits)
        if device.address in contested:
            families[device.address].head = (kind, device)
        elif device.parent is not None and device.parent in contested:
            families[device.parent].functions.setdefault(kind, []).append(device)
        else:
            harm = 2 if device.address in with_functions else int(device.parent in whole)
            lots[*kind, harm].append(device)
    return Lots(
        [Lot(node, bits, harm, devices) for (node, bits, harm), devices in lots.items()],
        _alike(families.values()),
        frozenset(device.numa_node for device, _ in requested),
    )


def address_key(address: str) -> tuple[int, ...]:
    """Return a key that sorts addresses by their numbers."""
    return tuple(int(part, 16) for part in address.replace(".", ":").split(":"))


def _weight(slots: Bits, weights: Weights) -> int:
    """Return the most that a device counts which these slots may have."""
    return max((weight for slot, weight in enumerate(weights) if slots >> slot & 1), default=0)


def _alike(families: Iterable[_Family]) -> list[Cards]:
    classes: dict[tuple[Kind, tuple[Kind, ...], Hashable], list[LotCard]] = defaultdict(list)
    for family in families:
        assert family.head is not None
        head_kind, head = family.head
        kinds = tuple(sorted(family.functions, key=str))
        card = LotCard(head, [family.functions[kind] for kind in kinds])
        # Of cards with functions of one kind it is always better to break the smaller one; with
        # several kinds only equal cards can be compared.
        classes[
            head_kind, kinds, None if len(kinds) == 1 else tuple(map(len, card.functions))
        ].append(card)
    return [
        Cards(head, kinds, sorted(cards, key=lambda card: card.size))
        for (head, kinds, _), cards in classes.items()
    ]


class _Sorter:
    """Finds the slots that may have a device, once for all devices of a kind."""

    def __init__(
        self, slots: Sequence[RequestedDevices], providers: Mapping[str, ProviderUuid]
    ) -> None:
        self._slots, self._providers = slots, providers
        self._named = {slot.provider for slot in slots if slot.provider is not None}
        specs = [spec for slot in slots for spec in slot.request.specs]
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
            known = self._known[kind] = sum(
                1 << number
                for number, slot in enumerate(self._slots)
                if slot.provider in (None, provider) and matches(device, slot.request)
            )
        return known
