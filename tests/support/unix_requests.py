"""``requests`` over a Unix socket, for tools that speak HTTP only through it."""

import socket
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection


class _Connection(HTTPConnection):
    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__("localhost", **settings)
        self._path = path

    def _new_conn(self) -> socket.socket:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found.connect(str(self._path))
        found.settimeout(30)
        return found


class _Pool(HTTPConnectionPool):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def _new_conn(self) -> _Connection:
        return _Connection(self._path, timeout=self.timeout.connect_timeout)


class _Adapter(HTTPAdapter):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._pool = _Pool(path)

    def get_connection_with_tls_context(self, *_args: Any, **_settings: Any) -> _Pool:
        return self._pool


def session(path: Path) -> requests.Session:
    """A session whose requests to http://localhost go to the socket at ``path``."""
    found = requests.Session()
    found.trust_env = False
    found.mount("http://localhost", _Adapter(path))
    return found
