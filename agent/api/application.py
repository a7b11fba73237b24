"""The API as a WSGI application: authorizes, validates, handles and counts every request, and
answers it with JSON.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import falcon
from falcon import Request, Response

from agent.api.access import PEER, READS, Access
from agent.api.metrics import Metrics, TimedTracker
from agent.api.operations import Validation
from agent.api.problem import (
    MEDIA_TYPE,
    UnknownMethod,
    UnknownPath,
    WaitLimit,
    plain,
    problem_of,
    refusal,
    status_of,
)
from agent.api.record_resources import (
    STEPS,
    ClaimResource,
    DeviceResource,
    GuestResource,
    InstanceResource,
    MoveResource,
)
from agent.api.service import Service
from agent.api.state_resources import AuditResource, HealthResource, NodeResource
from agent.errors import AgentBug, AgentError
from agent.model.names import printable

LOG = logging.getLogger(__name__)

NOWHERE = "none"
USES_STORE = re.compile(
    r"/v1/(claims|moves|devices|guests|instances|migrations|report"
    r"|nodes/\{uuid\}/(builds|report))(/|$)"
)
# In seconds: once the store has answered no request for this long, further ones are refused.
STORE_PATIENCE = 1.0


def application(
    service: Service,
    access: Callable[[], Access],
    metrics: Metrics,
    waiters: int,
    store_users: int,
) -> "falcon.App[Any, Any]":
    """Return the application.

    ``access`` returns the rights that hold now. ``waiters``: how many requests may wait at once for
    audits, reloads and Placement; ``store_users``: how many may use the store at once.
    """
    room = WaitLimit(store_users, "the store", STORE_PATIENCE)
    app: falcon.App[Any, Any] = falcon.App(
        middleware=[
            RequestLog(metrics),
            Authorizer(access),
            Validation(),
            StoreWaitLimit(room),
        ]
    )
    handle_errors(app)
    add_routes(app, routes(service, metrics, waiters))
    return app


Routes = Mapping[str, tuple[object, str | None]]
"""From the template of a path to its resource and the suffix of the responders' names."""


def health_routes(service: Service, metrics: Metrics) -> Routes:
    """Return the routes of health and metrics."""
    health = HealthResource(service, metrics)
    return {
        "/healthz": (health, None),
        "/readyz": (health, "readiness"),
        "/metrics": (health, "metrics"),
    }


def routes(service: Service, metrics: Metrics, waiters: int) -> Routes:
    """Return the routes of the API.

    ``waiters``: how many requests may wait at once for audits, reloads and Placement.
    """
    room, timed_tracker = (
        WaitLimit(waiters, "Placement, or for other things that the agent does not do by itself"),
        TimedTracker(service, metrics),
    )
    audits, nodes = AuditResource(service, room), NodeResource(service, timed_tracker)
    claims, moves = ClaimResource(service, timed_tracker), MoveResource(service, timed_tracker)
    devices, guests = DeviceResource(service, timed_tracker), GuestResource(service, timed_tracker)
    instances = InstanceResource(service, timed_tracker, room)
    return {
        **health_routes(service, metrics),
        "/v1/nodes": (nodes, "list"),
        "/v1/nodes/{uuid}": (nodes, None),
        "/v1/nodes/{uuid}/tree": (nodes, "tree"),
        "/v1/nodes/{uuid}/report": (nodes, "report"),
        "/v1/report": (nodes, "reports"),
        "/v1/nodes/{uuid}/builds": (nodes, "builds"),
        "/v1/audits": (audits, "list"),
        "/v1/audits/{id}": (audits, None),
        "/v1/reload": (audits, "reload"),
        "/v1/claims": (claims, "list"),
        "/v1/claims/{id}": (claims, None),
        "/v1/moves": (moves, "list"),
        "/v1/moves/{id}": (moves, None),
        "/v1/moves/{id}/drop": (moves, "drop"),
        **{f"/v1/moves/{{id}}/{word}": (moves, "step") for word in STEPS},
        "/v1/devices": (devices, "list"),
        "/v1/devices/cleaned": (devices, "cleaned"),
        "/v1/devices/claims": (devices, "claims"),
        "/v1/devices/claims/{id}": (devices, "claim"),
        "/v1/devices/claims/{id}/allocate": (devices, "use"),
        "/v1/guests": (guests, "list"),
        "/v1/guests/import": (guests, "import"),
        "/v1/guests/{uuid}": (guests, None),
        "/v1/instances": (instances, "list"),
        "/v1/instances/{uuid}": (instances, None),
        "/v1/instances/{uuid}/allocation": (instances, "allocation"),
        "/v1/migrations": (moves, "migrations"),
    }


