"""Search for the smallest sets of constraints without which a request fits. Pure: the caller
answers each question, from Placement or from a host.

A set is found only by answers: the request fits without the set, and did not fit without any of its
proper parts. What the caller knows to be unsatisfiable shortens the search, and each found set is
checked by further answers.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Generic, TypeVar

Condition = TypeVar("Condition", bound=Hashable)
# So many constraints at most are left out together, and so many sets at most are looked at.
MOST_TOGETHER = 5
MOST_SETS = 50_000


class BudgetSpent(Exception):
    """No more questions may be asked."""


@dataclass(frozen=True, slots=True)
class CorrectionSets(Generic[Condition]):
    """The result of a search."""

    sets: tuple[frozenset[Condition], ...]
    """All of one size: the smallest at which there is a set."""
    complete: bool
    """Whether every set of that size is there; False if the search was cut."""


class _Questions(Generic[Condition]):
    """The answers so far. No question is asked twice."""

    def __init__(self, fits: Callable[[frozenset[Condition]], bool]) -> None:
        self._fits = fits
        self._answers: dict[frozenset[Condition], bool] = {}

    def fit_without(self, left_out: frozenset[Condition]) -> bool:
        if left_out not in self._answers:
            self._answers[left_out] = self._fits(left_out)
        return self._answers[left_out]


def smallest_sets(
    conditions: Sequence[Condition],
    fits: Callable[[frozenset[Condition]], bool],
    unsatisfiable: Collection[frozenset[Condition]] = (),
) -> CorrectionSets[Condition]:
    """Return the smallest sets of ``conditions`` without which the request fits.

    ``fits``: whether the request fits without a set; it may raise :class:`BudgetSpent`.
    ``unsatisfiable``: of each of these sets, every result has a condition, as far as the caller
    knows.
    """
    questions = _Questions(fits)
    found: list[frozenset[Condition]] = []
    try:
        if _search(conditions, questions, [*unsatisfiable], found):
            return CorrectionSets(tuple(found), complete=True)
        found.clear()
        # The caller was wrong about what is unsatisfiable.
        _search(conditions, questions, [], found)
    except BudgetSpent:
        # Each of them was checked before it was added.
        return CorrectionSets(tuple(found), complete=False)
    return CorrectionSets(tuple(found), complete=True)


def _search(
    conditions: Sequence[Condition],
    questions: _Questions[Condition],
    unsatisfiable: Sequence[frozenset[Condition]],
    found: list[frozenset[Condition]],
) -> bool:
    """Add the smallest sets to ``found``, each once it is checked. Return whether every found set
    was confirmed.
    """
    for size in range(1, min(len(conditions), MOST_TOGETHER) + 1):
        for left_out in _sets(conditions, size, unsatisfiable):
            if not questions.fit_without(left_out):
                continue
            if size > 1 and any(
                questions.fit_without(left_out - {condition}) for condition in left_out
            ):
                return False
            found.append(left_out)
        if found:
            break
    return True


def _sets(
    conditions: Sequence[Condition], size: int, unsatisfiable: Sequence[frozenset[Condition]]
) -> Iterator[frozenset[Condition]]:
    """Yield the sets of one size that have a condition of each unsatisfiable set."""
    for number, chosen in enumerate(combinations(conditions, size)):
        if number >= MOST_SETS:
            raise BudgetSpent
        left_out = frozenset(chosen)
        if all(left_out & some for some in unsatisfiable):
            yield left_out
