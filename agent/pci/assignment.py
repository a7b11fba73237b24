"""Cheapest assignment of devices to slots, out of lots of equal devices that each have a price per
device. Pure.

Without cards that give either their PF or their functions, the sets of devices that can be assigned
together are a matroid, because each device is assigned to one slot: lots are taken from the
cheapest on, and of each as many devices as find a slot, if need be by moving other devices to other
slots. Cards are decided on top of that: first as if they gave both, and where they cannot, once
with more and once with fewer PFs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agent.errors import Undecided

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
