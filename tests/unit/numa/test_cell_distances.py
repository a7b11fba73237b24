"""What the search computes in few steps, against the definitions."""

from collections.abc import Hashable, Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.numa.matching import Cells, Distances, interchangeable, match
from agent.numa.pair import Pairs, can_pin, pin
from tests.unit.numa.cases import Case, cases
from tests.unit.numa.oracle import sits

# ---
# What the fit of cells computes in few steps, by its definition. Slow, and nothing clever.


Matrix = Sequence[Sequence[int]]


def distance(distances: Matrix, order: Sequence[int], place: int, other: int) -> int:
    """Between two positions: as the more wanted one of the two says."""
    return distances[order[min(place, other)]][order[max(place, other)]]


def apart(distances: Matrix, order: Sequence[int], places: Sequence[int]) -> int:
    """The sum of the distances between each two of the positions."""
    return sum(distance(distances, order, *pair) for pair in combinations(places, 2))


def nearest_sums(distances: Matrix, order: Sequence[int], at: int, missing: int) -> list[int]:
    """For each position from ``at`` on: the sum of the ``missing - 1`` shortest distances to the
    others from there on.
    """
    return [
        sum(
            sorted(
                distance(distances, order, place, other)
                for other in range(at, len(order))
                if other != place
            )[: missing - 1]
        )
        for place in range(at, len(order))
    ]


def grown_set(distances: Matrix, order: Sequence[int], seed: int, count: int) -> tuple[int, ...]:
    """The set that grows from ``seed`` by the position that is nearest to all in it, the first of
    equal ones.
    """
    taken = [seed]
    while len(taken) < count:
        left = [place for place in range(len(order)) if place not in taken]
        taken.append(
            min(
                left,
                key=lambda place: sum(distance(distances, order, place, one) for one in taken),
            )
        )
    return tuple(sorted(taken))


def like_positions(
    distances: Matrix, order: Sequence[int], kinds: Sequence[Hashable]
) -> list[set[int]]:
    """For each position the later ones of its kind that can change places with it, so that all
    distances of the host stay as they are. None where distances depend on the direction.
    """
    every = range(len(distances))
    if any(distances[one][other] != distances[other][one] for one in every for other in every):
        return [set() for _ in order]

    def swapped(one: int, other: int) -> list[list[int]]:
        other_of = {**dict(zip(every, every, strict=True)), one: other, other: one}
        return [[distances[other_of[row]][other_of[column]] for column in every] for row in every]

    whole = [list(line) for line in distances]
    return [
        {
            later
            for later in range(place + 1, len(order))
            if kinds[place] == kinds[later] and swapped(order[place], order[later]) == whole
        }
        for place in range(len(order))
    ]


def seated(fits: Sequence[Sequence[bool]], columns: Sequence[int]) -> list[int] | None:
    """A matching, row after row: the first free column, or else the first one whose row can move
    on.
    """
    matching: dict[int, int] = {}

    def seat(row: int, seen: set[int]) -> bool:
        for column in columns:
            if fits[row][column] and column not in matching.values() and column not in seen:
                matching[row] = column
                return True
        for column in columns:
            if fits[row][column] and column not in seen:
                seen.add(column)
                holder = next(other for other, its in matching.items() if its == column)
                if seat(holder, seen):
                    matching[row] = column
                    return True
        return False

    for row in range(len(fits)):
        if not seat(row, set()):
            return None
    return [matching[row] for row in range(len(fits))]


