"""Fits whose time grew with the number of like devices, or with all sets of cells: seconds to
minutes each, on hosts of today.

The search went through devices, and gave them out anew for every set of cells. Now it goes through
lots of like devices, and leaves out whole families of sets. The rows are those of the bench; steps
are bounded where they are counted, so that no row depends on time.
"""

import random
from collections.abc import Sequence

import pytest

from agent.model.instance import PciPolicy
from bench.numa_fit import CASES, UNLIKE, Case, Wanted, everywhere

POLICIES: Sequence[PciPolicy] = ("required", "preferred", "legacy", "socket")


def of_chance(number: int) -> Case:
    """A host and a guest of any kind, always the same for a number."""
    chance = random.Random(number)
    host = chance.choice([2, 4, 8, 8, 16, 16, 24, 32])
    guest = chance.randint(1, max(host // 2, 1)) if chance.random() < 0.8 else host
    cards = [
        (chance.randrange(host), chance.choice([0, 1, 2, 8, 16, 64]))
        for _ in range(chance.randint(1, 24))
    ]
    there = {"pf": len(cards), "vf": sum(functions for _, functions in cards)}
    kinds = chance.choice([["vf"], ["vf"], ["pf"], ["pf", "vf"], ["vf", "vf"], ["pf", "vf", "vf"]])
    wanted = [
        Wanted(
            kind,
            chance.choice([1, 1, 2, chance.randint(1, max(1, there[kind] // len(kinds)))]),
            chance.choice(POLICIES),
        )
        for kind in kinds
    ]
    return Case(
        f"{guest} on {host}",
        guest,
        host,
        None,
        cards,
        wanted,
        [cell for cell in range(host) if chance.random() < 0.1],
        [
            sorted(chance.sample(range(host), chance.randint(1, max(1, host // 3))))
            for _ in range(chance.choice([0, 0, 0, 1, 2, 6]))
        ],
        chance.choice(["line", "sockets", "same"]),
        {cell: chance.choice([0, 0, 4, 12, 13]) for cell in range(host)},
        nova=False,
    )


def near_limit(number: int) -> Case:
    """A guest that wants PFs and functions of the same cards, about as many as there are; always
    the same for a number.
    """
    chance = random.Random(number)
    host = chance.choice([4, 8, 16, 16, 16])
    guest = max(1, host // 2) if chance.random() < 0.7 else chance.randint(1, host - 1)
    size = chance.choice([8, 16])
    cards = chance.choice(
        [
            everywhere(host, size),
            everywhere(host, size // 2) * 2,
            UNLIKE[:host],
            [(chance.randrange(host), chance.choice([4, 8, 16, 32])) for _ in range(host)],
        ]
    )
    sizes = sorted(functions for _, functions in cards)
    policy = chance.choice(POLICIES)
    heads = chance.randint(1, guest)
    there = sum(sizes) * (guest / host if policy in ("legacy", "required") else 1)
    functions = (there - heads * sizes[len(sizes) // 2]) * chance.uniform(0.85, 1.1)
    return Case(
        f"{guest} on {host}",
        guest,
        host,
        None,
        cards,
        [
            Wanted("pf", heads, policy),
            Wanted("vf", max(1, int(functions)), chance.choice([policy, policy, "legacy"])),
        ],
        near=chance.choice(["line", "line", "sockets", "same"]),
        nova=False,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
def test_every_row_of_the_bench_is_decided(case: Case) -> None:
    expected = {
        "impossible": "no: devices",
        "9 VFs wanted": "no: devices",
        "PCI unsatisfiable": "no: devices",
        "one cell full": "no: matching",
    }
    networks = {"physnet on a full cell": "no: networks", "30 networks": "no: networks"}
    words = next(
        (said for part, said in {**expected, **networks}.items() if part in case.name), "fits"
    )
    assert case.fit() == words


def test_no_fit_by_chance_is_given_up() -> None:
    assert "undecided" not in {of_chance(number).fit() for number in range(100)}


def test_no_fit_that_wants_about_all_devices_is_given_up() -> None:
    assert "undecided" not in {near_limit(number).fit() for number in range(100)}
