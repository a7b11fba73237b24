"""The checks of promises, and what came of each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.model.names import printable

PromiseState = Literal["held", "broken", "unchecked", "not-applicable"]
"""``unchecked``: an answer that the check needs did not come. ``not-applicable``: the driver does
not have the method, or nothing happened that could be checked.
"""


class Unanswered(Exception):
    """An answer that a check needs did not come. Its text says why."""


class NothingToCheck(Exception):
    """Nothing happened that the check could judge. Its text says what would have to happen."""


Phase = Literal["before-start", "started", "stopped", "restarted", "end"]
"""When a check is made; ``end``: after all others."""
Examine = Callable[..., Iterator[str]]
"""Takes the trial, and with ``each_node`` the name of a node; yields a text for each thing that
breaks the promise.
"""


@dataclass(frozen=True, slots=True)
class PromiseCheck:
    """The check of one promise."""

    name: str
    phase: Phase
    promise: str
    """One line."""
    remedy: str
    """What the driver's author has to change."""
    examine: Examine
    each_node: bool
    ability: Any
    """The protocols of the interface of which the driver must implement one; None for all
    drivers.
    """


CHECKS: list[PromiseCheck] = []
"""All checks, in the order in which they are shown."""


def check(
    name: str,
    phase: Phase,
    remedy: str,
    *,
    promise: str = "",
    each_node: bool = False,
    ability: Any = None,
) -> Callable[[Examine], Examine]:
    """Make a function the check of a promise, which is its docstring unless given."""

    def listed(examine: Examine) -> Examine:
        text = promise or examine.__doc__ or ""
        CHECKS.append(PromiseCheck(name, phase, text, remedy, examine, each_node, ability))
        return examine

    return listed


@dataclass(frozen=True, slots=True)
class Breach:
    """One thing by which a driver breaks a promise."""

    node: str
    """The name of the node; empty if it is about the driver as a whole."""
    detail: str

    def __str__(self) -> str:
        return f"{printable(self.node)}: {self.detail}" if self.node else self.detail


@dataclass(frozen=True, slots=True)
class CheckedPromise:
    """What came of one check."""

    check: PromiseCheck
    state: PromiseState
    breaches: Sequence[Breach] = ()
    note: str = ""
    """Why the state is ``unchecked`` or ``not-applicable``."""
