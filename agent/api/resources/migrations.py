"""Migrations."""

from falcon import Request, Response

from agent.api.service import Service


class MigrationsResource:
    """/v1/migrations."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, request: Request, response: Response) -> None:
        """A page."""
        response.media = self._service.records().migrations(request.context.query)
