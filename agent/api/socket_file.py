"""The addresses at which the API listens; the file of its socket: created with its rights before
other processes can see it, never taken from a running agent, removed at the end; and an HTTP
connection to a socket.
"""

import errno
import fcntl
import http.client
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oslo_config import cfg

from agent.api.problem import SocketUnusable
from agent.errors import ConfigError
from agent.model.names import printable

METRICS_OPTION = "[api] metrics_address"
Address = tuple[str, int]


def health_socket(path: Path) -> Path:
    """Return the path of the socket for metrics and health alone, beside the API's own."""
    return path.with_name(f"{path.stem}-health{path.suffix}")


# sockaddr_un has 108 bytes for the path and the NUL that ends it.
LONGEST = 107


@contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield the path to bind or connect to; it is valid within the context.

    :raises OSError: the folder does not exist.
    """
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def metrics_address(conf: cfg.ConfigOpts) -> Address | None:
    """Return the address of the metrics listener, as IP address and port; None if there is none.

    :raises ConfigError: the option is not an IP address with a port.
    """
    text = conf.api.metrics_address
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(
            host[1:-1] if host.startswith("[") and host.endswith("]") else host
        )
        if (
            not colon
            or not (port.isascii() and port.isdecimal())
            or not 1 <= int(port) <= 65535
            or (address.version == 6) != host.startswith("[")
        ):
            raise ValueError(text)
    except ValueError as error:
        raise ConfigError(
            f"{METRICS_OPTION} = {printable(text)}: no IP address with a port",
            "write it like 127.0.0.1:9653 or [::1]:9653",
        ) from error
    return str(address), int(port)


def metrics_warning(conf: cfg.ConfigOpts) -> str | None:
    """Return a warning if the metrics address can be reached from other hosts, else None."""
    try:
        address = metrics_address(conf)
    except ConfigError:
        return None
    if address is None or ipaddress.ip_address(address[0]).is_loopback:
        return None
    what = (
        "every client that can reach it can read the metrics, with the names of nodes; the local "
        "API itself is not served there"
    )
    return (
        f"{METRICS_OPTION} = {printable(conf.api.metrics_address)} is no loopback address: "
        f"{what}; use 127.0.0.1 and a proxy, or a firewall"
    )


MODE = 0o660
FOLDER_MODE = 0o755
# In seconds; a process that listens accepts a connection at once.
PROBE_TIMEOUT = 1.0


class SocketFile:
    """A listening socket at ``path``. The holder of the lock beside it may replace the file.

    :raises SocketUnusable: another agent listens there, or the path is another kind of file, or it
        cannot be created.
    """

    def __init__(self, path: Path, group: int | None) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._lock = _lock_path(path)
            try:
                _check_free(path)
                self.listening = _place_socket(path, group)
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as error:
            raise _unusable(
                path,
                error.strerror or str(error),
                "name a path where the agent's user may make files",
            ) from error
        self._made = _identity(path)

    def remove(self) -> None:
        """Remove the file unless another process has replaced it, and release the lock. The server
        closes the socket itself.
        """
        with suppress(FileNotFoundError):
            if _identity(self.path) == self._made:
                self.path.unlink()
        os.close(self._lock)


def _lock_path(path: Path) -> int:
    # Held while the agent runs. The file is never removed, because another process may be about to
    # lock it.
    lock = os.open(
        path.with_name(f"{path.name}.lock"),
        os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
        0o600,
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise _in_use(path) from error
    return lock


def _check_free(path: Path) -> None:
    """Do nothing if nothing is at ``path``, or a socket at which no process listens.

    :raises SocketUnusable: the path is in use.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise _unusable(
            path, "there is something else than a socket", "move it away, or name another path"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, address(path) as where:
        probe.settimeout(PROBE_TIMEOUT)
        try:
            probe.connect(where)
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            if error.errno != errno.EAGAIN and not isinstance(error, TimeoutError):
                raise
    raise _in_use(path)


def _place_socket(path: Path, group: int | None) -> socket.socket:
    """Return a socket that listens at ``path``. It is created under another name and renamed, so
    that the file has its group, its rights and a listener from its first moment.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        temporary.unlink(missing_ok=True)
        # bind() gives the file no more rights than the socket has.
        os.fchmod(listening.fileno(), 0o600)
        with address(temporary) as where:
            listening.bind(where)
        try:
            if group is not None and temporary.lstat().st_gid != group:
                os.chown(temporary, -1, group)
            temporary.chmod(MODE)
            listening.listen()
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
    except PermissionError as error:
        listening.close()
        what = "the agent's user may not make it there, or may not give it to its group"
        raise _unusable(
            path, what, "name another path, or a [api] group that the agent's user is in"
        ) from error
    except BaseException:
        listening.close()
        raise
    return listening


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _in_use(path: Path) -> SocketUnusable:
    return _unusable(
        path, "another agent listens there", "stop the other one, or name another path"
    )


def _unusable(path: Path, reason: str, remedy: str) -> SocketUnusable:
    return SocketUnusable(f"[api] socket = {printable(str(path))}: {reason}", remedy)


_TIMEVAL = struct.Struct("@ll")


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection to the server whose socket is at ``path``; ``timeout`` in seconds."""

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
