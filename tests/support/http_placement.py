"""The real Placement as a process of its own, over HTTP on loopback, on a SQLite file or a database
server.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keystoneauth1.session import Session

from tests.support import dump, placement_app
from tests.support.child import Child
from tests.support.exchange import Exchange, read_json_lines
from tests.support.ini import Config, write_config
from tests.support.placement import PREFIX, SERVICE_ROLES, Placement, noauth_session


class HttpPlacement(Placement):
    """Started, stopped, killed and started again at will; the port and the database stay.

    ``keystone`` holds the ``[keystone_authtoken]`` of a server that asks keystone, and
    ``admin_session`` then makes the session for the test's own requests. ``requests`` are those
    Placement answered, in the order of the answers. ``uwsgi``: the kind of socket of a real uWSGI
    that it is to run in, with all its defaults but further options of the command line.
    ``connection``: the URL of an empty database on a server, in place of the file; then ``reset``,
    ``dump``, ``save`` and ``restore`` are for others.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_version: str | None = None,
        threads: int = 4,
        keystone: Config | None = None,
        admin_session: Callable[[], Session] | None = None,
        uwsgi: Sequence[str] = (),
        connection: str = "",
    ) -> None:
        self.max_version = max_version
        self.port = 0
        self._threads = threads
        self._admin_session = admin_session
        self._database = folder / "placement.sqlite"
        self._log = folder / "requests.jsonl"
        self._config = write_config(
            folder / "placement.conf",
            {
                "placement_database": {
                    "connection": connection or f"sqlite:///{self._database}",
                    "sqlite_synchronous": False,
                    "sync_on_startup": bool(connection),
                },
                "api": {"auth_strategy": "keystone" if keystone else "noauth2"},
                **(keystone or {}),
            },
        )
        module = "tests.support.serve_uwsgi" if uwsgi else "tests.support.serve_placement"
        self.uwsgi = uwsgi
        self._child = Child(module, folder / "placement.output")
        self.reset()

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def database(self) -> bytes:
        """The database's file, byte by byte."""
        return self._database.read_bytes()

    @property
    def running(self) -> bool:
        return self._child.running

    def start(self) -> None:
        """Serve, on the port of the last time."""
        self.port = self._child.start(
            {
                "config_file": str(self._config),
                "log": str(self._log),
                "port": self.port,
                "threads": self._threads,
                "prefix": PREFIX,
                "max_version": self.max_version,
                "uwsgi": self.uwsgi,
            }
        )

    def stop(self) -> None:
        """End the process in order."""
        self._child.stop()

    def kill(self) -> None:
        """End the process at once, whatever it is doing."""
        self._child.kill()

    def suspend(self) -> None:
        """Take connections but answer nothing, until ``resume``."""
        self._child.suspend()

    def resume(self) -> None:
        self._child.resume()

    def session(self, roles: str = SERVICE_ROLES) -> Session:
        return self._admin_session() if self._admin_session else noauth_session(self.url, roles)

    @property
    def requests(self) -> list[Exchange]:
        return read_json_lines(self._log.read_text().splitlines())

    def clear(self) -> None:
        """Forget the log."""
        self._log.write_text("")

    def reset(self) -> None:
        """Back to empty, log and database, also while the process runs."""
        with contextlib.closing(sqlite3.connect(self._database)) as database:
            placement_app.copy_template(database)
        self.clear()

    def dump(self) -> dict[str, Any]:
        with contextlib.closing(sqlite3.connect(self._database)) as database:
            return dump.dump(database)

    def age(self, consumer: str, seconds: int) -> None:
        """Make an allocation that much older."""
        with contextlib.closing(sqlite3.connect(self._database)) as database, database:
            database.execute(
                "UPDATE allocations SET created_at = datetime(created_at, :by), "
                "updated_at = datetime(updated_at, :by) WHERE consumer_id = :consumer",
                {"by": f"-{seconds} seconds", "consumer": consumer},
            )

    def save(self, copy: Path) -> None:
        """Back up the database."""
        self._copy(self._database, copy)

    def restore(self, copy: Path) -> None:
        """Bring an older database back, as an operator does after a loss."""
        self._copy(copy, self._database)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        with (
            contextlib.closing(sqlite3.connect(source)) as old,
            contextlib.closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
