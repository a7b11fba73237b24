"""The API as a WSGI application: every request is let in or not, validated, handled, counted, and answered with JSON."""

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import falcon
from falcon import Request, Response

from agent.api.access import READS, Access
from agent.api.description import Description, load
from agent.api.errors import UnknownMethod, UnknownPath
from agent.api.metrics import Metrics
from agent.api.problem import MEDIA_TYPE, problem_of, status_of
from agent.api.routes import routes
from agent.api.service import Service
from agent.api.validation import Validation
from agent.errors import AgentBug, AgentError
from agent.model.names import printable

LOG = logging.getLogger(__name__)

# Under this key the server leaves who asks.
PEER = "compute_node_agent.peer"
NOWHERE = "none"


def application(
    service: Service, access: Callable[[], Access], metrics: Metrics, waiters: int, description: Description | None = None
) -> "falcon.App[Any, Any]":
    """The application. ``access`` says who may do what now; ``waiters`` is how many requests may wait for an audit at once."""
    app: falcon.App[Any, Any] = falcon.App(middleware=[Ledger(metrics), Gate(access), Validation(description or load())])
    app.add_error_handler(AgentError, _refused)
    app.add_error_handler(falcon.HTTPError, _refused_by_falcon)
    app.add_error_handler(Exception, _failed)
    for path, resource in routes(service, metrics, waiters).items():
        app.add_route(path, resource)
    return app


class Gate:
    """Lets in who may do what is asked."""

    def __init__(self, access: Callable[[], Access]) -> None:
        self._access = access

    def process_request(self, request: Request, _response: Response) -> None:
        """:raises Forbidden: the peer may not."""
        self._access().check(request.env[PEER], request.method)


class Ledger:
    """Times and counts every request, and logs the ones that write."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def process_request(self, request: Request, _response: Response) -> None:
        """It begins."""
        request.context.begun = time.monotonic()

    def process_response(self, request: Request, response: Response, _resource: object, _succeeded: bool) -> None:
        """It ends."""
        seconds, status = time.monotonic() - request.context.begun, response.status_code
        method = request.method if request.method in falcon.HTTP_METHODS else NOWHERE
        self._metrics.answered(method, request.uri_template or NOWHERE, status, seconds)
        level = logging.DEBUG if request.method in READS else logging.INFO
        LOG.log(level, "%s: %s %s: %d in %.3f s", request.env[PEER], request.method, printable(request.path), status, seconds)


def _refused(_request: Request, response: Response, error: AgentError, _parameters: object) -> None:
    status = status_of(error)
    response.status = falcon.code_to_http_status(status)
    response.content_type = MEDIA_TYPE
    response.data = json.dumps(problem_of(error)).encode()
    if status in (429, 503):
        response.set_header("Retry-After", "1")
    if isinstance(error, UnknownMethod):
        response.set_header("Allow", ", ".join(error.data["allowed"]))


def _refused_by_falcon(request: Request, response: Response, error: falcon.HTTPError, parameters: object) -> None:
    """What the router refuses: paths that nobody serves."""
    if error.status_code != 404:
        _failed(request, response, error, parameters)
        return
    _refused(request, response, UnknownPath(f"there is no {printable(request.path)[:200]}", "openapi.yaml describes what there is"), parameters)


def _failed(request: Request, response: Response, error: Exception, parameters: object) -> None:
    LOG.error("%s %s", request.method, printable(request.path), exc_info=error)
    _refused(request, response, AgentBug(f"unexpected error: {type(error).__name__}: {printable(str(error))[:500]}"), parameters)
