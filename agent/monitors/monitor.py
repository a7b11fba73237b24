"""The interface of monitors, and their measurements. Monitors are found by the entry points of
``NAMESPACE``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

NAMESPACE = "compute_node_agent.monitors"

Status = Literal["ok", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure that a monitor measured."""

    name: str
    """Such as ``cpu.user.percent``."""
    value: float
    unit: str
    """In words."""
    source: str
    """What measured it, such as ``psutil``."""
    taken_at: float
    """Seconds since the epoch."""


@runtime_checkable
class Monitor(Protocol):
    """A plug-in that measures one thing: a class whose constructor takes no arguments. A host has
    one monitor of a type.
    """

    @property
    def type(self) -> str:
        """What is measured: ``cpu``, ``memory``."""

    def unsupported(self) -> str | None:
        """Return why there is nothing to measure on this host; None if there is."""

    def metrics(self) -> Sequence[Metric]:
        """Return all figures as of now. May block; an error loses only this monitor's figures."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The answer of one monitor."""

    monitor: str
    status: Status
    taken_at: float
    """Seconds since the epoch."""
    metrics: tuple[Metric, ...] = ()
    """Empty unless the status is ok."""
    text: str = ""
    """Why there are no metrics; empty if there are."""
