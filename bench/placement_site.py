"""The real Placement of the bench, over HTTP, on SQLite or on PostgreSQL with several workers."""

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from keystoneauth1.session import Session
from placement.db.sqlalchemy import models
from sqlalchemy import create_engine, text

from bench.serve_placement import OUTAGE, PATIENCE, RECOVERY
from tests.support.child import Child
from tests.support.ini import write_config
from tests.support.placement import SERVICE_ROLES, Placement, noauth_session
from tests.support.postgresql import BINARIES, PostgreSQL

Backend = Literal["sqlite", "postgresql"]
WORKERS = 2
IN_FLIGHT = 4
THREADS = 4
# Rows that Placement writes at its start, beside those of its clients.
STANDARD = ("traits", "resource_classes")


@dataclass(frozen=True)
class Request:
    """A request that Placement answered."""

    method: str
    path: str
    status: int
    cpu: float
    """Seconds of the processor that Placement's own code took."""
    begun: float
    """Epoch."""
    seconds: float
    """Between the worker's begin and its answer; waiting for a worker is not in it."""
    size: int
    """Bytes of the answer's body."""


class BenchPlacement(Placement):
    """A Placement that can be stopped, started again and emptied; the port and the database stay.

    ``in_flight``: how many requests a client should have under way: parallel writes to SQLite are
    answered with 500.
    """

    max_version = None

    def __init__(self, folder: Path, connection: str, *, workers: int, in_flight: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.in_flight, self.workers = in_flight, workers
        self.port = 0
        self._connection, self._log, self._meddle = connection, folder / "log", folder / "meddle"
        database: dict[str, str | bool] = {"connection": connection}
        if connection.startswith("sqlite"):
            database["sqlite_synchronous"] = False
        self._config = write_config(
            folder / "placement.conf",
            {"placement_database": database, "api": {"auth_strategy": "noauth2"}},
        )
        self._child = Child("bench.serve_placement", folder / "placement.output")
        self.clear()

    @property
    def url(self) -> str:  # type: ignore[override]
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def session(self, roles: str = SERVICE_ROLES) -> Session:
        """Return a session of a client."""
        return noauth_session(self.url, roles)

    def start(self) -> None:
        """Serve, on a free port."""
        self.port = self._child.start(
            {
                "config_file": str(self._config),
                "log": str(self._log),
                "meddle": str(self._meddle),
                "threads": THREADS,
                "workers": self.workers,
            }
        )

    def stop(self) -> None:
        """End all workers."""
        self._child.stop()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Inside, nobody listens on the port."""
        self._signal(OUTAGE, listening=False)
        try:
            yield
        finally:
            self._signal(RECOVERY, listening=True)

    def _signal(self, number: int, *, listening: bool) -> None:
        os.kill(self._child.pid, number)
        end = time.monotonic() + PATIENCE
        while self._listens() != listening:
            if time.monotonic() > end:
                raise SystemExit("Placement's workers did not obey")
            time.sleep(0.01)

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def meddle(self) -> None:
        """Have the next write of an inventory meet a conflict."""
        self._meddle.touch()

    # --- the log ----------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget the log."""
        self._log.write_bytes(b"")

    def answered(self) -> Sequence[Request]:
        """Return the requests that were answered since then."""
        return [Request(*json.loads(line)) for line in self._log.read_text().splitlines()]

    def counted(self) -> tuple[int, float]:
        """Return how many requests were answered, and the seconds of the processor that Placement
        took for them.
        """
        requests = self.answered()
        return len(requests), sum(request.cpu for request in requests)

    # --- the database -----------------------------------------------------------------------------

    def reset(self) -> None:
        """Delete everything that clients have written."""
        engine = create_engine(self._connection, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for table in reversed(models.BASE.metadata.sorted_tables):
                rows = " WHERE name LIKE 'CUSTOM!_%' ESCAPE '!'" if table.name in STANDARD else ""
                connection.execute(text(f"DELETE FROM {table.name}{rows}"))
            connection.execute(text("VACUUM"))
        engine.dispose()
        self.clear()


@contextmanager
def placement_on(
    backend: Backend, folder: Path, workers: int = WORKERS
) -> Iterator[BenchPlacement | None]:
    """Yield a Placement that serves; None if there is no PostgreSQL on this machine, or no
    psycopg2: with psycopg 3 Placement writes no allocation, because it asks the cursor for
    ``lastrowid``.
    """
    if backend == "sqlite":
        connection = f"sqlite:///{folder / 'placement.sqlite'}"
        with _serving(BenchPlacement(folder, connection, workers=1, in_flight=1)) as placement:
            yield placement
        return
    if not any(BINARIES.glob("*/bin/postgres")) or find_spec("psycopg2") is None:
        yield None
        return
    server = PostgreSQL(durable=True)
    try:
        connection = server.url(server.create()).replace("://", "+psycopg2://", 1)
        made = BenchPlacement(folder, connection, workers=workers, in_flight=IN_FLIGHT)
        with _serving(made) as placement:
            yield placement
    finally:
        server.remove()


@contextmanager
def _serving(placement: BenchPlacement) -> Iterator[BenchPlacement]:
    placement.start()
    try:
        yield placement
    finally:
        with suppress(OSError):
            placement.stop()
