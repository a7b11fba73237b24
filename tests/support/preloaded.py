"""Starts the agent as a fork of one process that has imported its modules already. A test run starts
some thousand agents, and most of each start was the import of modules.

No module of the agent reads the environment, the user or the working directory while it is
imported; so a fork behaves as a process of its own. Where Python itself or a C library reads a
variable at the start, :func:`can_fork` says no.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NoReturn, Self

CHECKOUT = Path(__file__).resolve().parents[2]

MODULES = (
    "agent.api.application",
    "agent.cli.main",
    "agent.cli.commands.audit",
    "agent.placement.embedded",
    "agent.service.daemon",
    "drivers.fake.catalogue",
    "drivers.fake.file",
    "alembic.migration",
    "falcon",
    "jsonschema",
    "keystoneauth1.adapter",
    "keystoneauth1.identity.v3",
    "keystoneauth1.loading",
    "keystoneauth1.session",
    "keystonemiddleware.auth_token",
    "os_resource_classes",
    "os_traits",
    "oslo_config.cfg",
    "oslo_log.log",
    "placement.db_api",
    "placement.deploy",
    "prometheus_client",
    "psutil",
    "psycopg",
    "requests",
    "retrying",
    "rich.console",
    "rich.table",
    "rich.tree",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "waitress.server",
    "yaml",
)
"""What the agent imports; a library that is not installed is left out."""

READ_AT_THE_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""Beginnings of the environment variables that a Python process or its libraries read when they
start, so that a fork would not see them.
"""
LONGEST_REQUEST = 100_000
"""In bytes: what one message to the preloaded process may have."""
NUMBER = struct.Struct("q")
"""A pid or a wait status on its way from the preloaded process."""


def can_fork(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a fork behaves as a process of its own with this environment would."""
    differs = {
        name
        for name in environment.keys() | os.environ.keys()
        if name != "PYTHONPATH"
        and name.startswith(READ_AT_THE_START)
        and environment.get(name) != os.environ.get(name)
    }
    return not differs and len(_message("", arguments, Path(), environment)) <= LONGEST_REQUEST


def start(
    module: str, arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str]
) -> "ForkedProcess":
    """Start ``python -m module`` without standard input, with its output in pipes."""
    return _preloaded().start(module, arguments, cwd, environment)


def _message(
    module: str, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]
) -> bytes:
    return json.dumps([module, list(arguments), str(cwd), dict(environment)]).encode()


@cache
def _preloaded() -> "PreloadedPython":
    return PreloadedPython()


class ForkedProcess:
    """A running program, used like a :class:`subprocess.Popen` with text pipes.

    ``status`` is a pipe on which the preloaded process writes the pid and, at the end, the wait
    status.
    """

    stdin = None

    def __init__(self, arguments: Sequence[str], status: int, stdout: int, stderr: int) -> None:
        self.args = arguments
        self.stdout: IO[str] = open(stdout, encoding="utf-8")  # noqa: SIM115
        self.stderr: IO[str] = open(stderr, encoding="utf-8")  # noqa: SIM115
        self.returncode: int | None = None
        self._status: IO[bytes] = open(status, "rb", buffering=0)  # noqa: SIM115
        self._ending = threading.Lock()
        self.pid = self._read_number()

    def _read_number(self) -> int:
        """The next number that the preloaded process writes."""
        text = self._status.read(NUMBER.size)
        assert text, "the preloaded process ended"
        return int(NUMBER.unpack(text)[0])

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(list(self.args), timeout)
        return code

    def _wait(self, timeout: float | None) -> int | None:
        with self._ending:
            if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
                self.returncode = os.waitstatus_to_exitcode(self._read_number())
            return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both streams to their ends; may be repeated after a timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not hasattr(self, "_readers"):
            self._texts = ["", ""]
            self._readers = [
                threading.Thread(target=self._read, args=[0, self.stdout], daemon=True),
                threading.Thread(target=self._read, args=[1, self.stderr], daemon=True),
            ]
            for reader in self._readers:
                reader.start()
        for reader in self._readers:
            reader.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if reader.is_alive():
                assert timeout is not None
                raise subprocess.TimeoutExpired(list(self.args), timeout)
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self._texts[0], self._texts[1]

    def _read(self, number: int, stream: IO[str]) -> None:
        with stream:
            self._texts[number] = stream.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.wait()
        if not hasattr(self, "_readers"):
            self.stdout.close()
            self.stderr.close()
        self._status.close()


class PreloadedPython:
    """The side of the tests: one preloaded process for each worker of pytest."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=CHECKOUT,
                # As the agent itself sets it before stevedore is imported.
                env={**environment, "XDG_CACHE_HOME": os.devnull},
                pass_fds=[theirs.fileno()],
            )

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
    ) -> ForkedProcess:
        pipes = [os.pipe() for _ in range(3)]
        try:
            with self._turn:
                socket.send_fds(
                    self._socket,
                    [_message(module, arguments, cwd, environment)],
                    [write for _, write in pipes],
                )
        finally:
            for _, write in pipes:
                os.close(write)
        (status, _), (stdout, _), (stderr, _) = pipes
        return ForkedProcess([sys.executable, "-m", module, *arguments], status, stdout, stderr)


# --- the preloaded process ------------------------------------------------------------------------


def main() -> NoReturn:
    for module in MODULES:
        with suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    program = _serve(socket.socket(fileno=int(sys.argv[1])))
    # From here on this is the program's process.
    runpy.run_module(program, run_name="__main__", alter_sys=True)
    sys.exit()


def _serve(requests: socket.socket) -> str:
    """Fork for each request. Return the program's module in each fork; never return otherwise."""
    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    running: dict[int, int] = {}
    while True:
        readable = select.select([requests, ended], [], [])[0]
        if ended in readable:
            ended.recv(4096)
            for pid, status in _ended():
                pipe = running.pop(pid)
                with suppress(BrokenPipeError):
                    os.write(pipe, NUMBER.pack(status))
                os.close(pipe)
        if requests in readable:
            text, pipes, _, _ = socket.recv_fds(requests, 2 * LONGEST_REQUEST, 3)
            if not text:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                for other in (*running.values(), pipes[0]):
                    os.close(other)
                for end in (requests, ended, wake):
                    end.close()
                return _become(json.loads(text), pipes[1:])
            os.write(pipes[0], NUMBER.pack(pid))
            running[pid] = pipes[0]
            for pipe in pipes[1:]:
                os.close(pipe)


def _ended() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def _become(request: list[Any], streams: Sequence[int]) -> str:
    """Make this fork what a process of its own would be. Return the program's module."""
    module, arguments, cwd, environment = request
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    added = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [cwd, *added]
    importlib.invalidate_caches()
    sys.argv[1:] = arguments
    return str(module)


if __name__ == "__main__":
    main()
