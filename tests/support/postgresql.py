"""A real PostgreSQL: a private cluster in a folder of its own, on a Unix socket only, gone when the
tests are gone.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from tests.support import backends

BINARIES = Path("/usr/lib/postgresql")
USER = "agent"
ASKED, PASSWORD = "asked", "a $ecret:@/% of the tests"
"""A role that has to give its password, which is awkward in a URL; ``USER`` has none."""
# initdb and postgres refuse to run as root.
NOBODY = 65534
START_DEADLINE = 120.0
PR_SET_PDEATHSIG = 1

# Without fsync, because a crash of the machine is none of the tests' business; kill -9 of any
# process is.
SETTINGS = {
    "listen_addresses": "''",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "16MB",
    "autovacuum": "off",
    "log_min_messages": "warning",
}
DURABLE = {"fsync": "on", "full_page_writes": "on"}


def require() -> Path:
    """The folder of the newest server's programs; without one the present test is skipped, or
    fails.
    """
    found = sorted(BINARIES.glob("*/bin/postgres"), key=lambda program: int(program.parts[-3]))
    if not found:
        backends.missing(
            "PostgreSQL", "apt-get install postgresql", f"there is no PostgreSQL in {BINARIES}"
        )
    return found[-1].parent


class PostgreSQL:
    """A cluster. Databases are made and dropped in it; it may be killed and started again, and
    keeps them.

    ``durable``: it also keeps them if the machine crashes, which takes time.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._binaries = require()
        # Not below pytest's own folder, because that one is closed to anybody else, and too long
        # for a socket's name.
        self.folder = Path(tempfile.mkdtemp(prefix="cnag-pg-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0
        self._uid = NOBODY if os.geteuid() == 0 else os.geteuid()
        os.chown(self.folder, self._uid, -1)
        self._run(
            "initdb",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
            "--auth=trust",
            f"--username={USER}",
            str(self._data),
        )
        (self._data / "pg_hba.conf").write_text(
            f"local all {ASKED} scram-sha-256\nlocal all {USER} trust\n"
        )
        settings = {**SETTINGS, **(DURABLE if durable else {})}
        (self._data / "postgresql.conf").write_text(
            "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        self.start()
        with self.connected() as connection:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                    sql.Identifier(ASKED), sql.Literal(PASSWORD)
                )
            )

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None, "PostgreSQL is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url(self, database: str, user: str = USER) -> str:
        """The URL of one of its databases, as for ``[store] connection``."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def connected(self, database: str = "postgres") -> "psycopg.Connection[tuple[object, ...]]":
        """A connection for the test's own statements, each its own transaction."""
        return psycopg.connect(host=str(self.folder), user=USER, dbname=database, autocommit=True)

    def create(self, template: str = "template1") -> str:
        """Make a database of a name not used before, a copy of ``template``; its name."""
        self._number += 1
        name = f"test_{self._number}"
        with self.connected() as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(template)
                )
            )
        return name

    def drop(self, database: str) -> None:
        """Drop a database; who is connected to it loses the connection."""
        with self.connected() as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))
            )

    def start(self) -> None:
        """Serve; after a kill that includes recovery."""
        assert not self.running, "PostgreSQL is running already"
        # On Linux only, as the agent itself: a test run that is killed takes its server along.
        kernel = ctypes.CDLL(None)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-k", self.folder],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                user=self._uid,
                preexec_fn=lambda: kernel.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT),
            )
        deadline = time.monotonic() + START_DEADLINE
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                raise AssertionError(
                    "PostgreSQL did not start; it "
                    f"said:\n{(self.folder / 'log').read_text()[-4000:]}"
                )
            time.sleep(0.02)

    def stop(self) -> None:
        """Finish transactions by rolling them back, and end."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End at once, in the middle of whatever goes on, as a crash would."""
        self._end(signal.SIGQUIT)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside, it takes connections and whatever is sent on them, and answers nothing."""
        held = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        for process in held:
            process.suspend()
        try:
            yield
        finally:
            for process in held:
                process.resume()

    def remove(self) -> None:
        """End it for good."""
        self.kill()
        shutil.rmtree(self.folder)

    def _answers(self) -> bool:
        try:
            self.connected().close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            user=self._uid,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
