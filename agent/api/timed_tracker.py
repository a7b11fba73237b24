"""The tracker as the API calls it: every operation is timed, every refusal is counted."""

import time
from collections.abc import Callable
from typing import TypeVar

from agent.api.metrics import Metrics, TrackerOperation
from agent.api.service import Service
from agent.errors import AgentError
from agent.tracker.tracker import Tracker

Answer = TypeVar("Answer")


class TimedTracker:
    """Runs operations of the tracker, and counts them in the metrics. Threads may share it."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service, self._metrics = service, metrics

    def run(self, operation: TrackerOperation, work: Callable[[Tracker], Answer]) -> Answer:
        """Call ``work`` with the tracker, and return its result.

        :raises AgentError: there is no tracker now, or it refuses.
        """
        begun, refusal = time.monotonic(), ""
        try:
            return work(self._service.tracker())
        except AgentError as error:
            refusal = error.code
            raise
        finally:
            self._metrics.count_operation(operation, refusal, time.monotonic() - begun)
