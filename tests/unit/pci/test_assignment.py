"""The assignment of devices to slots against trying everything."""

from collections.abc import Sequence
from functools import cache
from itertools import product
from random import Random

import pytest

from agent.errors import Undecided
from agent.pci.offers import ENOUGH, Choice, Flow, Given, Offer, Steps, cheapest

Case = tuple[list[int], list[Offer], list[Choice]]


def by_chance(random: Random) -> Case:
    """A few slots and devices, and cards that give their PF or their functions."""
    width = random.randint(1, 3)

    def offer(count: int) -> Offer:
        return Offer(random.randint(1, (1 << width) - 1), random.randint(0, 3), count)

    choices = []
    for _ in range(random.randint(0, 2)):
        kinds = range(random.randint(1, 2))
        cards = sorted(
            ([random.randint(0, 2) for _ in kinds] for _ in range(random.randint(1, 3))), key=sum
        )
        left = [
            [sum(card[kind] for card in cards[heads:]) for heads in range(len(cards) + 1)]
            for kind in kinds
        ]
        choices.append(Choice(offer(len(cards)), [offer(left[kind][0]) for kind in kinds], left))
    offers = [offer(random.randint(1, 2)) for _ in range(random.randint(0, 3))]
    return [random.randint(0, 2) for _ in range(width)], offers, choices


def least_price(needed: Sequence[int], offers: Sequence[Offer]) -> int | None:
    """The least price, by trying each offer for each device; None if it cannot be had."""

    @cache
    def price(needed: tuple[int, ...], left: tuple[int, ...]) -> int | None:
        slot = next((slot for slot, count in enumerate(needed) if count), None)
        if slot is None:
            return 0
        rest = (*needed[:slot], needed[slot] - 1, *needed[slot + 1 :])
        found = []
        for place, offer in enumerate(offers):
            if left[place] and offer.slots >> slot & 1:
                more = price(rest, (*left[:place], left[place] - 1, *left[place + 1 :]))
                if more is not None:
                    found.append(offer.price + more)
        return min(found, default=None)

    return price(tuple(needed), tuple(offer.count for offer in offers))


def with_heads(choices: Sequence[Choice], heads: Sequence[int]) -> list[Offer]:
    """What there is if each choice gives up to so many PFs."""
    return [
        Offer(offer.slots, offer.price, count)
        for choice, given in zip(choices, heads, strict=True)
        for offer, count in (
            (choice.head, given),
            *(
                (functions, left[given])
                for functions, left in zip(choice.functions, choice.left, strict=True)
            ),
        )
    ]


def best_price(case: Case) -> int | None:
    """The least price of all that there may be."""
    needed, offers, choices = case
    prices = [
        least_price(needed, offers + with_heads(choices, heads))
        for heads in product(*(range(choice.head.count + 1) for choice in choices))
    ]
    return min((price for price in prices if price is not None), default=None)


def flows_of(case: Case, given: Given) -> list[tuple[Offer, Flow]]:
    """Each offer with what is given of it."""
    _, offers, choices = case
    flows = list(zip(offers, given.offers, strict=True))
    for choice, head, functions in zip(choices, given.heads, given.functions, strict=True):
        flows.append((choice.head, head))
        flows += zip(choice.functions, functions, strict=True)
    return flows


def has_everything(case: Case, given: Given, *, torn: bool) -> bool:
    """Whether each slot has what it needs, of what it may have, and no more than there is;
    ``torn``: cards may give both.
    """
    needed, _, choices = case
    flows = flows_of(case, given)
    return (
        all(sum(flow[slot] for _, flow in flows) == count for slot, count in enumerate(needed))
        and all(sum(flow) <= offer.count for offer, flow in flows)
        and all(
            count == 0 or offer.slots >> slot & 1
            for offer, flow in flows
            for slot, count in enumerate(flow)
        )
        and given.price == sum(offer.price * sum(flow) for offer, flow in flows)
        and (
            torn
            or all(
                sum(flow) <= left[sum(head)]
                for choice, head, functions in zip(
                    choices, given.heads, given.functions, strict=True
                )
                for flow, left in zip(functions, choice.left, strict=True)
            )
        )
    )


