"""A driver from another distribution than the agent's: ``fake.file`` that tells of a change when
told to.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from agent.driver.interface import HostContext
from drivers.fake.file import FileDriver
from tests.support import distribution

NAME = "telling"
CHANGED = Path("changed")
"""When this file appears in the agent's working folder, every node has changed, many times over; the driver takes the file away."""

HANGING = 3
"""How many calls of its own it says it has left to themselves."""


class TellingDriver(FileDriver):
    @property
    def hanging(self) -> int:
        return HANGING

    def start(self, host: HostContext) -> None:
        super().start(host)
        self._stopped = threading.Event()

    def subscribe(self, changed: Callable[[str], None]) -> None:
        threading.Thread(target=self._watch, args=[changed], daemon=True).start()

    def stop(self) -> None:
        super().stop()
        self._stopped.set()

    def _watch(self, changed: Callable[[str], None]) -> None:
        while not self._stopped.is_set():
            if CHANGED.exists():
                CHANGED.unlink()
                for _ in range(1000):
                    for name in self.nodes().values():
                        changed(name)
            time.sleep(0.02)


def install(folder: Path) -> Path:
    """Install it as pip would, into a folder of its own for PYTHONPATH; that folder."""
    return distribution.install(folder, "telling-driver", {NAME: f"{__name__}:TellingDriver"})
