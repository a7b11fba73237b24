"""Where the API's requests to the tracker are carried out: each is timed, and each
refusal counted.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from agent.api.metrics import Metrics, TrackerOperation
from agent.api.service import Service
from agent.errors import AgentError
from agent.tracker.tracker import Tracker

Answer = TypeVar("Answer")


class TimedTracker:
    """Threads may share it."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service, self._metrics = service, metrics

    def done(self, operation: TrackerOperation, work: Callable[[Tracker], Answer]) -> Answer:
        """What ``work`` returns.

        :raises AgentError: the tracker cannot be asked now, or refuses.
        """
        begun, refusal = time.monotonic(), ""
        try:
            return work(self._service.tracker())
        except AgentError as error:
            refusal = error.code
            raise
        finally:
            self._metrics.tracked(operation, refusal, time.monotonic() - begun)
