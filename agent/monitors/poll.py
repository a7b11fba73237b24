"""Asks all monitors; one that fails or hangs hides no other."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event

from oslo_log import log as logging

from agent.driver.worker import DriverWorker
from agent.errors import DRIVER_FAULT, AgentError, DriverError
from agent.model.names import printable
from agent.monitors.monitor import Metric, Monitor, Measurement, Status

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _PendingMeasurement:
    monitor: Monitor
    worker: DriverWorker


class Monitors:
    """The monitors of a host, by name. Polled by one thread at a time, which holds no lock.

    :param deadline: seconds that each may take. One that hangs is not asked again before it has come back.
    :param cancelled: once set, nobody is waited for.
    """

    def __init__(self, monitors: Mapping[str, Monitor], deadline: float, cancelled: Event) -> None:
        self._deadline = deadline
        self._asked = {name: _PendingMeasurement(one, DriverWorker(name, 1, cancelled, kind="monitor")) for name, one in monitors.items()}
        self._told: dict[str, str] = {}

    def poll(self) -> tuple[Measurement, ...]:
        """What each of them says now."""
        return tuple(self._reading(name, one) for name, one in self._asked.items())

    def _reading(self, name: str, asked: _PendingMeasurement) -> Measurement:
        try:
            found = asked.worker.call(metrics, asked.monitor, deadline=self._deadline)
        except AgentError as error:
            return self._without(name, "failed", error.message)
        if isinstance(found, str):
            return self._without(name, "skipped", found)
        self._told.pop(name, None)
        return Measurement(name, "ok", time.time(), found)

    def _without(self, name: str, status: Status, text: str) -> Measurement:
        if self._told.get(name) != text:
            LOG.log(logging.WARNING if status == "failed" else logging.DEBUG, "monitor %s gives no metrics: %s", printable(name), text)
            self._told[name] = text
        return Measurement(name, status, time.time(), text=text)


def metrics(monitor: Monitor) -> tuple[Metric, ...] | str:
    """The monitor's metrics, or why it has none.

    :raises DriverError: what it gives are no metrics.
    """
    why = monitor.unsupported()
    if why is not None:
        return printable(why)
    found = monitor.metrics()
    if not isinstance(found, Sequence):
        raise DriverError(f"its metrics are no sequence but {type(found).__name__}", DRIVER_FAULT)
    for one in found:
        if not isinstance(one, Metric) or isinstance(one.value, bool) or not isinstance(one.value, int | float) or not math.isfinite(one.value):
            raise DriverError(f"it gives what is no metric: {printable(repr(one))[:200]}", DRIVER_FAULT)
    return tuple(found)
