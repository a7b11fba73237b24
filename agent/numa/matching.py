"""Perfect matchings between guest cells (rows) and host cells (columns), by augmenting paths.

A matching is a list: the column of each row, every column at most once.
"""

from collections.abc import Collection, Sequence

Table = Sequence[Sequence[bool]]
"""Which row fits which column."""


def match(fits: Table, columns: Sequence[int]) -> list[int] | None:
    """A column of its own for every row of ``fits``, out of ``columns`` and earlier ones first; None if there is none."""
    matching: list[int] = []
    for row in range(len(fits)):
        matching.append(-1)
        if not _seat(fits, matching, row, columns, set()):
            return None
    return matching


def without(fits: Table, matching: list[int], column: int, others: Sequence[int]) -> list[int] | None:
    """A matching of all rows that does without ``column``, all its other columns and perhaps one more of ``others``.

    None if there is none.
    """
    if column not in matching:
        return matching
    changed = list(matching)
    row = changed.index(column)
    changed[row] = -1
    return changed if _seat(fits, changed, row, others, {column}) else None


def including(fits: Table, matching: list[int], column: int, kept: Collection[int]) -> list[int] | None:
    """A matching of all rows with ``column`` and all ``kept`` columns of ``matching``, in place of another one.

    None if there is none.
    """
    if column in matching:
        return matching
    changed = list(matching)
    return changed if _displace(fits, changed, column, kept, set()) else None


def _seat(fits: Table, matching: list[int], row: int, columns: Sequence[int], seen: set[int]) -> bool:
    """Give ``row`` a column: a free one, or else one whose row can move on."""
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


def _displace(fits: Table, matching: list[int], column: int, kept: Collection[int], seen: set[int]) -> bool:
    """Give ``column`` a row, whose column finds another row unless it need not be kept."""
    for row, line in enumerate(fits):
        if line[column] and row not in seen:
            seen.add(row)
            if matching[row] not in kept or _displace(fits, matching, matching[row], kept, seen):
                matching[row] = column
                return True
    return False
