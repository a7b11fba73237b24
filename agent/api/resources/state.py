"""How the agent is: for people who look, for supervisors, for Prometheus."""

from falcon import Request, Response

from agent.api.metrics import CONTENT_TYPE, Metrics
from agent.api.service import Service


class Health:
    """/healthz."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response) -> None:
        """Whether the process works."""
        self._service.check_health()
        response.media = {"status": self._service.status()}


class Readiness:
    """/readyz."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response) -> None:
        """Whether every node was audited and is well."""
        self._service.check_readiness()
        response.media = {"status": self._service.status()}


class Figures:
    """/metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_get(self, _request: Request, response: Response) -> None:
        """Everything that is counted."""
        response.content_type = CONTENT_TYPE
        response.data = self._metrics.text()
