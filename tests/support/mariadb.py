"""A real MariaDB: a private server in a folder of its own, on a Unix socket only, gone when the tests
are gone.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.support import backends
from tests.support.service_manager import until

PROGRAMS = ("mariadb-install-db", "mariadbd", "mariadb")
PR_SET_PDEATHSIG = 1


class MariaDB:
    """A server with an empty database for Placement."""

    def __init__(self) -> None:
        path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
        install, serve, self._client = (self._program(name, path) for name in PROGRAMS)
        # Not below pytest's own folder, because that one is too long for a socket's name.
        self._folder = Path(tempfile.mkdtemp(prefix="cnag-my-"))
        (self._folder / "tmp").mkdir()
        places = [
            "--no-defaults",
            f"--datadir={self._folder / 'data'}",
            f"--tmpdir={self._folder / 'tmp'}",
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]
        made = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        subprocess.run([install, *places, *made], capture_output=True, check=True)
        # A crash of the machine is none of the tests' business.
        alone = ["--skip-networking", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0"]
        # A test run that is killed takes its server along.
        kernel = ctypes.CDLL(None)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    serve,
                    *places,
                    *alone,
                    f"--socket={self._socket}",
                    f"--pid-file={self._socket}.pid",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        until(lambda: self._runs("CREATE DATABASE placement"), self._log.read_text)

    @staticmethod
    def _program(name: str, path: str) -> str:
        found = shutil.which(name, path=path)
        if found is None:
            backends.missing("MariaDB", "apt-get install mariadb-server", f"there is no {name}")
        return found

    @property
    def _socket(self) -> Path:
        return self._folder / "socket"

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    @property
    def url(self) -> str:
        """The URL of the database, as for ``[placement_database] connection``."""
        return f"mysql+pymysql://root@localhost/placement?unix_socket={self._socket}"

    def _runs(self, statement: str) -> bool:
        command = [self._client, "--no-defaults", "--user=root", f"--socket={self._socket}"]
        done = subprocess.run([*command, "-e", statement], capture_output=True, check=False)
        return done.returncode == 0

    def remove(self) -> None:
        """End it for good."""
        self._process.kill()
        self._process.wait(60)
        shutil.rmtree(self._folder)
