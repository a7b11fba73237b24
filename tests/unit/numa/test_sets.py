"""The enumeration of sets against trying all of them."""

from itertools import combinations, permutations
from math import comb

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.numa.matching import match
from agent.numa.sets import Sets


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[bool]], list[int], list[frozenset[int]]]:
    width = draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=min(width, 4)))
    groups = draw(st.lists(st.frozensets(st.integers(0, width - 1), min_size=1, max_size=3), max_size=3))
    return rows, draw(st.permutations(range(width))), groups


def has_room(fits: list[list[bool]], columns: tuple[int, ...]) -> bool:
    return any(all(line[column] for line, column in zip(fits, one, strict=True)) for one in permutations(columns))


@settings(max_examples=500, deadline=None)
@given(tables())
def test_the_sets_are_all_that_have_room_and_a_column_of_each_group(table):
    fits, order, groups = table
    told = list(Sets(fits, order, groups).all())
    expected = [one for one in combinations(order, len(fits)) if has_room(fits, one) and all(group & set(one) for group in groups)]
    assert [one for one in told if one] == expected
    assert len(told) <= comb(len(order), len(fits))


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