def test_the_assignment_is_the_cheapest_of_all() -> None:
    """Of 1,500 random hosts: the steps are what a worse order of the search would add to."""
    random, answers, steps = Random(17), 0, Steps(1_000_000)
    for _ in range(1500):
        case = by_chance(random)
        given, expected = cheapest(*case, steps), best_price(case)
        assert (None if given is None else given.price) == expected
        assert given is None or has_everything(case, given, torn=False)
        answers += expected is not None
    assert (answers, 1_000_000 - steps.left) == (1154, 6589)


def test_any_assignment_is_one_if_there_is_one() -> None:
    random = Random(18)
    for _ in range(500):
        case = by_chance(random)
        given = cheapest(*case, Steps(10_000), "any")
        assert (given is None) == (best_price(case) is None)
        assert given is None or has_everything(case, given, torn=False)


def test_the_lower_bound_is_the_price_if_cards_gave_both() -> None:
    random = Random(19)
    for _ in range(500):
        case = needed, offers, choices = by_chance(random)
        given = cheapest(*case, Steps(10_000), "least")
        both = [offer for choice in choices for offer in (choice.head, *choice.functions)]
        assert (None if given is None else given.price) == least_price(needed, offers + both)
        assert given is None or has_everything(case, given, torn=True)


CARDS = Choice(Offer(5, 0, 2), [Offer(3, 0, 2), Offer(1, 0, 4)], [[2, 1, 0], [4, 2, 0]])
TWO_KINDS = [
    Choice(Offer(1, 3, 2), [Offer(5, 0, 1), Offer(4, 0, 2)], [[1, 0, 0], [2, 2, 0]]),
    Choice(Offer(7, 2, 2), [Offer(6, 3, 1), Offer(2, 3, 2)], [[1, 0, 0], [2, 2, 0]]),
]


@pytest.mark.parametrize(
    ("case", "price"),
    [(([2, 0, 1], [Offer(5, 2, 2)], [CARDS]), 0), (([2, 2, 2], [], TWO_KINDS), 8)],
)
def test_the_most_promising_is_tried_first_and_all_that_may_be_cheaper(
    case: Case, price: int
) -> None:
    given = cheapest(*case, Steps(1000))
    assert given is not None
    assert given.price == best_price(case) == price


def cards_of_one_function(wanted: int) -> Case:
    """Twice as many cards as PFs and as functions are wanted, all of other prices; the cards that
    are the cheapest for the one are so for the other.
    """
    choices = [
        Choice(Offer(1, number, 1), [Offer(2, number, 1)], [[1, 0]]) for number in range(2 * wanted)
    ]
    return [wanted, wanted], [], choices


def test_an_assignment_is_searched_for_longer_than_a_cheaper_one() -> None:
    few, many = cards_of_one_function(10), cards_of_one_function(ENOUGH + 5)
    steps = Steps(1_000_000)
    given = cheapest(*many, steps)
    assert given is not None
    assert has_everything(many, given, torn=False)
    assert 1_000_000 - steps.left > ENOUGH * 2 * len(many[2])
    steps = Steps(1_000_000)
    given = cheapest(*few, steps)
    assert given is not None
    assert has_everything(few, given, torn=False)
    assert 1_000_000 - steps.left == ENOUGH * 2 * len(few[2])


def test_a_search_that_is_given_up_says_after_what() -> None:
    case: Case = ([1], [Offer(1, 0, 1)], [])
    assert cheapest(*case, Steps(1)) is not None
    with pytest.raises(
        Undecided,
        match="no answer after as many attempts to give out devices as are allowed",
    ) as error:
        cheapest(*case, Steps(0))
    assert error.value.remedy == "another host, or ask for fewer kinds of devices"
