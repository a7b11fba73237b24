"""An ironic that is not there: what ironic 39.0.0 answered once, given again for as many nodes as a
test wants.

A node of its list was recorded with API 1.46, as were the 404 and the headers; only uuids, states
and the next page's link are made here. For thousands of nodes, which the real one takes minutes to
make.
"""

import json
import threading
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.ini import Value

NAMESPACE = uuid.UUID("7d0f7c52-0d0e-4b7b-9a55-2f7c0e9d41b6")
HEADERS = {
    "X-OpenStack-Ironic-API-Minimum-Version": "1.1",
    "X-OpenStack-Ironic-API-Maximum-Version": "1.115",
    "X-OpenStack-Ironic-API-Version": "1.46",
    "Content-Type": "application/json",
}
PROPERTIES = {
    "cpus": "8",
    "memory_mb": "16384",
    "local_gb": "500",
    "cpu_arch": "x86_64",
    "capabilities": "boot_mode:uefi",
}


def node_uuid(number: int) -> str:
    """The same in every run."""
    return str(uuid.uuid5(NAMESPACE, str(number)))


class RecordedIronic:
    """``number`` available nodes, ``page`` of them in an answer. ``highest``: the version that it
    offers.
    """

    def __init__(self, number: int, *, page: int = 1000, highest: str = "1.115") -> None:
        self.nodes = {node_uuid(one): self._node(node_uuid(one)) for one in range(number)}
        self.page, self.highest = page, highest
        self.asked: list[str] = []
        self._server = _Server(("127.0.0.1", 0), self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def credentials(self) -> dict[str, Value]:
        """``[ironic]`` of a client."""
        return {"auth_type": "none", "endpoint_override": self.url}

    def start(self) -> None:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        """Status and body."""
        if path == "/v1":
            return 200, {
                "id": "v1",
                "version": {
                    "id": "v1",
                    "status": "CURRENT",
                    "min_version": "1.1",
                    "version": self.highest,
                },
            }
        if path == "/v1/nodes":
            return self._list(query)
        asked = path.removeprefix("/v1/nodes/")
        return (200, self.nodes[asked]) if asked in self.nodes else self._missing(asked)

    def _list(self, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        uuids = list(self.nodes)
        marker = query.get("marker", [""])[0]
        if marker and marker not in self.nodes:
            return self._missing(marker)
        begin = uuids.index(marker) + 1 if marker else 0
        shown = uuids[begin : begin + self.page]
        body: dict[str, Any] = {"nodes": [self.nodes[one] for one in shown]}
        if len(shown) == self.page:
            body["next"] = (
                f"http://ironic.internal:6385/v1/nodes?sort_key=id&sort_dir=asc&limit={self.page}&marker={shown[-1]}"
            )
        return 200, body

    @staticmethod
    def _missing(asked: str) -> tuple[int, Any]:
        said = {
            "faultcode": "Client",
            "faultstring": f"Node {asked} could not be found.",
            "debuginfo": None,
        }
        return 404, {"error_message": json.dumps(said)}

    def _node(self, uuid: str) -> dict[str, Any]:
        links = [{"href": f"http://ironic.internal:6385/v1/nodes/{uuid}", "rel": "self"}]
        return {
            "uuid": uuid,
            "power_state": "power off",
            "provision_state": "available",
            "maintenance": False,
            "properties": dict(PROPERTIES),
            "instance_uuid": None,
            "traits": ["CUSTOM_RAID", "HW_CPU_X86_VMX"],
            "resource_class": "baremetal-gold",
            "links": links,
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], ironic: RecordedIronic) -> None:
        self.ironic = ironic
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.server.ironic.asked.append(self.path)
        status, body = self.server.ironic.answer(parts.path, parse_qs(parts.query))
        content = json.dumps(body).encode()
        self.send_response_only(status)
        for name, value in {
            **HEADERS,
            "X-OpenStack-Ironic-API-Maximum-Version": self.server.ironic.highest,
        }.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: Any) -> None:
        """``asked`` has the paths."""
