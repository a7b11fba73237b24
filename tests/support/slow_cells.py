"""What the fit of cells computes in few steps, by its definition. Slow, and nothing clever."""

from collections.abc import Hashable, Sequence
from itertools import combinations

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
