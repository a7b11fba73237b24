"""Distances between host cells, as the search of sets of cells needs them."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import add

FAR = 1 << 60

Columns = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """The host's cells by column."""

    ids: Sequence[int]
    distances: Sequence[Sequence[int]]
    """Between each two cells."""

    @property
    def nearest(self) -> int:
        """The distance between the two nearest cells; 0 if there are no two cells."""
        return min(
            (
                distance
                for column, line in enumerate(self.distances)
                for distance in (*line[:column], *line[column + 1 :])
            ),
            default=0,
        )


class Distances:
    """The distances between the columns of a search, by their positions in the order of the
    search.
    """

    def __init__(self, cells: Cells, order: Sequence[int]) -> None:
        self._between = _symmetric(
            [[cells.distances[column][other] for other in order] for column in order]
        )
        self.doubled = [[2 * distance for distance in line] for line in self._between]
        """Twice the distance between each two positions."""
        # For each position: for each column from there on, its distances to the other ones from
        # there on, sorted. Lists for later positions are computed when needed.
        self._nearest = [
            [sorted(line[:own] + line[own + 1 :]) for own, line in enumerate(self._between)]
        ]
        self._sums: dict[tuple[int, int], list[int]] = {}

    def within(self, places: Columns) -> int:
        """Return the sum of the distances between the columns at these positions."""
        return sum(
            self._between[earlier][place]
            for number, place in enumerate(places)
            for earlier in places[:number]
        )

    def least(self, at: int, missing: int) -> list[int]:
        """Return, for each column from ``at`` on, the sum of its distances to the nearest of these
        columns, as many as a set would have beside it.
        """
        key = at, missing
        if key not in self._sums:
            while len(self._nearest) <= at:
                # Without the column before, which is decided.
                before = [line.copy() for line in self._nearest[-1][1:]]
                for line, distance in zip(
                    before,
                    self._between[len(self._nearest) - 1][len(self._nearest) :],
                    strict=True,
                ):
                    line.remove(distance)
                self._nearest.append(before)
            self._sums[key] = [sum(line[: missing - 1]) for line in self._nearest[at]]
        return self._sums[key]

    def grown_sets(self, count: int, seeds: int) -> Iterator[Columns]:
        """Yield sets of ``count`` columns that grow by the nearest column each time, from each of
        the ``seeds`` columns that have the nearest ones beside them.
        """
        width = len(self._between)
        for seed in sorted(range(width), key=self.least(0, count).__getitem__)[:seeds]:
            taken, beside, never = [seed], list(self._between[seed]), [0] * width
            never[seed] = FAR
            while len(taken) < count:
                distances = list(map(add, beside, never))
                place = distances.index(min(distances))
                taken.append(place)
                never[place] = FAR
                beside = list(map(add, beside, self._between[place]))
            yield tuple(sorted(taken))


def interchangeable(
    cells: Cells, order: Sequence[int], kind: Callable[[int], Hashable]
) -> list[int]:
    """Return for each position the later positions, as bits, that it is interchangeable with: any
    set with one of these may as well have this position instead.

    ``kind``: a value for each position that is equal for columns that differ in their distances
    only.
    """
    lines = [list(line) for line in cells.distances]
    later = [0] * len(order)
    if not _is_symmetric(lines):
        return later
    classes: dict[Hashable, list[list[int]]] = {}
    for place in reversed(range(len(order))):
        column = order[place]
        line = lines[column]
        candidates = classes.setdefault((tuple(sorted(line)), kind(place)), [])
        for places in candidates:
            other = order[places[-1]]
            swapped = line.copy()
            swapped[column], swapped[other] = line[other], line[column]
            if swapped == lines[other]:
                later[place] = sum(1 << equal for equal in places)
                places.append(place)
                break
        else:
            candidates.append([place])
    return later


def _symmetric(distances: list[list[int]]) -> list[list[int]]:
    """Return the distances made symmetric: between two columns that of the more wanted one."""
    if _is_symmetric(distances):
        return distances
    size = range(len(distances))
    return [[distances[min(row, other)][max(row, other)] for other in size] for row in size]


def _is_symmetric(distances: list[list[int]]) -> bool:
    return all(
        list(line) == other
        for line, other in zip(zip(*distances, strict=True), distances, strict=True)
    )
