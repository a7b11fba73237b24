"""nova's own tracker in a process of its own, one period at a time."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config, write_config

NOVA = os.environ.get("NOVA_PYTHON")
"""A Python that has nova 34; None if there is none."""


class NovaTracker:
    """nova's tracker of the node ``uuid`` on a host. ``devices``: for the driver for libvirt, the
    guest of each address; None for a fake driver. ``enter``: the command that starts it somewhere.
    """

    def __init__(
        self,
        folder: Path,
        placement: HttpPlacement,
        options: Config,
        uuid: str,
        host: str,
        devices: Mapping[str, str] | None = None,
        enter: Sequence[str] = (),
    ) -> None:
        credentials = {"endpoint_override": placement.url, **placement.credentials()}
        file = write_config(folder / "nova.conf", {**options, "placement": credentials})
        script = CHECKOUT / "tests" / "support" / "nova_tracker.py"
        words = [str(NOVA), "-W", "ignore", str(script), str(file), uuid, host]
        words += [] if devices is None else [json.dumps(dict(devices))]
        self._log = folder / "nova.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*enter, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._answer() == "ready", self._log.read_text()[-4000:]

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def period(self, now: float) -> None:
        """One period at that time, in seconds: nova reads again what it has not read for longer
        than its refresh.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{now}\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert answer == "done", f"{answer}\n{self._log.read_text()[-4000:]}"

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
