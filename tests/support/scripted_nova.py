"""A server in nova's place that answers each path as a test says."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]


def server(uuid: str, **more: Any) -> dict[str, Any]:
    return {"id": uuid, "status": "ACTIVE", "OS-EXT-SRV-ATTR:host": "node-a", **more}


def said(document: Any, status: int = 200) -> Answer:
    return status, json.dumps(document).encode()


class Scripted:
    """A server that answers each path as a test says."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[], Answer]] = {}
        self.requests: list[str] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                scripted.requests.append(self.path)
                status, body = scripted.answers[self.path.partition("?")[0]]()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
