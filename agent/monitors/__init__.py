"""The interface of monitors, and their measurements: monitors are loaded by entry points and
polled; one that fails or hangs does not affect the others.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from threading import Event
from typing import Literal, Protocol, runtime_checkable

from oslo_config import cfg
from oslo_log import log as logging

from agent.driver.worker import DriverWorker
from agent.errors import DRIVER_FAULT, AgentError, ConfigError, ConfigErrors, DriverError, gathering
from agent.model.names import printable

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


REMEDY = "leave it out, or install what it needs"


def load_monitors(conf: cfg.ConfigOpts) -> Mapping[str, Monitor]:
    """Return the monitors that ``[compute] monitors`` names, by name.

    :raises ConfigErrors: everything that is wrong with them.
    """
    if not conf.compute.monitors:
        # The search for the installed ones takes long.
        return {}
    installed = {entry.name: entry for entry in entry_points(group=NAMESPACE)}
    monitors: dict[str, Monitor] = {}
    errors: list[ConfigError] = []
    for name in conf.compute.monitors:
        with gathering(errors):
            monitors[name] = _load_monitor(name, installed)
    errors += _rivals(conf.compute.monitors, monitors)
    ConfigErrors.raise_if_any(errors)
    return monitors


def _load_monitor(name: str, installed: Mapping[str, EntryPoint]) -> Monitor:
    """Load and construct one monitor."""
    option = f"[compute] monitors: {printable(name)}"
    if name not in installed:
        raise ConfigError(
            f"{option}: no such monitor", f"installed: {', '.join(sorted(installed)) or 'none'}"
        )
    try:
        monitor = installed[name].load()()
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{option}: it cannot be made: {type(error).__name__}: {printable(str(error))}", REMEDY
        ) from error
    if not isinstance(monitor, Monitor):
        raise ConfigError(
            f"{option}: it is no monitor, because it lacks type, unsupported or metrics",
            "report this to whoever wrote it",
        )
    return monitor


def _rivals(names: list[str], monitors: Mapping[str, Monitor]) -> Iterator[ConfigError]:
    """Yield an error for each monitor of a type that another one measures already."""
    first: dict[str, str] = {}
    for name in names:
        if name not in monitors:
            continue
        measured = monitors[name].type
        if measured in first:
            what = (
                f"[compute] monitors: {printable(first[measured])} and {printable(name)} both "
                f"measure {printable(measured)}"
            )
            yield ConfigError(what, "leave one of the two out")
        first.setdefault(measured, name)


LOG = logging.getLogger(__name__)


class Monitors:
    """The monitors of a host, by name. Polled by one thread at a time, which holds no lock.

    :param deadline: seconds that each may take. One that hangs is not asked again before its call
        has returned.
    :param cancelled: once set, no call is waited for.
    """

    def __init__(self, monitors: Mapping[str, Monitor], deadline: float, cancelled: Event) -> None:
        self._deadline = deadline
        # Each with the worker that calls it.
        self._monitors = {
            name: (monitor, DriverWorker(name, 1, cancelled, kind="monitor"))
            for name, monitor in monitors.items()
        }
        self._logged: dict[str, str] = {}

    def poll(self) -> tuple[Measurement, ...]:
        """Return the measurement of each monitor as of now."""
        return tuple(self._measure(name, *called) for name, called in self._monitors.items())

    def _measure(self, name: str, monitor: Monitor, worker: DriverWorker) -> Measurement:
        try:
            found = worker.call(metrics, monitor, deadline=self._deadline)
        except AgentError as error:
            return self._without(name, "failed", error.message)
        if isinstance(found, str):
            return self._without(name, "skipped", found)
        self._logged.pop(name, None)
        return Measurement(name, "ok", time.time(), found)

    def _without(self, name: str, status: Status, text: str) -> Measurement:
        if self._logged.get(name) != text:
            LOG.log(
                logging.WARNING if status == "failed" else logging.DEBUG,
                "monitor %s gives no metrics: %s",
                printable(name),
                text,
            )
            self._logged[name] = text
        return Measurement(name, status, time.time(), text=text)


def metrics(monitor: Monitor) -> tuple[Metric, ...] | str:
    """Return the monitor's metrics, or the reason why it has none.

    :raises DriverError: it returns something else than metrics.
    """
    why = monitor.unsupported()
    if why is not None:
        return printable(why)
    found = monitor.metrics()
    if not isinstance(found, Sequence):
        raise DriverError(f"its metrics are no sequence but {type(found).__name__}", DRIVER_FAULT)
    for metric in found:
        if (
            not isinstance(metric, Metric)
            or isinstance(metric.value, bool)
            or not isinstance(metric.value, int | float)
            or not math.isfinite(metric.value)
        ):
            raise DriverError(
                f"it gives what is no metric: {printable(repr(metric))[:200]}", DRIVER_FAULT
            )
    return tuple(found)