def add_routes(app: "falcon.App[Any, Any]", added: Routes) -> None:
    """Add the routes to ``app``."""
    for path, (resource, suffix) in added.items():
        app.add_route(path, resource, suffix=suffix)


def handle_errors(app: "falcon.App[Any, Any]") -> None:
    """Answer every error of ``app`` with a problem document."""
    app.add_error_handler(AgentError, _answer_error)
    app.add_error_handler(falcon.HTTPError, _refused_by_falcon)
    app.add_error_handler(Exception, _answer_bug)


class Authorizer:
    """Middleware that admits a request only if its peer has the right to send it."""

    def __init__(self, access: Callable[[], Access]) -> None:
        self._access = access

    def process_request(self, request: Request, _response: Response) -> None:
        """Check the peer's rights.

        :raises Forbidden: the peer does not have them.
        """
        self._access().check(request.env[PEER], request.method)


class StoreWaitLimit:
    """Middleware that limits the requests that use the store, so that a hanging store does not
    block all threads.
    """

    def __init__(self, room: WaitLimit) -> None:
        self._room = room

    def process_resource(
        self, request: Request, _response: Response, _resource: object, _parameters: object
    ) -> None:
        """Take a place for a request that needs the store.

        :raises Busy: all places are taken, and the store answers none of the requests that have
            them.
        """
        if USES_STORE.match(request.uri_template or ""):
            request.context.place = ExitStack()
            request.context.place.enter_context(self._room.place())

    def process_response(
        self, request: Request, _response: Response, _resource: object, _succeeded: bool
    ) -> None:
        """Free the place."""
        if "place" in request.context:
            request.context.place.close()


class RequestLog:
    """Middleware that times, counts and logs every request; those that write at level INFO, others
    at DEBUG.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def process_request(self, request: Request, _response: Response) -> None:
        """Note the start of the request."""
        request.context.begun = time.monotonic()

    def process_response(
        self, request: Request, response: Response, _resource: object, _succeeded: bool
    ) -> None:
        """Count and log the request at its end."""
        seconds, status = time.monotonic() - request.context.begun, response.status_code
        method = request.method if request.method in falcon.HTTP_METHODS else NOWHERE
        self._metrics.count_answer(method, request.uri_template or NOWHERE, status, seconds)
        level = logging.DEBUG if request.method in READS else logging.INFO
        LOG.log(
            level,
            "%s: %s %s: %d in %.3f s",
            request.env[PEER],
            request.method,
            printable(request.path),
            status,
            seconds,
        )


def _answer_error(
    _request: Request, response: Response, error: AgentError, _parameters: object
) -> None:
    _answer(response, problem_of(error))
    if status_of(error) in (429, 503):
        response.set_header("Retry-After", "1")
    if isinstance(error, UnknownMethod):
        response.set_header("Allow", ", ".join(error.data["allowed"]))


def _answer(response: Response, problem: dict[str, Any]) -> None:
    response.status = falcon.code_to_http_status(problem["status"])
    response.content_type = MEDIA_TYPE
    response.data = json.dumps(problem).encode()


def _refused_by_falcon(
    request: Request, response: Response, error: falcon.HTTPError, parameters: object
) -> None:
    """Answer what falcon itself refuses: unknown paths, and headers that it cannot parse."""
    if error.status_code == 404:
        _answer_error(
            request,
            response,
            UnknownPath(
                f"there is no {printable(request.path)[:200]}",
                "openapi.yaml describes what there is",
            ),
            parameters,
        )
    elif error.status_code < 500:
        code, remedy = refusal(error.status_code)
        _answer(response, plain(code, f"{error.title}: {error.description}"[:500], remedy))
    else:
        _answer_bug(request, response, error, parameters)


def _answer_bug(request: Request, response: Response, error: Exception, parameters: object) -> None:
    LOG.error("%s %s", request.method, printable(request.path), exc_info=error)
    _answer_error(request, response, AgentBug.of(error), parameters)
