"""What a monitor is, and what comes of asking it. Monitors are found by the entry points of
``NAMESPACE``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

NAMESPACE = "compute_node_agent.monitors"

Status = Literal["ok", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure: ``name`` as ``cpu.user.percent``, its ``unit`` in words, who measured it, and
    when, in seconds since the epoch.
    """

    name: str
    value: float
    unit: str
    source: str
    taken_at: float


@runtime_checkable
class Monitor(Protocol):
    """A plug-in: a class that takes nothing. ``type`` says what it measures; of a type there is one
    on a host.
    """

    @property
    def type(self) -> str:
        """What is measured: ``cpu``, ``memory``."""

    def unsupported(self) -> str | None:
        """Why there is nothing to measure on this host; None if there is."""

    def metrics(self) -> Sequence[Metric]:
        """All figures of now. May block; an error loses this monitor's figures and no other's."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one monitor said at ``taken_at`` (seconds since the epoch): ``metrics`` if ok, else
    ``text`` says why there are none.
    """

    monitor: str
    status: Status
    taken_at: float
    metrics: tuple[Metric, ...] = ()
    text: str = ""
