"""Resources for the agent's own state: health, readiness, metrics."""

from falcon import Request, Response

from agent.api.metrics import CONTENT_TYPE, Metrics
from agent.api.service import Service


def health_document(service: Service) -> dict[str, str]:
    """Return the status line, and the state, which is its first word."""
    status = service.status()
    return {"state": status.partition(":")[0], "status": status}


class HealthResource:
    """/healthz."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response) -> None:
        """Answer 200 if the process works."""
        self._service.check_health()
        response.media = health_document(self._service)


class ReadinessResource:
    """/readyz."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response) -> None:
        """Answer 200 if every node was audited and is well."""
        self._service.check_readiness()
        response.media = health_document(self._service)


class MetricsResource:
    """/metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_get(self, _request: Request, response: Response) -> None:
        """Show all metrics."""
        response.content_type = CONTENT_TYPE
        response.data = self._metrics.text()
