"""Perfect matchings between guest cells and host cells, by augmenting paths."""

from collections.abc import Sequence


def match(fits: Sequence[Sequence[bool]], columns: Sequence[int]) -> list[int] | None:
    """A column of its own for every row of ``fits``, out of ``columns`` and earlier ones first; None if there is none."""
    row_of: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column in columns:
            if fits[row][column] and column not in seen:
                seen.add(column)
                if column not in row_of or place(row_of[column], seen):
                    row_of[column] = row
                    return True
        return False

    if not all(place(row, set()) for row in range(len(fits))):
        return None
    column_of = {row: column for column, row in row_of.items()}
    return [column_of[row] for row in range(len(fits))]
