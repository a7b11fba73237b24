"""Distances between host cells, as the search of sets of cells needs them."""

from bisect import bisect_left
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
        self._doubled: dict[int, list[int]] = {}
        # For each position: for each column from there on, its distances to the other ones from
        # there on, sorted. Computed when needed.
        self._nearest: list[list[list[int]]] = []
        self._sums: dict[tuple[int, int], list[int]] = {}

    def within(self, places: Columns) -> int:
        """Return the sum of the distances between the columns at these positions."""
        return sum(
            sum(map(self._between[place].__getitem__, places[:number]))
            for number, place in enumerate(places)
        )

    def doubled(self, at: int) -> list[int]:
        """Return twice the distances of the columns after ``at`` to the column at ``at``."""
        known = self._doubled.get(at)
        if known is None:
            known = [2 * distance for distance in self._between[at][at + 1 :]]
            self._doubled[at] = known
        return known

    def least(self, at: int, missing: int) -> list[int]:
        """Return, for each column from ``at`` on, the sum of its distances to the nearest of these
        columns, as many as a set would have beside it.
        """
        known = self._sums.get((at, missing))
        if known is None:
            known = [sum(line[: missing - 1]) for line in self._nearest_from(at)]
            self._sums[at, missing] = known
        return known

    def _nearest_from(self, at: int) -> list[list[int]]:
        if not self._nearest:
            self._nearest.append(
                [sorted(line[:own] + line[own + 1 :]) for own, line in enumerate(self._between)]
            )
        for place in range(len(self._nearest) - 1, at):
            # Without the column at this position, which is decided.
            later = [line.copy() for line in self._nearest[place][1:]]
            for line, distance in zip(later, self._between[place][place + 1 :], strict=True):
                del line[bisect_left(line, distance)]
            self._nearest.append(later)
        return self._nearest[at]

    def grown_sets(self, count: int, seeds: int) -> Iterator[Columns]:
        """Yield sets of ``count`` columns that grow by the nearest column each time, from each of
        the ``seeds`` columns that have the nearest ones beside them.
        """
        width = len(self._between)
        for seed in sorted(range(width), key=self.least(0, count).__getitem__)[:seeds]:
            taken, beside = [seed], self._between[seed].copy()
            beside[seed] = FAR
            while len(taken) < count:
                place = beside.index(min(beside))
                taken.append(place)
                beside = list(map(add, beside, self._between[place]))
                beside[place] = FAR
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
        # Only columns with the same distances to others can be interchangeable: comparing the sums
        # first leaves few pairs to compare in full.
        candidates = classes.setdefault((sum(line), kind(place)), [])
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
    return list(map(list, zip(*distances, strict=True))) == distances
