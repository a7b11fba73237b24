"""Keeps what a driver writes to standard output, which belongs to the agent's report."""

import io
import os
import sys
import tempfile
from types import TracebackType
from typing import IO, TextIO

_STDOUT = 1
_KEPT = 1000
"""So many bytes are shown at most."""


class OutputWatch:
    """While it is entered, standard output leads into a file: Python's, that of C libraries, and
    that of the programs which are started meanwhile.
    """

    def __init__(self) -> None:
        self.written = ""
        """The beginning of what was written."""
        self._before: TextIO = sys.stdout
        self._stream: TextIO = sys.stdout
        self._saved = -1
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "OutputWatch":
        self._before = sys.stdout
        self._before.flush()
        self._file = tempfile.TemporaryFile(mode="w+b", buffering=0)
        self._saved = os.dup(_STDOUT)
        os.dup2(self._file.fileno(), _STDOUT)
        self._stream = sys.stdout = io.TextIOWrapper(
            os.fdopen(os.dup(self._file.fileno()), "wb", buffering=0),
            encoding="utf-8",
            errors="backslashreplace",
            write_through=True,
        )
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.look()
        os.dup2(self._saved, _STDOUT)
        os.close(self._saved)
        sys.stdout = self._before
        self._stream.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def look(self) -> str:
        """Return the beginning of what was written so far."""
        if self._file is not None:
            found = os.pread(self._file.fileno(), _KEPT, 0)
            self.written = found.decode("utf-8", "backslashreplace")
        return self.written
