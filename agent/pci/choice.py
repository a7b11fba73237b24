"""Choice of devices for a guest: a device of its own for each one requested, or none. Pure.

A PF cannot be had while one of its VFs is taken, and the reverse. The test whether all devices can
be had is the choice itself, so that no test succeeds where the choice then fails. The search goes
through lots of equal devices, never through devices.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from agent.model.devices import DeviceDemand, DeviceRecord, DeviceRequest
from agent.model.instance import PciPolicy
from agent.model.names import ProviderUuid, number_of, printable
from agent.pci.device_request import Nearness
from agent.pci.lots import Node, Weights, address_key, lots_of, slots_of
from agent.pci.offers import (
    HERE,
    Aim,
    Given,
    LotPlace,
    OfferTable,
    PlaceRanking,
    Places,
    Steps,
    offer_table,
    offered_count,
)

# How many lots may be searched for the devices of one guest, on all sets of cells together, and
# once more for the chosen set.
BUDGET = 25_000
# Up to so many slots, the demand of every combination of slots is computed before the search of
# sets of cells.
FEW = 3
# For so many sizes of cards, the largest ones, it is computed what a PF costs the functions.
SIZES = 4


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why devices cannot be had."""

    reason: str
    """In words."""


def free_devices(devices: Mapping[str, DeviceRecord]) -> list[DeviceRecord]:
    """Return the devices that can be had.

    A device cannot be had while its parent or a child of it is held, while the host itself uses a
    child of it, and while it or its parent has to be cleaned.

    Devices that cost other guests least come first: VFs of a PF that is in use already first, a PF
    with free VFs last. Then by address.
    """
    held = {
        device.address for device in devices.values() if device.holder is not None or device.used
    }
    parents = {
        device.parent
        for device in devices.values()
        if (device.holder is not None or device.serves == "host") and device.parent is not None
    }
    blocked = held | parents
    free = [
        device
        for device in devices.values()
        if device.present
        and device.serves == "guests"
        and device.address not in blocked
        and device.parent not in held
    ]
    with_free_functions = {device.parent for device in free}
    whole = {device.address for device in free}
    return sorted(
        free,
        key=lambda device: (
            device.address in with_free_functions,
            device.parent in whole,
            address_key(device.address),
        ),
    )


