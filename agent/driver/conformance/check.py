"""One check of the conformance suite, and what came of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.driver.conformance.trial import DriverTrial

PromiseState = Literal["held", "broken", "unchecked", "not-applicable"]
"""``unchecked``: an answer that the check needs did not come. ``not-applicable``: the driver does
not have the method, or nothing happened that could be checked.
"""


@dataclass(frozen=True, slots=True)
class Breach:
    """One thing by which a driver breaks a promise."""

    node: str
    """The name of the node; empty if it is about the driver as a whole."""
    detail: str


@dataclass(frozen=True, slots=True)
class ConformanceCheck:
    """The check of one promise. It yields a text for each thing that breaks the promise."""

    name: str
    promise: str
    """One line."""
    remedy: str
    """What the driver's author has to change."""
    whole: Callable[[DriverTrial], Iterator[str]] | None = None
    """Checks the driver as a whole."""
    node: Callable[[DriverTrial, str], Iterator[str]] | None = None
    """Checks one node, by its name."""
    ability: Any = None
    """The protocols of the interface of which the driver must implement one; None for all
    drivers.
    """


@dataclass(frozen=True, slots=True)
class CheckedPromise:
    """What came of one check."""

    check: ConformanceCheck
    state: PromiseState
    breaches: Sequence[Breach] = ()
    note: str = ""
    """Why the state is ``unchecked`` or ``not-applicable``."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """What came of all checks of one driver."""

    driver: str
    promises: Sequence[CheckedPromise]
    listed: int
    """How many nodes the driver listed."""
    checked: Sequence[str]
    """The names of the nodes that were checked one by one."""
    notes: Sequence[str] = ()
    """What is no breach, and yet worth a look: incomplete facts, errors of single nodes."""

    def count(self, state: PromiseState) -> int:
        """Return how many promises have this state."""
        return sum(promise.state == state for promise in self.promises)
