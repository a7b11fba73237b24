"""The process behind ``HttpPlacement``: the real Placement on a SQLite file, with a log of the
requests it handles.
"""

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import webob.headers
from placement import db_api, deploy, microversion

from tests.support import placement_app, serve
from tests.support.exchange import OBSERVER_HEADER, arrived


class Recorder:
    """WSGI middleware that writes down one line for each request answered.

    Any number may be under way, but Placement gets one at a time, because SQLite does not let two
    transactions write, and Placement says 500 then.
    """

    def __init__(self, app: placement_app.WSGIApp, file: Path) -> None:
        self._app = app
        self._file = file
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        with self._turn:
            return self._handle(environ, start_response)

    def _handle(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        headers = webob.headers.EnvironHeaders(environ)
        if OBSERVER_HEADER in headers:
            return self._app(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        exchange = arrived(
            environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], headers, body
        )
        exchange.reached = True

        def start(status: str, answered: list[tuple[str, str]], *rest: Any) -> Any:
            exchange.status = int(status.split(maxsplit=1)[0])
            exchange.server_request_id = dict(answered).get("x-openstack-request-id")
            with self._file.open("a") as log:
                log.write(exchange.to_json() + "\n")
            return start_response(status, answered, *rest)

        return self._app(environ, start)


def placement_of(options: dict[str, Any]) -> placement_app.WSGIApp:
    """The real Placement that options of the parent describe."""
    if options["max_version"] is not None:
        known = microversion.VERSIONS
        microversion.VERSIONS = known[: known.index(options["max_version"]) + 1]
    conf = placement_app.configuration(Path(options["config_file"]))
    db_api.configure(conf)
    placement = deploy.loadapp(conf)
    if conf.api.auth_strategy == "noauth2":
        placement = placement_app.with_roles(placement)
    return Recorder(placement, Path(options["log"]))


def main() -> None:
    """Options: config_file, log, port, threads, prefix, max_version (or null)."""
    options = serve.options_from_parent()
    app = placement_of(options)
    serve.serve(
        lambda _port: app, options["port"], threads=options["threads"], prefix=options["prefix"]
    )


if __name__ == "__main__":
    main()