class FreeDevices:
    """The free devices as one guest can have them: the :class:`~agent.numa.host.DeviceFit` of a
    guest.
    """

    def __init__(
        self,
        free: Sequence[DeviceRecord],
        requests: Sequence[DeviceRequest],
        policy: PciPolicy = "legacy",
        nearness: Nearness | None = None,
        providers: Mapping[str, ProviderUuid] | None = None,
    ) -> None:
        """``policy``: how near the devices must be unless their request has a policy.
        ``providers``: device address to the provider that counts the device.
        """
        slots = slots_of(requests)
        self._requests, self._slots, self._nearness = requests, slots, nearness or Nearness()
        self._policies = [slot.request.policy or policy for slot in slots]
        self._needed = [slot.count for slot in slots]
        self._lots = lots_of(free, slots, providers or {})
        self._ranking = PlaceRanking(
            self._lots.nodes, self._policies, sum(self._needed), self._nearness
        )
        self._only_near = self._ranking.only_near
        # For a guest that wants no device all devices count, because it leaves them to other
        # guests.
        self._free = (
            self._lots.weighed([1] * len(slots))
            if slots
            else Counter(device.numa_node for device in free)
        )
        # One slot and no cards that give either PF or functions: counting is enough.
        self._simple = len(slots) == 1 and not self._lots.cards
        self._anywhere = (
            self._free.get(None, 0) if self._only_near and "legacy" in self._policies else 0
        )
        self._steps = Steps(BUDGET)
        # Results: by the cells that have devices, whether these are near and enough; by the allowed
        # slots of the cells; and by the places of all devices.
        self._near: dict[frozenset[Node], bool] = {}
        self._had: dict[Hashable, bool] = {}
        self._found: dict[Hashable, tuple[int, int] | None] = {}

    @property
    def wanted(self) -> bool:
        """Whether the guest wants any device."""
        return bool(self._slots)

    @property
    def steps(self) -> int:
        """How many lots were searched so far."""
        return BUDGET - self._steps.left

    def free(self, cell: int) -> int:
        """Return the number of wanted devices on the cell; for a guest that wants none, the number
        of all devices there.
        """
        return self._free.get(cell, 0)

    def kind(self, cell: int) -> Hashable:
        """Return a value that is equal for cells whose devices are interchangeable, if the cells
        are equally far from all others.
        """
        return self._alike.get(cell), None if self._only_near else self._nearness.sockets.get(cell)

    @property
    def demands(self) -> Sequence[DeviceDemand]:
        """Demands that hold for all sets of cells."""
        count = len(self._slots)
        together = (
            range(1, 1 << count)
            if count <= FEW
            else [*(1 << slot for slot in range(count)), (1 << count) - 1]
        )
        weights: list[Weights] = [[bits >> slot & 1 for slot in range(count)] for bits in together]
        weights += self._card_weights()
        return [
            demand
            for weight in weights
            for demand in (self._required_demand(weight), self._preferred_demand(weight))
            if demand is not None
        ]

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:
        """Return how many devices would not be local, and the sum of their distances to the nearest
        cell; None if not all can be had.

        :raises Undecided: the search was given up.
        """
        if self._enough_near(cells):
            return 0, 0
        return None if self._only_near else self._known(cells, "cheapest")

    def least(self, cells: frozenset[int]) -> tuple[int, int] | None:
        """Return a lower bound of the cost for any part of ``cells``; None if the devices cannot be
        had.

        :raises Undecided: the search was given up.
        """
        if self._enough_near(cells):
            return 0, 0
        return None if self._only_near else self._known(cells, "least")

    def chosen(
        self, cells: frozenset[int] | None
    ) -> list[tuple[DeviceRecord, DeviceRequest]] | Shortage:
        """Return the devices that the guest gets on ``cells``; None: the guest floats.

        :raises Undecided: the search was given up.
        """
        # This one set of cells gets a budget as large as that of all sets before, so that their
        # result is not lost.
        self._steps = Steps(BUDGET)
        if cells is None:
            places: Places = dict.fromkeys(self._lots.nodes, HERE)
        else:
            places = (
                self._ranking.near(cells)
                if self._enough_near(cells) or self._only_near
                else self._ranking.everywhere(cells)
            )
        found = self._assign(places, "cheapest")
        if found is None:
            return self._shortage(places, floating=cells is None)
        table, given = found
        devices = sorted(table.devices(given), key=lambda slot_and_device: slot_and_device[0])
        return [(device, self._slots[slot].request) for slot, device in devices]

    # --- where devices are ------------------------------------------------------------------------

    @cached_property
    def _alike(self) -> Mapping[Node, int]:
        """A number for each cell that has devices, equal for cells whose devices are
        interchangeable.
        """
        numbers: dict[Hashable, int] = {}
        return {
            node: numbers.setdefault(self._lots.kind(node), len(numbers))
            for node in self._lots.nodes
        }

    def _enough_near(self, cells: frozenset[int]) -> bool:
        """Return whether all devices can be had without any that is far."""
        near = frozenset(self._lots.nodes & cells)
        enough = sum(self._free.get(node, 0) for node in near) + self._anywhere >= sum(self._needed)
        if self._simple or not enough:
            return enough
        if near not in self._near:
            self._near[near] = self._possible(self._ranking.near(cells))
        return self._near[near]

    def _known(self, cells: frozenset[int], aim: Aim) -> tuple[int, int] | None:
        places = self._ranking.everywhere(cells)
        # The cost is the same if cells whose devices are interchangeable change places.
        key = aim, *sorted((self._alike[node], place) for node, place in places.items())
        if key not in self._found:
            found = self._assign(places, aim)
            self._found[key] = None if found is None else found[0].cost(found[1])
        return self._found[key]

    def _assign(self, places: Places, aim: Aim) -> tuple[OfferTable, Given] | None:
        table = offer_table(self._lots, places)
        if table.choices and not self._possible(places):
            return None
        given = table.cheapest(self._needed, self._steps, aim)
        return None if given is None else (table, given)

    def _possible(self, places: Places) -> bool:
        """Return whether all devices can be had at any price. This is much quicker to find, because
        cards of all cells are alike without prices.
        """
        key = tuple(sorted((self._alike[node], place.allowed) for node, place in places.items()))
        if key not in self._had:
            free = offer_table(
                self._lots, {node: LotPlace(place.allowed) for node, place in places.items()}
            )
            self._had[key] = free.cheapest(self._needed, self._steps, "any") is not None
        return self._had[key]

    # --- what is missing --------------------------------------------------------------------------

    def _card_weights(self) -> list[Weights]:
        """Return weights with which a card counts as much as its PF or as its functions, for cards
        of each size.

        A PF costs the functions of its card, so that the cells may have enough PFs and enough
        functions, and not both.
        """
        heads = 0
        for cards in self._lots.cards:
            heads |= cards.head[1]
        slots = range(len(self._slots))
        found: list[Weights] = [
            [size if heads >> slot & 1 else 1 for slot in slots]
            for size in self._lots.card_sizes[-SIZES:]
        ]
        if not self._ranking.of_policy("preferred"):
            return found
        # What is required has to be on the cells also without what is not.
        required: Sequence[PciPolicy] = ("required", "legacy", "socket")
        return found + [self._of_policies(weights, *required) for weights in found]

    def _required_demand(self, weights: Weights) -> DeviceDemand | None:
        """Return what the guest's cells must have for the slots with a weight; None if devices of
        any other cell will do for one of them.
        """
        if any(self._of_policies(weights, "preferred")):
            return None
        here, beside = (
            self._lots.weighed(weights),
            self._lots.weighed(self._of_policies(weights, "socket")),
        )
        sockets = self._nearness.sockets
        near = {
            cell: here.get(cell, 0)
            + sum(
                count
                for node, count in beside.items()
                if node != cell and self._nearness.same_socket(node, frozenset({cell}))
            )
            for cell in {*sockets, *(node for node in here if node is not None)}
        }
        unknown = self._lots.weighed(self._of_policies(weights, "legacy")).get(None, 0)
        return self._demand(weights, unknown, near, required=True)

    def _preferred_demand(self, weights: Weights) -> DeviceDemand | None:
        """Return what the guest's cells should have for the slots with a weight, because each
        device that they lack is far; None if no device can be far.
        """
        if not any(self._of_policies(weights, "preferred", "socket")):
            return None
        here = self._lots.weighed(weights)
        return self._demand(
            weights,
            here.get(None, 0),
            {cell: count for cell, count in here.items() if cell is not None},
            required=False,
        )

    def _of_policies(self, weights: Weights, *policies: PciPolicy) -> Weights:
        """Return the weights of the slots with one of these policies, 0 for the others."""
        bits = self._ranking.of_policy(*policies)
        return [weight if bits >> slot & 1 else 0 for slot, weight in enumerate(weights)]

    def _demand(
        self, weights: Weights, anywhere: int, near: Mapping[int, int], *, required: bool
    ) -> DeviceDemand | None:
        wanted = sum(weight * count for weight, count in zip(weights, self._needed, strict=True))
        missing = wanted - anywhere
        if missing <= 0:
            return None
        return DeviceDemand(missing, near, required, max(weights))

    def _shortage(self, places: Places, *, floating: bool) -> Shortage:
        for position, request in enumerate(self._requests):
            slots = [
                (1 << number, slot.count)
                for number, slot in enumerate(self._slots)
                if slot.position == position
            ]
            there = [offered_count(self._lots, bit, places) for bit, _ in slots]
            found = sum(
                have
                for have, (_, count) in zip(there, slots, strict=True)
                if have >= count or not request.providers
            )
            if found < request.count:
                return Shortage(
                    f"{number_of(request.count, 'device')} with {_words(request)} wanted, "
                    f"{found} free{'' if floating else ' near enough'}"
                )
        return Shortage(
            f"each of {', '.join(map(_words, self._requests))} is free, but not all at once"
        )


def _words(request: DeviceRequest) -> str:
    kinds = [
        ", ".join(f"{name}={value}" for name, value in sorted(spec.items())) or "any properties"
        for spec in request.specs
    ]
    return printable(" or ".join(kinds))
