"""An HTTP client connection to a Unix socket."""

import http.client
import socket
import struct
from pathlib import Path

from agent.api.socket_file import address

_TIMEVAL = struct.Struct("@ll")


class UnixConnection(http.client.HTTPConnection):
    """A connection to the server at ``path``; ``timeout`` in seconds."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost")
        self._path, self._patience = path, timeout

    def connect(self) -> None:
        """Connect.

        :raises OSError: no process listens there, or the user may not connect.
        """
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # By the kernel's timeout, because with Python's a connection fails at once if the
            # server's backlog is full.
            self.sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(self._patience), 0)
            )
            with address(self._path) as where:
                self.sock.connect(where)
            self.sock.settimeout(self._patience)
        except OSError:
            self.sock.close()
            raise
