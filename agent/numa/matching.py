"""Perfect matchings between guest cells (rows) and host cells (columns), by augmenting paths; and
the distances between host cells.

A matching is a list: the column of each row, every column at most once.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import add

from agent.errors import Undecided

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


Table = Sequence[Sequence[bool]]
"""Which row fits which column."""


def match(fits: Table, columns: Sequence[int]) -> list[int] | None:
    """Return a column of its own for every row of ``fits``, out of ``columns`` and earlier ones
    first; None if there is no matching.
    """
    matching: list[int] = []
    taken: set[int] = set()
    for row, line in enumerate(fits):
        free = next((column for column in columns if line[column] and column not in taken), -1)
        matching.append(free)
        if free >= 0:
            taken.add(free)
        elif _seat(fits, matching, row, columns, set()):
            taken = set(matching)
        else:
            return None
    return matching


def without(
    fits: Table, matching: list[int], column: int, others: Sequence[int]
) -> list[int] | None:
    """Return a matching of all rows without ``column``: its other columns, and one more of
    ``others`` if needed. None if there is none.
    """
    if column not in matching:
        return matching
    changed = list(matching)
    row = changed.index(column)
    changed[row] = -1
    return changed if _seat(fits, changed, row, others, {column}) else None


def including(
    fits: Table, matching: list[int], column: int, kept: Collection[int]
) -> list[int] | None:
    """Return a matching of all rows with ``column`` and all ``kept`` columns of ``matching``, in
    place of another column. None if there is none.
    """
    if column in matching:
        return matching
    changed = list(matching)
    return changed if _displace(fits, changed, column, kept, set()) else None


def _seat(
    fits: Table, matching: list[int], row: int, columns: Sequence[int], seen: set[int]
) -> bool:
    """Give ``row`` a column: a free one, or else one whose row can move to another."""
    line = fits[row]
    for column in columns:
        if line[column] and column not in matching and column not in seen:
            matching[row] = column
            return True
    for column in columns:
        if line[column] and column not in seen:
            seen.add(column)
            if _seat(fits, matching, matching.index(column), columns, seen):
                matching[row] = column
                return True
    return False


def _displace(
    fits: Table, matching: list[int], column: int, kept: Collection[int], seen: set[int]
) -> bool:
    """Give ``column`` a row; the row's column gets another row unless it need not be kept."""
    for row, line in enumerate(fits):
        if line[column] and row not in seen:
            seen.add(row)
            if matching[row] not in kept or _displace(fits, matching, matching[row], kept, seen):
                matching[row] = column
                return True
    return False


BUDGET = 3_000


class Hitting:
    """Search for a set of columns with room for all rows and at least one column of each group."""

    def __init__(
        self,
        fits: Table,
        order: Sequence[int],
        groups: Sequence[Collection[int]],
        budget: int = BUDGET,
    ) -> None:
        """``fits``: the table; the set has as many columns as this has rows. ``order``: the
        columns, most wanted first.
        """
        self._fits, self._order, self._budget, self._steps = fits, order, budget, 0
        self._groups = [
            sum(1 << place for place, column in enumerate(order) if column in group)
            for group in groups
        ]
        self._plain = all(line[column] for line in fits for column in order)

    def columns(self) -> tuple[int, ...] | None:
        """Return as many columns as there are rows, with room for all rows and a column of each
        group; None if there are none.

        :raises Undecided: there is no answer after ``budget`` steps.
        """
        matching = match(self._fits, self._order)
        return (
            None
            if matching is None
            else self._hit(self._smallest(self._groups), (), (1 << len(self._order)) - 1, matching)
        )

    def _hit(
        self, unmet: Sequence[int], taken: tuple[int, ...], there: int, matching: list[int]
    ) -> tuple[int, ...] | None:
        if not unmet:
            return self._filled_up(taken, matching)
        self._steps += 1
        if self._steps > self._budget:
            raise Undecided(
                "no answer after as many attempts to have cells of all networks as are allowed",
                "another host, or fewer networks",
            )
        missing = len(self._fits) - len(taken)
        if not missing or not _enough(unmet, missing):
            return None
        counts = {place: sum(group >> place & 1 for group in unmet) for place in _places(unmet[0])}
        for place in sorted(counts, key=lambda position: (-counts[position], position)):
            column = self._order[place]
            joined = matching if self._plain else including(self._fits, matching, column, taken)
            if joined is not None:
                rest = [group & there for group in unmet if not group >> place & 1]
                found = (
                    self._hit(self._smallest(rest), (*taken, column), there, joined)
                    if all(rest)
                    else None
                )
                if found is not None:
                    return found
            # All sets with this column have been searched.
            there &= ~(1 << place)
        return None

    def _filled_up(self, taken: tuple[int, ...], matching: list[int]) -> tuple[int, ...]:
        """Return ``taken`` with the most wanted other columns for which there is room."""
        for column in self._order:
            if len(taken) == len(self._fits):
                break
            joined = matching if self._plain else including(self._fits, matching, column, taken)
            if column not in taken and joined is not None:
                taken, matching = (*taken, column), joined
        return taken

    def _smallest(self, groups: Sequence[int]) -> list[int]:
        """Return the groups, the smallest first, without groups that contain another one, and
        without columns that are never better than another column.
        """
        kept: list[int] = []
        for group in sorted(set(groups), key=int.bit_count):
            if not any(other & group == other for other in kept):
                kept.append(group)
        if not self._plain:
            return kept
        members: dict[int, int] = {}
        for place in _places(
            sum(1 << at for at in {column for group in kept for column in _places(group)})
        ):
            members.setdefault(
                sum(1 << number for number, group in enumerate(kept) if group >> place & 1), place
            )
        best = [
            place
            for met, place in members.items()
            if not any(met != other and met & other == met for other in members)
        ]
        useful = sum(1 << place for place in best)
        narrowed = [group & useful for group in kept]
        return narrowed if narrowed == kept else self._smallest(narrowed)


def _enough(unmet: Sequence[int], count: int) -> bool:
    """Return whether ``count`` columns can be enough: not more groups than that are disjoint, and
    the columns in the most groups are in enough of them.
    """
    apart, seen = 0, 0
    for group in unmet:
        if not group & seen:
            apart, seen = apart + 1, seen | group
    if apart > count:
        return False
    everywhere = {place for group in unmet for place in _places(group)}
    often = sorted(
        (sum(group >> place & 1 for group in unmet) for place in everywhere), reverse=True
    )
    return sum(often[:count]) >= len(unmet)


def _places(bits: int) -> list[int]:
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found
