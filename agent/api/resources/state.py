"""How the agent is: for people who look, for supervisors, for Prometheus."""

from falcon import Request, Response

from agent.api.metrics import CONTENT_TYPE, Metrics
from agent.api.service import Service


def _health(service: Service) -> dict[str, str]:
    """How things are, in a line, and in the word that it begins with."""
    status = service.status()
    return {"state": status.partition(":")[0], "status": status}


class HealthResource:
    """/healthz."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response) -> None:
        """Whether the process works."""
        self._service.check_health()
        response.media = _health(self._service)


class ReadinessResource:
    """/readyz."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response) -> None:
        """Whether every node was audited and is well."""
        self._service.check_readiness()
        response.media = _health(self._service)


class MetricsResource:
    """/metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_get(self, _request: Request, response: Response) -> None:
        """Everything that is counted."""
        response.content_type = CONTENT_TYPE
        response.data = self._metrics.text()
