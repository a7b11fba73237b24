"""The process behind ``BenchPlacement``: openstack-placement as it is, in one or several worker
processes on one port, with a line in a log for each request that it answers.

Unlike in the server of the tests, nothing of Placement is replaced; only keystone is missing, so
that every client has the roles that an agent needs.
"""

import ctypes
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import waitress
from oslo_config import cfg
from placement import conf as placement_conf
from placement import db_api, deploy
from placement.db.sqlalchemy import migration
from sqlalchemy import text

from tests.support.child import READY
from tests.support.postgresql import PR_SET_PDEATHSIG
from tests.support.serve import options_from_parent

OBSERVER = "HTTP_X_TEST_OBSERVER"
ROLES = "admin,service"
PATIENCE = 10.0
"""Seconds to wait for the port."""
INVENTORIES = "/inventories"
OUTAGE, RECOVERY = signal.SIGUSR1, signal.SIGUSR2
SIGNALS = (OUTAGE, RECOVERY, signal.SIGTERM)

WSGIApp = Callable[[dict[str, Any], Callable[..., Any]], Any]


class Counter:
    """WSGI middleware: appends a line for each request to ``log``, and once disturbs a write.

    A line has the method, the path, the status, the seconds of the processor that Placement's own
    code took in this thread, when it began (epoch), how many seconds it took, and how many bytes
    the answer has. While there is the file ``meddle``, the next write of an inventory
    meets a provider that has just been written by somebody else.
    """

    def __init__(self, app: WSGIApp, log: Path, meddle: Path) -> None:
        self._app, self._meddle = app, meddle
        # Whole lines are appended at once, so that workers may share the file.
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        environ.setdefault("HTTP_X_ROLES", ROLES)
        if OBSERVER in environ:
            return self._app(environ, start_response)
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method == "PUT" and path.endswith(INVENTORIES) and self._meddle.exists():
            self._meddle.unlink()
            _raise_generation(path.removesuffix(INVENTORIES).rpartition("/")[2])
        answered = []

        def start(status: str, *rest: Any) -> Any:
            answered.append(int(status.split(maxsplit=1)[0]))
            return start_response(status, *rest)

        at, begun, cpu = time.time(), time.perf_counter(), time.thread_time()
        body = list(self._app(environ, start))
        spent = time.thread_time() - cpu, at, time.perf_counter() - begun
        line = [method, path, answered[0], *spent, sum(map(len, body))]
        os.write(self._log, json.dumps(line).encode() + b"\n")
        return body


def _raise_generation(provider: str) -> None:
    statement = "UPDATE resource_providers SET generation = generation + 1 WHERE uuid = :uuid"
    with db_api.placement_context_manager.writer.get_engine().begin() as connection:
        connection.execute(text(statement), {"uuid": provider})


def _application(file: Path) -> WSGIApp:
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf([], project="placement", default_config_files=[str(file)], default_config_dirs=[])
    db_api.configure(conf)
    engine = db_api.placement_context_manager.writer.get_engine()
    # Does nothing where the schema is there already.
    migration.create_schema(engine)
    app: WSGIApp = deploy.loadapp(conf)
    # No connection of the parent may be used by a worker.
    engine.dispose()
    return app


def _listen(port: int) -> socket.socket:
    end = time.monotonic() + PATIENCE
    while True:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError:
            # The workers of the server before may take a moment to end.
            listening.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
            continue
        listening.listen(128)
        return listening


class Workers:
    """The worker processes on one port. They can be ended and started again, as in an outage."""

    def __init__(self, app: WSGIApp, number: int, threads: int) -> None:
        self._app, self._number, self._threads = app, number, threads
        self._running: list[int] = []

    def start(self, port: int) -> int:
        """Serve; return the port, a free one if ``port`` is 0."""
        with _listen(port) as listening:
            parent = os.getpid()
            self._running = [self._fork(listening, parent) for _ in range(self._number)]
            return int(listening.getsockname()[1])

    def _fork(self, listening: socket.socket, parent: int) -> int:
        child = os.fork()
        if child == 0:
            _end_with(parent)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            sockets, threads = [listening], self._threads
            waitress.create_server(self._app, sockets=sockets, threads=threads, ident="").run()
            os._exit(0)
        return child

    def stop(self) -> None:
        """End them all at once."""
        for worker in self._running:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)
        self._running = []


def main() -> None:
    """Options: config_file, log, meddle, threads, workers. A signal begins an outage, another one
    ends it.
    """
    # First, because a thread that would take them is killed by them.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    options = options_from_parent()
    app = _application(Path(options["config_file"]))
    counter = Counter(app, Path(options["log"]), Path(options["meddle"]))
    workers = Workers(counter, options["workers"], options["threads"])
    port = workers.start(0)
    print(f"{READY}{port}", flush=True)
    while (received := signal.sigwait(SIGNALS)) != signal.SIGTERM:
        if received == OUTAGE:
            workers.stop()
        else:
            workers.start(port)
    workers.stop()


def _end_with(parent: int) -> None:
    """Have the kernel end this process with its parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
