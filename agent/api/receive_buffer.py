"""What has arrived on a connection and was not read yet: collected without waiting, handed on a
whole request at a time.
"""

import os
import re
import socket

MAX_HEAD = 32 * 1024
MAX_BODY = 1024 * 1024
# Of a body that is too large so much is taken and thrown away, because most clients read no answer
# before they have sent it.
MAX_WASTE = 64 * 1024 * 1024
CHUNK = 64 * 1024

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(
    rb"^content-length[ \t]*:[ \t]*([0-9]{1,18})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)
_ASKS_FIRST = re.compile(rb"^expect[ \t]*:", re.IGNORECASE | re.MULTILINE)
_CODED = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)


class ReceiveBuffer:
    """Stands in for the file that a server reads a connection from, so that no thread ever waits
    for a slow client.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = bytearray()
        # How much of a body that is too large was thrown away.
        self._wasted = 0
        self.closed = False
        self.bytes_read = 0

    @property
    def size(self) -> int:
        """How many bytes are there."""
        return len(self._data)

    @property
    def empty(self) -> bool:
        """Whether no request has begun."""
        return not self._data

    def begins_with(self, beginnings: tuple[bytes, ...]) -> bool:
        """Whether what is there begins with one of them."""
        return self._data.startswith(beginnings)

    def receive(self) -> bool:
        """Take what is there, until a request is whole. Returns false where there will
        be no more.
        """
        while not self.has_data():
            try:
                # Not by the socket's own method, which would wait.
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
        """Whether there is enough to answer: a whole request, or one that is refused however it
        goes on.
        """
        end = _END_OF_HEAD.search(self._data, 0, MAX_HEAD)
        if end is None:
            return len(self._data) >= MAX_HEAD
        head = bytes(self._data[: end.end()])
        if _CODED.search(head) is not None:
            return True
        # A length that is not a number is the server's to refuse.
        length = int(found[1]) if (found := _LENGTH.search(head)) else 0
        if length > MAX_BODY:
            self._wasted += len(self._data) - end.end()
            del self._data[end.end() :]
            return _ASKS_FIRST.search(head) is not None or self._wasted >= min(length, MAX_WASTE)
        return len(self._data) >= end.end() + length

    # --- a file to read from ----------------------------------------------------------------------

    def read(self, size: int | None = -1) -> bytes:
        """Up to so many bytes of what is there."""
        return self._taken(len(self._data) if size is None or size < 0 else size)

    def readline(self, size: int | None = -1) -> bytes:
        """One line of what is there, or so many bytes of it."""
        end = self._data.find(b"\n") + 1 or len(self._data)
        return self._taken(end if size is None or size < 0 else min(end, size))

    def _taken(self, size: int) -> bytes:
        with memoryview(self._data) as data:
            taken = bytes(data[:size])
        del self._data[:size]
        self.bytes_read += len(taken)
        return taken

    def close(self) -> None:
        """Forget it all."""
        self.closed = True
        self._data.clear()
