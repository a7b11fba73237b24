"""What came of reading one section: the part that could be read, and what could not."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

SHOWN = 3


@dataclass(frozen=True, slots=True)
class PartialRead(Generic[T]):
    """``faults``: one line for each thing that was set aside, naming it; empty when everything was read."""

    value: T
    faults: tuple[str, ...] = ()


def summarize_faults(faults: tuple[str, ...]) -> str:
    """The faults as one line: the first few in words, because a broken bus has hundreds, and how many more."""
    more = len(faults) - SHOWN
    return "; ".join(faults[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