some = settings(max_examples=300, deadline=None)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Distances between few cells, many of them equal; and some of the cells in any order."""
    size = draw(st.integers(1, 7))
    said = draw(
        st.lists(st.sampled_from((12, 12, 12, 21, 32)), min_size=size * size, max_size=size * size)
    )
    both = draw(st.booleans())
    matrix = [
        [
            10
            if row == column
            else said[min(row, column) * size + max(row, column)]
            if both
            else said[row * size + column]
            for column in range(size)
        ]
        for row in range(size)
    ]
    order = draw(st.permutations(range(size)))
    return matrix, order[: draw(st.integers(1, size))]


@some
@given(matrices(), st.data())
def test_sums_of_distances_are_those_of_the_definition(scene, data):
    matrix, order = scene
    distances = Distances(Cells(range(len(matrix)), matrix), order)
    for _ in range(3):
        at = data.draw(st.integers(0, len(order) - 1))
        missing = data.draw(st.integers(1, len(order) - at))
        assert distances.least(at, missing) == nearest_sums(matrix, order, at, missing)
        assert distances.doubled(at) == [
            2 * apart(matrix, order, (at, place)) for place in range(at + 1, len(order))
        ]
    places = tuple(sorted(data.draw(st.sets(st.sampled_from(range(len(order))), min_size=1))))
    assert distances.within(places) == apart(matrix, order, places)


@some
@given(matrices(), st.data())
def test_sets_grow_by_the_nearest_cell(scene, data):
    matrix, order = scene
    count = data.draw(st.integers(1, len(order)))
    found = list(Distances(Cells(range(len(matrix)), matrix), order).grown_sets(count, 2))
    sums = nearest_sums(matrix, order, 0, count)
    seeds = sorted(range(len(order)), key=sums.__getitem__)[:2]
    assert found == [grown_set(matrix, order, seed, count) for seed in seeds]


@some
@given(matrices(), st.data())
def test_cells_are_interchangeable_if_all_distances_stay_as_they_are(scene, data):
    matrix, order = scene
    kinds = [data.draw(st.sampled_from("aab")) for _ in order]
    found = interchangeable(Cells(range(len(matrix)), matrix), order, kinds.__getitem__)
    assert [
        {place for place in range(len(order)) if bits >> place & 1} for bits in found
    ] == like_positions(matrix, order, kinds)


@some
@given(st.data())
def test_a_matching_is_that_of_row_after_row(data):
    width = data.draw(st.integers(1, 6))
    line = st.lists(st.booleans(), min_size=width, max_size=width)
    fits = data.draw(st.lists(line, min_size=1, max_size=width))
    columns = data.draw(st.permutations(range(width)))
    assert match(fits, columns) == seated(fits, columns)


@some
@given(cases())
def test_the_table_of_pairs_is_that_of_the_oracle_and_each_can_be_placed(case: Case):
    pairs = Pairs(case.guest, case.host, case.limits, {})
    for row, cell in enumerate(case.guest.cells):
        for column, host in enumerate(case.host):
            fits = pairs.fits[row][column]
            assert fits == sits(case.guest, row, host, case.limits)
            assert fits == ((row, host.id) not in pairs.misfits())
            if fits:
                placed = pairs.placed(row, column)
                assert set(placed.pins) == cell.dedicated
                assert len(placed.pinned_cpus) == len(cell.dedicated) + case.guest.emulator_cpus(
                    row
                )
                assert placed.pinned_cpus <= host.free_dedicated


@some
@given(
    st.lists(st.integers(1, 4), max_size=5),
    st.integers(0, 10),
    st.integers(0, 1),
    st.sampled_from((None, "prefer", "require", "isolate")),
    st.booleans(),
)
def test_cpus_can_be_pinned_exactly_if_enough_of_the_right_cores_are_free(
    widths, need, reserve, policy, smt
):
    smt = smt or max(widths, default=1) > 1
    cores = [[10 * core + thread for thread in range(width)] for core, width in enumerate(widths)]
    right = [core for core in cores if policy != "require" or len(core) > 1]
    possible = (
        sum(map(len, right)) >= need
        and sum(map(len, cores)) >= need + reserve
        and (policy != "isolate" or not need or not smt)
    )
    assert can_pin(widths, need, reserve, policy, smt=smt) == possible
    if possible:
        pins = pin(cores, need, reserve, policy)
        assert len(set(pins.cpus)) == len(pins.cpus) == need
        assert set(pins.cpus) <= {cpu for core in right for cpu in core}
        assert len(pins.reserved) == reserve
        assert pins.reserved <= {cpu for core in cores for cpu in core} - set(pins.cpus)
