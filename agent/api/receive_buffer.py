"""The bytes that have arrived on a connection and were not read: received without waiting, and
passed on when a whole request is there.
"""

import os
import re
import socket

MAX_HEAD = 32 * 1024
MAX_BODY = 1024 * 1024
# In bytes: how much of a body that is too large is received and dropped, because most clients read
# no answer before they have sent the body.
MAX_WASTE = 64 * 1024 * 1024
CHUNK = 64 * 1024

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(
    rb"^content-length[ \t]*:[ \t]*([0-9]{1,18})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)
_ASKS_FIRST = re.compile(rb"^expect[ \t]*:", re.IGNORECASE | re.MULTILINE)
_CODED = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)


class ReceiveBuffer:
    """Replaces the file from which cheroot reads a connection, so that no thread waits for a slow
    client.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = bytearray()
        # In bytes: how much of a body that is too large was dropped.
        self._wasted = 0
        self.closed = False

    @property
    def size(self) -> int:
        """The number of buffered bytes."""
        return len(self._data)

    @property
    def empty(self) -> bool:
        """Whether no byte of a request has arrived."""
        return not self._data

    def begins_with(self, beginnings: tuple[bytes, ...]) -> bool:
        """Return whether the buffer begins with one of ``beginnings``."""
        return self._data.startswith(beginnings)

    def receive(self) -> bool:
        """Receive until a request is whole or no more bytes are there. Return False if the client
        has closed the connection or it is broken.
        """
        while not self.has_data():
            try:
                # Not by the socket's method, which would wait.
                arrived = os.read(self._connection.fileno(), CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not arrived:
                return False
            self._data += arrived
        return True

    def has_data(self) -> bool:
        """Return whether there is enough to answer: a whole request, or one that will be refused
        whatever follows.
        """
        end = _END_OF_HEAD.search(self._data, 0, MAX_HEAD)
        if end is None:
            return len(self._data) >= MAX_HEAD
        head = bytes(self._data[: end.end()])
        if _CODED.search(head) is not None:
            return True
        # The server refuses a length that is not a number.
        length = int(found[1]) if (found := _LENGTH.search(head)) else 0
        if length > MAX_BODY:
            self._wasted += len(self._data) - end.end()
            del self._data[end.end() :]
            return _ASKS_FIRST.search(head) is not None or self._wasted >= min(length, MAX_WASTE)
        return len(self._data) >= end.end() + length

    # --- a file to read from ----------------------------------------------------------------------

    def read(self, size: int | None = -1) -> bytes:
        """Take up to ``size`` bytes from the buffer."""
        return self._take(len(self._data) if size is None or size < 0 else size)

    def readline(self, size: int | None = -1) -> bytes:
        """Take one line from the buffer, ``size`` bytes at most."""
        end = self._data.find(b"\n") + 1 or len(self._data)
        return self._take(end if size is None or size < 0 else min(end, size))

    def _take(self, size: int) -> bytes:
        with memoryview(self._data) as data:
            taken = bytes(data[:size])
        del self._data[:size]
        return taken

    def close(self) -> None:
        """Drop everything."""
        self.closed = True
        self._data.clear()
