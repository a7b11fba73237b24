"""nova's own compute API on loopback, in a process of a Python that has nova, with databases of its
own.
"""

import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import requests

from tests.support import stopped
from tests.support.child import CHECKOUT, READY
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Value, write_config

NOVA = os.environ.get("NOVA_PYTHON")
START_DEADLINE = 300


class NovaApi:
    """Started, held, and told what its databases have."""

    def __init__(self, folder: Path, placement: HttpPlacement) -> None:
        self._folder, self._log = folder, folder / "requests.jsonl"
        self._config = write_config(
            folder / "nova.conf",
            {
                "DEFAULT": {"state_path": folder, "transport_url": "fake:///"},
                "api_database": {"connection": self._database("api")},
                "database": {"connection": self._database("cell")},
                # Pages of a few records, so that there is more than one.
                "api": {"max_limit": 3},
                "placement": placement.credentials(),
            },
        )
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def _database(self, name: str) -> str:
        return f"sqlite:///{self._folder}/{name}.sqlite"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v2.1"

    def credentials(self, token: str = "admin") -> dict[str, Value]:
        """``[nova]`` of a client."""
        return {"auth_type": "admin_token", "endpoint": self.url, "token": token}

    def start(self) -> None:
        """Create the databases with one cell, and serve."""
        self._manage("api_db", "sync")
        self._manage("cell_v2", "map_cell0", "--database_connection", self._database("cell0"))
        self._manage("db", "sync")
        self._manage("cell_v2", "create_cell", "--transport-url", "fake:///")
        self._log.write_text("")
        with (self._folder / "nova.output").open("ab") as output:
            process = subprocess.Popen(
                [str(NOVA), "-W", "ignore", str(CHECKOUT / "tests/functional/nova/serve_nova.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=self._folder,
            )
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        told = {"config_file": str(self._config), "log": str(self._log), "port": 0}
        process.stdin.write(json.dumps(told) + "\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], START_DEADLINE)[0], "nova does not serve"
        line = process.stdout.readline()
        assert line.startswith(READY), (self._folder / "nova.output").read_text()[-4000:]
        self.port = int(line.removeprefix(READY))

    def stop(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def suspend(self) -> None:
        """Take connections but answer nothing, until ``resume``."""
        assert self._process is not None
        stopped.stop(self._process.pid)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    @property
    def requests(self) -> list[str]:
        """The requests to its API, without their queries."""
        found = []
        for line in self._log.read_text().splitlines():
            one = json.loads(line)
            found.append(f"{one['method']} {one['path'].partition('?')[0]}")
        return found

    def clear(self) -> None:
        """Forget the requests."""
        self._log.write_text("")

    def has(self, **records: Any) -> None:
        """Write records into its databases."""
        base = self.url.removesuffix("/v2.1")
        answer = requests.put(f"{base}/records", json=records, timeout=60)
        assert answer.status_code == 204, answer.text

    def _manage(self, *arguments: str) -> None:
        command = Path(str(NOVA)).parent / "nova-manage"
        words = [str(command), "--config-file", str(self._config), *arguments]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
        assert ran.returncode == 0, ran
