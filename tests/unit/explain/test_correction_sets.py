"""The smallest sets of conditions without which a request fits."""

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.explain.host_answer import BudgetSpent, smallest_sets

CONDITIONS = tuple("abcdef")
Fits = Callable[[frozenset[str]], bool]
SOME = st.lists(
    st.frozensets(st.sampled_from(CONDITIONS), min_size=1, max_size=4), min_size=1, max_size=5
)


def fits_without(*conflicts: frozenset[str]) -> Fits:
    """It fits once a condition of each conflict is left out."""
    return lambda left_out: all(left_out & conflict for conflict in conflicts)


def smallest(fits: Fits) -> set[frozenset[str]]:
    """By trying all sets."""
    for size in range(1, 6):
        if found := {
            frozenset(some) for some in combinations(CONDITIONS, size) if fits(frozenset(some))
        }:
            return found
    return set()


@given(SOME)
def test_what_is_known_to_be_unsatisfiable_changes_nothing(
    conflicts: list[frozenset[str]],
) -> None:
    fits = fits_without(*conflicts)
    assert set(smallest_sets(CONDITIONS, fits, conflicts[:2]).sets) == smallest(fits)


@given(SOME, SOME)
def test_each_part_of_a_set_is_needed_whatever_the_caller_believes(
    conflicts: list[frozenset[str]], believed: list[frozenset[str]]
) -> None:
    fits = fits_without(*conflicts)
    for left_out in smallest_sets(CONDITIONS, fits, believed).sets:
        assert fits(left_out)
        assert not any(fits(left_out - {condition}) for condition in left_out)


@pytest.mark.parametrize("most", range(12))
def test_a_search_that_is_cut_says_so_and_names_only_what_it_has_checked(most: int) -> None:
    asked: list[frozenset[str]] = []
    fits = fits_without(frozenset("ab"), frozenset("cd"))

    def bounded(left_out: frozenset[str]) -> bool:
        if len(asked) >= most:
            raise BudgetSpent
        asked.append(left_out)
        return fits(left_out)

    found = smallest_sets(CONDITIONS, bounded)
    assert not found.complete
    assert all(fits(left_out) and len(left_out) == 2 for left_out in found.sets)
    assert len(asked) == len(set(asked))


def test_what_is_known_saves_questions() -> None:
    asked: list[frozenset[str]] = []
    fits = fits_without(frozenset("a"), frozenset("b"))

    def counted(left_out: frozenset[str]) -> bool:
        asked.append(left_out)
        return fits(left_out)

    found = smallest_sets(CONDITIONS, counted, [frozenset("a"), frozenset("b")])
    assert found.sets == (frozenset("ab"),)
    assert len(asked) == 3
