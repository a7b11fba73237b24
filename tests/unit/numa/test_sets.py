"""The search for sets against trying all of them."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import comb
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from agent.errors import Undecided
from agent.model.devices import DeviceDemand
from agent.numa.fit import BETTER, COLUMNS, LOTS, MANY, Search
from agent.numa.host import DeviceFit, NoDeviceFit
from agent.numa.matching import Cells, Hitting, including, match, without


@dataclass(frozen=True)
class Scattered:
    """So many devices on each cell, of which ``count`` are wanted; ``strict``: from the set's own
    cells only.

    ``told``: whether the search is told of it before.
    """

    there: Mapping[int, int]
    count: int
    strict: bool
    told: bool
    distances: Sequence[Sequence[int]]
    wanted = True
    steps = 0

    @property
    def demands(self) -> Sequence[DeviceDemand]:
        near = {cell: count for cell, count in self.there.items() if count}
        return [DeviceDemand(self.count, near, self.strict)] if self.told else []

    def free(self, cell: int) -> int:
        return self.there[cell]

    def kind(self, cell: int) -> Hashable:
        return self.there[cell]

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:
        away = sorted(
            min(self.distances[one][cell] for one in cells)
            for cell, count in self.there.items()
            if cell not in cells
            for _ in range(count)
        )
        missing = max(self.count - sum(self.there[cell] for cell in cells), 0)
        if missing > (0 if self.strict else len(away)):
            return None
        return missing, sum(away[:missing])

    least = cost


@dataclass(frozen=True)
class Case:
    fits: list[list[bool]]
    order: list[int]
    groups: list[frozenset[int]]
    distances: list[list[int]]
    devices: DeviceFit

    def search(self, **more: int) -> Search:
        return Search(
            self.fits,
            self.order,
            self.groups,
            Cells(range(len(self.order)), self.distances),
            self.devices,
            **more,
        )

    def best(self) -> tuple[tuple[int, int, int], tuple[int, ...]] | None:
        """By trying everything."""
        found = []
        for columns in combinations(self.order, len(self.fits)):
            cost = self.devices.cost(frozenset(columns))
            if (
                cost is not None
                and has_room(self.fits, columns)
                and all(group & set(columns) for group in self.groups)
            ):
                found.append(
                    (
                        (
                            *cost,
                            sum(
                                self.distances[one][other]
                                for one, other in combinations(columns, 2)
                            ),
                        ),
                        columns,
                    )
                )
        return min(found, key=lambda one: one[0], default=None)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[bool]], list[int], list[frozenset[int]]]:
    width = draw(st.integers(1, 6))
    row = st.lists(st.booleans(), min_size=width, max_size=width)
    rows = draw(
        st.lists(row, min_size=1, max_size=min(width, 4))
        if draw(st.booleans())
        else st.integers(1, width).map(lambda count: [[True] * width] * count)
    )
    groups = draw(
        st.lists(st.frozensets(st.integers(0, width - 1), min_size=1, max_size=3), max_size=3)
    )
    return rows, draw(st.permutations(range(width))), groups


def has_room(fits: list[list[bool]], columns: tuple[int, ...]) -> bool:
    return any(
        all(line[column] for line, column in zip(fits, permutation, strict=True))
        for permutation in permutations(columns)
    )


def by_chance(random: Random, most: int = 2) -> Case:
    """``most``: groups that the devices need, and cells of one."""
    width = random.randint(2, 6)
    size = range(width)
    chance = random.choice((0.7, 1.0))
    both = random.random() < 0.7
    away = [[random.choice((12, 12, 12, 21, 32)) for _ in size] for _ in size]
    distances = [
        [
            10
            if number == other
            else away[min(number, other)][max(number, other)]
            if both
            else away[number][other]
            for other in size
        ]
        for number in size
    ]
    devices: DeviceFit = NoDeviceFit()
    if random.random() < 0.8:
        devices = Scattered(
            {cell: random.choice((0, 0, 1, 1, 2)) for cell in size},
            random.randint(1, 4),
            random.random() < 0.5,
            random.random() < 0.5,
            distances,
        )
    return Case(
        [[random.random() < chance for _ in size] for _ in range(random.randint(1, min(width, 4)))],
        random.sample(size, width),
        [
            frozenset(random.sample(size, random.randint(1, min(most, width))))
            for _ in range(random.randint(0, most))
        ],
        distances,
        devices,
    )


@pytest.mark.long
@settings(max_examples=1000, deadline=None)
@given(st.randoms().map(lambda random: by_chance(random, most=3)))
def test_the_set_is_the_best_of_all_and_of_equal_ones_the_most_wanted(case):
    expected = case.best()
    event("none" if expected is None else f"far: {expected[0][0]}")
    assert case.search().best() == expected


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(st.randoms().map(lambda random: by_chance(random, most=3)), st.integers(1, 5))
def test_a_search_that_is_given_up_never_says_no_and_never_what_is_not_so(case, budget):
    try:
        found = case.search(budget=budget).best()
    except Undecided:
        return
    expected = case.best()
    assert (found is None) == (expected is None)
    if found is not None:
        assert has_room(case.fits, found[1])
        assert found[0][:2] == case.devices.cost(frozenset(found[1]))


def test_the_search_for_sets_is_short_and_finds_the_best() -> None:
    """Of 300 random guests: steps and tests that a lost bound would add. A set that is tried first
    changes no answer.
    """
    random, answers, taken = Random(17), 0, Counter[str]()
    for _ in range(300):
        case = by_chance(random)
        search, expected = case.search(), case.best()
        assert search.best() == expected
        answers += expected is not None
        taken.update(steps=search._steps, tests=search.tests)
        sets = [
            columns
            for columns in combinations(case.order, len(case.fits))
            if has_room(case.fits, columns)
        ]
        if sets:
            again = case.search()
            again.try_first(random.choice(sets))
            assert again.best() == expected
            taken.update(steps_after=again._steps, tests_after=again.tests)
    assert (answers, taken) == (
        189,
        {"steps": 1115, "tests": 326, "steps_after": 1151, "tests_after": 444},
    )


@pytest.mark.parametrize(
    ("width", "rows", "expected"),
    [
        (12, 5, (((0, 0, 140), (1, 2, 3, 6, 9)), 106, 21)),
        (20, 8, (((0, 0, 447), (0, 1, 2, 5, 7, 15, 17, 18)), 51, 3)),
    ],
)
def test_the_search_for_sets_of_a_large_host_ends_with_a_good_one(
    width: int, rows: int, expected: object
) -> None:
    """On the larger host there are too many sets to search them all."""
    random = Random(17)
    line = [[random.choice((12, 16, 21, 32)) for _ in range(width)] for _ in range(width)]
    distances = [
        [10 if one == other else line[min(one, other)][max(one, other)] for other in range(width)]
        for one in range(width)
    ]
    devices = Scattered(dict.fromkeys(range(width), 1), 1, False, False, distances)
    case = Case([[True] * width] * rows, list(range(width)), [], distances, devices)
    search = case.search()
    assert (search.best(), search._steps, search.tests) == expected
    if width == 12:
        assert search.best() == case.best()


@settings(max_examples=500, deadline=None)
@given(tables())
def test_cells_of_all_networks_are_found_exactly_if_there_are_some(table):
    fits, order, groups = table
    found = Hitting(fits, order, groups).columns()
    there = [
        combination
        for combination in combinations(order, len(fits))
        if has_room(fits, combination) and all(group & set(combination) for group in groups)
    ]
    assert (found is not None) == bool(there)
    if found is not None:
        assert has_room(fits, found)
        assert len(set(found)) == len(fits)
        assert all(group & set(found) for group in groups)


def test_the_search_for_networks_ends_without_a_no():
    groups = [frozenset({number, other}) for number in range(8) for other in range(number)]
    with pytest.raises(Undecided):
        Hitting([[True] * 8] * 6, range(8), groups, budget=2).columns()
    assert Hitting([[True] * 8] * 6, range(8), groups).columns() is None
    assert Hitting([[True] * 8] * 7, range(8), groups).columns() is not None


@pytest.mark.parametrize(("chance", "steps", "found"), [(0.7, 328, 137), (1.0, 327, 138)])
def test_the_search_for_networks_is_short(chance: float, steps: int, found: int) -> None:
    """Of 150 random guests on up to 14 cells with up to 8 networks: steps that a lost bound would
    add.
    """
    random, taken, answers = Random(17), 0, 0
    for _ in range(150):
        rows, columns = random.randint(3, 6), random.randint(8, 14)
        fits = [[random.random() < chance for _ in range(columns)] for _ in range(rows)]
        groups = [
            frozenset(random.sample(range(columns), random.randint(1, 4)))
            for _ in range(random.randint(1, 8))
        ]
        search = Hitting(fits, random.sample(range(columns), columns), groups)
        answers += search.columns() is not None
        taken += search._steps
    assert (taken, answers) == (steps, found)


@pytest.mark.parametrize(
    ("fits", "groups", "found", "steps"),
    [
        # The second column that is tried has to be there still.
        (
            ("000111100", "110000100"),
            ({1, 5, 6, 8}, {1, 5}, {0, 4}, {1, 2, 8}),
            (4, 1),
            4,
        ),
        # The first column that was tried is no longer in the groups that the second one leaves.
        (
            ("01100100", "01111000"),
            ({0, 4}, {0, 1, 2, 6}, {2, 3, 6}, {0, 2, 3, 7}, {2, 4, 5}, {0, 6, 7}, {0, 2}),
            None,
            2,
        ),
    ],
)
def test_the_search_for_networks_leaves_out_exactly_what_it_has_searched(
    fits: Sequence[str],
    groups: Sequence[set[int]],
    found: tuple[int, ...] | None,
    steps: int,
) -> None:
    table = [[mark == "1" for mark in line] for line in fits]
    search = Hitting(table, range(len(table[0])), [frozenset(group) for group in groups])
    assert (search.columns(), search._steps) == (found, steps)


def test_the_cells_of_networks_are_those_in_most_of_them_and_then_the_most_wanted() -> None:
    plain = [[True] * 6] * 3
    groups = [frozenset({0, 4}), frozenset({1, 4}), frozenset({2})]
    for order, wanted in (([0, 1, 2, 3, 4, 5], 0), ([5, 4, 3, 2, 1, 0], 5)):
        found = Hitting(plain, order, groups).columns()
        assert found is not None
        assert ({*found[:2]}, found[2:]) == ({2, 4}, (wanted,))
    # A cell that only one row fits, and that another row needs.
    fits = [[True, False, True], [True, True, False]]
    assert Hitting(fits, range(3), [frozenset({2})]).columns() == (2, 0)
    assert Hitting([[False, True]], range(2), [frozenset({0})]).columns() is None
    assert Hitting([[False, False]], range(2), []).columns() is None


class LastOnly(NoDeviceFit):
    """Devices that only the last set of cells has, which no bound tells."""

    wanted = True

    def kind(self, cell: int) -> Hashable:
        return cell

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:
        return (0, 0) if cells == frozenset(range(6, 12)) else None


def test_a_first_set_is_searched_for_longer_than_a_better_one() -> None:
    distances = [[10 if one == other else 20 for other in range(12)] for one in range(12)]
    case = Case([[True] * 12] * 6, list(range(12)), [], distances, LastOnly())
    search = case.search()
    assert search.best() == ((0, 0, 300), (6, 7, 8, 9, 10, 11))
    assert BETTER < search._steps * 12 < COLUMNS
    with pytest.raises(Undecided, match="no answer after 9 branches of the search") as error:
        case.search(budget=9).best()
    assert error.value.remedy == "another host, or fewer guest cells"


def far_but_for(near: Mapping[tuple[int, int], int], width: int, far: int) -> list[list[int]]:
    """Distances between so many cells: ``far``, but for the pairs of ``near``."""
    return [
        [
            10 if one == other else near.get((min(one, other), max(one, other)), far)
            for other in range(width)
        ]
        for one in range(width)
    ]


class Laborious(NoDeviceFit):
    """Devices of which each set of cells has some, and of which so many lots are searched for each;
    none with cells ``without``.
    """

    wanted = True

    def __init__(self, lots: int, without: frozenset[int] = frozenset()) -> None:
        self.lots, self.without, self.steps = lots, without, 0

    def kind(self, cell: int) -> Hashable:
        return cell

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:
        self.steps += self.lots
        return None if cells & self.without else (0, 0)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (Laborious(LOTS), ((0, 0, 12), (2, 3))),
        (Laborious(LOTS + 1), ((0, 0, 20), (0, 1))),
        (Laborious(LOTS + 1, frozenset({0})), ((0, 0, 20), (1, 2))),
    ],
)
def test_after_many_lots_of_devices_only_a_first_set_is_searched_for(
    devices: Laborious, expected: object
) -> None:
    distances = far_but_for({(2, 3): 12}, 4, 20)
    case = Case([[True] * 4] * 2, list(range(4)), [], distances, devices)
    assert case.search().best() == expected


def test_of_equal_sets_of_a_large_host_the_most_wanted_replaces_a_grown_one() -> None:
    """A set that grows from cell 0 begins with cell 7, which is near to no other, so that only the
    search finds the set of cell 0 that is as good as the grown one of cells 1 to 3.
    """
    width, near = 52, dict.fromkeys([(0, 5), (0, 6), (5, 6), (1, 2), (1, 3), (2, 3)], 12)
    near[0, 7] = 11
    distances = far_but_for(near, width, 40)
    case = Case([[True] * width] * 3, list(range(width)), [], distances, NoDeviceFit())
    assert comb(width, 3) > MANY
    assert case.search().best() == ((0, 0, 36), (0, 5, 6))


def test_a_search_that_is_given_up_says_after_what() -> None:
    groups = [frozenset({number, other}) for number in range(8) for other in range(number)]
    with pytest.raises(Undecided, match="no answer after as many attempts") as error:
        Hitting([[True] * 8] * 6, range(8), groups, budget=2).columns()
    assert error.value.remedy == "another host, or fewer networks"
    # As many steps as are allowed may be taken.
    one = [frozenset({0})]
    assert Hitting([[True] * 2], range(2), one, budget=1).columns() == (0,)
    with pytest.raises(Undecided):
        Hitting([[True] * 2], range(2), one, budget=0).columns()


def test_a_matching_changes_by_one_column_exactly_if_it_can() -> None:
    random, changes = Random(17), set()
    for _ in range(400):
        rows, width = random.randint(1, 4), random.randint(2, 5)
        fits = [[random.random() < 0.5 for _ in range(width)] for _ in range(rows)]
        order = random.sample(range(width), width)
        matching = match(fits, order)
        if matching is None:
            continue
        before, column = list(matching), random.randrange(width)
        others = [other for other in order if other != column]
        left = without(fits, matching, column, others)
        possible = any(has_room(fits, some) for some in combinations(others, rows))
        assert (left is not None) == possible
        if left is not None:
            assert column not in left
            assert is_matching(fits, left)
            assert len({*matching} - {*left}) <= 1
        kept = random.sample(matching, random.randint(0, rows - 1))
        joined = including(fits, matching, column, kept)
        sets = [
            some
            for some in combinations(range(width), rows)
            if {column, *kept} <= {*some} and {*some} <= {column, *matching}
        ]
        assert (joined is not None) == any(has_room(fits, some) for some in sets)
        if joined is not None:
            assert {column, *kept} <= {*joined}
            assert is_matching(fits, joined)
        assert matching == before
        changes |= {("without", possible), ("with", joined is not None)}
    assert len(changes) == 4


def is_matching(fits: list[list[bool]], columns: list[int]) -> bool:
    return len(set(columns)) == len(fits) and all(
        line[column] for line, column in zip(fits, columns, strict=True)
    )


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(tables())
def test_a_matching_is_found_exactly_if_there_is_one(table):
    fits, order, _ = table
    columns = tuple(order[: len(fits)])
    found = match(fits, columns)
    assert (found is not None) == has_room(fits, columns)
    if found is not None:
        assert sorted(found) == sorted(columns)
        assert all(line[column] for line, column in zip(fits, found, strict=True))
