"""What a trial of a driver is given: the driver, its nodes, the deadlines of its calls, and what
follows its progress.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from agent.driver.answers import Nodes
from agent.driver.interface import Driver, HostContext
from agent.model.facts import HostFacts
from agent.model.provider_tree import ProviderTree

Call = Literal[
    "start",
    "stop",
    "nodes",
    "facts",
    "is_node_deleted",
    "check",
    "option_warnings",
    "shape",
    "update_provider_tree",
    "capabilities_as_traits",
    "subscribe",
    "hanging",
    "mark",
    "lease",
    "with_instances",
]
"""The methods of the interface."""

CONSTRUCTED = "the constructor"
"""What a message calls the making of an instance."""


@dataclass(frozen=True, slots=True)
class CallDeadlines:
    """Seconds that the calls of a driver may take."""

    start: float
    stop: float
    nodes: float
    facts: float
    """For all calls that are about one node, too."""

    def of(self, call: Call) -> float:
        """Return the deadline of a call."""
        if call in ("start", "subscribe", "check"):
            return self.start
        return {"stop": self.stop, "nodes": self.nodes}.get(call, self.facts)


class Progress:
    """Is told what the suite does; the base takes no notice."""

    @contextmanager
    def during(self, what: str, seconds: float) -> Iterator[None]:  # noqa: ARG002 - no notice
        """Enclose a call of the driver that has to end within ``seconds``."""
        yield

    def returned(self, what: str) -> None:
        """A call has come back, in the thread that made it."""

    def judged(
        self, check: str, state: str, breaches: Sequence[tuple[str, str]], note: str
    ) -> None:
        """A check has been made. ``breaches``: pairs of the node and the detail."""


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """What is on trial, and how."""

    called: str
    """The driver's name."""
    make: Callable[[], Driver]
    """Makes a new instance of the driver."""
    host: HostContext
    deadlines: CallDeadlines
    shape_core: Callable[[ProviderTree, str, HostFacts], None]
    """Puts into a tree what the agent itself derives from the facts, at the root of that uuid."""
    choose: Callable[[Nodes], Nodes]
    """Chooses the nodes that are to be checked."""
    every_node: bool = False
    """Whether all chosen nodes are checked one by one, not a sample."""
    progress: Progress = field(default_factory=Progress)
