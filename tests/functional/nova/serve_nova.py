"""The process behind ``NovaApi``: nova's own compute API on SQLite, run by a Python that has nova.

Networking is not here, so that no server has security groups or ports; what nova tells its other
services stays in memory, because none of them runs. A token is taken for a
reader's if it is ``reader``, and for an administrator's otherwise. ``GET /v3`` tells the client
the version of an identity service. ``PUT /records`` writes records into nova's databases, as
:mod:`tests.functional.nova.nova_records` has them.
"""

import json
import os
import socketserver
import sys
import threading
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

# Threads of the interpreter, as the server below has them.
os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "true"
# Not by the name of its package, because the tests' own packages are not installed here.
sys.path.insert(0, str(Path(__file__).parent))

import nova_records
from nova import config, objects, rpc
from nova.api import auth
from nova.api.openstack import FaultWrapper
from nova.api.openstack.compute import APIRouterV21
from nova.network import neutron, security_group_api

READY = "READY "


class Identity:
    """Says of each request who sends it, as keystonemiddleware does."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: Any, start: Any) -> Any:
        token = environ.get("HTTP_X_AUTH_TOKEN")
        if token:
            roles = "member,reader" if token == "reader" else "admin,member,reader"
            environ |= {
                "HTTP_X_USER_ID": token,
                "HTTP_X_PROJECT_ID": "service",
                "HTTP_X_ROLES": roles,
                "HTTP_X_IDENTITY_STATUS": "Confirmed",
            }
        return self._app(environ, start)


class Api:
    """nova's API below ``/v2.1``, and the records."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._nova = Identity(auth.NovaKeystoneContext(FaultWrapper(APIRouterV21())))

    def __call__(self, environ: Any, start: Any) -> Any:
        path = environ["PATH_INFO"]
        if path == "/records":
            told = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            nova_records.write(json.loads(told))
            start("204 No Content", [])
            return [b""]
        if path == "/v3":
            start("200 OK", [("Content-Type", "application/json")])
            link = {"rel": "self", "href": f"http://{environ['HTTP_HOST']}/v3"}
            version = {"id": "v3.14", "status": "stable", "links": [link]}
            return [json.dumps({"version": version}).encode()]
        query = environ.get("QUERY_STRING")
        line = {"method": environ["REQUEST_METHOD"], "path": path + (f"?{query}" if query else "")}
        with self._log.open("a") as log:
            log.write(json.dumps(line) + "\n")
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = "/v2.1", path.removeprefix("/v2.1")
        return self._nova(environ, start)


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_args: Any) -> None:
        pass


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


def main() -> None:
    """Options: config_file, log, port."""
    options = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    config.parse_args(["nova-api", "--config-file", options["config_file"]])
    objects.register_all()
    rpc.init(config.CONF)
    security_group_api.get_instances_security_groups_bindings = lambda *_args, **_more: {}
    neutron.API.instance_has_extended_resource_request = lambda *_args: False
    server = make_server("127.0.0.1", options["port"], Api(Path(options["log"])), _Server, _Quiet)
    print(f"{READY}{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
