"""HTTP to a Unix socket."""

import http.client
import socket
from pathlib import Path

from agent.api.address import address


class UnixConnection(http.client.HTTPConnection):
    """A connection to the server at ``path``."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """:raises OSError: nobody listens there, or it may not be connected to."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            with address(self._path) as where:
                self.sock.connect(where)
        except OSError:
            self.sock.close()
            raise
