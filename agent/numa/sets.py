"""Which sets of host cells have room for a guest: columns of the table of what fits where.

Sets are built column by column. A branch is left as soon as it cannot be completed, so that the work between two sets
is small: there is always a matching of all guest cells that has every column taken so far and none left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.numa.matching import Table, including, match, without

Columns = tuple[int, ...]
Groups = Sequence[frozenset[int]]
"""Columns, of which a set needs one each."""


@dataclass(frozen=True, slots=True)
class Sets:
    """``order``: the columns, most wanted first."""

    fits: Table
    order: Sequence[int]
    groups: Groups

    def all(self) -> Iterator[Columns]:
        """Every set that has a perfect matching and a column of each group, by the order of its columns.

        An empty one is a dead end, told so that whoever counts sets counts those too.
        """
        matching = match(self.fits, self.order)
        if matching is None or not _reachable(self.groups, self.order, len(matching)):
            return iter(())
        return self._completed((), 0, matching, self.groups)

    def _completed(self, taken: Columns, start: int, matching: list[int], unmet: Groups) -> Iterator[Columns]:
        """The sets of ``taken`` and columns from ``start`` on; ``matching`` is one of those, ``unmet`` still need a column."""
        missing = len(matching) - len(taken)
        if not missing:
            yield taken
            return
        dead_end = True
        for position in range(start, len(self.order)):
            column, rest = self.order[position], self.order[position + 1 :]
            joined, still = including(self.fits, matching, column, taken), [group for group in unmet if column not in group]
            if joined is not None and _reachable(still, rest, missing - 1):
                dead_end = False
                yield from self._completed((*taken, column), position + 1, joined, still)
            if len(rest) < missing or not _reachable(unmet, rest, missing):
                break
            left = without(self.fits, matching, column, (*rest, *taken))
            if left is None:
                break
            matching = left
        if dead_end:
            yield ()


def _reachable(groups: Groups, columns: Sequence[int], count: int) -> bool:
    """Whether ``count`` of ``columns`` may do for all groups: each has one there, and not more than ``count`` are apart."""
    apart, seen = 0, frozenset[int]()
    for group in groups:
        if group.isdisjoint(columns):
            return False
        if group.isdisjoint(seen):
            apart, seen = apart + 1, seen | group
    return apart <= count
